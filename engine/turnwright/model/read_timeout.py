"""A timeout for each read of one stream.

`ReadTimeout` works in every event loop, with a cancel scope for each read. On asyncio a scope and its timer cost 10 us
a chunk, and `asyncio.timeout` costs 6, while everything else, including httpx, costs 29 in a burst. So
`AsyncioReadTimeout` reduces `asyncio.timeout` to 9 calls: one timer for all reads, which is set again if the current
read has time left. Their tests, and those of the clients' timeouts, run with both.
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
    """A read exceeded its timeout."""


class ReadTimeout:
    """The timeout of one stream's reads, one after the other: `with timeout.until(moment):` around each."""

    def now(self) -> float:
        """Return the time, in seconds of the event loop's clock."""
        return anyio.current_time()

    def until(self, moment: float) -> AbstractContextManager[object]:
        """Return a context that is canceled at `moment`, and then raises `ReadTimedOutError`."""
        return _until(moment)

    def off(self) -> None:
        """Stop the timer after the last read."""


@contextmanager
def _until(moment: float) -> Iterator[None]:
    with anyio.CancelScope(deadline=moment) as scope:
        yield
    if scope.cancelled_caught:
        raise ReadTimedOutError


class AsyncioReadTimeout(ReadTimeout):
    """The timeout on asyncio.

    Source: `asyncio.Timeout`, which identifies its own cancellation in the same way.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.now = loop.time  # type: ignore[method-assign]  # a call less for each chunk
        # The deadline of the current read, and the timer's, which is never later.
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
        # Set for each read, because another task may request each chunk.
        self._reader = reader = asyncio.current_task(self._loop)
        self._cancelling = reader.cancelling() if reader is not None else 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reader, self._reader = self._reader, None
        if self._rang and reader is not None:
            self._rang = False
            # A cancellation by others continues.
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
            # No read is in progress, because the consumer is slow. The next read sets the timer again.
            return
        if self._loop.time() < self._until:
            self._set(self._until)
            return
        self._rang = True
        self._reader.cancel()


def read_timeout() -> ReadTimeout:
    """Make the timeout for the running event loop."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return ReadTimeout()
    # A guest loop on asyncio has no asyncio task.
    return ReadTimeout() if asyncio.current_task(loop) is None else AsyncioReadTimeout(loop)
