"""The command line loads the command that was asked for, and all of them only to list them."""

import ast
import inspect
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from turnwright import Agent, Engine
from turnwright._base.version import VERSION
from turnwright.cli.app import PLACES, command
from turnwright.cli.help_text import SUMMARIES, first_steps
from turnwright.model.scripted import ScriptedModel

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli

#: Runs a command, and prints the rooms of the command line that were loaded for it.
RUN = """
import contextlib, io, sys
from turnwright.cli import app
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    app.exit_code()
print([room for room in set(app.PLACES.values()) if f"turnwright.cli.{room}" in sys.modules])
"""


#: Prints at the exit which modules were loaded since `before`.
LEFT = "atexit.register(lambda: print(sorted(set(sys.modules) - before)))"
PROGRAM = "from turnwright.cli import main; main()"
#: Modules that answer `--version`.
FIRST = {
    *("turnwright", "turnwright._base", "turnwright._base.lazy_imports", "turnwright._base.startup"),
    *("turnwright._base.version", "turnwright.cli", "turnwright.cli.entry"),
}


def rooms_for(*arguments: str) -> set[str]:
    ran = subprocess.run([sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, check=True)
    rooms: list[str] = ast.literal_eval(ran.stdout)
    return set(rooms)


@pytest.mark.parametrize("name", PLACES)
def test_every_command_is_in_the_listed_module(name: str) -> None:
    assert getattr(command(name), "__name__", "") == name.replace(" ", "_")


def test_help_lists_every_command_in_order(cli: "Cli") -> None:
    lines = cli.run("--help").out.partition("Run:")[2].splitlines()
    names = [line.strip().partition("  ")[0] for line in lines if line[:2] == "  " and line[2:3].strip()]
    assert names[: len(PLACES)] == list(PLACES)


@pytest.mark.parametrize("name", PLACES)
def test_summary_of_a_command_equals_the_help(name: str) -> None:
    first, _, _ = (inspect.getdoc(command(name)) or "").partition("\n\n")
    assert " ".join(first.split()).partition(". ")[0].rstrip(".") == SUMMARIES[name].rstrip(".")


def test_every_command_has_a_summary() -> None:
    assert list(SUMMARIES) == list(PLACES)


def test_version_loads_only_the_first_modules() -> None:
    code = f"import atexit, sys; before = set(sys.modules)\n{LEFT}\n{PROGRAM}"
    ran = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=True)
    version_line, loaded = ran.stdout.splitlines()
    assert version_line == f"turnwright {VERSION}"
    assert set(ast.literal_eval(loaded)) <= FIRST


