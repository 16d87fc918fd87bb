"""Check docs/from-a-loop.md: it shows the files of `examples/from_a_loop`, and they print what it shows."""

import re
import shutil
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.servers.forked_python import Python

from .page_blocks import Terminal, blocks_of, commands_of, missing_links, text_of
from .repository_pages import Block, blocks

PAGE = "from-a-loop.md"
Prints = Callable[[str], str]
EXAMPLE = Path(__file__).parents[2] / "examples" / "from_a_loop"
STEPS = sorted(path.name for path in EXAMPLE.glob("step_*.py"))
#: The commands that play every problem of a step.
COMMANDS = (
    "python {0} < /dev/null",
    "python {0} dies || python {0} dies",
    "python {0} asks < /dev/null; python {0} yes",
)

#: The output of an app that solves the problem, by the row of the page's table.
SOLVED = {
    "the model never stops": r"runs away: .*\(cap_hit: step_cap\)",
    "it repeats the same call": r"repeats: .*\(doom_loop: doom_loop\)",
    "it returns an empty reply": r"says nothing: .*\(failed: empty_reply\)",
    "a tool fails, and its call has no result": r"continue: .*\(finished: answered\)",
    "an approval is needed, without a terminal": r"asks: +may I refund\?\nanswered: .*refunded",
    "the approval arrives after a restart": r"yes\nasks: +may I refund\?\nanswered: .*refunded",
    "the process dies during a tool": r"the ledger has 1 charge",
}


@pytest.fixture(scope="module")
def printed_by(python: Python) -> Prints:
    """Returns what a command prints in a fresh copy of the folder."""

    @cache
    def run(command: str) -> str:
        with TemporaryDirectory() as folder:
            shutil.copytree(EXAMPLE, place := Path(folder) / "steps", ignore=shutil.ignore_patterns("__pycache__"))
            return Terminal(place, python).run(command)

    return run


@pytest.fixture(scope="module")
def printed_by_all_of(printed_by: Prints) -> Prints:
    """Returns what all problems of a step print, each line in one piece."""

    def run(step: str) -> str:
        commands = [template.format(step) for template in COMMANDS]
        printed = "".join(f"$ {command}\n{printed_by(command)}" for command in commands)
        return re.sub(r"\n {14}(?!the ledger)", " ", printed)

    return run


def shown_parts() -> list[tuple[str, Block]]:
    """Return each Python block that is a part of a file, with the name of the file."""
    parts = []
    for block in blocks(text_of(PAGE)):
        if block.language == "python" and not block.title:
            (name,) = (
                comment.removeprefix("part of examples/from_a_loop/")
                for comment in block.comments
                if "part of" in comment
            )
            parts.append((name, block))
    return parts


def test_page_shows_the_files_of_the_steps() -> None:
    (first,) = (block for block in blocks_of(PAGE) if block.title)
    assert first.text == (EXAMPLE / first.title).read_text(encoding="utf-8")
    for name, block in shown_parts():
        file = (EXAMPLE / name).read_text(encoding="utf-8")
        assert block.text in file or textwrap.indent(block.text, "    ") in file, name
    assert {first.title, *(name for name, _ in shown_parts())} == set(STEPS)


@pytest.mark.parametrize(
    ("command", "expected"),
    [command for block in blocks_of(PAGE) if block.language == "console" for command in commands_of(block)],
)
def test_command_prints_the_output_of_the_page(printed_by: Prints, command: str, expected: str) -> None:
    assert printed_by(command) == expected


@pytest.mark.parametrize("number", range(len(STEPS)))
def test_table_names_the_problems_solved_by_each_step(printed_by_all_of: Prints, number: int) -> None:
    printed = printed_by_all_of(STEPS[number])
    solved = {problem for problem, pattern in SOLVED.items() if re.search(pattern, printed)}
    rows = [line.strip("| ").split(" | ") for line in text_of(PAGE).splitlines() if line.startswith("| ")]
    listed = {row[0]: row[number + 1] for row in rows if row[0] in SOLVED}
    assert listed == {problem: "yes" if problem in solved else "no" for problem in SOLVED}


def test_unprotected_loop_charges_twice_and_loses_the_conversation(printed_by_all_of: Prints) -> None:
    """The first loop really has the failures: a crash duplicates work, and a failed tool breaks the messages."""
    printed = printed_by_all_of("step_0_loop.py")
    assert "the ledger has 2 charge(s)" in printed
    assert "BadRequestError: 400: no tool message for tool_call_id id1" in printed
    assert "says nothing: None" in printed
    assert printed.count("TooManyCallsError") == 2


def test_every_linked_file_exists() -> None:
    assert missing_links(PAGE) == []
