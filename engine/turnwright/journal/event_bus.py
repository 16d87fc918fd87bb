"""Passes events to the engine's observers and to the followers of a turn."""

import logging
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol

import anyio

from turnwright.errors import need_function, need_list
from turnwright.events import TurnEvent
from turnwright.tools.errors import holds

if TYPE_CHECKING:  # most turns have no follower
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from turnwright.model.prices import PriceOf
    from turnwright.model.protocol import Model
    from turnwright.tools.batch_context import Execute
    from turnwright_states.facts import Fact

    from .turn_journal import TurnJournal

Observer = Callable[[TurnEvent], None]

_LOG = logging.getLogger(__name__)


class _All:
    """All turns."""

    def __contains__(self, turn_id: object) -> bool:
        return True


_ALL: Final = _All()


class SegmentObserver(Protocol):
    """Observes one segment, from its claim to its release, as a context manager."""

    def __enter__(self) -> object:
        """Driving begins."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None:
        """The turn is released."""
        ...

    def journaled(self, facts: "Sequence[Fact]") -> None:
        """Receive facts that were journaled."""
        ...

    def observed(self, model: "Model", price: "PriceOf | None", timed_out: Callable[[], bool]) -> "Model":
        """Wrap the model. `timed_out` says whether a canceled attempt has used up its time."""
        ...

    @property
    def execute(self) -> "Execute":
        """Executes a call around its tool."""
        ...


class EventBus:
    """Passes every event of an engine on, in the order of the journal.

    `observe_segment` makes an observer for each segment that is driven. Raises `ConfigError` for an observer that is no
    function.
    """

    def __init__(
        self,
        observers: Sequence[Observer] = (),
        observe_segment: "Callable[[TurnJournal], SegmentObserver] | None" = None,
    ) -> None:
        need_list("on_event", observers)
        for observer in observers:
            need_function("on_event: each", observer)
        #: See `Listeners.observe_segment`.
        self.observe_segment = observe_segment
        self._observers = tuple(observers)
        self._followers: defaultdict[str, list[MemoryObjectSendStream[TurnEvent]]] = defaultdict(list)
        #: The turns whose events are published: all of them if there is an observer.
        self.followed: Container[str] = _ALL if self._observers else self._followers

    def publish(self, event: TurnEvent) -> None:
        """Pass an event on. An observer's error is logged and changes nothing."""
        for observer in self._observers:
            try:
                observer(event)
            except BaseException as error:
                if holds(error, KeyboardInterrupt):  # Ctrl-C; nothing else from an observer may change the turn
                    raise
                about = {"turn": event.turn}
                _LOG.exception("an observer failed on %s of turn %s", event.type, event.turn, extra=about)
        for follower in tuple(self._followers.get(event.turn, ())):
            # A closed follower is gone. Its block removes it from the list.
            with suppress(anyio.BrokenResourceError):
                follower.send_nowait(event)

    @contextmanager
    def follow(self, turn_id: str) -> "Iterator[MemoryObjectReceiveStream[TurnEvent]]":
        """Follow the events of one turn from now on. A slow follower delays nobody: its events wait in memory."""
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
        """End the streams of the followers of a turn and its sub-agents, which nobody drives any more.

        Returns the number of events that the slowest follower has not read yet.
        """
        unread = 0
        for name in [name for name in self._followers if name == turn_id or name.startswith(f"{turn_id}:")]:
            for follower in self._followers.pop(name):
                unread = max(unread, follower.statistics().current_buffer_used)
                follower.close()
        return unread
