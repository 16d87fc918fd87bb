"""The records of a run are the same run in lines, in a list, and one behind another."""

import json
from collections.abc import Callable
from typing import Final

import pytest
from pydantic import JsonValue

from turnwright_audit.measure import RunMeasure, measure
from turnwright_audit.trajectories.formats import format_of
from turnwright_audit.trajectories.source import Recording

Records = list[dict[str, JsonValue]]
ASKED: Final[dict[str, JsonValue]] = {"role": "user", "content": "Look."}
TEXT: Final[dict[str, JsonValue]] = {"type": "text", "text": "It is there."}
MESSAGES: Final[Records] = [
    ASKED,
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {"n": 1}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a page"}]},
    {"role": "assistant", "content": [TEXT]},
]
ITEMS: Final[Records] = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Look."}]},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"n": 1}'},
    {"type": "function_call_output", "call_id": "c1", "output": "a page"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is there."}]},
]
CALL: Final[JsonValue] = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"n": 1}'}}
RECORDINGS: Final[dict[str, Records]] = {
    "claude-code": [
        {
            "type": message["role"],
            "uuid": f"u{number}",
            "parentUuid": None,
            "sessionId": "s",
            "message": {**message, "id": f"m{number}"},
        }
        for number, message in enumerate(MESSAGES)
    ],
    "codex": [{"type": "response_item", "payload": item} for item in ITEMS],
    "anthropic-messages": MESSAGES,
    "openai-responses": ITEMS,
    "openai-chat": [
        ASKED,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "a page"},
        {"role": "assistant", "content": "It is there."},
    ],
    "codex-exec": [
        {"type": "turn.started"},
        {"type": "item.completed", "item": {"id": "i1", "type": "command_execution", "command": "look 1"}},
        {"type": "item.completed", "item": {"id": "i2", "type": "agent_message", "text": "It is there."}},
        {"type": "turn.completed", "usage": {"input_tokens": 1, "output_tokens": 1}},
    ],
    "ag-ui": [
        {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
        {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "look"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": '{"n": 1}'},
        {"type": "TOOL_CALL_END", "toolCallId": "c1"},
        {"type": "TOOL_CALL_RESULT", "messageId": "m1", "toolCallId": "c1", "content": "a page"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m2", "delta": "It is there."},
        {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
    ],
    "opencode": [
        {"type": "step_start", "sessionID": "s", "part": {"type": "step-start"}},
        {
            "type": "tool_use",
            "sessionID": "s",
            "part": {
                "type": "tool",
                "tool": "look",
                "callID": "c1",
                "state": {"status": "completed", "input": {"n": 1}, "output": "a page"},
            },
        },
        {"type": "step_start", "sessionID": "s", "part": {"type": "step-start"}},
        {"type": "text", "sessionID": "s", "part": {"type": "text", "text": "It is there."}},
    ],
}
ARRANGEMENTS: Final[dict[str, Callable[[Records], str]]] = {
    "lines": lambda records: "".join(f"{json.dumps(record)}\n" for record in records),
    "lines of a list": lambda records: "[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n",
    "a list in a line": json.dumps,
    "a list": lambda records: json.dumps(records, indent=2),
    "values over lines": lambda records: "\n".join(json.dumps(record, indent=2) for record in records),
    "values without lines": lambda records: "".join(map(json.dumps, records)),
    "old ends of lines": lambda records: "\r".join(map(json.dumps, records)),
}


def runs_as(data: str, format_name: str) -> list[RunMeasure]:
    """The measures of the runs in a recording that is recognized as this format."""
    recording = Recording.of(data.encode())
    run_format = format_of(recording)
    assert run_format is not None
    assert run_format.name == format_name
    return [measure(run, "-") for run in run_format.read(recording)]


@pytest.mark.parametrize("arrange", [pytest.param(arrange, id=name) for name, arrange in ARRANGEMENTS.items()])
@pytest.mark.parametrize("format_name", RECORDINGS)
def test_records_are_the_same_run_in_each_arrangement(format_name: str, arrange: Callable[[Records], str]) -> None:
    [run] = runs_as(arrange(RECORDINGS[format_name]), format_name)
    assert (run.turns, run.steps, run.calls, run.results) == (1, 2, 1, 1)
    assert (run.unreadable_lines, run.finished) == (0, True)


@pytest.mark.parametrize("format_name", ["claude-code", "codex"])
@pytest.mark.parametrize("name", ["lines of a list", "a list", "values over lines"])
def test_cut_arrangement_is_cut_behind_its_complete_records(format_name: str, name: str) -> None:
    data = ARRANGEMENTS[name](RECORDINGS[format_name])
    [run] = runs_as(data[: data.rindex("a page")], format_name)
    assert (run.cut, run.calls, run.unreadable, run.unpaired) == (True, 1, 1, 0)


@pytest.mark.parametrize("format_name", ["claude-code", "codex"])
def test_lines_after_the_beginning_of_a_list_are_read(format_name: str) -> None:
    data = "[\n" + ARRANGEMENTS["lines"](RECORDINGS[format_name])
    [run] = runs_as(data, format_name)
    assert (run.calls, run.results, run.unreadable_lines) == (1, 1, 1)


@pytest.mark.parametrize("format_name", ["claude-code", "codex"])
def test_records_in_a_common_line_are_read(format_name: str) -> None:
    lines = ARRANGEMENTS["lines"](RECORDINGS[format_name]).splitlines(keepends=True)
    glued = [lines[0], lines[1].strip() + lines[2], lines[3]]
    [run] = runs_as("".join(glued), format_name)
    assert (run.steps, run.calls, run.results, run.unreadable_lines) == (2, 1, 1, 0)
    [run] = runs_as("".join([lines[0], lines[1].strip() + lines[2][:40]]), format_name)
    assert (run.calls, run.unreadable, run.cut, run.unreadable_lines) == (1, 1, True, 0)
    broken_line = lines[1].strip() + lines[2].replace(": ", " ", 1)  # its call is known
    [run] = runs_as("".join([lines[0], broken_line, lines[3]]), format_name)
    assert (run.calls, run.unreadable, run.unpaired, run.unreadable_lines) == (1, 1, 0, 1)


@pytest.mark.parametrize("format_name", ["claude-code", "codex"])
def test_record_behind_the_zeros_of_a_crash_is_read(format_name: str) -> None:
    lines = ARRANGEMENTS["lines"](RECORDINGS[format_name]).splitlines(keepends=True)
    [run] = runs_as("".join([*lines[:2], "\0" * 100, *lines[2:]]), format_name)
    assert (run.calls, run.results, run.unreadable_lines, run.finished) == (1, 1, 1, True)
    [run] = runs_as("".join([*lines, "\0" * 100]), format_name)
    assert (run.calls, run.results, run.cut) == (1, 1, True)
