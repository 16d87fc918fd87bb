"""A timeout for each read of one stream.

`ReadTimeout` works in every event loop, with a cancel scope for each read. On asyncio a scope and its timer cost 10 us
a chunk, and `asyncio.timeout` costs 6, while everything else, including httpx, costs 29 in a burst. So
`AsyncioReadTimeout` reduces `asyncio.timeout` to 9 calls, and has no timer of its own. Their tests, and those of the
clients' timeouts, run with both.
"""

import asyncio
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Self

import anyio
from typing_extensions import override

from turnwright._base.deadlines import deadlines_of


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
        """Watch the time no more, after the last read."""


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
        #: The deadline of the current or last read.
        self.deadline = math.inf
        self._deadlines = deadlines_of(loop)
        self._reader: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._rang = False

    @override
    def until(self, moment: float) -> Self:
        is_watched, self.deadline = self.deadline < math.inf, moment
        if not is_watched or moment < self._deadlines.next_look:
            self._deadlines.watch(self)
        return self

    @override
    def off(self) -> None:
        self.deadline = math.inf
        self._deadlines.forget(self)

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

    def expire(self) -> None:
        """Cancel the current read."""
        self.deadline = math.inf
        if self._reader is not None:  # else the consumer is slow, and the next read has a deadline of its own
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
