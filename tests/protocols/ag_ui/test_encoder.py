"""The AG-UI events of a turn: its stream, its end, and what a client finds when it comes back."""

import json
from collections.abc import Callable, Sequence

import pytest
from ag_ui.core import DataSource, ImagePart, TextPart, UserMessage
from msgspec.structs import replace

from turnwright import Agent, Engine, Limits, agent_tool, reject, tool
from turnwright.message import FilePart
from turnwright.model.protocol import Model, ModelError, ModelResponse, ResponseToolCall
from turnwright.model.retry import Backoff
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.tools import ToolResult
from turnwright.transcript.events import (
    ResponseRestartedEvent,
    TextDeltaEvent,
    ToolCallDeltaEvent,
    ToolProgressEvent,
    TurnEndedEvent,
    TurnEvent,
    TurnPausedEvent,
)
from turnwright_protocols.ag_ui import AgUiEncoder, encode_events, messages_of, read_input, to_sse
from turnwright_states import REASONS, Cause, EndReason, Usage
from turnwright_testing import Cut, FlakyModel, Line

from .client import Client, Json, asked, comparable, heard

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")
NO_WAIT = Backoff(initial=0.0)
PROMPT = UserMessage(id="m1", content="hi")


@tool
async def note(n: int = 0) -> str:
    return f"noted {n}"


@tool
async def look(path: str) -> str:
    return path


@tool(needs_approval=True)
async def erase(path: str) -> str:
    return f"erased {path}"


async def live(engine: Engine, agent: Agent[None, object] = AGENT) -> list[TurnEvent]:
    async with engine.stream(agent, "hi") as events:
        return [event async for event in events]


def encode(events: Sequence[TurnEvent], after: int = 0, run: str = "r1") -> Client:
    encoder = AgUiEncoder(asked(PROMPT, run=run), after=after)
    return heard([*(encoded for event in events for encoded in encoder.encode(event)), *encoder.close()])


async def test_start_of_a_step_has_the_hint() -> None:
    model = ScriptedModel(*[asks_for(("note", {}))] * 3, "Done.")
    client = encode(await live(Engine(model=model, tools=[note], limits=Limits(nudges=1, stall_rounds=2))))
    metadata = [event.get("metadata") for event in client.events if event["type"] == "STEP_STARTED"]
    assert metadata == [None, None, None, {"turnwright": {"nudge": True, "stall": "nothing_new"}}]


async def test_turn_with_a_call_is_a_run_with_steps_messages_and_a_result() -> None:
    engine = Engine(model=ScriptedModel(asks_for(("note", {"n": 1}), text="I look."), "Done."), tools=[note])
    client = encode(await live(engine))
    assert client.types() == [
        "RUN_STARTED",
        "STEP_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "turnwright.call_started",
        "TOOL_CALL_RESULT",
        "STEP_FINISHED",
        "STEP_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
        "turnwright.turn_ended",
        "RUN_FINISHED",
    ]
    assert client.text() == ["I look.", "Done."]
    assert client.text("tool") == ["noted 1"]


async def test_ids_of_calls_are_unique_in_the_conversation() -> None:
    client, other_client = [
        encode(await live(Engine(model=ScriptedModel(asks_for(("note", {})), "Done."), tools=[note]))) for _ in range(2)
    ]
    ids = {event["toolCallId"] for event in client.events if "toolCallId" in event}
    assert len(ids) == 1
    assert not ids & {event.get("toolCallId") for event in other_client.events}


async def test_run_has_the_requested_ids_and_names_the_turn() -> None:
    events = await live(Engine(model=ScriptedModel("Done.")))
    first, *_, last = encode(events).events
    assert (first["threadId"], first["runId"], last["threadId"], last["runId"]) == ("s1", "r1", "s1", "r1")
    assert first["metadata"] == {"turnwright": {"turn": events[0].turn}}


async def test_reasoning_precedes_the_answer_and_is_closed() -> None:
    client = encode(await live(Engine(model=ScriptedModel(ModelResponse(text="Done.", reasoning="hm")))))
    types = client.types()
    assert types.index("REASONING_END") < types.index("TEXT_MESSAGE_START")
    assert client.text("reasoning") == ["hm"]


