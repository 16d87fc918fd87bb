"""The turns that this process runs after an answer, a fork, a resume or a start on a page."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from turnwright.errors import LeaseLostError, TurnAlreadyEndedError, TurnBusyError, TurnNotFoundError, TurnwrightError
from turnwright.runtime.engine import Engine

if TYPE_CHECKING:
    from turnwright.runtime.handle import TurnHandle

_LOG = logging.getLogger(__name__)


class BackgroundTurns:
    """Runs turns in the background. `drives` is whether it may, with the engine's models and tools.

    `troubles` are the last errors of turns that could not run here.
    """

    def __init__(self, engine: Engine, *, drives: bool) -> None:
        self._engine = engine
        self._may_drive = drives
        self._turns: TaskGroup | None = None
        #: The turns that run here, and whether each was requested again since.
        self._driven: dict[str, bool] = {}
        self.troubles: dict[str, str] = {}

    @property
    def drives(self) -> bool:
        return self._turns is not None

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Run the requested turns during the block. Turns that still run at its end are released."""
        if not self._may_drive:
            yield
            return
        async with anyio.create_task_group() as turns:
            self._turns = turns
            try:
                yield
            finally:
                self._turns = None
                turns.cancel_scope.cancel()

    def take_on(self, turn_id: str) -> None:
        """Request a turn's run; without effect if this process runs no turns."""
        if self._turns is None:
            return
        if turn_id in self._driven:
            self._driven[turn_id] = True
        else:
            self._driven[turn_id] = False
            self._turns.start_soon(self._drive, turn_id)

    def watch(self, handle: "TurnHandle[object]") -> None:
        """Remember why a turn that the engine runs here fails, if it does."""
        if self._turns is not None:
            self._turns.start_soon(self._watch, handle)

    async def _watch(self, handle: "TurnHandle[object]") -> None:
        try:
            await handle.result()
        except (TurnBusyError, TurnAlreadyEndedError, LeaseLostError, TurnNotFoundError):
            pass  # another process runs it
        except TurnwrightError as error:
            self.troubles[handle.id] = str(error)

    async def _drive(self, turn_id: str) -> None:
        self.troubles.pop(turn_id, None)
        try:
            again = True
            # A request during a run may come too late for it, so the turn runs again.
            while again:
                self._driven[turn_id] = False
                await self._engine.resume(turn_id)
                again = self._driven[turn_id]
        except (TurnBusyError, TurnAlreadyEndedError, LeaseLostError, TurnNotFoundError):
            pass  # another process runs it
        except TurnwrightError as error:
            self.troubles[turn_id] = str(error)
        except Exception as error:  # noqa: BLE001 (it has other turns too)
            _LOG.exception("turn %s could not be resumed: this is a bug", turn_id, extra={"turn": turn_id})
            self.troubles[turn_id] = f"this is a bug: {type(error).__name__}"
        finally:
            self._driven.pop(turn_id, None)
