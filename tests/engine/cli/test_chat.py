"""`turnwright chat`: a session in a real terminal."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from .tty import Tty, enter, plain

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint

Open = Callable[..., Tty]

TOOLS = '''
from pathlib import Path

import anyio

from turnwright import tool


@tool(needs_approval=True)
def remove(path: str) -> str:
    """Remove a file."""
    with Path("removed").open("a") as file:
        file.write(path + "\\n")
    return f"{path} is gone"


@tool
async def wait() -> str:
    """Never end."""
    Path("waits").write_text("+")
    await anyio.sleep_forever()
    return "never"
'''


@pytest.fixture
def chat(cli: "Cli") -> Open:
    cli.write("mine.py", TOOLS)
    return lambda *arguments, **size: Tty(cli, ("chat", *arguments), **size)


@pytest.mark.slow
def test_session_streams_asks_for_approval_and_keeps_the_history(cli: "Cli", endpoint: "Endpoint", chat: Open) -> None:
    endpoint.says("Hello **you**.").calls(("remove", {"path": "old.log"})).says("It is gone.").says("As I said: gone.")
    with chat("--tools", "mine.py", "--session", "s1") as terminal:
        terminal.until("/help lists the commands.")
        enter(terminal, "hi", "Done in 1 step")
        enter(terminal, "remove the log", "may remove run?")
        terminal.until("[y/n/r/e/q] ")
        terminal.types("y\n").until("Done in 2 steps")
        enter(terminal, "/quit", "turnwright chat --session s1")
        assert terminal.done() == 0
    assert (cli.folder / "removed").read_text() == "old.log\n"
    assert "Hello you." in plain(terminal)
    with chat("--continue") as terminal:
        terminal.until("session s1")
        enter(terminal, "really?", "Done in 1 step")
        terminal.until("> ")
        terminal.types("\x04")
        assert terminal.done() == 0
    request = endpoint.requests[-1]
    assert [message["content"] for message in request.messages if message["role"] == "user"] == [
        "hi",
        "remove the log",
        "really?",
    ]
    assert "remove" in [tool["function"]["name"] for tool in request.body["tools"]], "the tools of the session are kept"
    listed = cli.run("turns", "--session", "s1", "--json").events
    assert [row["outcome"] for row in listed] == ["finished"] * 3


@pytest.mark.slow
def test_ctrl_c_stops_the_turn_and_twice_at_the_prompt_the_program(
    cli: "Cli", endpoint: "Endpoint", chat: Open
) -> None:
    endpoint.begins("Once upon").calls(("wait", {})).says("Still here.")
    with chat("--tools", "mine.py") as terminal:
        enter(terminal, "a story", "Once upon")
        terminal.types("\x03").until("Stopped after 1 step")
        enter(terminal, "wait", "Running wait")
        cli.await_file("waits")
        terminal.types("\x03").until("Stopped after 1 step")
        enter(terminal, "/why", "aborted: aborted")
        enter(terminal, "there?", "Done in 1 step")
        terminal.until("> ")
        terminal.types("\x03").until("Press Ctrl-C again to leave")
        terminal.until("> ")
        terminal.types("\x03")
        assert terminal.done() == 130
    assert "Traceback" not in terminal.shown
    outcomes = [event["outcome"] for event in cli.run("turns", "--json").events]
    assert outcomes == ["finished", "aborted", "aborted"]


@pytest.mark.slow
def test_commands_show_limits_and_resume_a_paused_turn(cli: "Cli", endpoint: "Endpoint", chat: Open) -> None:
    endpoint.calls(("remove", {"path": "a"})).says("Kept it.")
    with chat("--tools", "mine.py", "--steps", "7", columns=40) as terminal:
        enter(terminal, "/resume", "Nothing to resume: no turn has run yet.")
        enter(terminal, "/nothing", "There is no command /nothing.")
        enter(terminal, "remove a", "[y/n/r/e/q] ")
        terminal.types("q\n").until("The last turn is paused.")
        enter(terminal, "/limits", "steps       7         1")
        enter(terminal, "/resume", "[y/n/r/e/q] ")
        terminal.types("r\n").until("Note to the model: ")
        terminal.types("not that one\n").until("Done in 2 steps")
        enter(terminal, "/resume", "the last turn has ended. A new message continues from it.")
        enter(terminal, "/help", "/quit    leave")
        terminal.types("/exit\n")
        assert terminal.done() == 0
    assert not (cli.folder / "removed").exists()
    assert "not that one" in endpoint.requests[-1].messages[-1]["content"]


@pytest.mark.slow
def test_turn_of_a_dead_process_is_resumed_as_advised(cli: "Cli", endpoint: "Endpoint", chat: Open) -> None:
    endpoint.begins("Once upon").says("The end.")
    child = cli.start("run", "A story", "--session", "s1", "--json")
    child.until("text_delta")
    child.kill()
    with chat("--session", "s1", columns=200) as terminal:
        terminal.until("/resume continues it; until it ends, no message can be sent.")
        enter(terminal, "hello", "whose driver is gone: /resume resumes it, `turnwright abort")
        enter(terminal, "/why", "Crashed while ")
        enter(terminal, "/resume", "Done in 1 step")
        terminal.until("> ")
        terminal.types("/quit\n")
        assert terminal.done() == 0


def test_chat_needs_a_terminal_and_a_single_session(cli: "Cli", chat: Open) -> None:
    done = cli.run("chat", stdin="hi\n")
    assert (done.code, "chat needs a terminal" in done.err) == (2, True)
    with chat("--continue") as terminal:
        assert terminal.done() == 2
    assert "the store has no session yet" in terminal.shown
    with chat("--continue", "--session", "s") as terminal:
        assert terminal.done() == 2
    assert "give one of them" in terminal.shown