async def test_pieces_without_text_are_not_forwarded() -> None:
    events = await live(Engine(model=ScriptedModel("Done.")))
    turn, seq = events[0].turn, events[1].seq
    emptied = [*events[:2], TextDeltaEvent(turn, seq, 0, ""), TextDeltaEvent(turn, seq, 1, "Done."), *events[3:]]
    assert encode(emptied).text() == ["Done."]


async def test_answer_without_early_pieces_is_sent_whole() -> None:
    events = await live(Engine(model=ScriptedModel("one two three")))
    pieces = [event for event in events if isinstance(event, TextDeltaEvent)]
    client = encode([event for event in events if event is not pieces[0]])
    assert client.types().count("TEXT_MESSAGE_CONTENT") == 1
    assert client.text() == ["one two three"]


async def test_arguments_stream_and_the_rest_comes_with_the_reply() -> None:
    asks = asks_for(ResponseToolCall("look", {"path": "a b"}, '{ "path":"a b"}'))
    events = await live(Engine(model=FlakyModel([asks, "Done."]), tools=[look]))
    pieces = [event for event in events if isinstance(event, ToolCallDeltaEvent)]
    assert [piece.arguments_delta for piece in pieces] == ['{ "', 'path":"a b"}']
    # Of pieces that do not all arrive, the call is taken back: what the model wrote is not in the journal.
    for without, snapshots in (([], 0), (pieces[1:], 1), (pieces[:1], 0)):
        client = encode([event for event in events if event not in without])
        assert client.types().count("TOOL_CALL_START") == client.types().count("TOOL_CALL_END")
        (called,) = (call for message in client.messages for call in message.get("toolCalls", ()))
        assert json.loads(called["function"]["arguments"]) == {"path": "a b"}
        assert client.types().count("MESSAGES_SNAPSHOT") == snapshots


async def test_calls_keep_the_order_without_early_pieces() -> None:
    asks = asks_for(ResponseToolCall("look", {"path": "a"}, '{"path":"a"}'), ("note", {"n": 1}))
    events = await live(Engine(model=FlakyModel([asks, "Done."]), tools=[look, note]))
    for tool_name in ("", "other"):
        changed = [
            replace(event, tool=tool_name) if isinstance(event, ToolCallDeltaEvent) and event.tool == "look" else event
            for event in events
        ]
        (names,) = (
            [call["function"]["name"] for call in message["toolCalls"]]
            for message in encode(changed).messages
            if message.get("toolCalls")
        )
        assert names == ["look", "note"]


async def test_restarted_call_is_withdrawn_by_a_snapshot() -> None:
    asks = asks_for(ResponseToolCall("look", {"path": "a"}, '{"path":"a"}'))
    script: list[Line] = [Cut(asks, after=5), asks_for(("look", {"path": "b"})), "Done."]
    events = await live(Engine(model=FlakyModel(script), tools=[look], backoff=NO_WAIT))
    client = encode(events)
    begun = [place for place, kind in enumerate(client.types()) if kind == "TOOL_CALL_START"]
    assert client.types()[begun[0] + 1 : begun[0] + 6] == [
        *("TOOL_CALL_ARGS", "TOOL_CALL_ARGS", "turnwright.attempt_failed", "TOOL_CALL_END", "MESSAGES_SNAPSHOT"),
    ]
    (called,) = (call for message in client.messages for call in message.get("toolCalls", ()))
    assert json.loads(called["function"]["arguments"]) == {"path": "b"}


async def test_restarted_reply_is_withdrawn_by_a_snapshot_and_sent_again() -> None:
    model = FlakyModel(
        [Cut(ModelResponse(text="Wrong.", reasoning="oh"), after=8), ModelResponse(text="Right.", reasoning="ah")]
    )
    events = await live(Engine(model=model, backoff=NO_WAIT))
    assert any(isinstance(event, ResponseRestartedEvent) for event in events)
    client = encode(events)
    (void,) = [event for event in client.events if event["type"] == "MESSAGES_SNAPSHOT"]
    assert [(message["role"], message["content"]) for message in void["messages"]] == [
        ("user", "hi"),
        ("reasoning", ""),
    ]
    assert (client.text(), client.text("reasoning")) == (["Right."], ["ah"])
    assert client.custom("turnwright.attempt_failed")[0] | {"wait": 0} == {
        "seq": 3,
        "elapsed": client.custom("turnwright.attempt_failed")[0]["elapsed"],
        "attempt": 1,
        "cause": "interrupted",
        "retry": True,
        "wait": 0,
    }