def test_help_loads_no_pydantic_model_and_no_machine() -> None:
    code = f"import atexit, sys; before = set(sys.modules)\n{LEFT}\n{PROGRAM}"
    ran = subprocess.run([sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in ast.literal_eval(ran.stdout.splitlines()[-1])}
    assert "typer" in loaded
    assert loaded.isdisjoint({"anyio", "asyncio", "msgspec", "pydantic", "rich", "turnwright_states"})


@pytest.mark.parametrize("name", ["run", "resume"])
def test_help_of_run_loads_no_pydantic_model_and_no_machine(name: str) -> None:
    """They have the most options, and their modules would load the whole engine."""
    code = f"import atexit, sys; before = set(sys.modules)\n{LEFT}\n{PROGRAM}"
    ran = subprocess.run([sys.executable, "-c", code, name, "--help"], capture_output=True, text=True, check=True)
    modules = ast.literal_eval(ran.stdout.splitlines()[-1])
    assert {name.partition(".")[0] for name in modules}.isdisjoint(
        {"anyio", "asyncio", "msgspec", "pydantic", "rich", "turnwright_states", "yaml"}
    )
    assert "turnwright.cli.run" in modules


def test_list_of_turns_loads_no_engine_and_no_tools(tmp_path: Path) -> None:
    """It needs the rows of the store and their format. The store's file is made first, so that it is read."""
    store = f"sqlite:///{tmp_path}/turns.db"
    anyio.run(partial(run_one_turn, store))
    code = f"import atexit, sys; before = set(sys.modules)\n{LEFT}\n{PROGRAM}"
    command = [sys.executable, "-c", code, "turns", "--store", store]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = ast.literal_eval(ran.stdout.splitlines()[-1])
    assert "turnwright.store.sqlite.store" in modules
    assert "FINISHED" in ran.stdout
    packages = ("agent", "driver", "engine", "events", "result", "runtime", "tools")
    loaded = [name for name in modules if name.startswith(tuple(f"turnwright.{package}" for package in packages))]
    assert loaded == []


async def run_one_turn(store: str) -> None:
    async with Engine(model=ScriptedModel("Done."), store=store) as engine:
        await engine.run(Agent(name="A"), "go")


@pytest.mark.parametrize("name", PLACES)
def test_help_of_a_command_alone_is_that_among_all(cli: "Cli", name: str) -> None:
    """An option before the command needs the program as a whole."""
    alone, among_all = cli.run(name, "--help"), cli.run("--log-level", "info", name, "--help")
    assert alone.out.startswith(f"Usage: turnwright {name} ")
    assert (alone.code, alone.out, alone.err) == (among_all.code, among_all.out, among_all.err)


def test_serving_pages_loads_no_terminal_library() -> None:
    code = "import sys, turnwright_inspector.cli.serve, turnwright_inspector.cli.serving; print('rich' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_serving_a_store_loads_no_reader_of_recorded_runs() -> None:
    code = "import sys, turnwright_inspector.cli.serving; print('turnwright_audit.trajectories' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_help_has_groups_and_a_whole_line_for_each_command(cli: "Cli") -> None:
    out = cli.run("--help").out
    assert re.findall(r"^(\w+):$", out, re.MULTILINE) == ["Options", "Run", "Inspect", "Check", "Operate"]
    assert "..." not in out.partition("Run:")[2]


def test_missing_command_shows_five_commands_and_loads_none(cli: "Cli") -> None:
    done = cli.run()
    assert (done.code, done.out) == (2, "")
    assert re.findall(r"^  turnwright (\w+)", done.err, re.MULTILINE) == ["demo", "run", "chat", "show", "serve"]
    assert rooms_for() == set()
    assert max(map(len, done.err.splitlines())) <= 80


def test_first_commands_wrap_between_words_on_a_narrow_terminal() -> None:
    words = set(first_steps(80).split())
    for columns in (20, 30, 40, 64):
        narrow = first_steps(columns)
        assert set(narrow.split()) == words
        assert max(len(line) for line in narrow.splitlines() if line.startswith("    ")) <= columns


@pytest.mark.parametrize("name", PLACES)
def test_command_help_has_valid_examples(cli: "Cli", name: str) -> None:
    own_words = name.split()
    examples = cli.run(*own_words, "--help").out.partition("Examples:\n")[2].splitlines()
    assert examples
    for example in examples:
        words = shlex.split(re.sub(r"^  (.* \| )?turnwright |( [|>] .*)$", "", example))
        assert words[: len(own_words)] == own_words
        flags = [word for word in words if word.startswith("--")]
        options = cli.run(*own_words, "--help").out.partition("Options:")[2].partition("Examples:")[0]
        assert all(flag in options for flag in flags), example


def test_only_the_module_of_the_command_is_loaded() -> None:
    assert rooms_for("--version") == set()
    assert rooms_for("decode", "--help") == {"decode"}
    assert rooms_for("run", "--help").isdisjoint({"demo", "diagram", "fuzz", "show", "verify"})


def test_unknown_command_is_a_usage_mistake(cli: "Cli") -> None:
    done = cli.run("rnu")
    assert (done.code, "No such command 'rnu'" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("line", "words"), [("turnwright ch", "chat"), ("turnwright run --verb", "--verbose"), ("turnwright nope x", "")]
)
def test_shell_completes_commands_and_options(cli: "Cli", line: str, words: str) -> None:
    variables = {"_TURNWRIGHT_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    done = cli.run(env=variables, fresh=True)
    assert (done.code, done.out.strip(), done.err) == (0, words, "")
