"""The events of a listener, as values and as lines of JSON; and how they are passed on."""

import asyncio
import json
from collections.abc import Callable

import pytest
from pydantic import JsonValue

from turnwright import Agent, Engine, FilePart, Message, ToolResult, tool
from turnwright.journal.event_bus import EventBus
from turnwright.message import TextPart, ToolCallPart, ToolResultPart
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.transcript.events import (
    FactEvent,
    Interrupt,
    ReasoningDeltaEvent,
    ResponseRestartedEvent,
    TextDeltaEvent,
    TurnEndedEvent,
    TurnEvent,
    TurnPausedEvent,
)
from turnwright_states import EndReason, InterruptKind, Outcome, State, Usage
from turnwright_states import facts as f

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")


@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"


async def lines(engine: Engine) -> list[dict[str, object]]:
    """Every event of a turn as the command line prints it."""
    async with engine.stream(AGENT, "hi") as events:
        return [json.loads(json.dumps(event.to_json())) async for event in events]


async def test_every_line_begins_with_type_turn_and_seq() -> None:
    json_lines = await lines(Engine(model=ScriptedModel(asks_for(("note", {})), "Done."), tools=[note]))
    assert all(list(line)[:3] == ["type", "turn", "seq"] for line in json_lines)
    assert len({line["turn"] for line in json_lines}) == 1
    assert [line["type"] for line in json_lines if not str(line["type"]).endswith("_delta")] == [
        "turn_started",
        "step_started",
        "model_replied",
        "call_started",
        "call_settled",
        "step_finished",
        "step_started",
        "model_replied",
        "step_finished",
        "turn_ended",
    ]


async def test_line_has_the_size_of_a_file_and_no_content() -> None:
    """Of the prompt, of what was said before, of a result: a line of megabytes serves nobody, and the facts keep it."""
    picture = FilePart.of(b"png" * 7, "image/png", "a.png")
    linked = FilePart(media_type="image/png", url="https://example.org/a.png")
    prompt_message = Message(role="user", parts=(TextPart(text="Look."), picture))
    result_message = Message(
        role="tool", parts=(ToolResultPart(call="c1", name="draw", text="drawn", files=(picture,)),)
    )
    call_message = Message(role="assistant", parts=(ToolCallPart(id="c1", name="draw"),))

    @tool
    async def draw() -> ToolResult:
        return ToolResult("drawn", {"data": "kept", "media_type": "x"}, (picture, linked))

    engine = Engine(model=ScriptedModel(asks_for(("draw", {})), "Done."), tools=[draw])
    async with engine.stream(
        AGENT, "hi", files=[picture, linked], message_history=[prompt_message, call_message, result_message]
    ) as events:
        heard = [event async for event in events]
    json_lines = [event.to_json() for event in heard]
    of_picture = {"media_type": "image/png", "name": "a.png", "size": 21}
    of_linked = {"media_type": "image/png", "url": "https://example.org/a.png"}
    (settled,) = (line for line in json_lines if line["type"] == "call_settled")
    assert settled["files"] == [of_picture, of_linked]
    assert settled["structured"] == {"data": "kept", "media_type": "x"}, "the tool's own data is left alone"
    assert json_lines[0]["files"] == [of_picture, of_linked]
    assert picture.data not in json.dumps(json_lines)
    assert json.dumps(json_lines[0]["message_history"]).count('"size": 21') == 2
    facts = [event.fact for event in heard if isinstance(event, FactEvent)]
    assert any(isinstance(fact, f.CallSettled) and fact.files[0]["data"] == picture.data for fact in facts)


async def test_last_line_of_an_ended_turn_has_the_result() -> None:
    *_, last = await lines(Engine(model=ScriptedModel("Done.")))
    del last["turn"], last["seq"]
    assert last == {
        "type": "turn_ended",
        "outcome": "finished",
        "reason": "answered",
        "also_reached": [],
        "steps": 1,
        "tool_calls": 0,
        "text": "Done.",
        "usage": {"input_tokens": 1, "output_tokens": 1, "cost": 0.0, "cached_tokens": 0, "reasoning_tokens": 0},
    }


async def test_last_line_of_a_paused_turn_has_the_interrupts() -> None:
    @tool(needs_approval=True)
    async def erase(path: str) -> str:
        return path

    *_, last = await lines(Engine(model=ScriptedModel(asks_for(("erase", {"path": "x"}))), tools=[erase]))
    assert last["type"] == "paused"
    assert last["interrupts"] == [
        {
            "id": "approval-1",
            "kind": "approval",
            "tool": "erase",
            "call": "call00001",
            "key": f"{last['turn']}:call00001",
            "question": "may erase run?",
            "arguments": {"path": "x"},
            "choices": [],
        }
    ]


def test_question_is_printed_without_the_arguments() -> None:
    interrupt = Interrupt("question-1", InterruptKind.QUESTION, "ask", "Which?", {"question": "Which?"}, ("a", "b"))
    assert interrupt.to_json() == {
        "id": "question-1",
        "kind": "question",
        "tool": "ask",
        "question": "Which?",
        "choices": ["a", "b"],
    }