def a_cap() -> Engine:
    return Engine(model=ScriptedModel(asks_for(("note", {})), "In short."), tools=[note], limits=Limits(steps=1))


def a_loop() -> Engine:
    return Engine(model=ScriptedModel(*[asks_for(("note", {}))] * 3, "Stuck."), tools=[note])


def a_failure() -> Engine:
    return Engine(model=ScriptedModel(ModelError("no such model", cause=Cause.NOT_FOUND)))


def an_answer() -> Engine:
    return Engine(model=ScriptedModel("Done."))


def a_synthesis() -> Engine:
    async def synthesize(_: object) -> str:
        return "In sum."

    return Engine(model=ScriptedModel(asks_for(("note", {}))), tools=[note], synthesize=synthesize)


@pytest.mark.parametrize(
    ("make", "outcome", "reason", "text"),
    [
        (an_answer, "success", "answered", ["Done."]),
        (a_synthesis, "success", "synthesized", ["In sum."]),
        (a_cap, "cancelled", "step_cap", ["In short."]),
        (a_loop, "cancelled", "doom_loop", ["Stuck."]),
    ],
)
async def test_run_stopped_by_a_limit_is_canceled_with_the_reason(
    make: Callable[[], Engine], outcome: str, reason: str, text: list[str]
) -> None:
    client = encode(await live(make()))
    assert client.ends[0]["outcome"] == {"type": outcome}
    (record,) = client.custom("turnwright.turn_ended")
    assert (record["reason"], record["text"]) == (reason, text[-1])
    assert client.ends[0].get("result") == (record if outcome == "success" else None)
    assert ("sentinel" in record) == (outcome == "cancelled")
    assert client.text() == text


async def test_failed_turn_is_an_error_with_the_reason_as_code() -> None:
    """The provider's own words stay on the server."""
    client = encode(await live(a_failure()))
    assert client.types()[-2:] == ["turnwright.turn_ended", "RUN_ERROR"]
    assert client.ends[0]["code"] == "model_error"
    assert client.ends[0]["message"] == REASONS[EndReason.MODEL_ERROR].means


async def test_aborted_turn_is_canceled_and_returns_undelivered_messages() -> None:
    engine = Engine(model=ScriptedModel(asks_for(("erase", {"path": "x"}))), tools=[erase])
    turn = await engine.run(AGENT, "hi")
    await engine.steer(turn.id, "stop that")
    await engine.abort(turn.id)
    client = encode([event async for event in engine.events(turn.id)])
    assert [end["outcome"]["type"] for end in client.ends] == ["interrupt", "cancelled"]
    assert client.custom("turnwright.turn_ended")[0]["undelivered"] == ["stop that"]


@pytest.mark.parametrize("partial", ["", " ", "\u200b"])
async def test_interrupted_empty_reply_is_no_message(partial: str) -> None:
    events = await live(Engine(model=ScriptedModel(ModelError("no", cause=Cause.BAD_REQUEST))))
    piece, ended = TextDeltaEvent(events[0].turn, events[1].seq, 0, partial), events[-1]
    assert isinstance(ended, TurnEndedEvent)
    client = encode([*events[:2], piece, *events[2:-1], replace(ended, partial=partial)])
    assert client.text() == []


async def test_usage_is_sent_for_each_run_separately() -> None:
    model = ScriptedModel(asks_for(("erase", {"path": "x"}), usage=Usage(input_tokens=5)), "Done.")
    engine = Engine(model=model, tools=[erase])
    turn = await engine.run(AGENT, "hi")
    await engine.resume(turn.id, {"approval-1": True})
    first, second = encode([event async for event in engine.events(turn.id)]).ends
    usage = {"model": "scripted", "inputTokens": 5, "outputTokens": 0, "totalTokens": 5}
    assert first["usage"] == [usage]
    assert second["usage"] == [usage | {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}]


