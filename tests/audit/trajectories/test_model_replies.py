"""Recorded streams are read as the clients read them."""

import json
from typing import Any

import msgspec
import pytest
from tests.audit.trajectories.reading import calls, read, recognized, results
from tests.engine.model.chunks import chunk
from tests.engine.model.openai_responses.events import (
    SEARCH,
    added,
    arguments,
    call,
    completed,
    created,
    incomplete,
    message,
    reasoning,
    sse,
    streamed,
    text,
)
from tests.engine.model.provider_streams import PARIS, RAW, STREAMS, entry

from turnwright.model.anthropic.stream import MessagesStream
from turnwright.model.http.text_buffer import MAX_CALLS
from turnwright.model.openai_responses.stream import ResponsesStream
from turnwright.model.protocol import ModelResponse
from turnwright_audit.measure import measure
from turnwright_audit.trajectories.atif import StepMetrics, Trajectory
from turnwright_audit.trajectories.readers.chat_messages import Message, read_chat_reply
from turnwright_audit.trajectories.readers.model_replies import UNREADABLE_CALL

Event = dict[str, Any]
FUNCTION = call("look", '{"n": 1}')


def assert_same_reply(run: Trajectory, reply: ModelResponse) -> None:
    """The only step of the run has the text, the calls and the tokens of the reply."""
    [step] = run.steps
    assert (step.message, step.reasoning_content or "") == (reply.text, reply.reasoning)
    calls = step.tool_calls or []
    assert [(call.function_name, call.arguments) for call in calls] == [
        (call.name, call.arguments) for call in reply.calls
    ]
    assert all(call.id in ("", recorded.tool_call_id) for call, recorded in zip(reply.calls, calls, strict=True))
    metrics = step.metrics
    assert (metrics is None) == (reply.usage is None)
    if metrics is not None and reply.usage is not None:
        assert (metrics.prompt_tokens, metrics.completion_tokens) == (
            reply.usage.input_tokens,
            reply.usage.output_tokens,
        )
        assert (metrics.cached_tokens or 0, metrics.cost_usd or 0) == (reply.usage.cached_tokens, reply.usage.cost)


@pytest.mark.parametrize("provider", STREAMS)
def test_chat_stream_reads_as_in_the_client(provider: str) -> None:
    data, reply = STREAMS[provider]
    assert recognized(data) == "openai-chat"
    [run] = read(data, "openai-chat")
    assert_same_reply(run, reply)


def lines(values: list[Any]) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def test_chunks_with_changing_ids_are_a_single_reply() -> None:
    chunks = [chunk({"role": "assistant", "content": "a"}, id="1"), chunk({"content": "b"}, "stop", id="2")]
    [run] = read(lines(chunks), "openai-chat")
    assert [step.message for step in run.steps] == ["ab"]


def test_chunks_of_an_interrupted_reply_end_where_another_begins() -> None:
    chunks = [chunk({"role": "assistant", "content": text}, id=text) for text in ("a", "b")]
    runs = read(lines(chunks), "openai-chat")
    assert [step.message for run in runs for step in run.steps] == ["a", "b"]


def test_whole_chat_reply_reads_as_in_the_client() -> None:
    """Its calls may be objects, its content may have thinking, and its usage may be in words of another API."""
    message = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "a"}],
        "tool_calls": [entry(None, "call_1", PARIS), entry(None, "call_1", PARIS)],
    }
    usage = {"input_tokens": 5, "output_tokens": 7, "prompt_cache_hit_tokens": 2, "cost": 0.5}
    response = {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": usage}
    [run] = read(lines([{"request": {"messages": []}, "response": response}]), "openai-chat")
    [step] = run.steps
    assert (step.message, step.reasoning_content) == ("a", "Hm.")
    assert calls([run]) == {("get_weather", RAW): 2}
    assert step.metrics == StepMetrics(prompt_tokens=5, completion_tokens=7, cached_tokens=2, cost_usd=0.5)


def test_result_of_a_call_with_a_long_id_belongs_to_the_call() -> None:
    """Some gateways write the signature of the reasoning into the id."""
    call_id = "call_1__thought__" + "x" * 4000
    messages = [
        {"role": "assistant", "tool_calls": [entry(None, call_id)]},
        {"role": "tool", "tool_call_id": call_id, "content": "sun"},
    ]
    assert results(read(json.dumps(messages).encode(), "openai-chat")) == 1


def test_calls_beyond_the_limit_of_a_reply_count_as_unreadable() -> None:
    message: Event = {
        "role": "assistant",
        "tool_calls": [entry(None, f"call_{number}") for number in range(MAX_CALLS + 9)],
    }
    whole, streamed = json.dumps([message]).encode(), lines([chunk(message)])
    for data, lost in ((whole, 9), (streamed, 1)):
        [run] = read(data, "openai-chat")
        assert calls([run]).total() == MAX_CALLS
        assert measure(run, "f").lost_calls == lost


def begin(index: Any, kind: str, **fields: Any) -> Event:  # noqa: ANN401 (any JSON)
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **fields}}


