"""The stream of any turn keeps to the protocol; live, replayed and cut off it gives the same messages."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Unpack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue
from tests.hypothesis_examples import percent_of_examples

from turnwright import Agent, Engine, Outcome, TurnResult, agent_tool, approve, tool
from turnwright.journal.held_events import HeldEvents
from turnwright.model.protocol import Model, ModelError, ModelResponse, ResponseToolCall
from turnwright.model.retry import Backoff
from turnwright.tools import Tool
from turnwright.transcript.events import (
    FactEvent,
    Interrupt,
    ToolProgressEvent,
    TurnEndedEvent,
    TurnEvent,
    TurnPausedEvent,
    event_of,
)
from turnwright.transcript.transcript import Transcript
from turnwright_protocols.ag_ui import AgUiEncoder, messages_of
from turnwright_states import Cause, State
from turnwright_states import facts as f
from turnwright_testing import Answers, Cut, FlakyModel, Line, Scenario, clock, play
from turnwright_testing.play import EngineParts
from turnwright_testing.strategies import scenarios

from .client import Client, asked, comparable, heard

_FACTS = (FactEvent, TurnPausedEvent, TurnEndedEvent)


@tool
async def look(path: str = "") -> str:
    """Look at a file."""
    return path


@tool(needs_approval=True)
async def remove(path: str) -> str:
    """Remove a file."""
    return path


TOOLS: list[Tool] = [look, remove]

played = scenarios(TOOLS, agent=Agent(name="Anybody"))


def asks_first(scenario: Scenario, calls: int, answers: Sequence[int]) -> Scenario:
    """The same, but its model begins with calls that wait for a person, who answers so many of them at a time."""
    asking = ModelResponse(calls=tuple(ResponseToolCall("remove", {"path": f"{n}"}) for n in range(calls)))
    people = (*(Answers(first=first, decision=first) for first in answers), *scenario.people)
    return replace(scenario, script=(asking, *scenario.script), people=people)


pausing = st.builds(asks_first, played, st.integers(1, 3), st.lists(st.integers(1, 2), max_size=2))


def as_it_was_seen(message: dict[str, JsonValue], prompt: str) -> dict[str, JsonValue] | None:
    """A client that was there has the prompt that a guardrail withheld, and saw nothing of a withheld reply."""
    if not str(message.get("content")).startswith("withheld"):
        return message
    if message["role"] == "user":
        return {**message, "content": prompt}
    return {**message, "content": None} if message.get("toolCalls") else None


class Told:
    """A turn's events, from its journal and as they were received live; `messages` is the result."""

    def __init__(self, turn: str, facts: Sequence[tuple[int, f.Fact]], heard_live: Sequence[TurnEvent]) -> None:
        transcript, held_events = Transcript(), HeldEvents()
        self.turn = turn
        self.facts = facts
        self.journal: list[TurnEvent] = []
        #: How it stood after each fact: its state, and the interrupts that were open.
        self.stood: list[tuple[State, list[str]]] = []
        #: The events of several feeds in a row: each ends with the pause, also where only an answer was new.
        self.told_again: list[TurnEvent] = []
        for (seq, fact), following in zip(facts, [*(fact for _, fact in facts[1:]), None], strict=True):
            folded = transcript.turn
            folded.apply(fact)
            transcript.add(seq, fact)
            new = held_events.take(event_of(turn, seq, fact, transcript))
            self.journal += new
            self.stood.append(
                (folded.state, [f"{turn}/{interrupt.id}" for interrupt in Interrupt.all_of(turn, folded)])
            )
            self.told_again += new
            rests = folded.state is State.PAUSED and not isinstance(fact, f.Paused) and folded.interrupts
            if rests and isinstance(following, f.Answered | None):
                pending = tuple(Interrupt.of(turn, folded, interrupt) for interrupt in folded.interrupts.values())
                self.told_again.append(TurnPausedEvent(turn, seq, pending))
        messages = (m.model_dump(by_alias=True) for m in messages_of(turn, transcript.messages))
        start = facts[0][1]
        assert isinstance(start, f.TurnStarted)
        self.messages = comparable(filter(None, (as_it_was_seen(message, start.prompt) for message in messages)))
        self.usage = transcript.turn.usage
        self.live = list(self._followed(heard_live))

    def _followed(self, events: Sequence[TurnEvent]) -> list[TurnEvent]:
        """Return the events that a follower receives: facts that no driver published come from the journal."""
        followed: list[TurnEvent] = []
        seq = 0
        published = {event.seq for event in events if isinstance(event, _FACTS)}

        def unpublished(start: int, end: int | None) -> list[TurnEvent]:
            return [event for event in self.journal[start:end] if event.seq not in published]

        for event in events:
            is_fact = isinstance(event, _FACTS)
            followed += unpublished(seq, event.seq - is_fact)
            seq = max(seq, event.seq)
            followed.append(event)
        return [*followed, *unpublished(seq, None)]


