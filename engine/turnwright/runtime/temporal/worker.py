"""A Temporal worker process: its queues, and what a namespace must have."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final

import anyio
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from turnwright._base.version import VERSION
from turnwright.runtime.protocol import Job, WorkerApi

from .activities import Activities
from .names import ATTRIBUTES, SWEEP_WORKFLOW, schedule_id
from .workflow import SweepWorkflow, TurnWorkflow

#: Seconds between checks of the schedule.
_LOOK_AFTER: Final = 5.0
_NOT_ALLOWED: Final = frozenset({RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED})
_LOG = logging.getLogger(__name__)


class TemporalWorker:
    """Drives the turns of the queues that it serves. The arguments are those of `Temporal`.

    `start` starts a job unless it is running, and returns whether it did.
    """

    def __init__(
        self,
        client: Client,
        work: WorkerApi,
        start: Callable[[Job], Awaitable[bool]],
        *,
        queue: str,
        serves: Sequence[str],
        concurrency: int,
        rate: float | None,
        queue_rate: float | None,
        drain: float,
        sweep: float,
        heartbeat: float,
        patience: float,
    ) -> None:
        self._client = client
        self._queue = queue
        self._sweep = sweep
        self._activities = Activities(work, start, beat=heartbeat, idle=patience)
        # Histories are short and cheap to replay. A cache would bind a workflow to its worker: after a crash, others
        # would wait ten seconds before they continue it.
        self._workers = [
            Worker(
                client,
                task_queue=name,
                workflows=[TurnWorkflow, SweepWorkflow],
                activities=[self._activities.drive, self._activities.abort, self._activities.sweep],
                max_cached_workflows=0,
                # Without it the SDK reads every loaded module to compute an id.
                build_id=f"turnwright-{VERSION}",
                max_concurrent_activities=concurrency,
                max_activities_per_second=rate,
                max_task_queue_activities_per_second=queue_rate,
                graceful_shutdown_timeout=timedelta(seconds=drain),
                # Heartbeats carry the owner's name, and must not be delayed.
                max_heartbeat_throttle_interval=timedelta(seconds=heartbeat),
                default_heartbeat_throttle_interval=timedelta(seconds=heartbeat),
            )
            for name in serves
        ]

    async def run(self, stopping: anyio.Event) -> None:
        """Work until `stopping` is set and the turns have ended, paused or were released; or until canceled.

        Raises what the SDK raises if it cannot go on, for example because the namespace is gone.
        """
        schedule = asyncio.create_task(self._have_schedule())
        running = [asyncio.create_task(worker.run()) for worker in self._workers]
        stop = asyncio.create_task(stopping.wait())
        endings: list[BaseException | None] = []
        try:
            await asyncio.wait([stop, *running], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*(worker.shutdown() for worker in self._workers))
        except asyncio.CancelledError:
            self._activities.release_all()
            raise
        finally:
            stop.cancel()
            schedule.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.gather(*(worker.shutdown() for worker in self._workers))
                endings = await asyncio.gather(*running, return_exceptions=True)
        for error in endings:
            if isinstance(error, Exception):
                raise error

    async def _have_schedule(self) -> None:
        """Keep the schedule for sweeps, even after it was deleted or the server's data was lost."""
        if self._queue not in [worker.task_queue for worker in self._workers]:
            return
        while True:
            try:
                await keep_schedule(self._client, self._queue, self._sweep)
            except RPCError as error:
                _LOG.warning("the schedule that sweeps for abandoned turns could not be checked: %s", error)
            await asyncio.sleep(max(self._sweep, _LOOK_AFTER))


async def has_attributes(client: Client, *, make: bool) -> bool:
    """Whether the namespace has the search attributes. With `make`, missing ones are created first.

    A server that forbids the question counts as having none. Raises `RPCError` if it cannot be reached.
    """
    try:
        attributes = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace), timeout=timedelta(seconds=10)
        )
        missing = [name for name in ATTRIBUTES if name not in attributes.custom_attributes]
        if missing and make:
            kinds = dict.fromkeys(missing, IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD)
            await client.operator_service.add_search_attributes(
                AddSearchAttributesRequest(namespace=client.namespace, search_attributes=kinds),
                timeout=timedelta(seconds=10),
            )
            missing = []
    except RPCError as error:
        if error.status is RPCStatusCode.ALREADY_EXISTS:
            return True
        if error.status in _NOT_ALLOWED:
            _LOG.warning("Temporal has no search attributes for turns, or forbids the question: %s", error)
            return False
        raise
    return not missing


async def keep_schedule(client: Client, queue: str, every: float) -> None:
    """Schedule a sweep on the queue every `every` seconds. Other workers may schedule the same one.

    Raises `RPCError`.
    """
    schedule = Schedule(
        action=ScheduleActionStartWorkflow(SWEEP_WORKFLOW, id=schedule_id(queue), task_queue=queue),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(seconds=every))]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=timedelta(seconds=60)),
    )
    try:
        await client.create_schedule(schedule_id(queue), schedule)
    except ScheduleAlreadyRunningError:

        async def update_schedule(update: ScheduleUpdateInput) -> ScheduleUpdate | None:
            current = update.description.schedule  # an operator may have paused it
            if current.spec.intervals == schedule.spec.intervals:
                return None
            current.spec = schedule.spec
            return ScheduleUpdate(current)

        await client.get_schedule_handle(schedule_id(queue)).update(update_schedule)