def change(index: Any, **fields: Any) -> Event:  # noqa: ANN401 (any JSON)
    return {"type": "content_block_delta", "index": index, "delta": fields}


def stop(index: int) -> Event:
    return {"type": "content_block_stop", "index": index}


def end(reason: str, **usage: int) -> Event:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


START: Event = {
    "type": "message_start",
    "message": {"id": "m", "type": "message", "role": "assistant", "model": "s", "usage": {"input_tokens": 5}},
}
STOP: Event = {"type": "message_stop"}
MESSAGES: dict[str, list[Event]] = {
    "zeros in the last usage": [START, end("end_turn", output_tokens=7), end("end_turn", output_tokens=0), STOP],
    "cache": [START, end("end_turn", output_tokens=7, cache_read_input_tokens=3, cache_creation_input_tokens=2)],
    "content in the first event": [
        {"type": "message_start", "message": {**START["message"], "content": [{"type": "text", "text": "a"}]}},
        end("end_turn"),
    ],
    "text that never began": [START, change(0, text="a"), change(1, thinking="b"), end("end_turn"), STOP],
    "two texts": [
        *(START, begin(0, "text", text=""), change(0, text="a"), stop(0)),
        *(begin(1, "text", text="b"), stop(1), end("end_turn")),
    ],
    "arguments without an index": [
        *(START, begin(0, "tool_use", id="c", name="look", input={})),
        *(change(None, partial_json='{"n": '), change(None, partial_json="1}"), end("tool_use")),
    ],
    "arguments as an object": [
        *(START, begin(0, "tool_use", id="c", name="look", input={})),
        *(change(0, partial_json={"n": 1}), stop(0), end("tool_use")),
    ],
    "arguments in the first event": [START, begin(0, "tool_use", id="c", name="look", input={"n": 1}), end("tool_use")],
    "call without arguments": [START, begin(0, "tool_use", id="c", name="look", input={}), stop(0), end("tool_use")],
}


@pytest.mark.parametrize("case", MESSAGES)
def test_anthropic_stream_reads_as_in_the_client(case: str) -> None:
    data = lines(MESSAGES[case])
    assert recognized(data) == "anthropic-messages"
    [run] = read(data, "anthropic-messages")
    stream = MessagesStream()
    stream.feed(b"".join(b"data: " + line + b"\n\n" for line in data.splitlines()))
    assert_same_reply(run, stream.reply())


HOSTED: list[Event] = [
    *(START, begin(0, "server_tool_use", id="s", name="web_search", input={})),
    *(change(0, partial_json='{"query": "a"'), change(0, partial_json="}"), stop(0)),
    *(begin(1, "web_search_tool_result", tool_use_id="s", content=[]), stop(1)),
    *(begin(2, "tool_use", id="c", name="look", input={"n": 1}), stop(2), end("tool_use"), STOP),
]


def test_streamed_server_call_is_a_call_with_a_result() -> None:
    [run] = read(lines(HOSTED), "anthropic-messages")
    assert calls([run]) == {("web_search", '{"query": "a"}'): 1, ("look", '{"n": 1}'): 1}
    assert results([run]) == 1


