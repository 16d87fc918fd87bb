"""The runtime of one machine: who runs a turn drives it, and a worker is what takes up the rest.

The journal is all the queue there is: a turn that nobody drives and that need not wait is found in the store, by any
worker of any process. Nothing is asked of a service; and there are no rates, no routing, and no look at what runs but
the store's own.
"""

import logging
from random import shuffle
from typing import Final

import anyio

from turnwright._base.background_task import background_task
from turnwright.errors import ConfigError, LeaseLostError, StoreError, TurnBusyError, TurnNotFoundError, TurnwrightError

from .protocol import Job, WorkerApi

#: Seconds for which a turn is not looked at again that cannot be driven here; and at most, where the store failed.
_ALONE: Final = 60.0

_LOG = logging.getLogger(__name__)


class Local:
    """Turns are driven where they are run. A worker drives those that were only submitted, or left behind.

    With `embedded=False` who runs a turn leaves it to the workers too, and follows its journal.

    A worker drives at most `concurrency` turns at once, looks for others every `every` seconds (at once for what is
    submitted in its own process), and when it is to stop gives those that run `drain` seconds before it lets go of
    them. Any number of workers may share a store. Raises `ConfigError` for a number that is out of range.
    """

    def __init__(self, *, embedded: bool = True, concurrency: int = 8, every: float = 1.0, drain: float = 30.0) -> None:
        if concurrency < 1:
            raise ConfigError(f"concurrency is how many turns a worker drives at once, at least 1, not {concurrency}")
        if not every > 0 or not drain >= 0:
            raise ConfigError(f"every (above 0) and drain (0 or more) are seconds, not {every:g} and {drain:g}")
        self.embedded = embedded
        self._concurrency = concurrency
        self._every = every
        self._drain = drain
        self._bound: WorkerApi | None = None
        self._woken = anyio.Event()
        #: What was found to be due, and was not begun yet.
        self._found: list[Job] = []
        #: The turns that this worker drives.
        self._running: set[str] = set()
        #: Until when turns that cannot be driven here are left alone, and for how long that was the last time.
        self._alone: dict[str, tuple[float, float]] = {}
        #: Whether the store could not be reached the last time.
        self._lost = False

    def bind(self, work: WorkerApi) -> None:
        """See `Runtime.bind`."""
        if self._bound is not None:
            raise ConfigError("this runtime is another engine's: give each engine one of its own")
        self._bound = work

    async def submit(self, turn_id: str, segment: int) -> None:  # noqa: ARG002 (others need it)
        """See `Runtime.submit`: the journal has it already, and a worker of this process need not wait to look."""
        self._alone.pop(turn_id, None)
        self._woken.set()

    async def cancel(self, turn_id: str) -> None:
        """See `Runtime.cancel`: whoever drives the turn looks into its inbox."""

    async def failure(self, turn_id: str, segment: int) -> str | None:  # noqa: ARG002 (others can tell)
        """See `Runtime.failure`: another worker may always come."""
        return None

    async def run_worker(self, stopping: anyio.Event | None = None) -> None:
        """See `Runtime.run_worker`. A store that cannot be reached is waited for."""
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
                failures.append(error)  # raised below, without a group around it
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
        if not self._found:
            await self._look()
        now = anyio.current_time()
        while self._found and len(self._running) < self._concurrency and not stop.is_set():
            job = self._found.pop()
            until, _ = self._alone.get(job.turn, (now, 0.0))
            if job.turn not in self._running and until <= now:
                self._running.add(job.turn)
                jobs.start_soon(self._drive, job)

    async def _look(self) -> None:
        try:
            self._found = list(await self._work.pending())
        except StoreError as error:
            if not self._lost:
                _LOG.warning("no turns are taken up until the store is back: %s", error)
            self._lost = True
            return
        self._lost = False
        # Workers that found the same turns are not all to begin with the same.
        shuffle(self._found)
        due = {job.turn for job in self._found} | self._running
        self._alone = {turn: kept for turn, kept in self._alone.items() if turn in due}

    async def _drive(self, job: Job) -> None:
        try:
            await self._work.drive(job.turn, job.segment)
        except ConfigError as error:
            self._leave_alone(job, _ALONE, error)
        except StoreError as error:
            # The store may be back in a moment; a journal that cannot be read stays as it is.
            _, before = self._alone.get(job.turn, (0.0, 0.0))
            self._leave_alone(job, min(max(self._every, 2 * before), _ALONE), error)
        except (TurnBusyError, LeaseLostError, TurnNotFoundError):
            pass  # another worker has it, or it was deleted
        except Exception:  # noqa: BLE001 (the worker has other turns too)
            _LOG.exception("turn %s is left alone for %g s: this is a bug", job.turn, _ALONE, extra={"turn": job.turn})
            self._alone[job.turn] = (anyio.current_time() + _ALONE, _ALONE)
        else:
            self._alone.pop(job.turn, None)
        finally:
            self._running.discard(job.turn)
            self._woken.set()

    def _leave_alone(self, job: Job, seconds: float, why: Exception) -> None:
        _LOG.warning("turn %s is left alone for %g s: %s", job.turn, seconds, why, extra={"turn": job.turn})
        self._alone[job.turn] = (anyio.current_time() + seconds, seconds)
