"""Responses of OpenAI are read from items, responses, chains and logs of requests."""

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

FORMAT = "openai-responses"


def call(own: str, name: str, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{own}", "call_id": own, "name": name, "arguments": arguments}


def output(own: str, value: Any) -> dict[str, Any]:  # noqa: ANN401 (any JSON)
    return {"type": "function_call_output", "call_id": own, "output": value}


def text(value: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": value, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


ASKED: dict[str, Any] = {"role": "user", "content": "Is it open, bitte schön?"}
FIRST: list[dict[str, Any]] = [
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Two places."}]},
    call("c1", "look", '{"place": 1}'),
    call("c2", "look", '{"place": 2}'),
]
GIVEN: list[dict[str, Any]] = [output("c2", "no"), output("c1", [{"type": "input_text", "text": "yes"}])]
ITEMS: list[dict[str, Any]] = [ASKED, *FIRST, *GIVEN, text("One is.")]
HOSTED: list[dict[str, Any]] = [
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "ham"}},
    {"type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "1+1", "outputs": [{"logs": "2"}]},
    {"type": "mcp_call", "id": "mcp_1", "name": "pay", "arguments": '{"n": 1}', "output": None, "error": "refused"},
    {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["ham"], "results": None},
    {"type": "image_generation_call", "id": "ig_1", "status": "in_progress"},
    {"type": "custom_tool_call", "call_id": "cu_1", "name": "sql", "input": "select 1"},
    {"type": "computer_call", "call_id": "co_1", "id": "x", "action": {"type": "screenshot"}, "status": "completed"},
    text("Done."),
]
SEEN: list[dict[str, Any]] = [
    {"type": "custom_tool_call_output", "call_id": "cu_1", "output": "1"},
    {
        "type": "computer_call_output",
        "call_id": "co_1",
        "output": {"type": "computer_screenshot", "image_url": "data:,A"},
    },
]
USAGE = {"input_tokens": 80, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 64}}


def response(own: str, items: list[dict[str, Any]], before: str | None = None) -> dict[str, Any]:
    return {
        "id": own,
        "object": "response",
        "created_at": 1_700_000_000,
        "model": "small-1",
        "status": "completed",
        "previous_response_id": before,
        "output": items,
        "usage": USAGE,
        "error": None,
        "incomplete_details": None,
    }


def dumps(value: Any) -> bytes:  # noqa: ANN401 (any JSON)
    return json.dumps(value, ensure_ascii=False).encode()


def lines(values: list[Any]) -> bytes:
    return b"\n".join(map(dumps, values)) + b"\n"


STATELESS: list[dict[str, Any]] = [
    {"request": {"model": "small", "instructions": "Be brief.", "input": [ASKED]}, "response": response("r1", FIRST)},
    {
        "request": {"model": "small", "input": [ASKED, *FIRST[1:], *GIVEN]},
        "response": response("r2", [text("One is.")]),
    },
]
CHAINED = [
    {"request": {"input": ASKED["content"]}, "response": response("r1", FIRST)},
    {"request": {"input": GIVEN, "previous_response_id": "r1"}, "response": response("r2", [text("One is.")], "r1")},
]

TIMED = [
    {
        "request": {"input": [{"role": "developer", "content": f"It is 10:0{minute}."}, *pair["request"]["input"]]},
        "response": pair["response"],
    }
    for minute, pair in enumerate(STATELESS)
]


@pytest.mark.parametrize(
    "data",
    [
        dumps(ITEMS),
        lines(ITEMS),
        dumps({"model": "small", "input": ITEMS}),
        dumps({"input": ITEMS[:-1], "output": ITEMS[-1:]}),
        dumps(STATELESS),
        lines(STATELESS),
        dumps(CHAINED),
        lines(CHAINED),
        lines(TIMED),
    ],
    ids=[
        *("items", "item per line", "request", "input and output", "list", "pair a line", "chain", "chain in lines"),
        "another time in each prompt",
    ],
)
def test_conversation_is_read_from_each_form_of_file(data: bytes) -> None:
    assert recognized(data) == FORMAT
    [run] = read(data, FORMAT)
    assert [step.source for step in run.steps if step.source != "system"] == ["user", "agent", "agent"]
    assert calls([run]) == {("look", '{"place": 1}'): 1, ("look", '{"place": 2}'): 1}
    assert results([run]) == 2
    assert results_of([run]) == ["no", "yes"]
    first, last = (step for step in run.steps if step.source == "agent")
    assert (first.reasoning_content, last.message) == ("Two places.", "One is.")


def test_response_has_tokens_model_time_and_ending() -> None:
    cut_short = {
        **response("r2", [text("One")], "r1"),
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
    }
    data = lines([response("r1", FIRST), cut_short])
    assert recognized(data) == FORMAT
    [run] = read(data, FORMAT)
    metrics = run.steps[0].metrics
    assert metrics is not None
    assert (metrics.prompt_tokens, metrics.completion_tokens, metrics.cached_tokens) == (80, 9, 64)
    assert (run.steps[0].model_name, run.steps[0].timestamp) == ("small-1", "2023-11-14T22:13:20+00:00")
    assert run.run_notes.ending == "max_output_tokens"


