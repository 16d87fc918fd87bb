"""Stopping a turn: Ctrl-C in front of it, `turnwright abort` from elsewhere."""

import re
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Child, Cli, Done, Endpoint, Json

TOOLS = '''
import time
from pathlib import Path

import anyio

from turnwright import tool


@tool
async def wait() -> str:
    """Take for ever."""
    Path("runs").write_text("wait")
    await anyio.sleep_forever()
    return "never"


@tool
def hang() -> str:
    """Take for ever, in a thread that nobody can stop."""
    Path("runs").write_text("hang")
    time.sleep(3600)
    return "never"


@tool
async def block() -> str:
    """Keep the event loop from doing anything else."""
    Path("runs").write_text("block")
    time.sleep(3600)
    return "never"


@tool
async def refuse() -> str:
    """Ignore the cancellation."""
    Path("runs").write_text("refuse")
    while True:
        try:
            await anyio.sleep_forever()
        except BaseException:
            pass


@tool
async def nearly() -> str:
    """Be done soon."""
    Path("runs").write_text("nearly")
    await anyio.sleep(0.3)
    return "saved"


@tool(needs_approval=True)
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"
'''

BUSY = b"HTTP/1.1 503 Busy\r\nRetry-After: 60\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.fixture(autouse=True)
def _tools(cli: "Cli") -> None:
    cli.write("mine.py", TOOLS)


def start(cli: "Cli", *flags: str) -> "Child":
    return cli.start("run", "Work", "--tools", "mine.py", "--json", *flags)


def started(cli: "Cli", endpoint: "Endpoint", tool: str) -> "Child":
    """A turn whose tool runs."""
    endpoint.calls((tool, {})).says("done")
    child = start(cli)
    child.until("call_started")
    cli.await_file("runs")
    return child


def check_aborted(done: "Done") -> None:
    assert (done.code, done.err) == (130, "")
    assert done.last["type"] == "turn_ended"
    assert (done.last["outcome"], done.last["reason"]) == ("aborted", "aborted")


