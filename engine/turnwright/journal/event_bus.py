"""Passes events to the engine's observers and to the followers of a turn."""

import logging
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import anyio

from turnwright.errors import need_list, need_plain_function
from turnwright.events import StreamEvent
from turnwright.tools.errors import holds

from .turn_journal import SegmentObserver, TurnJournal

if TYPE_CHECKING:  # most turns have no follower
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

Observer = Callable[[StreamEvent], None]

_LOG = logging.getLogger(__name__)


class _All:
    """All turns."""

    def __contains__(self, turn_id: object) -> bool:
        return True


_ALL: Final = _All()


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
            need_plain_function("on_event: each", observer)
        #: See `Listeners.observe_segment`.
        self.observe_segment = observe_segment
        self._observers = tuple(observers)
        self._followers: defaultdict[str, list[MemoryObjectSendStream[StreamEvent]]] = defaultdict(list)
        #: Those who also follow the turns of a turn's sub-agents, at any depth.
        self._family: defaultdict[str, list[MemoryObjectSendStream[StreamEvent]]] = defaultdict(list)

    @property
    def followed(self) -> Container[str]:
        """The turns whose events are published: all of them if there is an observer, or a follower of sub-agents."""
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
        followers = tuple(self._followers.get(event.turn, ()))
        if self._family:
            followers += tuple(
                follower for turn in _with_callers(event.turn) for follower in self._family.get(turn, ())
            )
        for follower in followers:
            # A closed follower is gone. Its block removes it from the list.
            with suppress(anyio.BrokenResourceError):
                follower.send_nowait(event)

    @contextmanager
    def follow(self, turn_id: str, *, subagents: bool = False) -> "Iterator[MemoryObjectReceiveStream[StreamEvent]]":
        """Follow the events of one turn from now on, and with `subagents` those of its sub-agents.

        A slow follower delays nobody: its events wait in memory.
        """
        send, receive = anyio.create_memory_object_stream[StreamEvent](float("inf"))
        followers_of = self._family if subagents else self._followers
        followers_of[turn_id].append(send)
        try:
            yield receive
        finally:
            followers = followers_of.get(turn_id, [])
            if send in followers:
                followers.remove(send)
            if not followers:
                followers_of.pop(turn_id, None)
            send.close()
            receive.close()

    def close(self, turn_id: str) -> int:
        """End the streams of the followers of a turn and its sub-agents, which nobody drives any more.

        Returns the number of events that the slowest follower has not read yet.
        """
        unread = 0
        for followers_of in (self._followers, self._family):
            for name in [name for name in followers_of if name == turn_id or name.startswith(f"{turn_id}:")]:
                for follower in followers_of.pop(name):
                    unread = max(unread, follower.statistics().current_buffer_used)
                    follower.close()
        return unread


def _with_callers(turn_id: str) -> Iterator[str]:
    """Yield a turn and the turns that called it as a sub-agent, the nearest first."""
    while turn_id:
        yield turn_id
        turn_id = turn_id.rpartition(":")[0]
