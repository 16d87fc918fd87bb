"""The events that `codex exec --json` prints are read."""

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
    results_of,
)

from turnwright_audit.measure import measure
from turnwright_audit.trajectories.source import UnreadableRecordingError

FORMAT = "codex-exec"


def item(event: str, own: str, kind: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 (any JSON)
    return {"type": f"item.{event}", "item": {"id": own, "type": kind, **fields}}


def command(event: str, own: str, words: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    return item(event, own, "command_execution", **{"command": words, "aggregated_output": "", **fields})


EVENTS: list[dict[str, Any]] = [
    {"type": "thread.started", "thread_id": "t-1"},
    {"type": "turn.started"},
    item("completed", "item_0", "reasoning", text="List the files ü."),
    command("started", "item_1", "ls", status="in_progress"),
    command("started", "item_2", "cat x", status="in_progress"),
    command("completed", "item_1", "ls", status="completed", exit_code=0, aggregated_output="a b"),
    command("completed", "item_2", "cat x", status="failed", exit_code=1, aggregated_output="no such file"),
    item("completed", "item_3", "agent_message", text="I write it."),
    item("started", "item_4", "todo_list", items=[{"text": "write", "completed": False}]),
    item("completed", "item_5", "file_change", changes=[{"path": "x", "kind": "add"}], status="completed"),
    item(
        "completed", "item_6", "mcp_tool_call", server="s", tool="find", arguments={"n": 1}, status="failed",
        error={"message": "gone"},
    ),
    item("completed", "item_7", "agent_message", text="Done."),
    {"type": "turn.completed", "usage": {"input_tokens": 100, "cached_input_tokens": 40, "output_tokens": 7}},
    {"type": "turn.started"},
    {"type": "error", "message": "reconnecting"},
    {"type": "turn.failed", "error": {"message": "no network"}},
]  # fmt: skip
LINES = [json.dumps(event, ensure_ascii=False).encode() for event in EVENTS]
DATA = b"\n".join(LINES)


def test_thread_has_turns_replies_calls_results_and_tokens() -> None:
    assert recognized(DATA) == FORMAT
    [run] = read(DATA, FORMAT)
    assert [step.source for step in run.steps] == ["user", *["agent"] * 4, "user", "system", "system"]
    assert [len(step.tool_calls or ()) for step in run.steps if step.source == "agent"] == [2, 1, 1, 0]
    assert calls([run])["command_execution", '{"command": "ls"}'] == 1
    assert calls([run])["find", '{"n": 1}'] == 1
    assert results_of([run]) == ["a b", "no such file", "", "gone"]
    measures = measure(run, "f")
    assert (measures.turns, measures.steps, measures.calls, measures.unpaired, measures.errors) == (2, 4, 4, 0, 2)
    assert (measures.tokens, measures.cached_tokens, measures.ending, measures.failed_requests) == (107, 40, "error", 2)


def test_incomplete_call_has_no_result_and_each_thread_is_a_run() -> None:
    first, second = read(b"\n".join([LINES[0].replace(b"t-1", b"t-0"), *LINES[1:5], *LINES]), FORMAT)
    assert (measure(first, "f").unpaired, measure(second, "f").unpaired) == (2, 0)
    assert (first.session_id, second.session_id, second.run_notes.ending) == ("t-0", "t-1", "error")


@pytest.mark.parametrize(
    ("inputs", "total"), [((100, 250), 250), ((100, 250, 250), 250), ((100, 40), 140), ((100, 250, 40, 90), 340)]
)
def test_usage_of_a_turn_is_that_of_its_thread_so_far(inputs: tuple[int, ...], total: int) -> None:
    turns = [
        [
            {"type": "thread.started", "thread_id": "t-1"},
            {"type": "turn.started"},
            command("completed", "item_0", f"cat {number}", status="completed", aggregated_output="x", exit_code=0),
            {"type": "turn.completed", "usage": {"input_tokens": number, "cached_input_tokens": 1, "output_tokens": 0}},
        ]
        for number in inputs
    ]
    [run] = read(b"\n".join(json.dumps(event).encode() for turn in turns for event in turn), FORMAT)
    measures = measure(run, "f")
    assert (measures.turns, measures.calls, measures.results) == (len(inputs),) * 3
    assert (measures.tokens, measures.unpaired) == (total, 0)


def test_call_of_another_agent_is_a_call() -> None:
    fields = {"tool": "spawn_agent", "prompt": "Look.", "receiver_thread_ids": ["t-2"], "agents_states": {"t-2": {}}}
    spawned = json.dumps(item("completed", "item_0", "collab_tool_call", status="completed", **fields)).encode()
    [run] = read(b"\n".join([*LINES[:2], spawned]), FORMAT)
    assert calls([run]) == {("spawn_agent", '{"prompt": "Look.", "receiver_thread_ids": ["t-2"]}'): 1}
    assert results_of([run]) == ['{"t-2":{}}']


def test_declined_command_is_denied() -> None:
    declined = json.dumps(command("completed", "item_9", "rm x", status="declined")).encode()
    [run] = read(b"\n".join([*LINES[:2], declined]), FORMAT)
    assert measure(run, "f").denied == 1


def test_recording_without_a_turn_is_unreadable() -> None:
    with pytest.raises(UnreadableRecordingError):
        read(LINES[0], FORMAT)


def test_cut_event_is_no_call() -> None:
    with pytest.raises(UnreadableRecordingError):
        read(LINES[3][:-30], FORMAT)


@given(share=st.floats(0, 1))
def test_no_cut_invents_a_call(share: float) -> None:
    assert_a_cut_is_safe(DATA, int(share * len(DATA)), FORMAT)


@given(values=damaged(EVENTS))
def test_values_of_wrong_types_are_left_out(values: Any) -> None:  # noqa: ANN401 (any JSON)
    data = (
        b"\n".join(json.dumps(value).encode() for value in values)
        if isinstance(values, list)
        else json.dumps(values).encode()
    )
    assert_damage_is_safe(data, DATA, FORMAT)


@given(at=st.integers(0, len(LINES) - 1))
def test_line_of_garbage_is_left_out(at: int) -> None:
    assert_garbage_is_safe(LINES, at, FORMAT)