def test_ctrl_c_during_a_reply_keeps_the_received_text(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.begins("Once upon")
    child = start(cli)
    child.until("text_delta")
    done = child.interrupt().done()
    check_aborted(done)
    assert done.last["text"] == "Once upon"


def test_ctrl_c_shows_a_person_the_received_text(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.begins("Once upon")
    child = cli.start("run", "A story", terminal=True, env={"TERM": "xterm", "COLUMNS": "120"})
    child.shows("Once upon")
    done = child.interrupt().done()
    assert (done.code, done.err) == (130, "")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.out)
    assert re.search(r"step 1 of 200\s+Once upon\s", text), "it scrolls away above the screen, and stays"
    assert "The turn was aborted." in text


def test_ctrl_c_aborts_during_silence_of_the_model(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.plays(None)
    child = start(cli)
    cli.await_request(endpoint)
    check_aborted(child.interrupt().done())


def test_ctrl_c_aborts_during_the_wait_for_a_retry(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.plays(BUSY)
    child = start(cli)
    child.until("attempt_failed")
    check_aborted(child.interrupt().done())
    assert len(endpoint.requests) == 1


def test_ctrl_c_during_the_conclusion_keeps_the_reason(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("list_files", {})).begins("I have")
    child = start(cli, "--steps", "1")
    child.until("text_delta")
    done = child.interrupt().done()
    check_aborted(done)
    assert done.last["also_reached"] == ["step_cap"]


def test_ctrl_c_aborts_during_the_wait_for_a_second_conclusion(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("list_files", {})).plays(BUSY)
    child = start(cli, "--steps", "1")
    child.until("attempt_failed")
    done = child.interrupt().done()
    check_aborted(done)
    assert done.last["also_reached"] == ["step_cap"]


@pytest.mark.parametrize("tool", ["wait", "hang"])
@pytest.mark.slow
def test_ctrl_c_aborts_a_running_tool(cli: "Cli", endpoint: "Endpoint", tool: str) -> None:
    """A thread cannot be stopped; it does not hold the process up."""
    done = started(cli, endpoint, tool).interrupt().done()
    check_aborted(done)
    assert [event["status"] for event in done.of("call_settled")] == ["aborted"]


def test_ctrl_c_lets_an_almost_finished_tool_finish(cli: "Cli", endpoint: "Endpoint") -> None:
    done = started(cli, endpoint, "nearly").interrupt().done()
    check_aborted(done)
    assert [event["result"] for event in done.of("call_settled")] == ["saved"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "outcome"),
    [
        pytest.param("block", "finished", id="the first had no effect"),
        pytest.param("refuse", "aborted", id="the first was written down"),
        pytest.param("wait", "aborted", id="the tool had its grace"),
        pytest.param("hang", "aborted", id="a thread had its grace"),
    ],
)
def test_second_ctrl_c_exits_at_once_and_the_turn_can_be_resumed(
    cli: "Cli", endpoint: "Endpoint", tool: str, outcome: str
) -> None:
    """Also if a tool blocks the process or ignores its cancellation. A recorded abort is kept."""
    child = started(cli, endpoint, tool).interrupt()
    if tool == "block":
        time.sleep(0.5)  # nothing shows that a process has seen a signal when a tool blocks it
    else:
        cli.await_abort()
    done = child.interrupt().done()
    assert (done.code, done.last["type"]) == (130, "call_started")
    command, turn = f"`turnwright resume {done.turn}`", f"turn {done.turn}"
    if outcome == "aborted":
        # On a busy machine the grace of the first may be over by now, which is said before.
        messages = [line for line in done.err.splitlines() if "ignored its cancellation" not in line]
        ends = f"{turn} was asked to stop and has not ended: {command} ends it"
        assert messages == [f"turnwright: left at once; {ends}"]
        summary = cli.run("show", done.turn).out
        assert re.search(
            rf"^(Crashed|Released) while running tools, and asked to stop\. {command} ends it\.$", summary, re.MULTILINE
        )
        listed = cli.run("turns")
        assert listed.err == f"turnwright: 1 turn was asked to stop and lost its driver: {command} ends it\n"
    else:
        assert done.err == f"turnwright: left at once; {turn} has not ended: {command} resumes it\n"
        summary = cli.run("show", done.turn).out
        assert re.search(rf"^(Crashed|Released) while running tools: {command} resumes it\.$", summary, re.MULTILINE)
    (row,) = cli.run("turns", "--json").events
    assert row["driver"] in ("crashed", "left")
    assert row["stopping"] is (outcome == "aborted")
    assert cli.run("resume", done.turn, "--json").last["outcome"] == outcome


def test_ctrl_c_aborts_a_resumed_turn(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.begins("Once upon").begins("Once more")
    child = start(cli)
    turn = child.until("text_delta")["turn"]
    child.kill()
    resumed = cli.start("resume", turn, "--json")
    resumed.until("text_delta")
    done = resumed.interrupt().done()
    check_aborted(done)
    assert done.last["text"] == "Once more"


def test_running_turn_is_aborted_from_another_process(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.begins("Once upon")
    child = start(cli)
    turn = child.until("text_delta")["turn"]
    result = cli.run("abort", turn)
    assert (result.code, result.err) == (0, "")
    assert result.out == f"turn {turn}: asked to stop; its driver ends it\n"
    check_aborted(child.done())


def test_paused_turn_is_aborted_without_the_tools(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("delete_file", {"path": "a"}))
    paused = cli.run("run", "Work", "--tools", "mine.py", "--json")
    assert paused.code == 3
    (cli.folder / "mine.py").unlink()
    result = cli.run("abort", paused.turn)
    assert (result.code, result.out) == (0, f"turn {paused.turn}: aborted\n")
    summary: Json = cli.run("show", paused.turn, "--json").last
    assert (summary["outcome"], summary["reason"], summary["interrupts"]) == ("aborted", "aborted", [])
    late = cli.run("resume", paused.turn, "--approve", paused.interrupts[0]["id"])
    assert (late.code, "has ended (aborted: aborted)" in late.err) == (2, True)
    again = cli.run("abort", paused.turn)
    assert (again.code, again.out) == (2, "")


def test_turn_of_a_killed_process_is_aborted(cli: "Cli", endpoint: "Endpoint") -> None:
    child = started(cli, endpoint, "wait")
    child.kill()
    turn = cli.run("turns", "--json").last["turn"]
    assert cli.run("abort", turn).out == f"turn {turn}: aborted\n"
    assert cli.run("turns", "--json").last["outcome"] == "aborted"