def test_fact_line_omits_empty_fields_and_the_hash() -> None:
    fact = f.CallStarted(call="call00001", elapsed=1.5, state=State.TOOL_EXEC, hash="00c0ffee")
    assert FactEvent("t1", 7, fact).to_json() == {
        "type": "call_started",
        "turn": "t1",
        "seq": 7,
        "call": "call00001",
        "elapsed": 1.5,
        "state": "TOOL_EXEC",
    }


async def test_call_events_carry_the_tool_name() -> None:
    """Live and from the journal, also a call that is answered without having run."""

    @tool
    async def look() -> str:
        return "seen"

    def told(event: TurnEvent) -> tuple[str, str, JsonValue] | None:
        if isinstance(event, FactEvent) and isinstance(event.fact, f.CallStarted | f.CallSettled):
            return event.type, event.tool, event.to_json()["tool"]
        return None

    model = ScriptedModel(asks_for(("look", {}), ("peek", {})), "Done.")
    async with Engine(model=model, tools=[look]) as engine:
        async with engine.stream(Agent(name="Looker"), "Look.") as events:
            live = [event async for event in events]
        journal = [event async for event in engine.events(live[0].turn)]
    expected = [("call_settled", "peek"), ("call_started", "look"), ("call_settled", "look")]
    for heard in (live, journal):
        assert [line for event in heard if (line := told(event))] == [(kind, name, name) for kind, name in expected]


def test_pieces_and_restarts_are_written_as_lines() -> None:
    assert TextDeltaEvent("t1", 2, 0, "a").to_json() == {
        "type": "text_delta",
        "turn": "t1",
        "seq": 2,
        "index": 0,
        "text": "a",
    }
    assert ReasoningDeltaEvent("t1", 2, 0, "a").to_json()["type"] == "reasoning_delta"
    assert ResponseRestartedEvent("t1", 2).to_json() == {"type": "response_restarted", "turn": "t1", "seq": 2}


def test_error_fields_are_present_only_after_an_error() -> None:
    def turn_ended(error: str) -> TurnEndedEvent:
        return TurnEndedEvent("t1", 9, Outcome.FAILED, EndReason.MODEL_ERROR, (), 1, 0, "", Usage(), error)

    assert turn_ended("no route").to_json()["error"] == "no route"
    assert "error" not in turn_ended("").to_json()


# The hub.


def heard_by(log: list[str]) -> Callable[[TurnEvent], None]:
    return lambda event: log.append(f"{event.type} {event.turn}")


async def test_follower_receives_a_single_turn_and_observer_all() -> None:
    log: list[str] = []
    hub = EventBus([heard_by(log)])
    with hub.follow("t1") as events:
        hub.publish(ResponseRestartedEvent("t2", 1))
        hub.publish(ResponseRestartedEvent("t1", 1))
        assert await anext(events) == ResponseRestartedEvent("t1", 1)
        assert not events.unread
    assert log == ["response_restarted t2", "response_restarted t1"]


async def test_slow_follower_delays_no_other_and_misses_nothing() -> None:
    hub = EventBus()
    with hub.follow("t1") as slow, hub.follow("t1") as quick:
        for seq in range(1000):
            hub.publish(ResponseRestartedEvent("t1", seq))
        hub.close("t1")
        assert [event.seq async for event in quick] == list(range(1000))
        assert [event.seq async for event in slow] == list(range(1000))


async def test_events_that_wait_are_read_in_one_round_of_the_loop() -> None:
    rounds: list[None] = []
    hub = EventBus()
    with hub.follow("t1") as events:
        for seq in range(3):
            hub.publish(ResponseRestartedEvent("t1", seq))
        asyncio.get_running_loop().call_soon(rounds.append, None)
        assert [(await anext(events)).seq for _ in range(3)] == [0, 1, 2]
        assert rounds == []


async def test_two_waiting_readers_of_a_follower_share_its_events() -> None:
    hub = EventBus()
    with hub.follow("t1") as events:
        readers = [asyncio.ensure_future(anext(events)) for _ in range(2)]
        await asyncio.sleep(0)
        for seq in range(2):
            hub.publish(ResponseRestartedEvent("t1", seq))
        assert [event.seq for event in await asyncio.gather(*readers)] == [0, 1]


async def test_departed_follower_does_not_affect_the_publisher() -> None:
    """It closed its end, or its stream was closed; the publisher does not notice, and the others receive more."""
    hub = EventBus()
    with hub.follow("t1") as gone, hub.follow("t1") as there:
        await gone.aclose()
        hub.publish(ResponseRestartedEvent("t1", 1))
        assert await anext(there) == ResponseRestartedEvent("t1", 1)
        hub.close("t1")
        hub.publish(ResponseRestartedEvent("t1", 2))
        assert [event async for event in there] == []


async def test_events_of_departed_followers_are_discarded() -> None:
    hub = EventBus()
    with hub.follow("t1"):
        pass
    hub.publish(ResponseRestartedEvent("t1", 1))
    with hub.follow("t1") as events:
        assert not events.unread


def test_paused_event_compares_by_value() -> None:
    interrupt = Interrupt("doom-1", InterruptKind.DOOM_LOOP)
    assert TurnPausedEvent("t1", 3, (interrupt,)) == TurnPausedEvent("t1", 3, (interrupt,))
