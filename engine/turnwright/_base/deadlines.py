"""One timer for all deadlines of an event loop of asyncio.

Nearly everything that has a deadline ends before it. A timer for each batch of calls and each reply would be made and
canceled in each step, and the loop would keep up to a hundred canceled ones, through which each new one is sorted.
"""

import asyncio
import math
from typing import Final, Protocol
from weakref import WeakValueDictionary


class Expiring(Protocol):
    """Something with a deadline, in seconds of the event loop's clock; infinity means none."""

    deadline: float

    def expire(self) -> None:
        """Act on the deadline, and set the next one."""
        ...


class Deadlines:
    """The deadlines of one event loop. They may move to a later time by themselves: see `watch`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watched: set[Expiring] = set()
        self._timer: asyncio.TimerHandle | None = None
        #: The time of the timer. No deadline is earlier.
        self.next_look = math.inf

    def watch(self, item: Expiring) -> None:
        """Expire `item` at its deadline, until `forget`. Call this again when the deadline moves before `next_look`."""
        self._watched.add(item)
        if item.deadline < self.next_look:
            self._set(item.deadline)

    def forget(self, item: Expiring) -> None:
        """Expire `item` no more. The timer stays, since the next deadline is usually later."""
        self._watched.discard(item)

    def _set(self, moment: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.next_look, self._timer = moment, self._loop.call_at(moment, self._look)

    def _look(self) -> None:
        """Expire what is due, and set the timer for the next deadline."""
        self.next_look, self._timer = math.inf, None
        now = self._loop.time()
        for item in [*self._watched]:
            if item.deadline <= now:
                item.expire()
        earliest = min((item.deadline for item in self._watched), default=math.inf)
        if earliest < self.next_look:
            self._set(earliest)


#: By the id of the loop. Those who watch something, and a running timer, keep the entry.
_BY_LOOP: Final[WeakValueDictionary[int, Deadlines]] = WeakValueDictionary()


def deadlines_of(loop: asyncio.AbstractEventLoop) -> Deadlines:
    """Return the deadlines of an event loop."""
    deadlines = _BY_LOOP.get(id(loop))
    if deadlines is None:
        deadlines = _BY_LOOP[id(loop)] = Deadlines(loop)
    return deadlines
