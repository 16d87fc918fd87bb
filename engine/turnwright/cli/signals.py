"""Signals that are not to be ignored: how long a process may take to leave when it was told to."""

import math
import threading
from collections.abc import Callable, Sequence
from types import FrameType

from . import process

#: The exit code of a process that a signal ended is its number above this.
_SIGNALLED = 128


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
