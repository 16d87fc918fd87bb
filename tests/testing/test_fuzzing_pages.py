"""`fuzz-your-agents.md`: its files, commands and outputs are real."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.servers.forked_python import Python

from turnwright_testing import INVARIANTS, Driven

Run = Callable[..., "subprocess.CompletedProcess[str]"]
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "fuzz-your-agents.md").read_text(encoding="utf-8")


def block(heading: str) -> str:
    """The code block below a comment."""
    match = re.search(rf"<!-- {re.escape(heading)} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert match is not None, heading
    return match[1]


@pytest.fixture
def run(folder: Path, python: Python) -> Run:
    """Runs a module in the folder of the page."""
    return lambda *arguments: python.run("-m", *arguments, folder=folder)


def without_figures(line: str) -> str:
    return re.sub(r"\d+(\.\d+)?", "N", line)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that the page works in."""
    for name in ("AGENTS.md", "desk.py", "hooked.py"):
        (tmp_path / name).write_text(block(f"file: {name}"))
    return tmp_path


def test_command_prints_the_output_of_the_page(run: Run) -> None:
    command, *promised = block("output of the command, figures aside").splitlines()
    assert command == "$ turnwright fuzz --agents AGENTS.md --tools desk.py --seed 1"
    ran = run(*command.split()[1:], "--examples", "10")
    output = [without_figures(line) for line in ran.stdout.splitlines()]
    errors = [line for line in ran.stderr.splitlines() if not line.startswith("playing: ")]
    assert (ran.returncode, errors) == (0, [])
    assert output[: len(promised)] == [without_figures(line) for line in promised]
    claims = [invariant(Driven(facts=())).claim for invariant in INVARIANTS]
    assert re.findall(r"^  holds: (.*) \(in", ran.stdout, re.MULTILINE) == claims


def test_rehearsal_prints_the_fault_of_the_page(folder: Path, run: Run) -> None:
    """The test on standard output fails with it; then the mended desk is green, and warns of nothing."""
    command, promised = block("first line of the run, names aside").splitlines()
    arguments, _, file = command.removeprefix("$ ").partition(" > ")
    ran = run(*arguments.split())
    names = re.compile(r"(ann|bob) canceled \w\d$", re.MULTILINE)
    lines = [line for line in ran.stderr.splitlines() if not line.startswith(("rehearsing", "reducing"))]
    assert (ran.returncode, names.sub("X", lines[0])) == (1, names.sub("X", promised))
    (folder / file).write_text(ran.stdout)
    assert promised.removeprefix("violated: ").rpartition(": ")[0] in run("pytest", "-q", file).stdout
    right, _ = block("the mended line of desk.py").splitlines()
    mend(folder / "desk.py", r"if order not in CUSTOMERS:", right)
    assert "1 passed" in run("pytest", "-q", file).stdout
    green = run(*arguments.split(), "--examples", "40", "--strict")
    assert (green.returncode, "warning: " in green.stdout) == (0, False)
    expected = block("the run of the mended desk, figures aside").splitlines()
    printed = {without_figures(line) for line in green.stdout.splitlines()}
    assert {without_figures(line) for line in expected[1:]} <= printed


def test_mistake_in_the_hook_of_the_page_is_found(folder: Path, run: Run) -> None:
    command, promised = block("the end of the fault of the hook").splitlines()
    ran = run(*command.split()[1:])
    assert ran.returncode == 1
    assert f"hook compact: the turn fails: {promised}\n" in ran.stderr
    mend(
        folder / "hooked.py",
        r"return \[messages.*?\]\]",
        'recent = [*messages[1:][-3:]]\n    while recent and recent[0].role == "tool":\n        del recent[0]\n'
        "    return [messages[0], *recent]",
    )
    assert "1 passed" in run("pytest", "-q", "test_hook.py").stdout


def mend(file: Path, wrong: str, right: str) -> None:
    text, count = re.subn(wrong, right, file.read_text(), flags=re.DOTALL)
    assert count == 1
    file.write_text(text)