def told(scenario: Scenario) -> list[Told]:
    """Play the scenario, and return its turns with their events."""
    events: defaultdict[str, list[TurnEvent]] = defaultdict(list)

    def build(**parts: Unpack[EngineParts]) -> Engine:
        return Engine(**parts, on_event=[lambda event: events[event.turn].append(event)])

    driven = play(scenario, tools=TOOLS, agent=Agent(name="Anybody"), build=build)
    return [Told(turn, scripted_turn.facts, events[turn]) for turn, scripted_turn in zip(events, driven, strict=True)]


def encoded(events: Sequence[TurnEvent], after: int = 0) -> Client:
    encoder = AgUiEncoder(asked(), after=after)
    return heard([*(encoded for event in events for encoded in encoder.encode(event)), *encoder.close()])


def check_the_end(client: Client, turn: Told, facts: int | None = None) -> None:
    """The last run ends as the turn did; or, of a turn of so many `facts`, as it stood."""
    *before, last = client.ends
    assert [end["outcome"]["type"] for end in before] == ["interrupt"] * len(before)
    fact = turn.facts[:facts][-1][1]
    if not isinstance(fact, f.TurnEnded):
        state, is_open = turn.stood[:facts][-1]
        if state is State.PAUSED and is_open:
            assert [interrupt["id"] for interrupt in last["outcome"]["interrupts"]] == is_open
        else:
            assert (last["type"], last["code"]) == ("RUN_ERROR", "left")
        return
    if fact.outcome is Outcome.FAILED:
        assert (last["type"], last["code"]) == ("RUN_ERROR", fact.reason)
        return
    done = fact.outcome in (Outcome.FINISHED, Outcome.SYNTHESIS_DONE)
    assert last["outcome"] == {"type": "success" if done else "cancelled"}
    assert ("result" in last) == done


@given(played)
def test_live_and_replayed_streams_are_valid_with_the_same_messages(scenario: Scenario) -> None:
    for turn in told(scenario):
        for events in (turn.live, turn.journal, turn.told_again):
            client = encoded(events)
            assert comparable(client.messages) == turn.messages
            check_the_end(client, turn)
            tokens = sum(usage["totalTokens"] for end in client.ends for usage in end.get("usage", ()))
            assert tokens == turn.usage.tokens


@given(played, st.data())
def test_returning_client_ends_with_the_same_messages(scenario: Scenario, data: st.DataObject) -> None:
    for turn in told(scenario):
        cut = data.draw(st.integers(1, len(turn.live)), label="events received before the connection broke")
        again = data.draw(st.integers(0, len(turn.live)), label="events that are live when it comes back")
        client = Client()
        first = AgUiEncoder(asked())
        client.hear(encoded for event in turn.live[:cut] for encoded in first.encode(event))
        known_seq = max(event.seq for event in turn.live[:cut])
        client.attach()
        # What lies behind is read from the journal; of a reply that streams in, only its end is received.
        written_seq = max((event.seq for event in turn.live[:again] if isinstance(event, _FACTS)), default=0)
        later = [event for event in turn.live[again:] if not isinstance(event, _FACTS) or event.seq > written_seq]
        second = AgUiEncoder(asked(run="r2"), after=known_seq)
        for event in [*turn.journal[:written_seq], *later]:
            client.hear(second.encode(event))
        client.hear(second.close())
        client.end()
        assert comparable(client.messages) == turn.messages
        check_the_end(client, turn)


@given(pausing, st.data())
def test_interrupted_stream_ends_with_the_state_of_the_turn(scenario: Scenario, data: st.DataObject) -> None:
    for turn in told(scenario):
        events = data.draw(st.sampled_from([turn.live, turn.journal, turn.told_again]), label="feed")
        pauses = [place for place, event in enumerate(events, 1) if isinstance(event, TurnPausedEvent)]
        cut = data.draw(st.integers(pauses[0] if pauses else 1, len(events)), label="events before it is cut off")
        written_seq = max((event.seq for event in events[:cut] if isinstance(event, _FACTS)), default=0)
        rests = [events[place - 1].seq for place in pauses if place <= cut]
        after = data.draw(
            st.sampled_from([0, *rests, written_seq]) | st.integers(0, written_seq), label="received before"
        )
        check_the_end(encoded(events[:cut], after), turn, written_seq)


