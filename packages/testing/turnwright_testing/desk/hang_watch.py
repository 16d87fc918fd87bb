"""An event loop that notices a turn that hangs: time is skipped, so that waiting for ever takes no time."""

import asyncio
import gc
import resource
import selectors
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, Protocol

from turnwright_testing.clock import Event, SkippingLoop, SkippingSelector

#: Seconds that the loop waits at once for a thread or a descriptor, whose time is real.
_GLANCE: Final = 0.05
#: Seconds between two looks at a loop that gets no turn.
_INTERVAL: Final = 0.25
#: Descriptors that a loop has for itself.
_OWN_DESCRIPTORS: Final = 1

#: The threads that were there before any desk, and the names of workers, which count while they work.
_EARLIER: Final = frozenset(threading.enumerate())
_WORKERS: Final = ("AnyIO worker thread", "asyncio_", "ThreadPoolExecutor")


def frames_of_threads() -> dict[int, FrameType]:
    """Return the current frame of each thread, by its identifier."""
    is_enabled = gc.isenabled()
    try:
        # The interpreter holds a lock meanwhile, for which it waits for ever if a collection frees a `threading.local`.
        gc.disable()
        return sys._current_frames()  # noqa: SLF001 (documented)
    finally:
        if is_enabled:
            gc.enable()


def _has_own_threads() -> bool:
    """Whether the desk has threads of its own that may be at work, such as that of a connection to a database.

    One in a selector waits for others: it is a server, which reads nothing at the moment.
    """
    if threading.active_count() <= len(_EARLIER):
        return False
    frames = frames_of_threads()
    return any(
        thread not in _EARLIER
        and thread is not threading.main_thread()
        and not thread.name.startswith(_WORKERS)
        and not ((frame := frames.get(thread.ident or 0)) and frame.f_code.co_filename == selectors.__file__)
        for thread in threading.enumerate()
    )


def voluntary_waits() -> int:
    """Return how often this thread gave its processor away by itself, as a call that sleeps does."""
    scope = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
    return resource.getrusage(scope).ru_nvcsw


@contextmanager
def daemon_threads() -> Iterator[None]:
    """Make daemons of the threads that begin in a block: one that hangs keeps no process from its end."""
    parent = threading.current_thread()
    before = parent.daemon
    # A thread takes it from its parent; a running one may not change it by its public name.
    parent._daemonic = True  # type: ignore[attr-defined]  # noqa: SLF001 (as above)
    try:
        yield
    finally:
        parent._daemonic = before  # type: ignore[attr-defined]  # noqa: SLF001 (as above)


class BlockedLoopError(BaseException):
    """Raised in the frame that blocks the event loop. Not an `Exception`, which tools catch."""


class OnHang(Protocol):
    """Receives the frame that blocks the event loop, or None, and whether real time has passed."""

    def __call__(self, frame: FrameType | None, *, is_timed: bool) -> None: ...


class HangWatch:
    """Watches the progress of one case. `on_hang` is called, in the loop, with the frame that blocks it, or None.

    A case hangs after `skipped` seconds without a new fact, or after `seconds` of real time: those of a thread, of a
    descriptor, of code that blocks the loop, and of a loop that goes round and round. What hangs after that, such as
    the next call of a batch, waits only until the next look.
    """

    def __init__(self, seconds: float, skipped_seconds: float, on_hang: OnHang) -> None:
        self._seconds = seconds
        self._skipped = skipped_seconds
        self._on_hang = on_hang
        self._real = self._virtual = 0.0
        #: The rings of the alarm that came while this thread slept; None without an alarm.
        self._rings: int | None = None
        self._waits, self._computed = 0, 0.0
        self._is_paused = False
        self.selector = _WatchedSelector(self)
        self.loop: SkippingLoop | None = None

    def make_loop(self) -> SkippingLoop:
        """Make the loop of the case."""
        self.loop = SkippingLoop(self.selector)
        self.loop.set_exception_handler(lambda _loop, _context: None)  # a dead process leaves tasks behind
        self.notice_progress()
        return self.loop

    def notice_progress(self) -> None:
        """Note that a fact was written, or that a call of the model began."""
        self._real, self._virtual = self.now(), self.selector.now

    def now(self) -> float:
        """Return the real time in seconds, without the time in which a busy machine does not run this thread."""
        return time.monotonic() if self._rings is None else self._rings * _INTERVAL + time.thread_time()

    async def wait_for_hang(self) -> None:
        """Call `on_hang` once no fact was written for too long. Run it as a task, and cancel it."""
        while True:
            await asyncio.sleep(self._skipped)
            if self.selector.now - self._virtual >= self._skipped:
                self._on_hang(None, is_timed=False)

    @property
    def is_overdue(self) -> bool:
        """Whether too much real time has passed without a fact."""
        return self.now() - self._real > self._seconds

    def look(self) -> None:
        """Call `on_hang` if too much real time has passed without a fact."""
        if self.is_overdue:
            self.notice_progress()
            self._seconds = _INTERVAL
            self._on_hang(None, is_timed=True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time of a block, which is not that of the desk."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False
            self.selector.busy_since = self.now()
            self.notice_progress()

    @contextmanager
    def alarm(self) -> Iterator[None]:
        """Raise `BlockedLoopError` in code that blocks the loop for too long. Only the main thread can do so."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._rings, self._waits, self._computed = 0, voluntary_waits(), time.thread_time()
        before = signal.signal(signal.SIGALRM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, _INTERVAL, _INTERVAL)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def _ring(self, _number: int, frame: FrameType | None) -> None:
        waits, cpu_seconds = voluntary_waits(), time.thread_time()
        is_asleep = waits > self._waits and cpu_seconds - self._computed < _INTERVAL / 2
        self._rings = (self._rings or 0) + is_asleep
        self._waits, self._computed = waits, cpu_seconds
        since = None if self._is_paused else self.selector.busy_since
        if since is not None and self.now() - since > self._seconds:
            self.selector.busy_since = self.now()
            self._seconds = _INTERVAL
            self._on_hang(frame, is_timed=True)
            raise BlockedLoopError("the event loop got no turn")


class _WatchedSelector(SkippingSelector):
    """A selector that waits in real time for threads and descriptors, a glance at a time."""

    def __init__(self, watch: HangWatch) -> None:
        super().__init__()
        self._watch = watch
        #: The time at which the loop began to run callbacks; None while it waits.
        self.busy_since: float | None = None

    def select(self, timeout: float | None = None) -> list[Event]:
        self.busy_since = None
        try:
            if self._watch.is_overdue and self._watch.loop is not None:
                self._watch.loop.call_soon(self._watch.look)
                return []
            return self._wait(timeout)
        finally:
            self.busy_since = self._watch.now()

    def close(self) -> None:
        self.busy_since = None
        super().close()

    def _wait(self, timeout: float | None) -> list[Event]:
        is_real = self.waits() or len(self.get_map()) > _OWN_DESCRIPTORS or _has_own_threads()
        if not is_real or timeout is None or timeout <= 0:
            return super().select(timeout)
        start = time.monotonic()
        ready = super(SkippingSelector, self).select(min(timeout, _GLANCE))
        self.now += time.monotonic() - start
        return ready
