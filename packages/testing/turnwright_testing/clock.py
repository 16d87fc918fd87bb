"""An event loop that never waits: where nothing is ready to run, the next timer is due at once.

An hour of a hanging tool, a time-out of thirty seconds and a deadline pass in no time, in the order in which they
would. It serves what waits for timers, and for worker threads, whose time is real. Sockets and processes need a
real loop: while it is waited for them the timers would run ahead.
"""

import asyncio
import selectors
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TypeVar

import anyio
import anyio.to_thread

from turnwright.tools.loop_handle import THREADS_AT_WORK

T = TypeVar("T")

Event = tuple[selectors.SelectorKey, int]

#: A timer so many seconds away is the time limit of a function. One that runs in a thread gets some real seconds first.
_FAR = 10.0
_PATIENCE = 5.0


class SkippingSelector(selectors.SelectSelector):
    """A selector that adds a time-out to `now`, in seconds, instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        #: Whether a worker thread runs, whose time is real, so that no time may be skipped.
        self.waits: Callable[[], bool] = lambda: False
        #: Called when no timer is set.
        self.when_idle: Callable[[], None] = lambda: None

    def select(self, timeout: float | None = None) -> list[Event]:
        if timeout is None:  # no timer is set: only a signal or a thread can go on
            self.when_idle()
            return super().select(None)
        ready = super().select(0)
        if not ready and timeout > 0 and self.waits():
            start = time.monotonic()
            ready = super().select(timeout)
            self.now += time.monotonic() - start
        elif not ready and timeout > 0:
            if timeout >= _FAR and THREADS_AT_WORK[threading.get_ident()]:
                ready = super().select(_PATIENCE)
            self.now += 0.0 if ready else timeout
        return ready


class SkippingLoop(asyncio.SelectorEventLoop):
    """The loop. Its time begins at 0 and moves only when everything waits."""

    def __init__(self, selector: SkippingSelector | None = None) -> None:
        self._skipping = SkippingSelector() if selector is None else selector
        super().__init__(self._skipping)

        #: The functions that run in an executor.
        self._in_executors = 0

    def time(self) -> float:
        return self._skipping.now

    def wait_for_threads(self) -> None:
        """Skip no time while a function runs in a worker thread. Call it inside the loop."""
        limiter = anyio.to_thread.current_default_thread_limiter()
        here = threading.get_ident()
        self._skipping.waits = lambda: (
            limiter.borrowed_tokens > 0 or THREADS_AT_WORK[here] > 0 or self._in_executors > 0
        )

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: object) -> "asyncio.Future[T]":
        """Run a function in an executor. No time is skipped until it returns, after `wait_for_threads`."""
        future = super().run_in_executor(executor, func, *args)
        self._in_executors += 1
        future.add_done_callback(self._leave_executor)
        return future

    def close(self) -> None:
        """Close the loop, and its connections before it: a client that outlives it must not use them in another one."""
        transports = [*self._transports.values()]  # type: ignore[attr-defined]  # nothing public lists them
        for transport in transports:
            transport.abort()
        if transports:
            self.run_until_complete(asyncio.sleep(0))
        super().close()

    def _leave_executor(self, _future: object) -> None:
        self._in_executors -= 1


def run(work: Callable[[], Awaitable[T]], *, real_time: bool = False) -> T:
    """Run `work` to its end in a loop of its own, which skips every wait unless `real_time`.

    Raises what `work` raises, and `RuntimeError` inside a loop that runs already.
    """
    results: list[T] = []

    async def keep() -> None:
        # Asyncio writes out the result of its main task when it puts the signal handlers back, and ours are large.
        loop = asyncio.get_running_loop()
        if isinstance(loop, SkippingLoop):
            loop.wait_for_threads()
        results.append(await work())

    options = {} if real_time else {"loop_factory": SkippingLoop}
    anyio.run(keep, backend="asyncio", backend_options=options)
    return results[0]