@pytest.mark.parametrize("lost", [2, 3, 7])
def test_call_of_a_damaged_anthropic_stream_counts_as_unreadable(lost: int) -> None:
    data = [json.dumps(event).encode() for event in HOSTED]
    data[lost] = b"{"
    [run] = read(b"\n".join(data), "anthropic-messages")
    assert not calls([run])
    assert measure(run, "f").lost_calls == (2 if lost != 7 else 1)


def test_call_of_an_interrupted_anthropic_stream_counts_as_unreadable() -> None:
    [run] = read(lines(HOSTED[:3]), "anthropic-messages")
    assert not calls([run])
    assert measure(run, "f").lost_calls == 1


RESPONSES: dict[str, list[Event]] = {
    "pieces": [created(), added(0, message()), text(0, "a"), text(0, "b"), completed()],
    "two messages": [created(), *streamed(0, message("a")), *streamed(1, message("b", item_id="m2")), completed()],
    "reasoning": [created(), *streamed(0, reasoning("Hm.", "So.")), *streamed(1, message("a")), completed()],
    "call in pieces": [created(), *streamed(0, FUNCTION, ['{"n": ', "1}"]), completed()],
    "call in the last event": [created(), completed(FUNCTION)],
    "no created event": [*streamed(0, FUNCTION), completed(FUNCTION)],
    "cut off": [created(), *streamed(0, message("a")), incomplete("max_output_tokens")],
    "refusal": [created(), {"type": "response.refusal.delta", "output_index": 0, "delta": "No."}, completed()],
    "cost": [created(), completed(message("a"), usage={"input_tokens": 5, "output_tokens": 7, "cost": 0.5})],
}


@pytest.mark.parametrize("case", RESPONSES)
def test_responses_stream_reads_as_in_the_client(case: str) -> None:
    data = sse(*RESPONSES[case])
    assert recognized(data) == "openai-responses"
    [run] = read(data, "openai-responses")
    stream = ResponsesStream()
    stream.feed(data)
    assert_same_reply(run, stream.reply())


def test_hosted_call_of_a_streamed_response_has_a_result() -> None:
    [run] = read(sse(created(), *streamed(0, SEARCH), *streamed(1, FUNCTION), completed()), "openai-responses")
    assert list(calls([run])) == [("web_search", '{"query": "weather", "type": "search"}'), ("look", '{"n": 1}')]
    assert results([run]) == 1


def test_lost_pieces_of_a_call_are_in_the_last_event() -> None:
    events = [sse(event) for event in (created(), *streamed(0, FUNCTION, ['{"n": ', "1}"]), completed(FUNCTION))]
    for at in range(1, len(events) - 1):
        [run] = read(b"".join([*events[:at], b"data: {\n\n", *events[at + 1 :]]), "openai-responses")
        assert calls([run]) == {("look", '{"n": 1}'): 1}


def test_lost_pieces_of_a_response_make_the_call_unreadable() -> None:
    events = [sse(event) for event in (created(), added(0, FUNCTION), arguments(0, '{"n": '), arguments(0, "1}"))]
    for data in (b"".join(events[:-1]), b"".join([*events[:2], b"data: {\n\n", *events[3:]])):
        [run] = read(data, "openai-responses")
        assert not calls([run])
        assert measure(run, "f").lost_calls == 1


def test_error_in_a_responses_stream_is_a_system_error() -> None:
    error: Event = {"type": "error", "code": "server_error", "message": "It broke.", "param": None}
    [run] = read(sse(created(), *streamed(0, message("a")), error), "openai-responses")
    assert [(step.source, step.message) for step in run.steps] == [("agent", "a"), ("system", "It broke.")]


@pytest.mark.parametrize(
    "fields", [{"function_call": "bash ls"}, {"tool_calls": "bash ls"}, {"tool_calls": ["bash ls"]}]
)
def test_call_given_as_a_text_counts_as_unreadable(fields: dict[str, object]) -> None:
    recorded = msgspec.convert({"role": "assistant", **fields}, Message)
    assert read_chat_reply(recorded).calls == (UNREADABLE_CALL,)
