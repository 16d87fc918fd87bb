"""The timeout of a tool call, and the time that does not count."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Final

import anyio

#: The scope that limits the time of the call in this task.
_LIMIT: Final["ContextVar[anyio.CancelScope | None]"] = ContextVar("turnwright_call_limit", default=None)

#: Receives the scope that limits the call in this task when the call starts, and None when the call ends.
_WATCH: Final["ContextVar[Callable[[anyio.CancelScope | None], None] | None]"] = ContextVar(
    "turnwright_limit_watch", default=None
)


def watch_limit(watch: Callable[[anyio.CancelScope | None], None]) -> None:
    """Register `watch` for the call in this task. It gets the limiting scope at the start, and None at the end."""
    _WATCH.set(watch)


def limited(seconds: float | None) -> "AbstractContextManager[anyio.CancelScope | None]":
    """Limit a block to so many seconds; None means no limit. A late block is canceled without an error.

    The context value is the limiting scope, or None without a limit.
    """
    return _UNLIMITED if seconds is None and _LIMIT.get() is None else _limited(seconds)


#: Shared by all calls without a timeout: a scope for each would cost more than most tools.
_UNLIMITED: Final = nullcontext()


@contextmanager
def _limited(seconds: float | None) -> Iterator[anyio.CancelScope]:
    with anyio.move_on_after(seconds) as scope:
        token, watch = _LIMIT.set(scope), _WATCH.get()
        if watch is not None:
            watch(scope)
        try:
            yield scope
        finally:
            _LIMIT.reset(token)
            if watch is not None:
                watch(None)


@contextmanager
def clock_stopped() -> Iterator[None]:
    """Stop the timeout clock of the call in this task while the block waits, before the call does any work."""
    scope = _LIMIT.get()
    if scope is None:
        yield
        return
    left, scope.deadline = scope.deadline - anyio.current_time(), math.inf
    try:
        yield
    finally:
        scope.deadline = anyio.current_time() + left
