"""Events that wait for a verdict: the pieces of a reply, and a reply that is reviewed (docs/rules.md#guardrails)."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from turnwright.transcript.events import (
    DeltaEvent,
    FactEvent,
    OutputDeltaEvent,
    ResponseRestartedEvent,
    ResponseWithdrawnEvent,
    StreamEvent,
)
from turnwright.transcript.wording import without_answer
from turnwright_states import State
from turnwright_states.facts import AttemptFailed, Fact, ModelReplied, Reviewed

#: Parts of a reply that streams in.
_PIECES: Final = (DeltaEvent, OutputDeltaEvent)


class HeldEvents:
    """Keeps events of one turn back, and passes them on in their order.

    A reply in review waits for its verdict: it is passed on with its text and its answer if it was accepted, and
    without them otherwise. While one of `gates` is closed, the pieces of a reply wait too.
    """

    def __init__(self) -> None:
        #: The names of the closed gates.
        self.gates: set[str] = set()
        self._events: list[StreamEvent] = []
        self._reviewed = False

    @property
    def reviews(self) -> bool:
        """Whether a reply waits for its verdict."""
        return self._reviewed

    def take(self, event: StreamEvent) -> Sequence[StreamEvent]:
        """Return the events to pass on now that this one has come."""
        if isinstance(event, ResponseRestartedEvent | ResponseWithdrawnEvent):
            self._events = [held_event for held_event in self._events if not isinstance(held_event, _PIECES)]
            return (event,)
        fact = event.fact if isinstance(event, FactEvent) else None
        if self._reviewed:
            return self._during_review(event, fact)
        if isinstance(fact, ModelReplied) and fact.state is State.REVIEW:
            self._reviewed = True
            self._events.append(event)
            return ()
        if isinstance(event, _PIECES) and self.gates:
            self._events.append(event)
            return ()
        if isinstance(fact, AttemptFailed):
            self._events = []
        return (event,)

    def _during_review(self, event: StreamEvent, fact: Fact | None) -> Sequence[StreamEvent]:
        if isinstance(fact, Reviewed):
            return (*self._release_events(accepted=not fact.refused), event)
        if isinstance(event, _PIECES) or (fact is not None and fact.state is State.REVIEW):
            self._events.append(event)
            return ()
        return (*self._release_events(accepted=False), event)

    def open(self, gate: str) -> Sequence[StreamEvent]:
        """Open a gate, and return the events to pass on."""
        self.gates.discard(gate)
        if self.gates or self._reviewed:
            return ()
        events, self._events = self._events, []
        return events

    def drop(self) -> None:
        """Drop the pieces that were held back, and open all gates."""
        self.gates.clear()
        if not self._reviewed:
            self._events = []

    def _release_events(self, *, accepted: bool) -> Sequence[StreamEvent]:
        events, self._events, self._reviewed = self._events, [], False
        self.gates.clear()
        return events if accepted else [_withhold_text(event) for event in events if not isinstance(event, _PIECES)]


def _withhold_text(event: StreamEvent) -> StreamEvent:
    """Return the event of a reply that was not accepted, without its text and its typed answer."""
    if not isinstance(event, FactEvent) or not isinstance(event.fact, ModelReplied):
        return event
    calls = tuple(map(without_answer, event.fact.calls))
    return replace(event, fact=replace(event.fact, text="", reasoning="", reasoning_details=(), calls=calls))
