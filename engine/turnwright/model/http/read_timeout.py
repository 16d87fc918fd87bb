"""What ends a read that takes too long: a time-out around each read of one stream.

`ReadTimeout` is the plain one, for every event loop: a cancel scope for each read. On asyncio a scope and its timer
cost 10 us a chunk, and `asyncio.timeout` 6, where all else that is done with a chunk, httpx's part included, costs 29
in a burst. `AsyncioReadTimeout` is `asyncio.timeout`, cut down to what a stream needs, in 9 calls: one timer for all
its reads, which looks when it rings whether the read that is under way has had its time, and is set again if not.
The tests of both, and of what the clients wait for, run on both.
"""

import asyncio
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Self

import anyio
from typing_extensions import override


class ReadTimedOutError(Exception):
    """A read took longer than it may."""


class ReadTimeout:
    """Bounds the reads of one stream, one after the other: `with timeout.until(moment):` around each."""

    def now(self) -> float:
        """Give the moment, in seconds of the event loop's clock."""
        return anyio.current_time()

    def until(self, moment: float) -> AbstractContextManager[object]:
        """Make what bounds one read.

        What is inside of it is cancelled at `moment`, and it raises `ReadTimedOutError`.
        """
        return _until(moment)

    def off(self) -> None:
        """Say that nothing more is read."""


@contextmanager
def _until(moment: float) -> Iterator[None]:
    with anyio.CancelScope(deadline=moment) as scope:
        yield
    if scope.cancelled_caught:
        raise ReadTimedOutError


class AsyncioReadTimeout(ReadTimeout):
    """The time-out on asyncio.

    Source: `asyncio.Timeout`, which tells in the same way whose cancellation it was.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.now = loop.time  # type: ignore[method-assign]  # a call less for each chunk
        # When the read under way must have ended, and when the timer rings, which is never later.
        self._until = self._rings = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._reader: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._rang = False

    @override
    def until(self, moment: float) -> Self:
        self._until = moment
        if moment < self._rings:
            self._set(moment)
        return self

    @override
    def off(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings = None, math.inf

    def __enter__(self) -> None:
        # Each time anew: each chunk of a generator may be asked for by another task.
        self._reader = reader = asyncio.current_task(self._loop)
        self._cancelling = reader.cancelling() if reader is not None else 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reader, self._reader = self._reader, None
        if self._rang and reader is not None:
            self._rang = False
            # Where others have cancelled the task too, theirs goes on.
            if reader.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
                raise ReadTimedOutError from error

    def _set(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings = moment
        self._timer = self._loop.call_at(moment, self._ring)

    def _ring(self) -> None:
        self._timer, self._rings = None, math.inf
        if self._reader is None:
            # Whoever takes what has come is slow. The next read sets it again.
            return
        if self._loop.time() < self._until:
            self._set(self._until)
            return
        self._rang = True
        self._reader.cancel()


def read_timeout() -> ReadTimeout:
    """Make the time-out that the event loop at hand takes."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return ReadTimeout()
    # Another loop may run as a guest of asyncio's: then there is no task.
    return ReadTimeout() if asyncio.current_task(loop) is None else AsyncioReadTimeout(loop)
