"""Turns that tasks of an engine drive. The tasks end with the engine, not with the tasks that started them."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from turnwright._base.detached_task import spawn
from turnwright.driver.admission import NewTurnClaim
from turnwright.driver.dependencies import NOTHING_SUPPLIED, Supplied
from turnwright.errors import EngineClosedError, TurnwrightError
from turnwright.result import TurnResult

_LOG = logging.getLogger(__name__)


class StartedTurn:
    """A turn that a task of the engine drives.

    `begun` is the claim of a new turn until its first driver has ended. `supplied` is what its starter gave. `again`:
    drive the turn once more, because something was posted that its driver may not have read.
    """

    __slots__ = ("_done", "_error", "_result", "again", "begun", "id", "scope", "supplied", "task")

    def __init__(self, turn_id: str, begun: NewTurnClaim | None, supplied: Supplied) -> None:
        self.id = turn_id
        self.begun = begun
        self.supplied = supplied
        self.again = False
        self.scope = anyio.CancelScope()
        self.task: object = None
        self._done = anyio.Event()
        self._result: TurnResult | None = None
        #: A turn that was canceled has no error of its own.
        self._error: BaseException = EngineClosedError()

    def end(self, result: TurnResult | None = None, error: BaseException | None = None) -> None:
        """Note how the driving ended, for those who wait."""
        self._result = result
        self._error = error or self._error
        self._done.set()

    async def wait(self) -> TurnResult:
        """Wait until the driving ends, and return the turn's result. Canceling the wait does not stop the turn.

        Raises the error of the driving, and `EngineClosedError` if the engine was closed meanwhile.
        """
        await self._done.wait()
        if self._result is None:
            raise self._error
        return self._result

    async def wait_for_end(self) -> None:
        """Wait until the driving ends, in whatever way."""
        await self._done.wait()


class StartedTurns:
    """Drives each turn with `drive`, in a task of its own. `ended` is called with the turn's id when a task ends."""

    def __init__(
        self,
        drive: Callable[[StartedTurn], Awaitable[TurnResult]],
        ended: Callable[[str], None],
    ) -> None:
        self._drive = drive
        self._ended = ended
        self._running: dict[str, StartedTurn] = {}

    def get(self, turn_id: str) -> StartedTurn | None:
        """Return the turn if a task drives it now."""
        return self._running.get(turn_id)

    def start(
        self, turn_id: str, begun: NewTurnClaim | None = None, supplied: Supplied = NOTHING_SUPPLIED
    ) -> StartedTurn:
        """Drive a turn in a new task, or once more in the task that drives it."""
        one = self._running.get(turn_id)
        if one is not None:
            one.again = True
            return one
        one = self._running[turn_id] = StartedTurn(turn_id, begun, supplied)
        one.task = spawn(partial(self._run, one))
        return one

    async def aclose(self) -> None:
        """Stop every task. The turns are released and can be resumed; this waits until they are."""
        running = [*self._running.values()]
        for one in running:
            one.scope.cancel()
        with anyio.CancelScope(shield=True):  # the store is closed next, also if the caller is canceled
            for one in running:
                await one.wait_for_end()

    async def _run(self, one: StartedTurn) -> None:
        about = {"turn": one.id}
        result: TurnResult | None = None
        failure: Exception | None = None
        try:
            with one.scope:
                last = await self._drive(one)
                while one.again:
                    one.again = False
                    last = await self._drive(one)
                result = last
        except TurnwrightError as error:
            failure = error
            _LOG.warning("turn %s is skipped: %s", one.id, error, extra=about)
        except Exception as error:  # noqa: BLE001 (a caller that waits gets the error)
            failure = error
            _LOG.exception("turn %s is skipped: this is a bug", one.id, extra=about)
        finally:
            del self._running[one.id]
            self._ended(one.id)
            one.end(result, failure)
