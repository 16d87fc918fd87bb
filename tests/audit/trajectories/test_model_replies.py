"""Recorded streams are read as the clients read them."""

import json
from typing import Any

import pytest
from tests.audit.trajectories.reading import calls, read, recognized, results
from tests.engine.model.chunks import chunk
from tests.engine.model.provider_streams import PARIS, RAW, STREAMS, entry

from turnwright.model.http.text_buffer import MAX_CALLS
from turnwright.model.protocol import ModelResponse
from turnwright_audit.measure import measure
from turnwright_audit.trajectories.atif import StepMetrics, Trajectory


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
def test_chat_stream_reads_as_the_client_reads_it(provider: str) -> None:
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


def test_whole_chat_reply_reads_as_the_client_reads_it() -> None:
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
    message = {"role": "assistant", "tool_calls": [entry(None, f"call_{number}") for number in range(MAX_CALLS + 9)]}
    whole, streamed = json.dumps([message]).encode(), lines([chunk(message)])
    for data, lost in ((whole, 9), (streamed, 1)):
        [run] = read(data, "openai-chat")
        assert calls([run]).total() == MAX_CALLS
        assert measure(run, "f").lost_calls == lost
