"""A wall clock that jumps, as when it is set, or corrected after a long sleep."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class JumpingClock:
    """The time of day in seconds since the epoch of Unix, off by as much as it has jumped.

    Give it to the engine (`now=clock`), whose interrupts expire by it, and put it in the place of `time.time`
    (`with clock.everywhere():`), by which stores date what they write. Turns measure their own time by a clock that
    never jumps.
    """

    def __init__(self) -> None:
        self._time = time.time
        self.off = 0.0

    def __call__(self) -> float:
        """The time of day, as far as this clock knows."""
        return self._time() + self.off

    def jump(self, seconds: float) -> None:
        """Move the clock forward, or back."""
        self.off += seconds

    @contextmanager
    def everywhere(self) -> Iterator[None]:
        """Replace `time.time` for the whole process during the block."""
        time.time = self.__call__
        try:
            yield
        finally:
            time.time = self._time
