"""The runtime for many machines: Temporal assigns turns to workers, and replaces workers that die.

A segment of a turn is a workflow with one activity, whose heartbeats show that its worker lives. Temporal stores a
turn's id, its agent's name, and how it ended. The journal has everything else, and makes every decision.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

import anyio
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from turnwright.errors import ConfigError, RuntimeUnavailableError
from turnwright.runtime.protocol import BoundRuntime, Job

from .names import AGENT, PATIENCE, SEARCHABLE, SUBMITTED, TURN_WORKFLOW, workflow_id
from .worker import TemporalWorker, has_attributes

#: The time limit of one request to the server.
_RPC: Final = timedelta(seconds=10)
#: Seconds after which a namespace is asked again for missing search attributes.
_ASK_AGAIN: Final = 60.0
_TEXTS: Final = re.compile(r'(?:message|error): "([^"]+)"')
_AGENT: Final = SearchAttributeKey.for_keyword(AGENT)
_FAILURES: Final = {
    WorkflowExecutionStatus.FAILED: "it failed",
    WorkflowExecutionStatus.TERMINATED: "it was terminated",
    WorkflowExecutionStatus.TIMED_OUT: "it timed out",
}


class Temporal(BoundRuntime):
    """Runs turns on workers of the Temporal server at `address` (host:port).

    Without `address`, and for all other settings (an API key, TLS, certificates), Temporal's own environment variables
    and configuration file apply (`TEMPORAL_ADDRESS`, `TEMPORAL_API_KEY`, ...).

    `queue` is the task queue, except for the agents in `queues`, by name. A worker takes from the queues in `serves`,
    by default from all of these. From each it drives at most `concurrency` turns at once and starts at most `rate` a
    second; all workers of a queue together start `queue_rate`. A stopping worker gives turns `drain` seconds. A worker
    sends a heartbeat every `heartbeat` seconds, and is abandoned after `patience` seconds without one. Every `sweep`
    seconds unsubmitted turns are looked for, on `queue` only.

    `search_attributes` says whether agent, outcome and reason can be searched for in Temporal. The default is whether
    the namespace has them; a worker tries to create them. Create them by hand where that is forbidden, as in Temporal
    Cloud.

    Use it from one asyncio event loop. Raises `ConfigError` for a number out of range, and for an unreadable Temporal
    configuration. See docs/rules.md#drivers.
    """

    embedded = False

    def __init__(
        self,
        address: str | None = None,
        *,
        namespace: str | None = None,
        queue: str = "turnwright",
        queues: Mapping[str, str] | None = None,
        serves: Sequence[str] = (),
        concurrency: int = 100,
        rate: float | None = None,
        queue_rate: float | None = None,
        drain: float = 30.0,
        sweep: float = 30.0,
        heartbeat: float = 2.0,
        patience: float = 10.0,
        search_attributes: bool | None = None,
    ) -> None:
        if queues is not None and not isinstance(queues, Mapping):
            raise ConfigError(f"queues must map agent names to task queues, not {queues!r}")
        _check(concurrency=concurrency, rate=rate, queue_rate=queue_rate, sweep=sweep, heartbeat=heartbeat)
        if drain < 0 or patience <= heartbeat:
            raise ConfigError(
                f"patience ({patience:g} s) must be longer than heartbeat ({heartbeat:g} s), drain at least 0"
            )
        self._address = address
        self._namespace = namespace
        self._queue = queue
        self._queues = dict(queues or {})
        self._patience = patience
        self._make_worker = partial(
            TemporalWorker,
            queue=queue,
            serves=tuple(serves) or tuple(dict.fromkeys((queue, *self._queues.values()))),
            concurrency=concurrency,
            rate=rate,
            queue_rate=queue_rate,
            drain=drain,
            sweep=sweep,
            heartbeat=heartbeat,
            patience=patience,
        )
        self._search_attributes = search_attributes
        self._searchable = bool(search_attributes)
        #: When the namespace is asked again for its search attributes.
        self._asks_again = 0.0
        self._client: Client | None = None
        self._working = False
        self._connecting = anyio.Lock()

    async def submit(self, turn_id: str, segment: int) -> None:
        """See `Runtime.submit`: the job is started, or signaled if it is running."""
        await self._start(await self._work.job(turn_id), segment, signal=SUBMITTED)

    async def cancel(self, turn_id: str) -> None:
        """See `Runtime.cancel`: the job is canceled, if there is one."""
        job = await self._work.job(turn_id)
        client = await self._connect_once()
        try:
            await client.get_workflow_handle(workflow_id(turn_id, job.segment)).cancel(rpc_timeout=_RPC)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise self._unavailable(error) from error

    async def failure(self, turn_id: str, segment: int) -> str | None:
        """See `Runtime.failure`: why the job failed, unless it was started again."""
        client = await self._connect_once()
        handle = client.get_workflow_handle(workflow_id(turn_id, segment))
        failure: str | None = None
        try:
            description = await handle.describe(rpc_timeout=_RPC)
            failure = _FAILURES.get(description.status or WorkflowExecutionStatus.RUNNING)
            if failure is not None:
                run = client.get_workflow_handle(handle.id, run_id=description.run_id)
                await run.result(follow_runs=False, rpc_timeout=_RPC)
        except WorkflowFailureError as error:
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            failure = f"{failure}: {cause}" if str(cause) else failure
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise self._unavailable(error) from error
            return None
        return None if failure is None else f"its job {workflow_id(turn_id, segment)} in Temporal: {failure}"

    async def run_worker(self, stopping: anyio.Event | None = None) -> None:
        """See `Runtime.run_worker`. It waits for a server that was reached before."""
        if self._working:
            raise ConfigError("this runtime already has a running worker, which serves all of its queues")
        client = await self._connect_once(prepare=True)
        worker = self._make_worker(client, self._work, self._start_unless_running)
        self._working = True
        try:
            await worker.run(anyio.Event() if stopping is None else stopping)
        except (RPCError, RuntimeError) as error:
            raise self._unavailable(error) from error
        finally:
            self._working = False

    async def aclose(self) -> None:
        """See `Runtime.aclose`. The client's connections end with the client."""
        self._client = None

    async def _start_unless_running(self, job: Job) -> bool:
        try:
            await self._start(job, job.segment)
        except WorkflowAlreadyStartedError:
            return False
        return True

    async def _start(self, job: Job, segment: int, *, signal: str | None = None) -> None:
        client = await self._connect_once()
        pairs = [SearchAttributePair(_AGENT, job.agent)] if self._searchable else []
        try:
            await client.start_workflow(
                TURN_WORKFLOW,
                job.turn,
                id=workflow_id(job.turn, segment),
                task_queue=self._queues.get(job.agent, self._queue),
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.UNSPECIFIED if signal else WorkflowIDConflictPolicy.FAIL,
                start_signal=signal,
                memo={PATIENCE: self._patience, SEARCHABLE: self._searchable},
                search_attributes=TypedSearchAttributes(pairs),
                # A workflow task is short. A stalled worker's task goes to another worker.
                task_timeout=timedelta(seconds=self._patience / 2),
                rpc_timeout=_RPC,
            )
        except RPCError as error:
            if pairs and error.status is RPCStatusCode.INVALID_ARGUMENT and not self._search_attributes:
                # The server does not know the attributes yet. The turn does not wait for that.
                self._searchable = False
                await self._start(job, segment, signal=signal)
                return
            raise self._unavailable(error) from error

    async def _connect_once(self, *, prepare: bool = False) -> Client:
        """Return the connected client. `prepare` asks the namespace for the search attributes."""
        async with self._connecting:
            if self._client is None:
                self._client = await self._connect()
            now = anyio.current_time()
            if prepare or (self._search_attributes is None and not self._searchable and now >= self._asks_again):
                self._asks_again = now + _ASK_AGAIN
                try:
                    has_them = await has_attributes(self._client, make=prepare and self._search_attributes is not False)
                except RPCError as error:
                    raise self._unavailable(error) from error
                self._searchable = has_them if self._search_attributes is None else self._search_attributes
            return self._client

    async def _connect(self) -> Client:
        try:
            config = ClientConfig.load_client_connect_config()
        except (RuntimeError, ValueError) as error:
            raise ConfigError(f"Temporal's own configuration cannot be read: {error}") from error
        if self._address is not None:
            config["target_host"] = self._address
        if self._namespace is not None:
            config["namespace"] = self._namespace
        self._address = config["target_host"] = config.get("target_host", "localhost:7233")
        try:
            return await Client.connect(**config)
        except ValueError as error:
            raise ConfigError(f"Temporal's address {self._address!r} is not HOST:PORT: {error}") from error
        except (RuntimeError, OSError) as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> RuntimeUnavailableError:
        # The client quotes its library's whole message. The cause is in its last text.
        texts = _TEXTS.findall(str(error))
        return RuntimeUnavailableError(f"Temporal at {self._address}: {texts[-1] if texts else error}")


def _check(**numbers: float | None) -> None:
    for name, number in numbers.items():
        if number is not None and not number > 0:
            raise ConfigError(f"{name} must be a number above 0, not {number!r}")
