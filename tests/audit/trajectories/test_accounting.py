"""A recording that a reader takes for another format, or of which it can use little, is a problem with a name."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.audit.trajectories.foreign import FOREIGN, SILENT

from turnwright_audit.trajectories.accounting import call_mark
from turnwright_audit.trajectories.archives import Problem
from turnwright_audit.trajectories.files import runs
from turnwright_audit.trajectories.formats import FORMATS, Format


def write(folder: Path, data: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "run.jsonl"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "in a folder"])
@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in FOREIGN.items()])
def test_foreign_recording_with_calls_is_a_problem(data: bytes, is_named: bool, tmp_path: Path) -> None:
    path = write(tmp_path, data)
    (run,) = runs([path if is_named else tmp_path])
    assert isinstance(run.found, Problem)
    assert run.found.file == str(path)


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in SILENT.items()])
def test_mostly_unused_recording_is_a_problem(data: bytes, tmp_path: Path) -> None:
    (run,) = runs([write(tmp_path, data)])
    assert isinstance(run.found, Problem)
    assert "have nothing that this format knows" in run.found.message


@pytest.mark.parametrize(
    "run_format", [run_format for run_format in FORMATS if not run_format.exact], ids=lambda run_format: run_format.name
)
def test_named_format_is_accounted_for_too(run_format: Format, tmp_path: Path) -> None:
    (run,) = runs([write(tmp_path, FOREIGN["pi session"])], run_format)
    assert isinstance(run.found, Problem)


def test_problem_names_the_format_and_the_mark(tmp_path: Path) -> None:
    (run,) = runs([write(tmp_path, FOREIGN["Goose messages"])])
    assert isinstance(run.found, Problem)
    assert run.found.message == (
        "it was read as openai-chat, but it has calls (toolRequest), and none could be read: it may be of another"
        " format, which no reader knows"
    )


def test_runs_of_other_files_are_kept(tmp_path: Path) -> None:
    write(tmp_path / "a", FOREIGN["pi session"])
    write(
        tmp_path / "b", json.dumps([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]).encode()
    )
    first, second = runs([tmp_path])
    assert isinstance(first.found, Problem)
    assert not isinstance(second.found, Problem)


TALK = (
    "Explain `tool_use`.",
    'Write {"type": "tool_use", "name": "ls"} or {"tool_calls": [{"id": "c"}]}.',
    'It stops with "finish_reason": "tool_calls".',
)


@pytest.mark.parametrize("text", TALK)
def test_text_about_calls_is_no_call(text: str, tmp_path: Path) -> None:
    message = {"role": "assistant", "content": text, "tool_calls": None, "function_call": None}
    plain_message = {"role": "assistant", "content": [{"type": "text", "text": text}], "tool_calls": []}
    (run,) = runs([write(tmp_path, json.dumps([{"role": "user", "content": text}, message, plain_message]).encode())])
    assert not isinstance(run.found, Problem)


def test_orphaned_results_are_no_calls(tmp_path: Path) -> None:
    """A recording that was cut at its beginning has results alone."""
    results = [{"role": "tool", "tool_call_id": "c", "content": "a"}, {"role": "assistant", "content": "Done."}]
    (run,) = runs([write(tmp_path, json.dumps(results).encode())])
    assert not isinstance(run.found, Problem)


@given(st.integers(0, 400), st.integers(1, 60))
def test_mark_is_found_across_pieces(before: int, size: int) -> None:
    data = b"x" * before + b'{"type" : "toolCall"}'
    assert call_mark(data[begin : begin + size] for begin in range(0, len(data), size)) == "toolCall"


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ('"type":"tool_use"', "tool_use"),
        ('"type": "server_tool_use"', "server_tool_use"),
        ('"kind":"function_call"', "function_call"),
        ('"message_type": "tool_call_message"', "tool_call_message"),
        ('"functionCall": {"name"', "functionCall"),
        ('"tool_calls":[ {"id"', "tool_calls"),
        ('"stop_reason":"tool_use"', "tool_use"),
        ('"finish_reason": "tool_calls"', "tool_calls"),
        ('"type":"function_call_output"', ""),
        ('"type":"tool_result"', ""),
        ('"type":"tool-result"', ""),
        ('"tool_calls": 50', ""),
        ('"tool_calls": []', ""),
        ('"tool_calls": null', ""),
        ('"function_call": "auto"', ""),
        ('"tool_choice": {"type": "tool"}', ""),
        ('"content": "tool_use"', ""),
    ],
)
def test_call_mark_is_a_value_or_a_field(text: str, mark: str) -> None:
    assert call_mark([text.encode()]) == mark
