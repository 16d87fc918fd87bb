"""A paused turn asks at the terminal: everything is shown first, and keys typed before that are ignored."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from .tty import Tty

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint, Json

Open = Callable[..., Tty]

TOOLS = '''
from pathlib import Path

from turnwright import tool


@tool(needs_approval=True)
def remove(path: str) -> str:
    """Remove a file."""
    Path("removed").write_text(path)
    return f"{path} is gone"
'''
BOTH = (("remove", {"path": "old.log"}), ("ask_user_input", {"question": "Which?", "choices": ["red", "blue"]}))


@pytest.fixture
def run(cli: "Cli") -> Open:
    cli.write("mine.py", TOOLS)
    return lambda *flags, **size: Tty(cli, ("run", "Work", "--tools", "mine.py", *flags), **size)


def results(endpoint: "Endpoint") -> list[str]:
    return [message["content"] for message in endpoint.requests[-1].messages if message["role"] == "tool"]


@pytest.mark.slow
def test_approvals_and_questions_are_asked_in_order(endpoint: "Endpoint", run: Open) -> None:
    endpoint.calls(*BOTH).says("Done.")
    with run() as terminal:
        assert "approval-1 (1 of 2): may remove run?" in terminal.until("[y/n/r/e/q] ")
        terminal.types("what?\n").until("Answer y, n, r, e or q (quit: leave the turn paused).")
        terminal.until("[y/n/r/e/q] ")
        terminal.types("yes\n").until("Answer: ")
        terminal.types("2\n").until("Done in 2 steps (2 tool calls, ")
        assert terminal.done() == 0
    assert results(endpoint) == ["old.log is gone", "blue"]


@pytest.mark.slow
def test_answer_of_another_process_is_named_and_continues_the_turn(cli: "Cli", endpoint: "Endpoint", run: Open) -> None:
    endpoint.calls(BOTH[0]).says("Done.")
    with run() as terminal:
        terminal.until("[y/n/r/e/q] ")
        turn = cli.run("turns", "--json").last["turn"]
        assert cli.run("answer", turn, "--reject", "approval-1=keep it").code == 0
        terminal.types("y\n").until(f"turn {turn} was answered elsewhere meanwhile: it continues with that answer")
        terminal.until("Done in 2 steps")
        assert terminal.done() == 0
    assert results(endpoint) == ["rejected by the person: keep it"]
    assert not (cli.folder / "removed").exists()


@pytest.mark.slow
def test_rejection_note_reaches_the_model(cli: "Cli", endpoint: "Endpoint", run: Open) -> None:
    endpoint.calls(BOTH[0]).says("Done.")
    with run(columns=40) as terminal:
        terminal.until("[y/n/r/e/q] ")
        terminal.types("reject\n").until("Note to the model: ")
        terminal.types("use new.log\n").until("Done in 2 steps")
        assert terminal.done() == 0
    assert results(endpoint) == ["rejected by the person: use new.log"]
    assert not (cli.folder / "removed").exists()


def test_edited_arguments_are_shown_before_the_approval(cli: "Cli", endpoint: "Endpoint", run: Open) -> None:
    """Arguments that the tool refuses leave the question open."""
    endpoint.calls(BOTH[0]).says("Done.")
    cli.env["EDITOR"] = f"{sys.executable} edit.py"
    cli.write("edit.py", "import sys; open(sys.argv[1], 'w').write(open('wanted').read())")
    with run(columns=400) as terminal:
        terminal.until("[y/n/r/e/q] ")
        terminal.types("e\n").until("non-zero exit status 1. Set EDITOR to another one.")
        terminal.until("[y/n/r/e/q] ")
        cli.write("wanted", '{"path": 1}')
        terminal.types("e\n").until("| path: 1")
        terminal.until("[y/n/r/e/q] ")
        terminal.types("y\n").until("the changed arguments do not fit remove")
        terminal.until("[y/n/r/e/q] ")
        cli.write("wanted", "{path}")
        terminal.types("e\n").until("that is not JSON")
        terminal.until("[y/n/r/e/q] ")
        cli.write("wanted", '{"path": "new.log"}')
        terminal.types("edit\n").until('| path: "new.log"')
        terminal.until("[y/n/r/e/q] ")
        terminal.types("y\n").until("Done in 2 steps")
        assert terminal.done() == 0
    assert (cli.folder / "removed").read_text() == "new.log"
    assert results(endpoint) == [
        '[a person approved this call with other arguments: {"path": "new.log"}]\n\nnew.log is gone'
    ]


@pytest.mark.parametrize("key", ["q\n", "\x04", "\x03"], ids=["q", "end of input", "ctrl-c"])
@pytest.mark.slow
def test_quitting_leaves_the_turn_paused(cli: "Cli", endpoint: "Endpoint", run: Open, key: str) -> None:
    """Also after the first of two answers: then none is given."""
    endpoint.calls(*BOTH).says("Done.")
    with run() as terminal:
        terminal.until("[y/n/r/e/q] ")
        terminal.types("y\n" if key == "\x04" else key)
        if key == "\x04":
            terminal.until("Answer: ")
            terminal.types(key)
        assert terminal.done() == 3
    turn = cli.run("turns", "--json").last["turn"]
    assert terminal.shown.endswith(f"Paused. To answer:\n  turnwright resume {turn}\n")
    assert len(cli.run("show", turn, "--json").last["interrupts"]) == 2
    assert "Traceback" not in terminal.shown


@pytest.mark.slow
def test_keys_typed_before_the_question_are_ignored(cli: "Cli", endpoint: "Endpoint", run: Open) -> None:
    endpoint.calls(BOTH[0]).says("Done.")
    with run() as terminal:
        terminal.types("y\ny\ny\n").until("q  quit: leave the turn paused")
        terminal.types("y\n").until("[y/n/r/e/q] ")
        terminal.types("n\n").until("Done in 2 steps")
        assert terminal.done() == 0
    assert not (cli.folder / "removed").exists()


@pytest.mark.slow
def test_question_must_be_shown_to_the_end_before_the_answer(cli: "Cli", endpoint: "Endpoint", run: Open) -> None:
    endpoint.calls(("remove", {"path": "".join(f"line {number}\n" for number in range(60))})).says("Done.")
    with run() as terminal:
        terminal.until("-- Enter shows")
        terminal.types("q\n")
        assert terminal.done() == 3
    assert "[y/n/r/e/q]" not in terminal.shown
    turn = cli.run("turns", "--json").last["turn"]
    with Tty(cli, ("resume", turn)) as terminal:
        terminal.until("-- Enter shows")
        terminal.types("\n").until("-- Enter shows")
        terminal.types("\n").until("[y/n/r/e/q] ")
        terminal.types("y\n").until("Done in 2 steps")
        assert terminal.done() == 0
    assert (cli.folder / "removed").exists()


@pytest.mark.parametrize(("keys", "outcome"), [("g\n", 0), ("s\n", 5)], ids=["go on", "stop"])
@pytest.mark.slow
def test_doom_loop_asks_a_person(cli: "Cli", endpoint: "Endpoint", run: Open, keys: str, outcome: int) -> None:
    again: tuple[str, Json] = ("list_files", {})
    endpoint.calls(again).calls(again).calls(again).says("Enough.")
    agents = cli.agent("doom_response: ask\ndoom_compare: calls")
    with run("--agents", str(agents)) as terminal:
        terminal.until("[g/a/s/q] ")
        terminal.types(keys)
        assert terminal.done() == outcome


@pytest.mark.slow
def test_dumb_terminal_asks_without_drawing(cli: "Cli", endpoint: "Endpoint") -> None:
    cli.write("mine.py", TOOLS)
    endpoint.calls(BOTH[0]).says("**Done** now.")
    with Tty(cli, ("run", "Work", "--tools", "mine.py"), TERM="dumb") as terminal:
        terminal.until("[y/n/r/e/q] ")
        terminal.types("y\n").until("Done in 2 steps")
        assert terminal.done() == 0
    assert "**Done** now." in terminal.shown
    assert "\x1b[2K" not in terminal.shown


def test_no_color_is_honored(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("# Title\n\n`code` and **bold**")
    with Tty(cli, ("run", "Work"), NO_COLOR="1") as terminal:
        assert terminal.done() == 0
    assert "Title" in terminal.shown
    assert "\x1b[3" not in terminal.shown.replace("\x1b[3m", "")
