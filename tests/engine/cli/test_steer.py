"""`turnwright steer`: something is said to a turn that has not ended, from another process."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint, Json

TOOLS = '''
from pathlib import Path

import anyio

from turnwright import tool


@tool
async def gate() -> str:
    """Be done when there is a file `open`."""
    Path("runs").write_text("gate")
    while not Path("open").exists():
        await anyio.sleep(0.02)
    return "through"


@tool(needs_approval=True)
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"
'''


@pytest.fixture(autouse=True)
def _tools(cli: "Cli") -> None:
    cli.write("mine.py", TOOLS)


def last_messages(endpoint: "Endpoint", number: int) -> "list[Json]":
    return endpoint.requests[-1].messages[-number:]


@pytest.mark.parametrize("flags", [["--json"], []], ids=["json", "plain"])
def test_turn_with_a_running_tool_reads_a_message_before_the_model_call(
    cli: "Cli", endpoint: "Endpoint", flags: list[str]
) -> None:
    endpoint.calls(("gate", {})).says("Done.")
    child = cli.start("run", "Work", "--tools", "mine.py", *flags)
    cli.await_file("runs")
    turn = cli.run("turns", "--json").last["turn"]
    steered = cli.run("steer", turn, "Leave the tests alone.")
    assert (steered.code, steered.err) == (0, "")
    assert steered.out == f"turn {turn} will read it before its next model call\n"
    cli.write("open", "")
    done = child.done()
    assert done.code == 0
    result, message = last_messages(endpoint, 2)
    assert (result["role"], message) == ("tool", {"role": "user", "content": "Leave the tests alone."})
    if flags:
        assert [event["text"] for event in done.of("message_added")] == ["Leave the tests alone."]
    else:
        assert "message: Leave the tests alone." in done.out


def test_paused_turn_reads_a_message_when_resumed(cli: "Cli", endpoint: "Endpoint") -> None:
    """The message may be piped in."""
    endpoint.calls(("delete_file", {"path": "a"})).says("Done.")
    paused = cli.run("run", "Work", "--tools", "mine.py", "--json")
    done = cli.run("steer", paused.turn, stdin="Then stop.\n")
    assert (done.code, done.out) == (0, f"turn {paused.turn} is paused, and will read it when it continues\n")
    assert cli.run("resume", paused.turn, "--approve", "approval-1").code == 0
    assert last_messages(endpoint, 1) == [{"role": "user", "content": "Then stop."}]


def test_turn_of_a_dead_process_reads_a_message_when_resumed(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.begins("Once upon").says("Done.")
    child = cli.start("run", "A story", "--json")
    turn = child.until("text_delta")["turn"]
    child.kill()
    done = cli.run("steer", turn, "In verse.")
    command = f"turnwright resume {turn}"
    assert done.out == f"turn {turn} has no driver, and will read it when `{command}` resumes it\n"
    assert cli.run("resume", turn).code == 0
    assert last_messages(endpoint, 1) == [{"role": "user", "content": "In verse."}]


def test_undelivered_message_is_named_at_the_end(cli: "Cli", endpoint: "Endpoint") -> None:
    """In the last line of JSON, in the last lines for people, and by `show`."""
    endpoint.begins("Once upon")
    child = cli.start("run", "A story", "--json")
    turn = child.until("text_delta")["turn"]
    for word in ("In verse.", "And\nshort."):
        assert cli.run("steer", turn, word).code == 0
    done = child.interrupt().done()
    assert done.last["undelivered"] == ["In verse.", "And\nshort."]
    summary = cli.run("show", turn)
    assert "\nNot delivered: In verse.\nNot delivered: And short.\n" in summary.out
    assert cli.run("show", turn, "--json").last["undelivered"] == ["In verse.", "And\nshort."]


def test_steering_a_concluding_turn_is_reported_as_undeliverable(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("list_files", {})).begins("I have")
    child = cli.start("run", "Work", "--steps", "1", "--json")
    turn = child.until("text_delta")["turn"]
    done = cli.run("steer", turn, "Go on.")
    assert done.code == 0
    assert "makes no further call that may use tools: the message will be reported as not delivered" in done.out
    assert child.interrupt().done().last["undelivered"] == ["Go on."]
