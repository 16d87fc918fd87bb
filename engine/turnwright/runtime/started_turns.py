"""Turns that tasks of an engine drive. The tasks end with the engine, not with the tasks that started them."""

import logging
from functools import partial

import anyio

from turnwright._base.background_task import spawn
from turnwright.driver.admission import NewTurnClaim
from turnwright.driver.dependencies import NOTHING_SUPPLIED, Supplied
from turnwright.errors import EngineClosedError, LeaseLostError, TurnBusyError, TurnwrightError
from turnwright.journal.event_bus import EventBus
from turnwright.journal.result import TurnResult

from .in_process import InProcessTurns

_LOG = logging.getLogger(__name__)


class StartedTurn:
    """A turn that a task of the engine drives.

    `new_turn` is the claim of a new turn until its first driver has ended. `supplied` is what its starter gave.
    `again`: drive the turn once more, because something was posted that its driver may not have read.
    """

    __slots__ = ("_done", "_error", "_result", "again", "id", "new_turn", "scope", "supplied", "task")

    def __init__(self, turn_id: str, new_turn: NewTurnClaim | None, supplies: Supplied) -> None:
        self.id = turn_id
        self.new_turn = new_turn
        self.supplied = supplies
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
    """Drives each turn in a task of its own, with `work`. The streams of `hub` end with the task of their turn."""

    def __init__(self, work: InProcessTurns, hub: EventBus) -> None:
        self._work = work
        self._hub = hub
        self._running: dict[str, StartedTurn] = {}

    def get(self, turn_id: str) -> StartedTurn | None:
        """Return the turn if a task drives it now."""
        return self._running.get(turn_id)

    def start(
        self, turn_id: str, new_turn: NewTurnClaim | None = None, supplies: Supplied = NOTHING_SUPPLIED
    ) -> StartedTurn:
        """Drive a turn in a new task, or once more in the task that drives it."""
        turn = self._running.get(turn_id)
        if turn is not None:
            turn.again = True
            return turn
        turn = self._running[turn_id] = StartedTurn(turn_id, new_turn, supplies)
        turn.task = spawn(partial(self._run, turn))
        return turn

    async def aclose(self) -> None:
        """Stop every task. The turns are released and can be resumed; this waits until they are."""
        running = [*self._running.values()]
        for turn in running:
            turn.scope.cancel()
        with anyio.CancelScope(shield=True):  # the store is closed next, also if the caller is canceled
            for turn in running:
                await turn.wait_for_end()

    async def _run(self, turn: StartedTurn) -> None:
        about = {"turn": turn.id}
        result: TurnResult | None = None
        failure: Exception | None = None
        try:
            with turn.scope:
                last = await self._drive(turn)
                while turn.again:
                    turn.again = False
                    last = await self._drive(turn)
                result = last
        except TurnwrightError as error:
            failure = error
            _LOG.warning("turn %s is skipped: %s", turn.id, error, extra=about)
        except Exception as error:  # noqa: BLE001 (a caller that waits gets the error)
            failure = error
            _LOG.exception("turn %s is skipped: this is a bug", turn.id, extra=about)
        finally:
            del self._running[turn.id]
            if not self._work.is_driven(turn.id):
                self._hub.close(turn.id)  # a turn without a new event would be followed for ever
            turn.end(result, failure)

    async def _drive(self, turn: StartedTurn) -> TurnResult:
        """Drive a turn until it ends or pauses. While another process drives it, wait for that one."""
        if turn.new_turn is not None:
            try:
                return await self._work.run(turn.id, turn.new_turn, None, turn.supplied)
            except (TurnBusyError, LeaseLostError):
                pass
            finally:
                turn.new_turn = None
        return await self._work.drive_or_wait(turn.id, turn.supplied)