async def test_unknown_usage_is_left_out() -> None:
    client = encode(await live(Engine(model=ScriptedModel(ModelResponse(text="Done.")))))
    assert "usage" not in client.ends[0]


async def test_run_after_a_pause_begins_with_messages_and_the_open_step() -> None:
    engine = Engine(model=ScriptedModel(asks_for(("erase", {"path": "x"})), "Done."), tools=[erase])
    first = await live(engine)
    await engine.resume(first[0].turn, {"approval-1": True})
    client = encode([event async for event in engine.events(first[0].turn)], after=first[-1].seq, run="r2")
    assert client.types()[:4] == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STEP_STARTED", "turnwright.answered"]
    assert client.types().count("TOOL_CALL_START") == 0
    assert client.ends[0]["runId"] == "r2"
    result = await engine.get(first[0].turn)
    messages = [message.model_dump(by_alias=True) for message in messages_of(result.id, result.messages)]
    assert comparable(client.messages)[0] == ["m1", *comparable(messages)[0][1:]]


async def test_client_with_every_event_receives_the_ending() -> None:
    events = await live(an_answer())
    client = encode(events, after=events[-1].seq)
    assert client.types() == ["RUN_STARTED", "MESSAGES_SNAPSHOT", "turnwright.turn_ended", "RUN_FINISHED"]
    assert client.text() == ["Done."]


async def test_client_without_messages_receives_the_prompt_with_files() -> None:
    engine = Engine(model=ScriptedModel("Done."))
    async with engine.stream(AGENT, "What is it?", files=[FilePart.of(b"x", "image/png", "x.png")]) as events:
        encoder = AgUiEncoder(asked())
        client = heard([event async for event in encode_events(events, encoder)])
    (content,) = [message["content"] for message in client.messages if message["role"] == "user"]
    assert content == [
        {"type": "text", "text": "What is it?"},
        {
            "type": "text",
            "text": "[file: x.png, image/png, 1 bytes]",
            "metadata": {"turnwright": {"file": {"name": "x.png", "media_type": "image/png", "size": 1}}},
        },
    ]


async def test_files_of_a_client_are_returned_unchanged() -> None:
    picture = ImagePart(source=DataSource(value="eA==", mime_type="image/png"), metadata={"filename": "x.png"})
    run = asked(UserMessage(id="m1", content=[TextPart(text="What is it?"), picture]))
    request = read_input(run)
    engine = Engine(model=ScriptedModel("A dot."))
    async with engine.stream(AGENT, request.prompt, files=request.files) as events:
        turn_events = [event async for event in events]
    encoder = AgUiEncoder(run, after=1)  # it comes back, and receives all messages
    client = heard([*(encoded for event in turn_events for encoded in encoder.encode(event)), *encoder.close()])
    (content,) = [message["content"] for message in client.messages if message["role"] == "user"]
    assert content == [
        {"type": "text", "text": "What is it?"},
        {
            "type": "image",
            "source": {"type": "data", "value": "eA==", "mimeType": "image/png"},
            "metadata": {"filename": "x.png"},
        },
    ]


async def test_activities_of_a_client_are_not_repeated() -> None:
    """A snapshot with one of them would drop all the others."""
    events = await live(an_answer())
    run = asked(PROMPT).model_validate(
        {
            "threadId": "s1",
            "runId": "r1",
            "messages": [{"id": "a1", "role": "activity", "activityType": "x", "content": {}}],
        }
    )
    encoder = AgUiEncoder(run, after=1)
    client = heard([*(encoded for event in events for encoded in encoder.encode(event)), *encoder.close()])
    assert "activity" not in {message["role"] for message in client.messages}


async def test_undriven_turn_ends_with_an_error() -> None:
    events = await live(an_answer())
    client = encode(events[:2])
    assert client.types()[-2:] == ["STEP_FINISHED", "RUN_ERROR"]
    assert client.ends[0]["code"] == "left"
    assert encode(events[:2], after=2).types() == [
        "RUN_STARTED",
        "MESSAGES_SNAPSHOT",
        "STEP_STARTED",
        "STEP_FINISHED",
        "RUN_ERROR",
    ]


