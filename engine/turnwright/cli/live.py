"""Runs one engine call in front of a person: shows its events, and lets Ctrl-C abort it."""

import signal
import threading
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Final

import anyio
import typer

from turnwright.engine import Engine
from turnwright.result import TurnResult
from turnwright.tasks import beside

from . import codes, process
from .display import Display

Work = Callable[[], Awaitable[TurnResult]]

#: Seconds that the event loop has to leave in order after the second Ctrl-C.
_ORDERLY: Final = 1.0
_LEAVING: Final = 2


class Interrupted(Exception):  # noqa: N818 (reads as what happened)
    """Ctrl-C was pressed twice, or before there was a turn."""


def execute(display: Display, engine: Engine, work: Work) -> None:
    """Drive, show, and leave with the turn's exit code."""
    try:
        result, seq = anyio.run(_drive, display, engine, work)
    except Interrupted:
        process.say(_farewell(display))
        raise typer.Exit(codes.ABORTED) from None
    display.close(result, seq)
    raise typer.Exit(codes.exit_code(result))


async def _drive(display: Display, engine: Engine, work: Work) -> tuple[TurnResult, int]:
    async with engine:
        with display:
            async with beside(_abort_on_interrupt, display, engine):
                result = await work()
        return result, len(await engine.store.facts(result.id))


async def _abort_on_interrupt(display: Display, engine: Engine) -> None:
    """The first Ctrl-C aborts the turn, the second leaves at once."""
    asked = False
    with anyio.open_signal_receiver(signal.SIGINT) as interrupts:
        # The loop hears of a signal by a file descriptor, and not by the handler, which can therefore be ours: it
        # is called too while a tool blocks the loop, or will not be cancelled.
        signal.signal(signal.SIGINT, _Insistence(display))
        async for _ in interrupts:
            if asked or not display.view.turn:
                raise Interrupted
            asked = True
            await engine.abort(display.view.turn)


class _Insistence:
    """Counts Ctrl-C: the second one ends the process soon, whatever it is doing, and a third one ends it now."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._pressed = 0

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Take one Ctrl-C in."""
        self._pressed += 1
        if self._pressed == _LEAVING:
            timer = threading.Timer(_ORDERLY, self._leave)
            timer.daemon = True
            timer.start()
        elif self._pressed > _LEAVING:
            self._leave()

    def _leave(self) -> None:
        process.leave_now(codes.ABORTED, _farewell(self._display))


def _farewell(display: Display) -> str:
    turn = display.view.turn
    if not turn:
        return "left before there was a turn"
    command = f"turnwright resume {turn}{display.flags}"
    return f"left at once, and turn {turn} has not ended: `{command}` takes it up again"
