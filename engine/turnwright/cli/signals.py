"""Signals that end the process of a command, in order or at once.

`serve` loads this module and no display.
"""

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from types import FrameType
from typing import Final

from turnwright.errors import PicklableError
from turnwright.runtime.engine import Engine

from . import process

#: Opens the engine, and what its tools need. An engine opens itself.
Opening = AbstractAsyncContextManager[Engine]

#: Seconds that the event loop has to leave in order after a signal.
ORDERLY: Final = 1.0
#: The exit code of a process that a signal ended is its number above this.
_SIGNALED: Final = 128


class RepeatedSignal:
    """A signal handler that ends the process if it does not leave by itself.

    The n-th signal gives the process `patience[n - 1]` seconds, and `math.inf` sets no limit. One signal more than
    there are entries ends the process at once. `farewell` returns the last message.
    """

    def __init__(self, patience: Sequence[float], farewell: Callable[[], str]) -> None:
        self._patience = tuple(patience)
        self._farewell = farewell
        self._received = 0

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        self._received += 1
        if self._received > len(self._patience):
            self._leave(number)
        seconds = self._patience[self._received - 1]
        if seconds < math.inf:
            timer = threading.Timer(seconds, self._leave, (number,))
            timer.daemon = True
            timer.start()

    def _leave(self, number: int) -> None:
        process.leave_now(_SIGNALED + number, self._farewell())


class QuitError(PicklableError, Exception):
    """The process must leave with the exit code `code`. The turn may continue. The text says why."""

    def __init__(self, code: int, how: str) -> None:
        super().__init__(how)
        self.code = code
