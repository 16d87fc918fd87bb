"""Runs one engine call in front of a person: shows its events, and does what signals ask for.

Ctrl-C aborts the turn, a second one leaves at once. SIGTERM, with which containers and services are stopped, is no
verdict on the turn: the process lets go of it, and another takes it up. A turn that workers of a service drive goes on
without who looks on.
"""

import math
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import FrameType
from typing import Final

import anyio
import typer

from turnwright._base.background_task import background_task
from turnwright.engine import Engine
from turnwright.result import TurnResult
from turnwright.store.address import outlives_process

from . import codes, process
from .display import Display
from .following import Followed
from .stores import password_hint
from .summary import ended_by, taken_up_by

Work = Callable[[Engine], Awaitable[TurnResult]]
#: What opens the engine, with whatever its tools need to be open as well. An engine opens itself.
Opening = AbstractAsyncContextManager[Engine]

#: Seconds that the event loop has to leave in order when it was told to.
ORDERLY: Final = 1.0
#: The exit code of a process that a signal ended is its number above this.
_SIGNALLED: Final = 128
#: Seconds between two looks at whether the tools are done.
_LOOK: Final = 0.02

_PRESSED: Final = "left at once"
_TOLD: Final = "stopped by SIGTERM"


class RepeatedSignal:
    """Counts signals, and ends the process if it does not leave by itself, whatever it is doing.

    The n-th signal gives it `patience[n - 1]` seconds, where `math.inf` is no limit; one more than there are ends it
    now. `farewell` makes its last words.
    """

    def __init__(self, patience: Sequence[float], farewell: Callable[[], str]) -> None:
        self._patience = tuple(patience)
        self._farewell = farewell
        self._heard = 0

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        self._heard += 1
        if self._heard > len(self._patience):
            self._leave(number)
        seconds = self._patience[self._heard - 1]
        if seconds < math.inf:
            timer = threading.Timer(seconds, self._leave, (number,))
            timer.daemon = True
            timer.start()

    def _leave(self, number: int) -> None:
        process.leave_now(_SIGNALLED + number, self._farewell())


class QuitError(Exception):
    """The process shall leave, with `code`, though the turn may go on. The text says how it came to that."""

    def __init__(self, code: int, how: str) -> None:
        super().__init__(how)
        self.code = code


def execute(display: Display, opening: Opening, work: Work, followed: Followed | None = None) -> None:
    """Drive, show, and leave with the turn's exit code. `followed` is the turn, where another process may drive it."""
    try:
        result, seq = anyio.run(_drive, display, opening, work, followed)
    except QuitError as left:
        process.say_last(str(left))
        raise typer.Exit(left.code) from None
    display.close(result, seq)
    raise typer.Exit(codes.exit_code(result))


async def _drive(display: Display, opening: Opening, work: Work, followed: Followed | None) -> tuple[TurnResult, int]:
    async with opening as engine:
        with display, anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            # The loop hears of a signal by a file descriptor, and not by the handler, which can therefore be ours: it
            # is called too while a tool blocks the loop, or will not be cancelled.
            patience = engine.setup.cancel_grace + ORDERLY
            signal.signal(signal.SIGINT, RepeatedSignal((math.inf, ORDERLY), _farewell(display, _PRESSED)))
            signal.signal(signal.SIGTERM, RepeatedSignal((patience,), _farewell(display, _TOLD)))
            try:
                async with background_task(_heed, signals, display, engine, followed):
                    result = await work(engine)
            except QuitError:
                if display.view.state.outcome is None:
                    raise
                result = await engine.get(display.view.turn)  # it has ended all the same
        return result, len(await engine.store.facts(result.id))


async def _heed(
    signals: AsyncIterator[signal.Signals], display: Display, engine: Engine, followed: Followed | None
) -> None:
    asked = False
    async for number in signals:
        code, how = (codes.TERMINATED, _TOLD) if number == signal.SIGTERM else (codes.ABORTED, _PRESSED)
        if not display.service and followed is not None and await followed.is_elsewhere(engine.store):
            command = f"turnwright abort {followed.turn}{display.flags}"
            raise QuitError(code, f"{how}; another process drives turn {followed.turn} on: `{command}` stops it")
        if number == signal.SIGTERM and not display.service:
            await _finish_tools(display, engine)
        if number == signal.SIGTERM or asked or not display.view.turn:
            raise QuitError(code, _farewell(display, how)())
        asked = True
        await engine.abort(display.view.turn)
        display.view.told_to_stop = True


async def _finish_tools(display: Display, engine: Engine) -> None:
    """Wait a moment: a tool that is about to finish need not lose its result."""
    with anyio.move_on_after(engine.setup.cancel_grace):
        while display.view.in_tool:  # noqa: ASYNC110 (a display has no event to wait for)
            await anyio.sleep(_LOOK)


def _farewell(display: Display, how: str) -> Callable[[], str]:
    def say() -> str:
        turn = display.view.turn
        if not turn:
            return f"{how}, before there was a turn"
        if not outlives_process(display.store):
            return f"{how}, and turn {turn} is gone with its store, which was in memory"
        hint = f" ({password_hint(display.store)})" if password_hint(display.store) else ""
        told, elsewhere = display.view.told_to_stop, display.view.begun_elsewhere
        if display.service:
            goes_on = (
                f"turn {turn} was told to stop, and the workers end it"
                if told
                else f"the workers go on with turn {turn}"
            )
            return f"{how}; {goes_on}: `turnwright resume {turn}{display.flags}` follows it{hint}"
        if told:
            ends = ended_by(turn, display.flags, elsewhere=elsewhere)
            return f"{how}, and turn {turn} was told to stop and has not ended yet: {ends} ends it{hint}"
        if elsewhere:
            return f"{how}, and turn {turn} has not ended: the program that began it takes it up with `recover()`"
        again = taken_up_by(turn, display.flags, elsewhere=False)
        return f"{how}, and turn {turn} has not ended: {again} takes it up again{hint}"

    return say
