"""Event loops on a clock that nobody waits for: where all tasks sleep, it jumps to the next that wakes."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

import anyio
import pytest

testing = pytest.importorskip("trio.testing")

Loop = Literal["asyncio", "trio"]
Value = TypeVar("Value")
LOOPS = pytest.mark.parametrize("loop", ["asyncio", "trio"])


class _Selector(selectors.DefaultSelector):
    """Does not wait for what has a time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(None if timeout is None else 0)
        if not ready and timeout:
            self.now += timeout
        return ready


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run(loop: Loop, main: Callable[[], Awaitable[Value]]) -> Value:
    """Run `main` on a loop of this kind, at once."""
    options = {"clock": testing.MockClock(autojump_threshold=0)} if loop == "trio" else {"loop_factory": _JumpingLoop}
    return anyio.run(main, backend=loop, backend_options=options)
