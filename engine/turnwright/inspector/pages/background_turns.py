"""The turns that this process drives for those who answer, fork or take them up on a page."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from turnwright.engine import Engine
from turnwright.errors import LeaseLostError, TurnAlreadyEndedError, TurnBusyError, TurnNotFoundError, TurnwrightError

_LOG = logging.getLogger(__name__)


class BackgroundTurns:
    """Drives turns in the background while it is at work. `drives`: whether it may, with the engine's models and tools.

    `troubles` says of turns why they could not be driven here the last time.
    """

    def __init__(self, engine: Engine, *, drives: bool) -> None:
        self._engine = engine
        self._may_drive = drives
        self._turns: TaskGroup | None = None
        #: The turns that are driven here, and whether somebody has asked for them again since.
        self._driven: dict[str, bool] = {}
        self.troubles: dict[str, str] = {}

    @property
    def drives(self) -> bool:
        return self._turns is not None

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Drive what is taken on while the block runs. What is under way at its end is let go of, for others."""
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
        """Have a turn driven on, soon; nothing happens where nothing is driven here."""
        if self._turns is None:
            return
        if turn_id in self._driven:
            self._driven[turn_id] = True
        else:
            self._driven[turn_id] = False
            self._turns.start_soon(self._drive, turn_id)

    async def _drive(self, turn_id: str) -> None:
        self.troubles.pop(turn_id, None)
        try:
            again = True
            # Who asks while it is driven may come too late for what drives it: it is looked at once more.
            while again:
                self._driven[turn_id] = False
                await self._engine.resume(turn_id)
                again = self._driven[turn_id]
        except (TurnBusyError, TurnAlreadyEndedError, LeaseLostError, TurnNotFoundError):
            pass  # somebody else has seen to it
        except TurnwrightError as error:
            self.troubles[turn_id] = str(error)
        except Exception as error:  # noqa: BLE001 (it has other turns too)
            _LOG.exception("turn %s could not be driven on: this is a bug", turn_id, extra={"turn": turn_id})
            self.troubles[turn_id] = f"this is a bug: {type(error).__name__}"
        finally:
            self._driven.pop(turn_id, None)
