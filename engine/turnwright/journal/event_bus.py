"""Passes events on: to observers, and to whoever follows one turn."""

import logging
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import anyio

from turnwright.events import TurnEvent
from turnwright.tools.errors import holds

if TYPE_CHECKING:  # most turns are followed by nobody
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from .turn_journal import Stretch, TurnJournal

Observer = Callable[[TurnEvent], None]

_LOG = logging.getLogger(__name__)


class _All:
    """Every turn."""

    def __contains__(self, turn_id: object) -> bool:
        return True


_ALL: Final = _All()


class EventBus:
    """Every event of an engine goes through here, in the order in which the journal has it.

    `stretches` gives whoever observes a stretch of driving.
    """

    def __init__(
        self, observers: Sequence[Observer] = (), stretches: "Callable[[TurnJournal], Stretch] | None" = None
    ) -> None:
        #: See `Listeners.stretches`.
        self.stretches = stretches
        self._observers = tuple(observers)
        self._followers: defaultdict[str, list[MemoryObjectSendStream[TurnEvent]]] = defaultdict(list)
        #: The turns whose events somebody hears: all of them, where there is an observer.
        self.followed: Container[str] = _ALL if self._observers else self._followers

    def publish(self, event: TurnEvent) -> None:
        """Pass an event on. An observer's error is logged, and changes nothing."""
        for observer in self._observers:
            try:
                observer(event)
            except BaseException as error:
                if holds(error, KeyboardInterrupt):  # a person's; nothing else of an observer changes what happens
                    raise
                about = {"turn": event.turn}
                _LOG.exception("an observer failed on %s of turn %s", event.type, event.turn, extra=about)
        for follower in tuple(self._followers.get(event.turn, ())):
            # A follower that has closed its end is gone; its block takes it off the list.
            with suppress(anyio.BrokenResourceError):
                follower.send_nowait(event)

    @contextmanager
    def follow(self, turn_id: str) -> "Iterator[MemoryObjectReceiveStream[TurnEvent]]":
        """The events of one turn from now on. A follower that is slow delays nobody; its events wait in memory."""
        send, receive = anyio.create_memory_object_stream[TurnEvent](float("inf"))
        self._followers[turn_id].append(send)
        try:
            yield receive
        finally:
            followers = self._followers.get(turn_id, [])
            if send in followers:
                followers.remove(send)
            if not followers:
                self._followers.pop(turn_id, None)
            send.close()
            receive.close()

    def close(self, turn_id: str) -> int:
        """Nobody drives the turn any more, nor its sub-agents: the streams of their followers end.

        Returns how many events the one that is farthest behind has still to read.
        """
        unread = 0
        for name in [name for name in self._followers if name == turn_id or name.startswith(f"{turn_id}:")]:
            for follower in self._followers.pop(name):
                unread = max(unread, follower.statistics().current_buffer_used)
                follower.close()
        return unread