async def asks_twice() -> tuple[Engine, TurnPausedEvent]:
    """A turn that rests with two things to answer."""
    model = ScriptedModel(asks_for(("erase", {"path": "x"}), ("erase", {"path": "y"})), "Done.")
    engine = Engine(model=model, tools=[erase])
    paused = (await live(engine))[-1]
    assert isinstance(paused, TurnPausedEvent)
    return engine, paused


def is_open(end: Json) -> list[str]:
    """Return the interrupts that the end of a run lists, by our ids."""
    assert end["outcome"]["type"] == "interrupt"
    return [interrupt["id"].rpartition("/")[2] for interrupt in end["outcome"]["interrupts"]]


@pytest.mark.parametrize("heard_before", ["nothing", "the pause", "all"])
async def test_turn_left_after_a_resumption_ends_with_an_error(heard_before: str) -> None:
    """The answered interrupts are not asked again."""
    engine, paused = await asks_twice()
    await engine.resume(paused.turn, {interrupt.id: True for interrupt in paused.interrupts})
    events = [event async for event in engine.events(paused.turn)]
    types = [event.type for event in events]
    for cut in (types.index("answered") + 2, types.index("paused") + 4, len(events) - 1):
        after = {"nothing": 0, "the pause": paused.seq, "all": events[cut - 1].seq}[heard_before]
        client = encode(events[:cut], after=after)
        assert (client.ends[-1]["type"], client.ends[-1].get("code")) == ("RUN_ERROR", "left")
        assert len(client.ends) == (2 if heard_before == "nothing" else 1)


@pytest.mark.parametrize("heard_before", ["nothing", "the pause", "all"])
@pytest.mark.parametrize("told_again", [False, True])
async def test_partially_answered_turn_ends_with_the_open_interrupt(heard_before: str, told_again: bool) -> None:
    """Whether the feed says again that it rests, or just ends."""
    engine, paused = await asks_twice()
    await engine.resume(paused.turn, {paused.interrupts[0].id: True})
    events = [event async for event in engine.events(paused.turn)]
    answer = next(event for event in events if event.type == "answered")
    events = events[: events.index(answer) + 1]
    if told_again:
        events.append(replace(paused, seq=answer.seq, interrupts=paused.interrupts[1:]))
    after = {"nothing": 0, "the pause": paused.seq, "all": answer.seq}[heard_before]
    client = encode(events, after=after)
    assert is_open(client.ends[-1]) == ["approval-2"]
    assert len(client.ends) == (2 if heard_before == "nothing" else 1)


async def test_followed_turn_ends_with_the_open_interrupt_after_an_answer() -> None:
    engine, paused = await asks_twice()
    encoder = AgUiEncoder(asked(PROMPT, run="r2"), after=paused.seq)
    async for event in engine.events(paused.turn):
        encoder.encode(event)
    async with engine.stream_resume(paused.turn, {"approval-1": reject("keep it")}) as events:
        client = heard([event async for event in encode_events(events, encoder)])
    assert is_open(client.ends[0]) == ["approval-2"]
    assert client.text("tool") == ["rejected by the person: keep it"]


async def test_repeated_pause_begins_no_run() -> None:
    engine, paused = await asks_twice()
    events = [event async for event in engine.events(paused.turn)]
    assert encode([*events, paused]).types() == encode(events).types()


async def test_turn_pausing_again_lists_the_new_interrupt() -> None:
    model = ScriptedModel(asks_for(("erase", {"path": "x"})), asks_for(("erase", {"path": "y"})), "Done.")
    engine = Engine(model=model, tools=[erase])
    first = await engine.run(AGENT, "hi")
    events = [event async for event in engine.events(first.id)]
    await engine.resume(first.id, {"approval-1": True})
    client = encode([event async for event in engine.events(first.id)], after=events[-1].seq)
    assert [is_open(end) for end in client.ends] == [["approval-2"]]


def test_error_before_the_turn_is_a_single_event() -> None:
    (event,) = AgUiEncoder(asked()).close("the session is busy")
    assert to_sse(event) == 'data: {"type":"RUN_ERROR","message":"the session is busy","code":"error"}\n\n'


