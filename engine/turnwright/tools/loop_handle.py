"""Threads and event loops: a function in the event loop from any thread, and one in a thread from the event loop."""

import math
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Final, TypeAlias

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from .timing import CLOCK

#: Schedules a function in the event loop from any thread. Raises `RuntimeError` once the loop is closed.
LoopHandle: TypeAlias = Callable[[Callable[[], None]], object]


#: Whether `in_thread` calls its function in the event loop. A simulation sets it: threads would decide its order.
INLINE: Final[ContextVar[bool]] = ContextVar("inline", default=False)


def loop_handle() -> LoopHandle:
    """Return the handle of the running event loop, of trio or asyncio. Raises `RuntimeError` if none runs."""
    return _loop_here()[0]


def _loop_here() -> tuple[LoopHandle, Callable[[], float]]:
    """Return the handle of the running event loop and its clock, which callbacks in the loop can read too."""
    # Trio first: as a guest of an asyncio loop, both run here. An app that uses trio has imported it.
    trio = sys.modules.get("trio")
    if trio is not None:
        try:
            token = trio.lowlevel.current_trio_token()
        except RuntimeError:
            pass
        else:
            return token.run_sync_soon, trio.current_time
    import asyncio  # noqa: PLC0415 (an import of turnwright needs no event loop)

    loop = asyncio.get_running_loop()
    return loop.call_soon_threadsafe, loop.time


def in_event_loop() -> bool:
    """Whether an event loop runs here. If not, a `GeneratorExit` closes a coroutine whose loop is gone."""
    try:
        loop_handle()
    except RuntimeError:
        return False
    return True


class Threads:
    """The threads of an engine: at most `count` functions run in threads at once, in each event loop."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._limiter: RunVar[anyio.CapacityLimiter | None] = RunVar("turnwright.tools.threads", None)

    def here(self) -> anyio.CapacityLimiter:
        """Return the limiter of the running event loop."""
        limiter = self._limiter.get()
        if limiter is None:
            limiter = anyio.CapacityLimiter(self.count)
            self._limiter.set(limiter)
        return limiter


#: The most functions that run in threads at once, unless the engine sets another number.
MAX_THREADS: Final = 40
#: The threads of the engine that drives the turn in this task. The driver sets them.
THREADS: Final[ContextVar[Threads]] = ContextVar("turnwright_threads", default=Threads(MAX_THREADS))  # noqa: B039 (shared)
#: The number of calls of `in_thread` that wait, by the thread of their event loop.
THREADS_AT_WORK: Final[Counter[int]] = Counter()


async def in_thread(call: Callable[[], object]) -> object:
    """Call a function in a thread, and return its result or raise its error. A canceled one continues, abandoned.

    It waits for one of the engine's threads. The time limit of the call begins when the function does.
    """
    if INLINE.get():
        return call()
    thread, clock = threading.get_ident(), CLOCK.get()
    begins = None
    if clock is not None and clock.deadline < math.inf:
        clock.move(math.inf)
        handle, now = _loop_here()
        begins = partial(handle, lambda: clock.restart(now()))
    THREADS_AT_WORK[thread] += 1
    try:
        result, error = await anyio.to_thread.run_sync(
            _run_call, call, begins, abandon_on_cancel=True, limiter=THREADS.get().here()
        )
    finally:
        THREADS_AT_WORK[thread] -= 1
    if error is not None:
        raise error
    return result


def _run_call(call: Callable[[], object], begins: Callable[[], object] | None) -> tuple[object, BaseException | None]:
    if begins is not None:
        with suppress(RuntimeError):  # the event loop is closed
            begins()
    # The future of a thread cannot raise every error, such as `GeneratorExit` and `StopIteration`.
    try:
        return call(), None
    except BaseException as error:  # noqa: BLE001 (raised in the task that waits)
        return None, error