@given(played, st.data())
def test_stream_of_later_events_alone_is_valid(scenario: Scenario, data: st.DataObject) -> None:
    for turn in told(scenario):
        start = data.draw(st.integers(0, len(turn.live)))
        encoded(turn.live[start:])
        encoded(turn.journal[min(start, len(turn.journal)) :])


@given(played, st.data())
def test_progress_at_any_time_leaves_the_stream_valid(scenario: Scenario, data: st.DataObject) -> None:
    for turn in told(scenario):
        at = data.draw(st.integers(0, len(turn.live)))
        seq = turn.live[at - 1].seq if at else 0
        progress = [ToolProgressEvent(turn.turn, seq, f"call0000{n}", "look", n / 2, 2.0) for n in (1, 2)]
        client = encoded([*turn.live[:at], *progress, *turn.live[at:]])
        assert comparable(client.messages) == turn.messages


# Sub-agents.

LEFT = Agent(name="Left", description="Does a part.", model="left", steps=3, max_pauses=1)
RIGHT = Agent(name="Right", description="Does another part.", model="right", steps=3)
ROOT = Agent(name="Root", model="root", steps=4)

_calls = st.sampled_from(
    [
        ResponseToolCall("Left", {"prompt": "left"}),
        ResponseToolCall("Right", {"prompt": "right"}),
        ResponseToolCall("look", {"path": "a"}),
        ResponseToolCall("remove", {"path": "a"}),
    ]
)
_lines = st.lists(
    st.builds(
        ModelResponse, text=st.sampled_from(["", "I look."]), calls=st.lists(_calls, min_size=1, max_size=3).map(tuple)
    )
    | st.builds(ModelResponse, text=st.just("Done."), reasoning=st.sampled_from(["", "hm"]))
    | st.builds(Cut, st.just(ModelResponse(text="So far.", reasoning="hm")), st.integers(0, 8))
    | st.just(ModelError("rejected", cause=Cause.REJECTED)),
    min_size=1,
    max_size=4,
).map(tuple)


async def team(scripts: Mapping[str, tuple[Line, ...]]) -> list[TurnEvent]:
    """Return all events of a turn and of its sub-agents; each approval is given."""
    events: list[TurnEvent] = []
    models: dict[str, Model] = {name: FlakyModel(script) for name, script in scripts.items()}
    engine = Engine(
        models=models.__getitem__,
        tools=[agent_tool(LEFT), agent_tool(RIGHT), *TOOLS],
        on_event=[events.append],
        backoff=Backoff(initial=0.0),
    )
    turn: TurnResult = await engine.run(ROOT, "hi")
    while turn.paused:
        turn = await engine.resume(turn.id, {interrupt.id: approve() for interrupt in turn.interrupts})
    return events


@pytest.mark.slow
@settings(max_examples=percent_of_examples(40))
@given(st.fixed_dictionaries({"root": _lines, "left": _lines, "right": _lines}), st.data())
def test_concurrent_sub_agents_form_a_single_valid_stream(
    scripts: Mapping[str, tuple[Line, ...]], data: st.DataObject
) -> None:
    events = clock.run(partial(team, scripts))
    whole = encoded(events)
    last = max(event.seq for event in events if event.turn == events[0].turn)
    again = encoded(events, after=data.draw(st.integers(1, last), label="after"))
    assert comparable(again.messages) == comparable(whole.messages)
    encoded(events[data.draw(st.integers(0, len(events)), label="start") :])


def test_reply_that_ends_later_keeps_its_place_in_a_snapshot() -> None:
    """A sub-agent begins its reply first, and the other one ends before it."""
    members = tuple(ResponseToolCall(name, {"prompt": "part"}) for name in ("Left", "Right"))
    look, done = ModelResponse(calls=(ResponseToolCall("look", {"path": "a"}),)), ModelResponse(text="Done.")
    events = clock.run(
        partial(team, {"root": (ModelResponse(calls=members), done), "left": (look, done), "right": (look, done)})
    )
    root, left_turn, right_turn = dict.fromkeys(event.turn for event in events)
    reply = next(
        number
        for number, event in enumerate(events)
        if event.turn == left_turn and isinstance(event, FactEvent) and isinstance(event.fact, f.ModelReplied)
    )
    of_right = [event for event in events[reply:] if event.turn == right_turn]
    events = [*events[:reply], *of_right, *(event for event in events[reply:] if event not in of_right)]
    last = max(event.seq for event in events if event.turn == root)
    assert comparable(encoded(events, after=last - 1).messages) == comparable(encoded(events).messages)
