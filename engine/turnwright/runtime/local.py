"""The runtime without a service: the task that runs a turn drives it, and workers drive the rest.

The journal is the only queue: any worker of any process finds turns in the store that nobody drives and that need not
wait. There are no rates, no routing, and no monitoring but the store's own.
"""

import logging
from random import shuffle
from typing import Final

import anyio

from turnwright._base.background_task import background_task
from turnwright.errors import (
    CannotRunError,
    ConfigError,
    LeaseLostError,
    StoreError,
    TurnBusyError,
    TurnNotFoundError,
    TurnwrightError,
)

from .protocol import Job, WorkerApi

#: Seconds for which a turn that cannot be driven here is skipped, and the maximum after failures of the store.
_SKIP_SECONDS: Final = 60.0

_LOG = logging.getLogger(__name__)


class Local:
    """Drives turns in the task that runs them. A worker drives submitted and abandoned turns.

    With `embedded=False`, turns that are run are left to the workers too, and their journal is followed.

    A worker drives at most `concurrency` turns at once, and looks for others every `every` seconds, or at once after a
    submission in its own process. When it stops, running turns have `drain` seconds until they are released. Any number
    of workers may share a store. Raises `ConfigError` for a number out of range.
    """

    def __init__(self, *, embedded: bool = True, concurrency: int = 8, every: float = 1.0, drain: float = 30.0) -> None:
        if concurrency < 1:
            raise ConfigError(f"concurrency must be at least 1, not {concurrency}")
        if not every > 0 or not drain >= 0:
            raise ConfigError(f"every must be above 0 and drain at least 0 seconds, not {every:g} and {drain:g}")
        self.embedded = embedded
        self._concurrency = concurrency
        self._every = every
        self._drain = drain
        self._bound: WorkerApi | None = None
        self._woken = anyio.Event()
        #: Turns that were found to be due, and are not started yet.
        self._due: list[Job] = []
        #: The turns that this worker drives.
        self._running: set[str] = set()
        #: Skipped turns: until when, and for how long the last time.
        self._skipped: dict[str, tuple[float, float]] = {}
        #: Whether the store could not be reached the last time.
        self._lost = False

    def bind(self, work: WorkerApi) -> None:
        """See `Runtime.bind`."""
        if self._bound is not None:
            raise ConfigError("this runtime belongs to another engine: give each engine its own")
        self._bound = work

    async def submit(self, turn_id: str, segment: int) -> None:  # noqa: ARG002 (other runtimes need it)
        """See `Runtime.submit`: the journal has the turn, and a worker of this process looks at once."""
        self._skipped.pop(turn_id, None)
        self._woken.set()

    async def cancel(self, turn_id: str) -> None:
        """See `Runtime.cancel`: the driver reads its inbox."""

    async def failure(self, turn_id: str, segment: int) -> str | None:  # noqa: ARG002 (other runtimes need it)
        """See `Runtime.failure`: another worker may always come."""
        return None

    async def run_worker(self, stopping: anyio.Event | None = None) -> None:
        """See `Runtime.run_worker`. If the store cannot be reached, it waits."""
        stop = anyio.Event() if stopping is None else stopping
        failures: list[TurnwrightError] = []
        async with background_task(self._wake, stop), anyio.create_task_group() as jobs:
            try:
                while not stop.is_set():
                    self._woken = anyio.Event()
                    await self._begin_some(jobs, stop)
                    with anyio.move_on_after(self._every):
                        await self._woken.wait()
                jobs.cancel_scope.deadline = anyio.current_time() + self._drain
            except TurnwrightError as error:
                failures.append(error)  # raised below, without an exception group
                jobs.cancel_scope.cancel()
        if failures:
            raise failures[0]

    async def aclose(self) -> None:
        """See `Runtime.aclose`."""

    @property
    def _work(self) -> WorkerApi:
        if self._bound is None:
            raise ConfigError("this runtime belongs to no engine: give it to one, Engine(runtime=...)")
        return self._bound

    async def _wake(self, stop: anyio.Event) -> None:
        await stop.wait()
        self._woken.set()

    async def _begin_some(self, jobs: anyio.abc.TaskGroup, stop: anyio.Event) -> None:
        if len(self._running) >= self._concurrency:
            return
        if not self._due:
            await self._look()
        now = anyio.current_time()
        while self._due and len(self._running) < self._concurrency and not stop.is_set():
            job = self._due.pop()
            until, _ = self._skipped.get(job.turn, (now, 0.0))
            if job.turn not in self._running and until <= now:
                self._running.add(job.turn)
                jobs.start_soon(self._drive, job)

    async def _look(self) -> None:
        try:
            self._due = list(await self._work.pending())
        except StoreError as error:
            if not self._lost:
                _LOG.warning("no turn is resumed until the store can be reached again: %s", error)
            self._lost = True
            return
        self._lost = False
        # Shuffled, so that workers that found the same turns do not start with the same one.
        shuffle(self._due)
        due = {job.turn for job in self._due} | self._running
        self._skipped = {turn: wait for turn, wait in self._skipped.items() if turn in due}

    async def _drive(self, job: Job) -> None:
        try:
            await self._work.drive(job.turn, job.segment)
        except (ConfigError, StoreError) as error:
            if isinstance(error, StoreError) or (isinstance(error, CannotRunError) and error.may_pass):
                # It may pass in a moment, but an unreadable journal stays unreadable.
                _, before = self._skipped.get(job.turn, (0.0, 0.0))
                self._skip(job, min(max(self._every, 2 * before), _SKIP_SECONDS), error)
            else:
                self._skip(job, _SKIP_SECONDS, error)
        except (TurnBusyError, LeaseLostError, TurnNotFoundError):
            pass  # another worker has it, or it was deleted
        except Exception:  # noqa: BLE001 (the worker has other turns too)
            _LOG.exception(
                "turn %s is skipped for %g s: this is a bug", job.turn, _SKIP_SECONDS, extra={"turn": job.turn}
            )
            self._skipped[job.turn] = (anyio.current_time() + _SKIP_SECONDS, _SKIP_SECONDS)
        else:
            self._skipped.pop(job.turn, None)
        finally:
            self._running.discard(job.turn)
            self._woken.set()

    def _skip(self, job: Job, seconds: float, why: Exception) -> None:
        _LOG.warning("turn %s is skipped for %g s: %s", job.turn, seconds, why, extra={"turn": job.turn})
        self._skipped[job.turn] = (anyio.current_time() + seconds, seconds)
