"""Threads and event loops: a function in the event loop from any thread, and one in a thread from the event loop."""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, TypeAlias

import anyio.to_thread

#: Schedules a function in the event loop from any thread. Raises `RuntimeError` once the loop is closed.
LoopHandle: TypeAlias = Callable[[Callable[[], None]], object]


#: Whether `in_thread` calls its function in the event loop. A simulation sets it: threads would decide its order.
INLINE: Final[ContextVar[bool]] = ContextVar("inline", default=False)


def loop_handle() -> LoopHandle:
    """Return the handle of the running event loop, of trio or asyncio. Raises `RuntimeError` if none runs."""
    # Trio first: as a guest of an asyncio loop, both run here. An app that uses trio has imported it.
    trio = sys.modules.get("trio")
    if trio is not None:
        try:
            token = trio.lowlevel.current_trio_token()
        except RuntimeError:
            pass
        else:
            return token.run_sync_soon  # type: ignore[no-any-return]  # trio is optional
    import asyncio  # noqa: PLC0415 (an import of turnwright needs no event loop)

    return asyncio.get_running_loop().call_soon_threadsafe


def in_event_loop() -> bool:
    """Whether an event loop runs here. If not, a `GeneratorExit` closes a coroutine whose loop is gone."""
    try:
        loop_handle()
    except RuntimeError:
        return False
    return True


#: The number of calls of `in_thread` that wait, by the thread of their event loop.
THREADS_AT_WORK: Final[Counter[int]] = Counter()


async def in_thread(call: Callable[[], object]) -> object:
    """Call a function in a thread, and return its result or raise its error. A canceled one continues, abandoned."""
    if INLINE.get():
        return call()
    here = threading.get_ident()
    THREADS_AT_WORK[here] += 1
    try:
        result, error = await anyio.to_thread.run_sync(_result_or_error, call, abandon_on_cancel=True)
    finally:
        THREADS_AT_WORK[here] -= 1
    if error is not None:
        raise error
    return result


def _result_or_error(call: Callable[[], object]) -> tuple[object, BaseException | None]:
    # The future of a thread cannot raise every error, such as `GeneratorExit` and `StopIteration`.
    try:
        return call(), None
    except BaseException as error:  # noqa: BLE001 (raised in the task that waits)
        return None, error
