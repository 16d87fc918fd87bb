"""Passes events to the engine's observers and to the followers of a turn."""

import logging
import weakref
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Container, Iterator, Sequence
from functools import partial
from typing import Final

import anyio

from turnwright.errors import need_list, need_plain_function
from turnwright.tools.errors import holds
from turnwright.transcript.events import StreamEvent

from .turn_journal import SegmentObserver, TurnJournal

Observer = Callable[[StreamEvent], None]

_LOG = logging.getLogger(__name__)


class _All:
    """All turns."""

    def __contains__(self, turn_id: object) -> bool:
        return True


_ALL: Final = _All()


class EventQueue(AsyncIterator[StreamEvent]):
    """The events that one follower has not read yet, until it is closed. Any number of them may wait in memory.

    Events that wait are read at once: a memory stream of anyio makes a round of the event loop for each event, which
    costs as much as ten events.
    """

    def __init__(self) -> None:
        #: The events that wait, in their order.
        self.unread: deque[StreamEvent] = deque()
        self.is_closed = False
        #: Set when something changes, if a reader waits.
        self._changed: anyio.Event | None = None

    def put(self, event: StreamEvent) -> None:
        """Add an event. A closed queue drops it."""
        if not self.is_closed:
            self.unread.append(event)
            if self._changed is not None:
                self.wake()

    def close(self) -> None:
        """Add no more events. Those that wait can still be read."""
        self.is_closed = True
        self.wake()

    async def aclose(self) -> None:
        """Read no more: drop the events that wait, and those that come."""
        self.unread.clear()
        self.close()

    async def __anext__(self) -> StreamEvent:
        while not self.unread:
            if self.is_closed:
                raise StopAsyncIteration
            await self.wait()
        return self.unread.popleft()

    async def wait(self) -> None:
        """Wait until an event comes, the queue is closed, or `wake` is called."""
        if not self.unread and not self.is_closed:
            if self._changed is None:
                self._changed = anyio.Event()
            await self._changed.wait()

    def wake(self) -> None:
        """Wake those who wait."""
        change, self._changed = self._changed, None
        if change is not None:
            change.set()


class EventBus:
    """Passes every event of an engine on, in the order of the journal.

    `observe_segment` makes an observer for each segment that is driven. Raises `ConfigError` for an observer that is no
    function.
    """

    def __init__(
        self,
        observers: Sequence[Observer] = (),
        observe_segment: Callable[[TurnJournal], SegmentObserver] | None = None,
    ) -> None:
        need_list("on_event", observers)
        for observer in observers:
            need_plain_function("on_event: each", observer, "event")
        #: See `Listeners.observe_segment`.
        self.observe_segment = observe_segment
        self._observers = tuple(observers)
        self._followers: defaultdict[str, list[EventQueue]] = defaultdict(list)
        #: Those who also follow the turns of a turn's sub-agents, at any depth.
        self._family: defaultdict[str, list[EventQueue]] = defaultdict(list)
        #: The turns whose events are published: all of them if there is an observer, or a follower of sub-agents. An
        #: attribute, because each append and each piece of a reply reads it.
        self.followed: Container[str] = self._find_followed()

    def _find_followed(self) -> Container[str]:
        return _ALL if self._observers or self._family else self._followers

    def publish(self, event: StreamEvent) -> None:
        """Pass an event on. An observer's error is logged and changes nothing."""
        for observer in self._observers:
            try:
                observer(event)
            except BaseException as error:
                if holds(error, KeyboardInterrupt):  # Ctrl-C; nothing else from an observer may change the turn
                    raise
                about = {"turn": event.turn}
                _LOG.exception("an observer failed on %s of turn %s", event.type, event.turn, extra=about)
        if event.turn in self._followers:
            for follower in self._followers[event.turn]:
                follower.put(event)
        if self._family:
            for turn in _with_callers(event.turn):
                for follower in self._family.get(turn, ()):
                    follower.put(event)

    def follow(self, turn_id: str, *, subagents: bool = False) -> "Subscription":
        """Follow the events of one turn from now on, and with `subagents` those of its sub-agents.

        A slow follower delays nobody: its events wait in memory.
        """
        queue = EventQueue()
        (self._family if subagents else self._followers)[turn_id].append(queue)
        self.followed = self._find_followed()
        return Subscription(queue, partial(self._unfollow, turn_id, queue, subagents=subagents))

    def _unfollow(self, turn_id: str, queue: EventQueue, *, subagents: bool) -> None:
        followers_of = self._family if subagents else self._followers
        followers = followers_of.get(turn_id, [])
        if queue in followers:
            followers.remove(queue)
        if not followers:
            followers_of.pop(turn_id, None)
        self.followed = self._find_followed()
        queue.close()

    def wake(self, turn_id: str) -> None:
        """Wake the followers of a turn: this process drives it now."""
        for followers_of in (self._followers, self._family):
            for follower in followers_of.get(turn_id, ()):
                follower.wake()

    def close(self, turn_id: str) -> int:
        """End the streams of the followers of a turn and its sub-agents, which nobody drives any more.

        Returns the number of events that the slowest follower has not read yet.
        """
        most_unread = 0
        for followers_of in (self._followers, self._family):
            for name in [name for name in followers_of if name == turn_id or name.startswith(f"{turn_id}:")]:
                for follower in followers_of.pop(name):
                    most_unread = max(most_unread, len(follower.unread))
                    follower.close()
        self.followed = self._find_followed()
        return most_unread


class Subscription:
    """A block in which the events of a turn are received: those since the subscription was made.

    One whose block is never entered ends when nothing refers to it any more.
    """

    def __init__(self, queue: EventQueue, end: Callable[[], None]) -> None:
        self._queue = queue
        self._end = weakref.finalize(self, end)
        self._end.atexit = False

    def __enter__(self) -> EventQueue:
        return self._queue

    def __exit__(self, *_: object) -> None:
        self._end()


def _with_callers(turn_id: str) -> Iterator[str]:
    """Yield a turn and the turns that called it as a sub-agent, the nearest first."""
    while turn_id:
        yield turn_id
        turn_id = turn_id.rpartition(":")[0]
