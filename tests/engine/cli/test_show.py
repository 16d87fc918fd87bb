"""`turnwright show`: one turn as its store has it, for people and for programs."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.servers.forked_python import PATIENCE, Python

from turnwright.cli.show import journal_lines
from turnwright.store import ClaimSpan
from turnwright_states import State
from turnwright_states.facts import Fact, StepStarted

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Done, Endpoint

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m"
LONG = "an-agent-with-quite-a-long-name-that-no-terminal-of-eighty-columns-has-room-for"

BUGGY = """
from turnwright import Tool


class Buggy(Tool):
    def asks(self, arguments, context):
        raise KeyError("a bug")

    async def execute(self, values, context):
        return ""


buggy = Buggy(name="buggy", description="", parameters={"type": "object"})
"""


@pytest.fixture
def capped(cli: "Cli", endpoint: "Endpoint") -> "Done":
    """A turn of two calls, one of them unknown, that met its cap."""
    cli.write("here.txt", f"first line\nsecond {ESCAPES}")
    endpoint.calls(("read_file", {"path": "here.txt"}), (f"x{ESCAPES}", {})).says(f"Not done. {ESCAPES}")
    cli.write("AGENTS.md", f"---\nname: {LONG}\nsteps: 1\n---\n")
    return cli.run("run", f"Work {ESCAPES}", "--agents", "AGENTS.md", "--session", "s1", "--json")


def test_missing_store_is_a_mistake_and_is_not_created(cli: "Cli") -> None:
    nobody = [[command, "nobody"] for command in ("show", "resume", "abort", "steer", "delete")]
    nobody += [["run", "Go on", "--continue", "nobody"], ["prune", "--older-than", "1d"], ["turns"]]
    for command in nobody:
        done = cli.run(*command, "--store", "sqlite:///other.db")
        assert (done.code, done.out) == (2, "")
        assert "there is no store other.db" in done.err
    assert not (cli.folder / "other.db").exists()


def test_transcript_is_shown_escaped(cli: "Cli", capped: "Done") -> None:
    result = cli.run("show", capped.turn)
    assert (result.code, result.err) == (0, "")
    for obeyed in ("\x1b", "\x07", "\x9b"):
        assert obeyed not in result.out
    for words in (
        r"user:      Work \x1b]0;owned\x07",
        '  read_file({"path": "here.txt"})',
        "  ok: ",
        r"second \x1b]0;owned",
        "there is no tool",
        "Not done. ",
        "[cap_hit: Stopped at the step limit (1 of 1)",
        "Stopped at the step limit (1 of 1).\n",
        f'  turnwright run --continue {capped.turn} --steps 2 "..."',
        "outcome:  cap_hit: step_cap",
        "path:     CHECK > STREAM > TOOL_EXEC > CONTINUE > CHECK > CONCLUDE > CAP_HIT",
    ):
        assert words in result.out
    assert result.out.count("Not done. ") == 1


def test_turn_is_printed_as_json(cli: "Cli", capped: "Done") -> None:
    (event,) = cli.run("show", capped.turn, "--json").events
    assert (event["turn"], event["outcome"], event["reason"]) == (capped.turn, "cap_hit", "step_cap")
    assert (event["steps"], event["tool_calls"], event["interrupts"]) == (1, 1, [])
    assert event["text"] == f"Not done. {ESCAPES}"
    assert event["path"][-2:] == ["CONCLUDE", "CAP_HIT"]
    assert [message["role"] for message in event["messages"]] == ["user", "assistant", "tool", "tool", "assistant"]


def test_journal_of_a_turn_is_printed(cli: "Cli", capped: "Done") -> None:
    facts = cli.run("show", capped.turn, "--journal", "--json").events
    assert [fact["seq"] for fact in facts] == list(range(1, len(facts) + 1))
    assert (facts[0]["kind"], facts[-1]["kind"]) == ("turn_started", "turn_ended")
    without_hash = {fact["kind"] for fact in facts if "hash" not in fact}
    assert {"step_started", "step_finished"} <= without_hash <= {"step_started", "step_finished", "call_started"}
    plain = cli.run("show", capped.turn, "--journal")
    assert "\x1b" not in plain.out
    assert [line.split()[:2] for line in plain.out.splitlines()] == [[str(f["seq"]), f["kind"]] for f in facts]
    assert plain.out.splitlines()[-1].endswith("  cap_hit: step_cap")


def run_printed(text: str) -> None:
    """Run the test that was printed, as pytest would."""
    names: dict[str, Callable[[], None]] = {}
    exec(compile(text, "test_incident.py", "exec"), names)  # noqa: S102 (that it runs is the point)
    (test,) = [names[name] for name in names if name.startswith("test_")]
    test()


def test_turn_is_printed_as_a_test(cli: "Cli", capped: "Done") -> None:
    """Nothing else is printed, and the file holds its texts whole, but nothing that a terminal would obey."""
    result = cli.run("show", capped.turn, "--as-test")
    assert (result.code, result.err) == (0, "")
    assert "\x1b" not in result.out
    head, *_ = result.out.splitlines()
    assert re.fullmatch(rf'"""Turn {capped.turn}, recorded \d{{4}}-\d\d-\d\d, to be played again.', head)
    assert "DIFFERENT" not in result.out
    assert f"def test_turn_{capped.turn[:8]}() -> None:" in result.out
    assert "assert turn.outcome == Outcome.CAP_HIT\n    assert turn.reason == EndReason.STEP_CAP" in result.out
    run_printed(result.out)
    with pytest.raises(AssertionError):
        run_printed(result.out.replace("EndReason.STEP_CAP", "EndReason.BUDGET"))


