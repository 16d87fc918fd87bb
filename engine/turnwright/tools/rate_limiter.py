"""Limits on the calls of one tool over all turns of the process: concurrent calls, and starts per time.

A waiting call must hold nothing that another call could need. Otherwise a call with a place in its batch could wait for
a slot of a sub-agent that waits for that place.
"""

import itertools
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.lowlevel import RunVar

from turnwright.errors import ConfigError, need_number

from .loop_handle import loop_handle

_numbers: Final = itertools.count()


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `calls` starts in any `per` seconds.

    Raises `ConfigError` for a number of calls that is not at least 1, and a time that is not above 0.
    """

    calls: int
    per: float

    def __post_init__(self) -> None:
        need_number("rate: calls", self.calls, 1)
        per = self.per
        if isinstance(per, bool) or not isinstance(per, int | float) or not math.isfinite(per) or per <= 0:
            raise ConfigError(f"rate: per must be a number of seconds above 0, not {per!r}")


class Slot:
    """A slot for one call of a tool. `start` marks the start of the call, `release` frees the slot."""

    __slots__ = ("_limiter", "queue")

    def __init__(self, limiter: "RateLimiter", queue: "_LoopQueue") -> None:
        self.queue = queue
        self._limiter = limiter

    def start(self) -> None:
        """Note that the call starts now."""
        self._limiter.note_start(self)

    def release(self) -> None:
        """Free the slot. A start still counts for the rate."""
        self._limiter.note_release(self)


class _LoopQueue:
    """The calls of one event loop: those that wait for a slot, and the number of those that have one."""

    __slots__ = ("change", "handle", "running_calls", "turnstile")

    def __init__(self) -> None:
        self.running_calls = 0
        #: Wakes the waiting calls from another event loop.
        self.handle = loop_handle()
        #: Keeps the order of arrival: only its holder waits for a free slot.
        self.turnstile = anyio.Lock()
        self.change = anyio.Event()

    def wake(self) -> None:
        self.change.set()
        self.change = anyio.Event()


class RateLimiter:
    """The limits on the calls of one tool.

    `concurrency` limits the concurrent calls in an event loop, `rate` the starts in all event loops of the process. A
    taken slot counts as a start until its call has started or the slot is released.
    """

    def __init__(self, concurrency: int | None, rate: Rate | None) -> None:
        self._concurrency = math.inf if concurrency is None else concurrency
        self._rate = rate
        self._queue: RunVar[_LoopQueue | None] = RunVar(f"turnwright.tools.{next(_numbers)}", None)
        #: The starts that still count, with the time at which each stops counting: infinity before the start.
        self._starts: dict[Slot, float] = {}
        #: The queues of all event loops with waiting calls.
        self._waiting_queues: set[_LoopQueue] = set()
        self._lock = threading.Lock()

    async def wait(self) -> Slot:
        """Wait for a slot, in order of arrival. The caller must release it.

        A canceled wait takes no slot. Once the slot is taken, this can no longer be canceled.
        """
        queue = self._get_queue()
        async with queue.turnstile:
            with self._wait_for_wake(queue):
                while (slot := self._take(queue)) is None:
                    with anyio.CancelScope(deadline=self._next_check(queue)):
                        await queue.change.wait()
        return slot

    def take_now(self) -> Slot | None:
        """Return a slot if one is free and no call waits, else None. The caller must release it."""
        queue = self._get_queue()
        return None if queue.turnstile.locked() else self._take(queue)

    def note_release(self, slot: Slot) -> None:
        """Note that this slot is free again."""
        slot.queue.running_calls -= 1
        with self._lock:
            if self._starts.get(slot) == math.inf:
                del self._starts[slot]
        self._wake(slot.queue)

    def note_start(self, slot: Slot) -> None:
        """Note that the call with this slot starts now."""
        if self._rate is not None:
            with self._lock:
                self._starts[slot] = anyio.current_time() + self._rate.per
            self._wake(slot.queue)

    def _get_queue(self) -> _LoopQueue:
        queue = self._queue.get()
        if queue is None:
            queue = _LoopQueue()
            self._queue.set(queue)
        return queue

    def _take(self, queue: _LoopQueue) -> Slot | None:
        if queue.running_calls >= self._concurrency:
            return None
        slot = Slot(self, queue)
        if self._rate is not None:
            with self._lock:
                self._forget(anyio.current_time(), self._rate.per)
                if len(self._starts) >= self._rate.calls:
                    return None
                self._starts[slot] = math.inf
        queue.running_calls += 1
        return slot

    def _forget(self, now: float, per: float) -> None:
        """Remove starts that stopped counting, and those with an impossible time, from another event loop's clock."""
        self._starts = {
            slot: until for slot, until in self._starts.items() if until == math.inf or now < until <= now + per
        }

    def _next_check(self, queue: _LoopQueue) -> float:
        """Return the time at which a slot may become free without an event in this event loop."""
        if self._rate is None or queue.running_calls >= self._concurrency:
            return math.inf
        now = anyio.current_time()
        with self._lock:
            if len(self._starts) < self._rate.calls:  # another loop has released a slot meanwhile
                return now
            # At most one period from now, because another loop may have a different clock.
            return min([*self._starts.values(), now + self._rate.per])

    @contextmanager
    def _wait_for_wake(self, queue: _LoopQueue) -> Iterator[None]:
        """Let the other event loops wake this queue while the block runs."""
        with self._lock:
            self._waiting_queues.add(queue)
        try:
            yield
        finally:
            with self._lock:
                self._waiting_queues.discard(queue)

    def _wake(self, queue: _LoopQueue) -> None:
        """Wake the calls that wait for a slot, in this loop and in the loops that share the rate."""
        queue.wake()
        if self._rate is None:
            return
        with self._lock:
            other_queues = [waiting_queue for waiting_queue in self._waiting_queues if waiting_queue is not queue]
        for waiting_queue in other_queues:
            with suppress(RuntimeError):  # its event loop is closed, so no call waits there
                waiting_queue.handle(waiting_queue.wake)