def test_hosted_tool_calls_contain_results() -> None:
    [run] = read(dumps([ASKED, *HOSTED, *SEEN]), FORMAT)
    assert sorted(calls([run])) == [
        ("code_interpreter", '{"code": "1+1"}'),
        ("computer", '{"type": "screenshot"}'),
        ("file_search", '{"queries": ["ham"]}'),
        ("image_generation", "{}"),
        ("pay", '{"n": 1}'),
        ("sql", '{"input": "select 1"}'),
        ("web_search", '{"query": "ham", "type": "search"}'),
    ]
    assert results_of([run])[:4] == ["", '[{"logs":"2"}]', "refused", ""]
    assert results([run]) == 6
    assert sum(step.source == "agent" for step in run.steps) == 1


def test_denied_remote_tool_call_is_denied() -> None:
    approval = {"type": "mcp_approval_request", "id": "a1", "name": "pay", "arguments": "{}", "server_label": "bank"}
    denied = {"type": "mcp_approval_response", "approval_request_id": "a1", "approve": False}
    [run] = read(dumps([ASKED, text("May I?"), approval, denied]), FORMAT)
    assert calls([run]) == {("pay", "{}"): 1}
    assert results([run]) == 1


def test_completed_responses_are_read_from_stream_events() -> None:
    events = [
        {"type": "response.created", "response": response("r1", [])},
        {"type": "response.output_item.done", "item": FIRST[1]},
        {"type": "response.completed", "response": response("r1", FIRST)},
    ]
    stream = (
        "".join(f"event: {event['type']}\r\ndata: {json.dumps(event)}\r\n\r\n" for event in events) + "data: [DONE]\n\n"
    )
    for data in (lines(events), stream.encode()):
        assert recognized(data) == FORMAT
        [run] = read(data, FORMAT)
        assert calls([run]).total() == 2
        assert not run.run_notes.unreadable_lines


def test_failed_patch_is_an_error() -> None:
    patch = {"type": "apply_patch_call", "call_id": "p1", "status": "completed", "operation": {"type": "create_file"}}
    failed = {"type": "apply_patch_call_output", "call_id": "p1", "status": "failed", "output": "no such place"}
    [run] = read(dumps([ASKED, patch, failed]), FORMAT)
    assert measure(run, "f").errors == 1


def test_complete_items_are_read_from_an_unfinished_response() -> None:
    events = [
        {"type": "response.created", "response": response("r1", [])},
        *({"type": "response.output_item.done", "item": item} for item in FIRST),
        {"type": "response.completed", "response": response("r1", FIRST)},
        {"type": "response.created", "response": {**response("r2", []), "status": "in_progress"}},
        {"type": "response.output_item.added", "item": call("c9", "look", "")},
        {"type": "response.output_item.done", "item": call("c3", "look", '{"place": 3}')},
    ]
    first, second = read(lines(events), FORMAT)
    assert (calls([first]).total(), calls([second])) == (2, {("look", '{"place": 3}'): 1})
    assert second.run_notes.ending == "in_progress"


def test_failed_response_is_a_system_error() -> None:
    failed = {**response("r1", []), "status": "failed", "error": {"code": "server_error"}}
    [run] = read(lines([{"request": {"input": "Hello"}, "response": failed}]), FORMAT)
    assert [step.source for step in run.steps] == ["user", "system"]
    assert run.run_notes.ending == "failed"


def test_unrelated_conversations_are_separate_runs() -> None:
    assert len(read(lines([response("r1", FIRST), response("r2", FIRST)]), FORMAT)) == 2
    assert len(read(lines([ITEMS, ITEMS]), FORMAT)) == 2


def test_call_with_an_unreadable_name_is_not_invented() -> None:
    [run] = read(dumps([{"type": "function_call", "call_id": "a"}, text("x")]), FORMAT)
    assert not calls([run])


def test_recording_without_an_item_is_unreadable() -> None:
    with pytest.raises(UnreadableRecordingError):
        read(b"[]", FORMAT)


def test_messages_without_items_are_left_to_chat_completions() -> None:
    assert recognized(dumps([ASKED])) == "openai-chat"


STREAMED: list[dict[str, Any]] = [
    {"type": "response.created", "response": response("r1", [])},
    *({"type": "response.output_item.done", "item": item} for item in FIRST),
    {"type": "response.completed", "response": response("r1", FIRST)},
]
DOCUMENTS: list[Any] = [ITEMS, [ASKED, *HOSTED, *SEEN], STATELESS, CHAINED, STREAMED]


@given(document=st.sampled_from(DOCUMENTS), share=st.floats(0, 1), by_line=st.booleans())
def test_no_cut_invents_a_call(document: Any, share: float, by_line: bool) -> None:  # noqa: ANN401
    data = lines(document) if by_line else dumps(document)
    assert_a_cut_is_safe(data, int(share * len(data)), FORMAT)


@given(document=st.one_of(*map(damaged, DOCUMENTS)))
def test_values_of_wrong_types_are_left_out(document: Any) -> None:  # noqa: ANN401 (any JSON)
    names = ["look", "pay", "sql", "web_search", "code_interpreter", "file_search", "image_generation", "computer"]
    whole = [ASKED, *(call(str(number), name, "{}") for number, name in enumerate(names))]
    assert_damage_is_safe(dumps(document), dumps(whole), FORMAT)


@pytest.mark.parametrize("at", range(len(ITEMS)))
def test_line_of_garbage_is_left_out(at: int) -> None:
    assert_garbage_is_safe(list(map(dumps, ITEMS)), at, FORMAT)
