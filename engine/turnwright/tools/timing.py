"""The time limit of a call, the time that does not count, and the first wait of a check before a call."""

import math
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import anyio


class Clock(Protocol):
    """The time limit of a call. `subject` is the tool or function whose call the runner of this task cancels."""

    @property
    def deadline(self) -> float:
        """The time of the event loop at which the call is canceled."""
        ...

    def move(self, deadline: float) -> None:
        """Cancel the call at this time of the event loop instead."""
        ...

    def restart(self, now: float) -> None:
        """Start the time of the call anew, at this time of the event loop."""
        ...

    @property
    def subject(self) -> object:
        """The tool or function, or None if nobody but the clock cancels its call."""
        ...


#: The clock of the call in this task. Who runs a call with a time limit sets it.
CLOCK: Final[ContextVar[Clock | None]] = ContextVar("turnwright_call_clock", default=None)


@dataclass(slots=True)
class _ScopeClock:
    """The time limit of a scope of anyio."""

    scope: anyio.CancelScope
    seconds: float | None
    subject: object = None

    @property
    def deadline(self) -> float:
        return self.scope.deadline

    def move(self, deadline: float) -> None:
        self.scope.deadline = deadline

    def restart(self, now: float) -> None:
        self.move(math.inf if self.seconds is None else now + self.seconds)


def limit_block(seconds: float | None, subject: object = None) -> "AbstractContextManager[anyio.CancelScope | None]":
    """Limit a block to so many seconds; None means no limit. A late block is canceled without an error.

    The context value is the limiting scope. It is None without a limit, and if a runner limits the call of `subject`.
    """
    clock = CLOCK.get()
    is_kept = seconds is None if clock is None else subject is not None and clock.subject is subject
    return _UNLIMITED if is_kept else _limit(seconds)


#: Shared by all calls without a limit of their own: a scope for each would cost more than most tools.
_UNLIMITED: Final = nullcontext()


@contextmanager
def _limit(seconds: float | None) -> Iterator[anyio.CancelScope]:
    with anyio.move_on_after(seconds) as scope:
        token = CLOCK.set(_ScopeClock(scope, seconds))
        try:
            yield scope
        finally:
            CLOCK.reset(token)


@contextmanager
def clock_stopped() -> Iterator[None]:
    """Stop the clock of the call in this task while the block waits, before the call does any work."""
    clock = CLOCK.get()
    if clock is None:
        yield
        return
    remaining = clock.deadline - anyio.current_time()
    clock.move(math.inf)
    try:
        yield
    finally:
        clock.move(anyio.current_time() + remaining)


#: Called when a check before a call waits for something, in the task of the check and in those that it starts.
NOTE_WAIT: Final[ContextVar[Callable[[], None] | None]] = ContextVar("turnwright_note_wait", default=None)
T = TypeVar("T")


def noting_wait(work: Coroutine[object, object, T]) -> Awaitable[T]:
    """Return `work`, code of the app, to be awaited here. `NOTE_WAIT` is called if it suspends."""
    note = NOTE_WAIT.get()
    return work if note is None else _NotedWork(work, note)


class _NotedWork(Generator[object, object, T]):
    """Awaits `work`, and calls `note` at each suspension."""

    __slots__ = ("_note", "_work")

    def __init__(self, work: Coroutine[object, object, T], note: Callable[[], None]) -> None:
        self._work = work
        self._note = note

    def __await__(self) -> Generator[object, object, T]:
        return self

    def send(self, value: object, /) -> object:
        """Continue the work."""
        suspension = self._work.send(value)
        self._note()
        return suspension

    def throw(self, *error: object) -> object:
        """Continue the work with an error, for example a cancellation."""
        return self._work.throw(*error)  # type: ignore[call-overload]  # as they come

    def close(self) -> None:
        """End the work."""
        self._work.close()
