"""The time that one call of a tool may take, and what of it does not count."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Final

import anyio

#: What ends the call that runs here when its time is over.
_LIMIT: Final["ContextVar[anyio.CancelScope | None]"] = ContextVar("turnwright_call_limit", default=None)

#: Told of the limit of the call that runs here when it begins, and None when it is over.
_WATCH: Final["ContextVar[Callable[[anyio.CancelScope | None], None] | None]"] = ContextVar(
    "turnwright_limit_watch", default=None
)


def watch_limit(watch: Callable[[anyio.CancelScope | None], None]) -> None:
    """Have `watch` told of the limit of the call that runs in this task: when it begins, and None when it is over."""
    _WATCH.set(watch)


def limited(seconds: float | None) -> "AbstractContextManager[anyio.CancelScope | None]":
    """Run a block for so many seconds at most; None sets no bound. A block that takes longer is left quietly.

    The block is given what ends it, if there is a bound.
    """
    return _UNLIMITED if seconds is None and _LIMIT.get() is None else _limited(seconds)


#: A scope that never ends would cost more than most tools.
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
def uncounted() -> Iterator[None]:
    """Stop the clock of the call that runs here while the block waits for others, before any work is done."""
    scope = _LIMIT.get()
    if scope is None:
        yield
        return
    left, scope.deadline = scope.deadline - anyio.current_time(), math.inf
    try:
        yield
    finally:
        scope.deadline = anyio.current_time() + left
