"""`turnwright trace`: the verdicts on a file, and the exit code that says the worst of them."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from turnwright.cli.trace import trace
from turnwright.errors import ConfigError
from turnwright_states.traces import TraceClaim

SOUND = [
    '{"event": "turn_started", "limits": {"steps": 2, "tool_calls": 5, "max_retries": 0}}',
    '{"event": "model_called"}',
    '{"event": "model_replied", "calls": [{"id": "c1", "name": "search"}]}',
    '{"event": "tool_started", "call": "c1"}',
    '{"event": "tool_result", "call": "c1"}',
    '{"event": "model_called"}',
    '{"event": "model_replied", "text": "Done.\u2028"}',
    '{"event": "turn_ended", "outcome": "finished", "reason": "answered"}',
]


def run(lines: list[str], *options: str) -> Result:
    app = typer.Typer()
    app.command()(trace)
    return CliRunner().invoke(app, ["-", *options], input="\n".join(lines).encode())


def test_a_sound_trace_holds() -> None:
    result = run(SOUND)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [f"holds         {claim} (over 1 turn)" for claim in TraceClaim]


def test_a_fault_is_printed_with_the_lines_that_led_there() -> None:
    result = run([line for line in SOUND if "tool_result" not in line])
    assert result.exit_code == 1
    assert result.stdout.splitlines()[:7] == [
        f"violated      {TraceClaim.PAIRED}",
        "              line 5: the model is called, and there is no result for c1 of line 3",
        "                line 1: turn_started",
        "                line 2: model_called",
        "                line 3: model_replied c1 (search)",
        "                line 4: tool_started c1",
        "                line 5: model_called",
    ]


def test_a_trace_that_stops_is_inconclusive_and_no_pass() -> None:
    result = run(SOUND[:-1])
    assert result.exit_code == 6
    assert result.stdout.splitlines()[:2] == [
        f"inconclusive  {TraceClaim.PAIRED}",
        "              the trace stops before the turn ends: there is no turn_ended",
    ]


def test_what_a_trace_says_cannot_command_a_terminal() -> None:
    result = run([SOUND[0], '{"event": "tool_result", "call": "a\\u001b[31m\\nb"}'])
    assert "line 2: a result for call a\\x1b[31m b, and no reply asked for it" in result.stdout


def test_the_verdicts_are_printed_as_one_json_object() -> None:
    told = json.loads(run([*SOUND, SOUND[-1]], "--json").stdout)
    assert told["verdict"] == "violated"
    assert [check["claim"] for check in told["checks"]] == list(TraceClaim)
    (violated,) = [check for check in told["checks"] if check["verdict"] == "violated"]
    assert violated["detail"] == "line 9: the turn ends again"
    assert violated["witness"][-1] == "line 9: turn_ended finished: answered"


def test_a_file_is_read_like_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join([*SOUND, ""]), encoding="utf-8")
    with pytest.raises(typer.Exit) as left:
        trace(str(path))
    assert left.value.exit_code == 0


def test_what_cannot_be_read_is_a_mistake_that_is_named(tmp_path: Path) -> None:
    missing, binary, bad = tmp_path / "missing", tmp_path / "binary", tmp_path / "bad"
    binary.write_bytes(b'{"event": "\xff"}')
    bad.write_text(f"{SOUND[0]}\nnonsense")
    for path, why in (
        (missing, "No such file"),
        (binary, "not UTF-8 text"),
        (bad, "line 2 of the trace: Invalid JSON"),
    ):
        with pytest.raises(ConfigError, match=why) as error:
            trace(str(path))
        assert path.name in str(error.value)
