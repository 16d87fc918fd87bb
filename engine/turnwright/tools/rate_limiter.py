"""How many calls of one tool run at once, and how often one starts: over all turns of the process.

Whoever waits here holds nothing that another call could need. A call that waited for a tool's place with a place of
its batch in hand, or the other way round, could wait for a sub-agent that waits for it.
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

from turnwright.errors import ConfigError

from .loop_handle import door_here

_numbers: Final = itertools.count()


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `calls` starts in any `per` seconds.

    Raises `ConfigError` for a number of calls that is not at least 1, and a time that is not above 0.
    """

    calls: int
    per: float

    def __post_init__(self) -> None:
        if isinstance(self.calls, bool) or not isinstance(self.calls, int) or self.calls < 1:
            raise ConfigError(f"rate: calls is a whole number, at least 1, and not {self.calls!r}")
        per = self.per
        if isinstance(per, bool) or not isinstance(per, int | float) or not math.isfinite(per) or per <= 0:
            raise ConfigError(f"rate: per is a number of seconds above 0, and not {per!r}")


class Slot:
    """A place for one call of a tool, held until it is left. `start` says that the call starts now."""

    __slots__ = ("_pace", "queue")

    def __init__(self, pace: "Pace", queue: "_Queue") -> None:
        self.queue = queue
        self._pace = pace

    def start(self) -> None:
        """The call starts now."""
        self._pace.started(self)

    def leave(self) -> None:
        """Give the place back. The start of a call that did start goes on counting."""
        self._pace.left(self)


class _Queue:
    """Those of one event loop who wait for a place, and how many of it have one."""

    __slots__ = ("changed", "door", "running", "turnstile")

    def __init__(self) -> None:
        self.running = 0
        #: How the others wake who waits here.
        self.door = door_here()
        #: First come, first served: only who holds it waits for a place to become free.
        self.turnstile = anyio.Lock()
        self.changed = anyio.Event()

    def wake(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()


class Pace:
    """The pace of the calls of one tool.

    `concurrency` bounds the calls that run at once in an event loop, `rate` the starts of all event loops of the
    process. A place that is taken counts as a start until it is known when, or whether, its call did start.
    """

    def __init__(self, concurrency: int | None, rate: Rate | None) -> None:
        self._concurrency = math.inf if concurrency is None else concurrency
        self._rate = rate
        self._queue: RunVar[_Queue | None] = RunVar(f"turnwright.tools.{next(_numbers)}", None)
        #: The starts that still count, with the time at which they cease to; those that have not happened yet, never.
        self._starts: dict[Slot, float] = {}
        #: The queues of all event loops in which somebody waits.
        self._waiting: set[_Queue] = set()
        self._lock = threading.Lock()

    async def wait(self) -> Slot:
        """Wait for a place, in order of arrival. Leave it in the end.

        Whoever is cancelled while it waits leaves no trace; who has its place is not cancelled here any more.
        """
        queue = self._here()
        async with queue.turnstile:
            with self._listening(queue):
                while (place := self._take(queue)) is None:
                    with anyio.CancelScope(deadline=self._next_look(queue)):
                        await queue.changed.wait()
        return place

    def place_now(self) -> Slot | None:
        """A place if one is free and nobody waits for one. Leave it in the end."""
        queue = self._here()
        return None if queue.turnstile.locked() else self._take(queue)

    def left(self, place: Slot) -> None:
        """Nobody holds this place any more."""
        place.queue.running -= 1
        with self._lock:
            if self._starts.get(place) == math.inf:
                del self._starts[place]
        self._wake(place.queue)

    def started(self, place: Slot) -> None:
        """The call that holds this place starts now."""
        if self._rate is not None:
            with self._lock:
                self._starts[place] = anyio.current_time() + self._rate.per
            self._wake(place.queue)

    def _here(self) -> _Queue:
        queue = self._queue.get()
        if queue is None:
            queue = _Queue()
            self._queue.set(queue)
        return queue

    def _take(self, queue: _Queue) -> Slot | None:
        if queue.running >= self._concurrency:
            return None
        place = Slot(self, queue)
        if self._rate is not None:
            with self._lock:
                self._forget(anyio.current_time(), self._rate.per)
                if len(self._starts) >= self._rate.calls:
                    return None
                self._starts[place] = math.inf
        queue.running += 1
        return place

    def _forget(self, now: float, per: float) -> None:
        """Leave out what counts no more. What counts longer than it could was told by another loop's clock."""
        self._starts = {
            place: until for place, until in self._starts.items() if until == math.inf or now < until <= now + per
        }

    def _next_look(self, queue: _Queue) -> float:
        """When a place may become free without anybody's doing in this event loop, where none could be taken."""
        if self._rate is None or queue.running >= self._concurrency:
            return math.inf
        now = anyio.current_time()
        with self._lock:
            if len(self._starts) < self._rate.calls:  # another loop gave a place back since this one looked
                return now
            # Not later than the rate allows, should the clock of another loop be a different one.
            return min([*self._starts.values(), now + self._rate.per])

    @contextmanager
    def _listening(self, queue: _Queue) -> Iterator[None]:
        """Be woken by the other event loops while the block runs."""
        with self._lock:
            self._waiting.add(queue)
        try:
            yield
        finally:
            with self._lock:
                self._waiting.discard(queue)

    def _wake(self, queue: _Queue) -> None:
        """Let those look again who wait for a place: in the loop of this queue, and where they share its rate."""
        queue.wake()
        if self._rate is None:
            return
        with self._lock:
            others = [other for other in self._waiting if other is not queue]
        for other in others:
            with suppress(RuntimeError):  # its event loop is gone, and nobody waits there
                other.door(other.wake)
