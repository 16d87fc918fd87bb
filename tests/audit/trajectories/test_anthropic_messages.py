"""Messages of Anthropic are read from documents, lines, logs of requests, and results of an evaluation."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.audit.trajectories.reading import (
    assert_a_cut_is_safe,
    assert_damage_is_safe,
    assert_garbage_is_safe,
    calls,
    damaged,
    read,
    recognized,
    results,
    results_of,
)

from turnwright_audit.measure import measure
from turnwright_audit.trajectories.source import UnreadableRecordingError

FORMAT = "anthropic-messages"


def call(own: str, day: int) -> dict[str, Any]:
    return {"type": "tool_use", "id": own, "name": "search", "input": {"day": day}}


MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "To Vienna, bitte schön 🚂"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Two dates.", "signature": "x"},
            {"type": "text", "text": "Let me look."},
            call("t1", 1),
            call("t2", 2),
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t2", "content": "none", "is_error": True},
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "08:12"}]},
            {"type": "text", "text": "Three steps are left."},
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "At 08:12."}]},
]


def result(name: str, score: float, *, stopped: bool) -> dict[str, Any]:
    """A result of an evaluation, whose results of calls are messages of a role of their own."""
    messages = [*MESSAGES[:2], {"role": "tool_result", "content": MESSAGES[2]["content"][:2]}, MESSAGES[3]]
    return {
        "task": {"id": name, "prompt": "?", "system": None},
        "trace": {
            "messages": messages,
            "natural_stop": stopped,
            "total_input_tokens": 300,
            "total_output_tokens": 40,
        },
        "score": {"score": score, "max_score": 2.0, "results": [{"check": "x", "passed": True}]},
    }


EVALUATION = {
    "model": "small",
    "results": [result("a", 2.0, stopped=True), result("b", 1.0, stopped=False)],
    "summary": {},
}


def dumps(value: Any) -> bytes:  # noqa: ANN401 (any JSON)
    return json.dumps(value, ensure_ascii=False).encode()


def lines(values: list[Any]) -> bytes:
    return b"\n".join(map(dumps, values)) + b"\n"


@pytest.mark.parametrize(
    "data",
    [
        dumps(MESSAGES),
        dumps({"model": "m", "max_tokens": 9, "messages": MESSAGES}),
        dumps([{"messages": MESSAGES}]),
        lines([{"messages": MESSAGES}]),
        lines(MESSAGES),
        json.dumps({"messages": MESSAGES}, indent=2).encode(),
    ],
    ids=["list", "request", "records", "conversation a line", "message a line", "indented"],
)
def test_conversation_is_read_from_each_form_of_file(data: bytes) -> None:
    assert recognized(data) == FORMAT
    [run] = read(data, FORMAT)
    assert [step.source for step in run.steps] == ["user", "agent", "system", "agent"]
    assert calls([run]) == {("search", '{"day": 1}'): 1, ("search", '{"day": 2}'): 1}
    assert results([run]) == 2
    assert results_of([run]) == ["none", "08:12"]
    assert (run.steps[1].message, run.steps[1].reasoning_content) == ("Let me look.", "Two dates.")


def test_evaluation_scores_become_success_labels() -> None:
    assert recognized(dumps(EVALUATION)) == FORMAT
    first, second = read(dumps(EVALUATION), FORMAT)
    assert (first.run_notes.run, first.run_notes.success, first.run_notes.ending) == ("a", True, "natural stop")
    assert (second.run_notes.run, second.run_notes.success, second.run_notes.ending) == ("b", False, "max turns")
    assert first.agent.model_name == "small"
    assert results([first, second]) == 4
    assert first.final_metrics is not None
    assert first.final_metrics.total_completion_tokens == 40


def request(count: int) -> dict[str, Any]:
    """The log of a request with so many messages; the next one is the reply."""
    reply = {
        "id": f"msg_{count}",
        "type": "message",
        "model": "small-2",
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 7},
        **MESSAGES[count],
    }
    return {"request": {"model": "small", "system": "You book.", "messages": MESSAGES[:count]}, "response": reply}


def test_continued_requests_are_a_single_run() -> None:
    for data in (dumps([request(1), request(3)]), lines([request(1), request(3)])):
        assert recognized(data) == FORMAT
        [run] = read(data, FORMAT)
        assert [step.source for step in run.steps] == ["system", "user", "agent", "system", "agent"]
        assert calls([run]) == calls(read(dumps(MESSAGES), FORMAT))
        metrics = run.steps[2].metrics
        assert metrics is not None
        assert (metrics.prompt_tokens, metrics.completion_tokens, metrics.cached_tokens) == (25, 7, 20)
        assert run.run_notes.ending == "end_turn"


def test_requests_of_two_conversations_are_two_runs() -> None:
    other_request = request(1)
    other_request["request"]["messages"] = [{"role": "user", "content": "And to Graz?"}]
    assert len(read(lines([request(1), other_request, request(3)]), FORMAT)) == 2


def test_failed_request_is_a_system_error() -> None:
    failed = {"request": {"messages": MESSAGES[:1]}, "response": {"type": "error", "error": {"type": "overloaded"}}}
    [run] = read(lines([failed, request(1)]), FORMAT)
    assert [step.source for step in run.steps] == ["user", "system", "agent"]


def test_empty_reply_is_a_step() -> None:
    last = request(3)
    last["response"]["content"] = []
    [run] = read(lines([request(1), last]), FORMAT)
    steps = [step for step in run.steps if step.source == "agent"]
    assert [step.metrics and step.metrics.completion_tokens for step in steps] == [7, 7]


def test_failed_server_call_is_an_error() -> None:
    content = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "trains"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "s1",
            "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
        },
    ]
    [run] = read(dumps([MESSAGES[0], {"role": "assistant", "content": content}]), FORMAT)
    measures = measure(run, "f")
    assert (measures.calls, measures.results, measures.errors) == (1, 1, 1)


def test_server_calls_have_results_in_the_reply() -> None:
    content = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "trains"}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"type": "web_search_result", "url": "u"}]},
        {"type": "text", "text": "Found."},
    ]
    data = dumps([MESSAGES[0], {"role": "assistant", "content": content}])
    assert recognized(data) == FORMAT
    [run] = read(data, FORMAT)
    assert calls([run]) == {("web_search", '{"query": "trains"}'): 1}
    assert results([run]) == 1


def test_reminders_of_the_program_open_no_turn() -> None:
    reminder = {"type": "text", "text": "<system-reminder>\nUse the plan.\n</system-reminder>"}
    question = {"role": "user", "content": [reminder, {"type": "text", "text": "And the train?"}]}
    mark = {"type": "text", "text": "[Request interrupted by user]"}
    more = [{"role": "user", "content": [reminder, mark]}, {"role": "assistant", "content": "Yes."}, question]
    [run] = read(dumps([*MESSAGES, *more]), FORMAT)
    assert [step.source for step in run.steps[-3:]] == ["system", "agent", "user"]


def test_recording_without_a_message_is_unreadable() -> None:
    with pytest.raises(UnreadableRecordingError):
        read(b'{"messages": []}', FORMAT)


EVENTS: list[dict[str, Any]] = [
    {
        "type": "message_start",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "small-2",
            "content": [],
            "usage": {"input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 1},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "I "}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "look."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {**call("t1", 0), "input": {}}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"day": '}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 15}},
    {"type": "message_stop"},
]


def test_stream_events_form_a_reply() -> None:
    stream = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in EVENTS)
    for data in (lines(EVENTS), stream.encode()):
        assert recognized(data) == FORMAT
        [run] = read(data, FORMAT)
        assert [step.message for step in run.steps] == ["I look."]
        assert calls([run]) == {("search", '{"day": 1}'): 1}
        metrics = run.steps[0].metrics
        assert metrics is not None
        assert (metrics.prompt_tokens, metrics.completion_tokens, metrics.cached_tokens) == (25, 15, 20)
        assert run.run_notes.ending == "tool_use"


RECORDINGS = [dumps(MESSAGES), dumps(EVALUATION), lines(MESSAGES), lines([request(1), request(3)]), lines(EVENTS)]


@given(data=st.sampled_from(RECORDINGS), share=st.floats(0, 1))
def test_no_cut_invents_a_call(data: bytes, share: float) -> None:
    assert_a_cut_is_safe(data, int(share * len(data)), FORMAT)


@given(document=st.one_of(damaged(EVALUATION), damaged(MESSAGES), damaged([request(1), request(3)])))
def test_values_of_wrong_types_are_left_out(document: Any) -> None:  # noqa: ANN401 (any JSON)
    assert_damage_is_safe(dumps(document), dumps(EVALUATION), FORMAT)


@pytest.mark.parametrize("at", range(len(MESSAGES)))
def test_line_of_garbage_is_left_out(at: int) -> None:
    assert_garbage_is_safe(list(map(dumps, MESSAGES)), at, FORMAT)


@pytest.mark.parametrize("at", range(1, len(EVENTS)))
def test_event_of_garbage_is_left_out(at: int) -> None:
    assert_garbage_is_safe(list(map(dumps, EVENTS)), at, FORMAT)