async def test_no_event_follows_the_end_and_other_turns_are_ignored() -> None:
    events, other_events = await live(an_answer()), await live(an_answer())
    encoder = AgUiEncoder(asked(PROMPT))
    for event in events:
        assert encoder.encode(event) or isinstance(event, TextDeltaEvent)
        assert encoder.encode(other_events[0]) == []
    assert encoder.encode(events[-1]) == []
    assert encoder.close() == []


async def test_progress_is_an_activity_ending_with_the_call() -> None:
    events = await live(Engine(model=ScriptedModel(asks_for(("note", {})), "Done."), tools=[note]))
    started = next(event for event in events if event.type == "call_started")
    at = events.index(started) + 1
    progress = ToolProgressEvent(started.turn, started.seq, "call00001", "note", 1.0, 2.0, "half")
    client = encode([*events[:at], progress, *events[at:]])
    activities = [event for event in client.events if event["type"] == "ACTIVITY_SNAPSHOT"]
    call = f"{started.turn}/call00001"
    content = {"call": call, "tool": "note", "progress": 1.0, "total": 2.0, "message": "half"}
    assert [activity["content"] for activity in activities] == [content, content | {"status": "ok"}]
    assert {activity["messageId"] for activity in activities} == {f"{call}/progress"}


async def test_result_has_status_data_and_files() -> None:
    @tool
    async def draw() -> ToolResult:
        return ToolResult("drawn", structured={"n": 1}, files=(FilePart.of(b"x", "application/pdf"),))

    client = encode(await live(Engine(model=ScriptedModel(asks_for(("draw", {})), "Done."), tools=[draw])))
    (result,) = [event for event in client.events if event["type"] == "TOOL_CALL_RESULT"]
    assert result["metadata"] == {"turnwright": {"status": "ok", "structured": {"n": 1}}}
    assert [part["text"] for part in result["content"]] == ["drawn", "[file: application/pdf, 1 bytes]"]


async def test_content_and_address_of_files_are_not_sent() -> None:
    """Neither of those that a tool returned, nor of those of a prompt that the client did not send itself."""
    signed = FilePart(media_type="image/png", url="https://bucket/x.png?X-Amz-Signature=SECRET", name="x.png")
    inlined = FilePart.of(b"inlined secret", "text/plain", "a.txt")

    @tool
    async def draw() -> ToolResult:
        return ToolResult("drawn", files=(signed, inlined))

    engine = Engine(model=ScriptedModel(asks_for(("draw", {})), "Done."), tools=[draw])
    async with engine.stream(AGENT, "Draw.", files=[signed, inlined]) as events:
        turn_events = [event async for event in events]
    result = await engine.get(turn_events[0].turn)
    encoder, again = AgUiEncoder(asked()), AgUiEncoder(asked(), after=turn_events[-1].seq)
    frames = [to_sse(encoded) for event in turn_events for encoded in encoder.encode(event)]
    frames += [to_sse(encoded) for event in turn_events for encoded in again.encode(event)]
    frames += [to_sse(encoded) for encoded in again.close()]
    frames += [message.model_dump_json() for message in messages_of(result.id, result.messages)]
    assert [secret for secret in ("SECRET", "bucket", inlined.data) if secret in "".join(frames)] == []
    assert "[file: x.png, image/png]" in "".join(frames)
    assert "[file: a.txt, text/plain, 14 bytes]" in "".join(frames)


async def test_invalid_json_arguments_are_passed_on_unchanged() -> None:
    model = ScriptedModel(ModelResponse(calls=(ResponseToolCall("note", None, raw='{"n": '),)), "Done.")
    client = encode(await live(Engine(model=model, tools=[note])))
    assert [event["delta"] for event in client.events if event["type"] == "TOOL_CALL_ARGS"] == ['{"n": ']
    assert client.events[-1]["outcome"] == {"type": "success"}


async def test_half_a_surrogate_pair_does_not_break_the_stream() -> None:
    client = encode(await live(Engine(model=ScriptedModel("so \ud83d far"))))
    assert client.text() == ["so ? far"]


# Sub-agents.


