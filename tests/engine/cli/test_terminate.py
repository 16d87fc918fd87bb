"""SIGTERM, with which containers and services are stopped: the turn is released, and another process resumes it."""

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Done, Endpoint

TOOLS = '''
import time
from pathlib import Path

import anyio

from turnwright import tool


def run(name: str) -> bool:
    """Whether it runs for the first time."""
    first = not Path(name).exists()
    with Path(name).open("a") as file:
        file.write("+")
    return first


@tool
async def nearly() -> str:
    """Be done soon."""
    run("ran")
    await anyio.sleep(0.3)
    return "saved"


@tool
async def wait() -> str:
    """Take for ever."""
    run("ran")
    await anyio.sleep_forever()
    return "never"


@tool
def hang() -> str:
    """Take for ever, in a thread that nobody can stop."""
    run("ran")
    time.sleep(3600)
    return "never"


@tool(idempotent=True)
async def block() -> str:
    """Keep the event loop from doing anything else, the first time."""
    if run("ran"):
        time.sleep(3600)
    return "did it"
'''

BUSY = b"HTTP/1.1 503 Busy\r\nRetry-After: 60\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.fixture(autouse=True)
def _tools(cli: "Cli") -> None:
    cli.write("mine.py", TOOLS)


def check_left(done: "Done") -> None:
    """It was stopped, and said how to go on."""
    assert done.code == 143
    command = f"turnwright resume {done.turn}"
    assert done.err == f"turnwright: stopped by SIGTERM; turn {done.turn} has not ended: `{command}` resumes it\n"
    assert not done.of("turn_ended")


def test_sigterm_restarts_a_stream_without_using_a_retry(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.begins("Once upon").says("Once upon a time.")
    child = cli.start("run", "A story", "--json")
    child.until("text_delta")
    stopped = child.terminate().done()
    check_left(stopped)
    done = cli.run("resume", stopped.turn, "--json")
    assert (done.code, done.last["text"], done.of("attempt_failed")) == (0, "Once upon a time.", [])


def test_sigterm_ends_a_wait_for_a_retry(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.plays(BUSY).says("Done.")
    child = cli.start("run", "A story", "--json")
    child.until("attempt_failed")
    stopped = child.terminate().done()
    check_left(stopped)
    assert cli.run("resume", stopped.turn, "--json").last["outcome"] == "finished"


def test_sigterm_restarts_a_conclusion(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("list_files", {})).begins("I have").says("I have looked.")
    child = cli.start("run", "Work", "--steps", "1", "--json")
    child.until("text_delta")
    stopped = child.terminate().done()
    check_left(stopped)
    done = cli.run("resume", stopped.turn, "--json")
    assert (done.code, done.last["reason"], done.last["text"]) == (4, "step_cap", "I have looked.")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "ran", "result"),
    [
        pytest.param("wait", "+", "outcome unknown", id="one that never ends is canceled"),
        pytest.param("hang", "+", "outcome unknown", id="a thread is left behind"),
        pytest.param("block", "++", "did it", id="one that blocks the process ends with it, and may be run again"),
    ],
)
def test_sigterm_does_not_wait_for_a_tool(cli: "Cli", endpoint: "Endpoint", tool: str, ran: str, result: str) -> None:
    endpoint.calls((tool, {})).says("Done.")
    child = cli.start("run", "Work", "--tools", "mine.py", "--json")
    cli.await_file("ran")
    stopped = child.terminate().done()
    check_left(stopped)
    assert stopped.last["type"] == "call_started"
    done = cli.run("resume", stopped.turn, "--json")
    assert (done.code, done.last["text"]) == (0, "Done.")
    assert (cli.folder / "ran").read_text() == ran
    assert endpoint.requests[-1].messages[-1]["content"].startswith(result)


def test_almost_finished_tool_keeps_the_result(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("nearly", {})).plays(None)
    child = cli.start("run", "Work", "--tools", "mine.py", "--json")
    cli.await_file("ran")
    stopped = child.terminate().done()
    check_left(stopped)
    assert [event["result"] for event in stopped.of("call_settled")] == ["saved"]
    endpoint.forgets().says("Done.")  # it may have left before it asked the model that never answers
    done = cli.run("resume", stopped.turn, "--json")
    assert (done.code, done.last["text"], (cli.folder / "ran").read_text()) == (0, "Done.", "+")


def test_turn_ending_during_sigterm_has_ended(cli: "Cli", endpoint: "Endpoint") -> None:
    """Its outcome is what the exit code says, if the process was still there to see it."""
    endpoint.calls(("nearly", {})).says("Done.")
    child = cli.start("run", "Work", "--tools", "mine.py", "--json")
    cli.await_file("ran")
    done = child.terminate().done()
    assert (done.code, done.err, bool(done.of("turn_ended"))) == (0, "", True) or (
        done.code,
        done.of("turn_ended"),
    ) == (
        143,
        [],
    )


def test_sigterm_after_ctrl_c_keeps_the_recorded_abort(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("wait", {}))
    child = cli.start("run", "Work", "--tools", "mine.py", "--json")
    cli.await_file("ran")
    child.interrupt()
    cli.await_abort()
    stopped = child.terminate().done()
    assert stopped.code in (130, 143)  # whichever was faster: the grace of the abort, or that of the signal
    if stopped.code == 143:
        # It may have read of its own abort by then, or not.
        turn, command = stopped.turn, f"`turnwright resume {stopped.turn}`"
        assert stopped.err in (
            f"turnwright: stopped by SIGTERM; turn {turn} has not ended: {command} resumes it\n",
            f"turnwright: stopped by SIGTERM; turn {turn} was asked to stop and has not ended: {command} ends it\n",
        )
        assert cli.run("resume", stopped.turn, "--json").last["outcome"] == "aborted"


def test_final_message_command_names_the_store(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.begins("Once upon")
    child = cli.start("run", "A story", "--store", "sqlite:///my turns.db")
    child.shows("STREAM")
    stopped = child.terminate().done()
    assert re.search(r"`turnwright resume \w{16} --store 'sqlite:///my turns\.db'` resumes it$", stopped.err)


@pytest.mark.parametrize(
    "first", ["process.say_last('left')", "threading.Thread(target=process.say_last, args=('left',)).start()"]
)
def test_final_message_is_printed_once_despite_a_timer(first: str) -> None:
    code = f"import threading; from turnwright.cli import process; {first}; process.leave_now(143, 'left')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (143, "turnwright: left\n")