def test_printed_test_is_utf_8_for_any_terminal(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("naïve 漢")
    done = cli.run("run", "Work", "--json")
    result = cli.run("show", done.turn, "--as-test", env={"PYTHONIOENCODING": "ascii"})
    assert '"naïve 漢"' in result.out
    run_printed(result.out)


@pytest.mark.usefixtures("capped")
def test_printed_test_of_a_session_contains_the_history(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("I go on.")
    second = cli.run("run", "Go on", "--session", "s1", "--json")
    result = cli.run("show", second.turn, "--as-test")
    assert (result.code, result.err) == (0, "")
    history = result.out.partition("    message_history=(")[2].partition("\n    model=")[0]
    assert [history.count(f'role="{role}"') for role in ("user", "assistant", "tool")] == [1, 2, 2]
    run_printed(result.out)


def test_turn_with_an_engine_error_is_printed_without_an_error(cli: "Cli", endpoint: "Endpoint") -> None:
    """It fails again while it is played, and that is not an error of this command."""
    cli.write("buggy.py", BUGGY)
    endpoint.calls(("buggy", {}))
    done = cli.run("run", "Work", "--tools", "buggy.py", "--json")
    assert done.last["reason"] == "engine_error"
    result = cli.run("show", done.turn, "--as-test")
    assert (result.code, result.err) == (0, "")
    run_printed(result.out)


@pytest.mark.parametrize("option", ["--journal", "--json"])
def test_as_test_excludes_other_output_options(cli: "Cli", capped: "Done", option: str) -> None:
    done = cli.run("show", capped.turn, "--as-test", option)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"turnwright: --as-test prints a file: leave out {option}\n"


@pytest.mark.usefixtures("capped")
def test_test_of_an_unknown_turn_is_a_mistake(cli: "Cli") -> None:
    done = cli.run("show", "nobody", "--as-test")
    assert (done.code, done.out) == (2, "")
    assert "nobody" in done.err


def test_help_warns_about_secrets_in_a_printed_test(cli: "Cli") -> None:
    assert "secrets too" in " ".join(cli.run("show", "--help").out.split())


@pytest.mark.parametrize("command", [["turns"], ["show", "{turn}"], ["show", "{turn}", "--journal"]])
def test_closed_reader_is_no_error(cli: "Cli", capped: "Done", command: list[str]) -> None:
    """`| true`: nobody ever reads."""
    arguments = [part.format(turn=capped.turn) for part in command]
    reader, out = os.pipe()
    os.close(reader)
    with Path(os.devnull).open() as stdin, os.fdopen(out, "w") as stdout, (cli.folder / "err").open("w+") as stderr:
        streams = (stdin.fileno(), stdout.fileno(), stderr.fileno())
        process = Python(None).begin(["-m", "turnwright", *arguments], streams, cli.env, cli.folder)
        code = process.wait(PATIENCE)
        stderr.seek(0)
        assert (code, stderr.read()) == (1, "")


DRAWING = """
from turnwright import FilePart, ToolContext, ToolResult, tool


@tool
def draw(context: ToolContext) -> ToolResult:
    context.progress(1, 2, "half")
    return ToolResult("drawn", {"points": 3}, (FilePart.of(b"png" * 1000, "image/png", "a.png"),))
"""


def test_picture_is_shown_as_a_line_with_the_name(cli: "Cli", endpoint: "Endpoint") -> None:
    """While it runs and afterwards; its content is in the journal alone."""
    cli.write("drawing.py", DRAWING)
    endpoint.calls(("draw", {})).says("Done.")
    ran = cli.run("run", "Draw it", "--tools", "drawing.py")
    (turn,) = re.findall(r"turn (\w+)", ran.out)[:1]
    result = cli.run("show", turn)
    for out in (ran.out, result.out):
        assert "[file: a.png, image/png, 3,000 bytes]" in out
        assert "cG5n" not in out
    record = cli.run("show", turn, "--json").out
    assert '"size": 3000' in record
    assert '"structured": {"points": 3}' in record
    assert "cG5n" not in record
    assert "cG5n" in cli.run("show", turn, "--journal", "--json").out


def test_progress_is_a_line_of_json(cli: "Cli", endpoint: "Endpoint") -> None:
    cli.write("drawing.py", DRAWING)
    endpoint.calls(("draw", {})).says("Done.")
    done = cli.run("run", "Draw it", "--tools", "drawing.py", "--json")
    (progress_event,) = (event for event in done.events if event["type"] == "tool_progress")
    assert (progress_event["tool"], progress_event["progress"], progress_event["total"], progress_event["message"]) == (
        "draw",
        1,
        2,
        "half",
    )


def test_journal_shows_the_epoch_and_the_time_of_each_later_claim() -> None:
    """Each resumption and recovery is dated, for active seconds say nothing of the time that passed."""
    facts: list[tuple[int, Fact]] = [(seq, StepStarted(float(seq), State.STREAM, number=seq)) for seq in (1, 2, 3)]
    claims = [ClaimSpan(1, 1, "one", 0.0, 1.0), ClaimSpan(3, 4, "two", 1_764_360_725.0, 1_764_360_726.0)]
    lines = [*journal_lines(facts, claims)]
    assert len(lines) == 4
    assert lines[2].startswith("      epoch 4, driven by two since 2025-11-2")
    assert [*journal_lines(facts)] == [lines[0], lines[1], lines[3]]


def test_rules_are_shown_at_their_calls_and_with_their_state(cli: "Cli", endpoint: "Endpoint") -> None:
    """A call says which rule refused it, and each rule has a line with its state."""
    rules = "rules:\n  - {name: one-look, at_most: 1, of: read_file}\n"
    cli.write("AGENTS.md", f"---\nname: Tidier\n{rules}---\nTidy up.\n")
    endpoint.calls(("read_file", {"path": "AGENTS.md"}), ("read_file", {"path": "b.txt"})).says("Not done.")
    done = cli.run("run", "Look twice", "--agents", "AGENTS.md", "--json")
    text = cli.run("show", done.turn).out
    assert "  refused by one-look (by: call00001)\n" in text
    assert "rule:     one-look: counted call00001; allowed call00001; refused call00002" in text
    (record,) = cli.run("show", done.turn, "--json").events
    (rule,) = record["rules"]
    assert (rule["rule"], rule["state"], rule["by"], rule["owed"]) == ("one-look", "counted", ["call00001"], False)
    effects = [(decision["effect"], decision["call"], decision["by"]) for decision in rule["decisions"]]
    assert effects == [("allow", "call00001", []), ("refuse", "call00002", ["call00001"])]
