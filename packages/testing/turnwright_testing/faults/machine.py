"""Faults of a machine: a wall clock that jumps, and a full disk."""

import resource
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


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Limit every file of this process to `size` bytes during the block; then there is space again.

    Writes are cut short and then refused (`EFBIG`), as on a disk that has no block left, so that SQLite finds half a
    page in its log. It holds for every file, those of your test runner as well: use it in a `DriverProcess`. It is the
    process's limit `RLIMIT_FSIZE`; raises `ValueError` for a size above the hard limit.
    """
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
