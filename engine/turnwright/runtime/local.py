"""The runtime without a service: the task that runs a turn drives it, and workers drive the rest.

The journal is the only queue: any worker of any process finds turns in the store that nobody drives and that need not
wait. There are no rates, no routing, and no monitoring but the store's own.
"""

import logging
from collections.abc import Sequence
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
    UnreadableTurnError,
)
from turnwright.store import Claim, DueTurn

from .protocol import BoundRuntime

#: Seconds for which a turn that cannot be driven here is skipped, and the maximum after failures of the store.
_SKIP_SECONDS: Final = 60.0

_LOG = logging.getLogger(__name__)


class Local(BoundRuntime):
    """Drives turns in the task that runs them. A worker drives submitted and abandoned turns.

    With `embedded=False`, turns that are run are left to the workers too, and their journal is followed.

    A worker drives at most `concurrency` turns at once, in the order of their creation. It looks for others after a
    submission in its own process, every `every` seconds, and when a turn rests if there were as many turns as places
    the last time. When it stops, running turns have `drain` seconds until they are released. Any number of workers may
    share a store. Raises `ConfigError` for a number out of range.
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
        self._woken = anyio.Event()
        #: The turns that this worker drives.
        self._running: set[str] = set()
        #: Skipped turns: until when, and for how long the last time.
        self._skipped: dict[str, tuple[float, float]] = {}
        #: Whether the store may have had more turns than places the last time.
        self._may_have_more = False
        #: Whether the store could not be reached the last time.
        self._is_lost = False

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

    async def _wake(self, stop: anyio.Event) -> None:
        await stop.wait()
        self._woken.set()

    async def _begin_some(self, jobs: anyio.abc.TaskGroup, stop: anyio.Event) -> None:
        free = self._concurrency - len(self._running)
        if not free or stop.is_set():
            return
        due_turns = await self._claim_due(free)
        self._may_have_more = len(due_turns) == free
        for turn in due_turns:
            if turn.claim is not None:
                self._running.add(turn.row.id)
                jobs.start_soon(self._drive, turn.claim)
            else:
                self._skip_for(turn.row.id, turn.error)
                self._woken.set()  # the turns behind it are next

    async def _claim_due(self, limit: int) -> Sequence[DueTurn]:
        now = anyio.current_time()
        self._skipped = {turn: skip for turn, skip in self._skipped.items() if now < skip[0] + _SKIP_SECONDS}
        skipped_turns = [turn for turn, (until, _) in self._skipped.items() if now < until]
        try:
            due_turns = await self._work.claim_due(limit, [*skipped_turns, *self._running])
        except StoreError as error:
            if not self._is_lost:
                _LOG.warning("no turn is resumed until the store can be reached again: %s", error)
            self._is_lost = True
            return ()
        self._is_lost = False
        return due_turns

    async def _drive(self, claim: Claim) -> None:
        try:
            await self._work.drive_claimed(claim)
        except (ConfigError, StoreError) as error:
            self._skip_for(claim.turn, error)
        except (TurnBusyError, LeaseLostError, TurnNotFoundError):
            pass  # another worker has it, or it was deleted
        except Exception:  # noqa: BLE001 (the worker has other turns too)
            message = "turn %s is skipped for %g s: this is a bug"
            _LOG.exception(message, claim.turn, _SKIP_SECONDS, extra={"turn": claim.turn})
            self._skip(claim.turn, _SKIP_SECONDS)
        else:
            self._skipped.pop(claim.turn, None)
        finally:
            self._running.discard(claim.turn)
            if self._may_have_more:
                self._woken.set()

    def _skip_for(self, turn: str, error: ConfigError | StoreError | None) -> None:
        seconds = _SKIP_SECONDS
        may_pass = isinstance(error, StoreError) or (isinstance(error, CannotRunError) and error.may_pass)
        if may_pass and not isinstance(error, UnreadableTurnError):
            _, before = self._skipped.get(turn, (0.0, 0.0))
            seconds = min(max(self._every, 2 * before), _SKIP_SECONDS)
        _LOG.warning("turn %s is skipped for %g s: %s", turn, seconds, error, extra={"turn": turn})
        self._skip(turn, seconds)

    def _skip(self, turn: str, seconds: float) -> None:
        self._skipped[turn] = (anyio.current_time() + seconds, seconds)