def team(*script: str | ModelResponse, child: Sequence[str | ModelResponse]) -> tuple[Engine, list[TurnEvent]]:
    """Return an engine whose agent may call a Reader, and the events of both."""
    events: list[TurnEvent] = []
    models: dict[str, Model] = {"root": ScriptedModel(*script), "reader": ScriptedModel(*child)}
    reader = Agent(name="Reader", description="Reads.", model="reader", steps=2)
    engine = Engine(models=models.__getitem__, tools=[agent_tool(reader), note, erase], on_event=[events.append])
    return engine, events


ROOT = Agent(name="Lead", model="root")
DELEGATES = asks_for(("Reader", {"prompt": "read"}))


async def test_sub_agent_text_is_attributed_within_the_run() -> None:
    engine, events = team(DELEGATES, "Done.", child=[asks_for(("note", {}), text="I read."), "Read."])
    turn = await engine.run(ROOT, "hi")
    client = encode(events)
    child = f"{turn.id}:call00001"
    (start,) = [event for event in client.events if event["type"] == "SUBAGENT_STARTED"]
    assert (start["subagentRunId"], start["name"]) == (child, "Reader")
    assert start["parentToolCallId"] == f"{turn.id}/call00001"
    assert [event["outcome"] for event in client.events if event["type"] == "SUBAGENT_FINISHED"] == [
        {"type": "success"}
    ]
    authors = {
        m["content"]: m.get("subagentRunId") for m in client.messages if m["role"] == "assistant" and "content" in m
    }
    assert authors == {"I read.": child, "Read.": child, "Done.": None}
    assert client.types().count("RUN_STARTED") == 1


async def test_run_usage_includes_the_tokens_of_sub_agents() -> None:
    engine, events = team(DELEGATES, "Done.", child=["Read."])
    turn = await engine.run(ROOT, "hi")
    usages = encode(events).ends[0]["usage"]
    assert sum(usage["totalTokens"] for usage in usages) == turn.usage.tokens
    assert usages[1] == {"totalTokens": 2}


async def test_sub_agent_stopped_by_a_limit_has_not_succeeded() -> None:
    engine, events = team(DELEGATES, "Done.", child=[asks_for(("note", {"n": n})) for n in range(3)])
    await engine.run(ROOT, "hi")
    client = encode(events)
    (ended,) = [event for event in client.events if event["type"] == "SUBAGENT_ERROR"]
    assert ended["code"] == "step_cap"
    assert client.ends[0]["outcome"] == {"type": "success"}


async def test_asking_sub_agent_is_suspended_and_continues_in_the_next_run() -> None:
    engine, events = team(DELEGATES, "Done.", child=[asks_for(("erase", {"path": "x"})), "Read."])
    turn = await engine.run(ROOT, "hi")
    child, asked_for = f"{turn.id}:call00001", f"{turn.id}/call00001/approval-1"
    await engine.resume(turn.id, {turn.interrupts[0].id: True})
    client = encode(events)
    first, second = [event for event in client.events if event["type"] == "SUBAGENT_FINISHED"]
    assert first["outcome"] == {"type": "suspended", "interruptIds": [asked_for]}
    assert second["outcome"] == {"type": "success"}
    (interrupt,) = client.ends[0]["outcome"]["interrupts"]
    assert (interrupt["id"], interrupt["subagentRunId"]) == (asked_for, child)
    assert interrupt["toolCallId"] == f"{turn.id}/call00001"
    assert [event["runId"] for event in client.events if event["type"] == "RUN_STARTED"] == ["r1", "r1/2"]


async def test_sub_agent_without_an_end_does_not_keep_the_run_open() -> None:
    engine, events = team(DELEGATES, "Done.", child=["Read."])
    await engine.run(ROOT, "hi")
    cut = [event for event in events if not (isinstance(event, TurnEndedEvent) and ":" in event.turn)]
    client = encode(cut)
    assert [event["code"] for event in client.events if event["type"] == "SUBAGENT_ERROR"] == ["left"]


async def test_returning_client_receives_sub_agent_messages() -> None:
    engine, events = team(DELEGATES, "Done.", child=["Read."])
    await engine.run(ROOT, "hi")
    last = max(event.seq for event in events if ":" not in event.turn)
    assert encode(events, after=last).text() == ["Read.", "Done."]
