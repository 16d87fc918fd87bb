"""Text for a terminal has no escape sequences but our own styles, wherever it came from. JSON stays JSON."""

import json
import sqlite3
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from .tty import Tty

if TYPE_CHECKING:
    from pathlib import Path

    from tests.engine.cli.fixtures import Cli, Done, Endpoint

#: What a terminal obeys: it renames the window, clears the screen, turns text around, and hides it.
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u200b\x7f"
OBEYED = ("\x1b", "\x07", "\x9b", "\u202e", "\u200b", "\x7f")


def check(done: "Done") -> None:
    """Nothing that a terminal obeys was printed, and what was written is there to be read."""
    output = done.out + done.err
    assert not [mark for mark in OBEYED if mark in output], repr(output)
    assert r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u200b\x7f" in output, output


def test_names_of_files_agents_and_settings_are_escaped(cli: "Cli", tmp_path: "Path") -> None:
    agents = tmp_path / f"{EVIL}.md"
    agents.write_text("---\nname: A\nsteps: -1\n---\n")
    check(cli.run("agents", agents))
    check(cli.run("run", "hi", "--agents", f"{EVIL}/none.md"))
    good = cli.write("good.md", f"---\nname: A\ndescription: {json.dumps(EVIL)}\n---\n")
    check(cli.run("agents", good))
    config = cli.write("turnwright.toml", f"model = {json.dumps(EVIL.replace(chr(127), ''))}\n")
    result = cli.run("config", "--config", config)
    assert r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u200b" in result.out
    assert "\x1b" not in result.out


@pytest.mark.parametrize(
    "command",
    [
        ("run", "hi", f"--{EVIL}"),
        (EVIL,),
        ("run", "hi", "--tools", EVIL),
        ("run", "hi", "--config", EVIL),
        ("show", EVIL),
        ("replay", EVIL),
        ("decode", "--api", EVIL, "-"),
        ("diagram", "--format", EVIL),
        ("verify", "--can-reach", EVIL),
        ("turns", "--store", f"sqlite:///{EVIL}.db"),
        ("answer", EVIL, "--approve", "a"),
    ],
    ids=lambda command: command[0] if command[0] != EVIL else "command",
)
def test_typed_arguments_are_escaped(cli: "Cli", endpoint: "Endpoint", command: tuple[str, ...]) -> None:
    endpoint.says("Done.")
    cli.run("run", "hi")
    done = cli.run(*command)
    assert done.code == 2 or command[0] == "turns"
    output = done.out + done.err
    assert not [mark for mark in OBEYED if mark in output], repr(output)
    assert r"\x1b]0;owned" in output


def test_environment_variables_are_escaped(cli: "Cli") -> None:
    check(cli.run("config", env={"TURNWRIGHT_MODEL": EVIL}))
    check(
        cli.run("explain", env={"TURNWRIGHT_LIMITS__STEPS": EVIL, "TURNWRIGHT_STEPS": EVIL, "TURNWRIGHT_PRESET": EVIL})
    )


def test_ascii_stream_is_escaped_too(cli: "Cli") -> None:
    done = cli.run("diagram", "--format", f"é{EVIL}", env={"PYTHONIOENCODING": "ascii"})
    assert r"?\x1b]0;owned" in done.err
    assert done.err.isascii()
    assert "\x1b" not in done.err


def test_approval_is_complete_on_an_ascii_terminal(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("ask_user_input", {"question": "Erase raport.txt or r\u0430port.txt?"}))
    paused = cli.run("run", "hi", env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert r"Erase raport.txt or r\u0430port.txt?" in paused.out


@pytest.fixture
def evil(cli: "Cli", endpoint: "Endpoint") -> str:
    """A turn whose id, session, model, agent and texts a terminal would obey."""
    endpoint.calls((EVIL, {EVIL: EVIL}), ("read_file", {"path": EVIL})).says(EVIL)
    cli.write("AGENTS.md", "---\nname: Agent\nsteps: 1\n---\n")
    turn = cli.run("run", EVIL.replace("\x7f", ""), "--agents", "AGENTS.md", "--session", "s", "--json").turn
    with sqlite3.connect(cli.folder / "turns.db") as database:
        database.execute("UPDATE turns SET turn_id = turn_id || ?, session = ?, model = ?, agent = ?", (EVIL,) * 4)
    database.close()
    return turn


def test_ids_and_texts_of_a_turn_are_escaped(cli: "Cli", endpoint: "Endpoint", evil: str) -> None:
    check(cli.run("show", evil))
    check(cli.run("turns"))
    check(cli.run("show", evil, "--journal"))
    endpoint.says(EVIL)
    check(cli.run("run", "hi"))


def test_json_of_hostile_text_is_ascii(cli: "Cli", evil: str) -> None:
    (listed,) = cli.run("turns", "--json").events
    assert listed["turn"] == evil + EVIL
    for command in (("show", evil, "--json"), ("show", evil, "--journal", "--json"), ("config", "--json")):
        out = cli.run(*command, env={"TURNWRIGHT_MODEL": EVIL}).out
        assert out.isascii()
        assert "\x7f" not in out
        assert EVIL in texts_in([json.loads(line) for line in out.splitlines()])


def texts_in(value: JsonValue) -> str:
    """All texts of a value, its names too."""
    match value:
        case dict():
            return "\n".join([*value, *map(texts_in, value.values())])
        case list():
            return "\n".join(map(texts_in, value))
        case _:
            return str(value)


def test_live_screen_contains_no_foreign_escape_sequences(cli: "Cli", endpoint: "Endpoint") -> None:
    """Also in the output of a tool, whose colors rich would show."""
    cli.write(
        "tools.py",
        "from turnwright import tool\n\n\n@tool\ndef shout(text: str) -> str:\n"
        '    """Print."""\n    print("\\x1b[31mprinted\\x1b[0m \\x1b]8;;http://evil\\x1b\\\\link")\n    return text\n',
    )
    endpoint.calls(("shout", {"text": EVIL})).says(EVIL)
    with Tty(cli, ("run", "hi", "--tools", "tools.py")) as terminal:
        assert terminal.done() == 0
    assert r"\x1b[31mprinted\x1b[0m \x1b]8;;http://evil\x1b\link" in terminal.shown
    for obeyed in ("\x1b]", "\x1b[2J", "\x9b", "\u202e", "\x07"):
        assert obeyed not in terminal.shown


@pytest.mark.parametrize("command", ["turns", "demo", "verify"])
def test_ctrl_c_during_startup_prints_no_traceback(cli: "Cli", command: str) -> None:
    """The key is pressed during the imports, which Python prints with `-v`."""
    with Tty(cli, (command,), PYTHONVERBOSE="1", fresh=True) as terminal:
        terminal.until("import 'turnwright._base.startup'")
        terminal.types("\x03")
        assert terminal.done() == 130
    assert "Traceback" not in terminal.shown
