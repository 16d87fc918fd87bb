"""`docs/from-a-loop.md` tells the truth: it shows the files of `examples/from_a_loop`, and they do what it says."""

import re
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from .page_blocks import Terminal, blocks_of, commands_of, missing_links, text_of

PAGE = "from-a-loop.md"
EXAMPLE = Path(__file__).parents[2] / "examples" / "from_a_loop"
STEPS = sorted(path.name for path in EXAMPLE.glob("step_*.py"))

#: What an app prints that stands the problem, by the row of the page's table.
STANDS = {
    "the model runs away": r"runs away: .*\(cap_hit: step_cap\)",
    "it repeats the same call": r"repeats: .*\(doom_loop: doom_loop\)",
    "it says nothing": r"says nothing: .*\(failed: empty_reply\)",
    "a tool fails, and leaves a call without a result": r"go on: .*\(finished: answered\)",
    "a person is to approve, and nobody is at the terminal": r"asks: +may I refund\?\nanswered: .*refunded",
    "the approval comes after a restart": r"yes\nasks: +may I refund\?\nanswered: .*refunded",
    "the process dies in the middle of a tool": r"the ledger has 1 charge",
}


@cache
def printed_by(step: str) -> str:
    """What the commands that the page shows for a step print, each in a place of its own."""
    (shown,) = (block for block in blocks_of(PAGE) if block.language == "console" and step in block.text)
    lines = []
    for command, _ in commands_of(shown):
        with TemporaryDirectory() as folder:
            shutil.copytree(EXAMPLE, place := Path(folder) / "steps", ignore=shutil.ignore_patterns("__pycache__"))
            lines.append(f"$ {command}\n{Terminal(place).run(command)}")
    return "".join(lines)


@pytest.mark.parametrize("step", STEPS)
def test_the_page_shows_the_file_of_each_step(step: str) -> None:
    (shown,) = (block for block in blocks_of(PAGE) if block.title == step)
    assert shown.text == (EXAMPLE / step).read_text(encoding="utf-8")


@pytest.mark.parametrize("step", STEPS)
def test_a_step_prints_what_the_page_shows(step: str) -> None:
    (shown,) = (block for block in blocks_of(PAGE) if block.language == "console" and step in block.text)
    assert printed_by(step) == shown.text


@pytest.mark.parametrize("number", range(len(STEPS)))
def test_the_table_says_which_problems_a_step_stands(number: int) -> None:
    stands = {problem for problem, said in STANDS.items() if re.search(said, printed_by(STEPS[number]))}
    rows = [line.strip("| ").split(" | ") for line in text_of(PAGE).splitlines() if line.startswith("| ")]
    told = {row[0]: row[number + 1] for row in rows if row[0] in STANDS}
    assert told == {problem: "yes" if problem in stands else "no" for problem in STANDS}


def test_the_loop_charges_twice_and_loses_the_conversation() -> None:
    """What the page begins with is really so: a crash duplicates work, and a failed tool spoils the messages."""
    said = printed_by("step_0_loop.py")
    assert "the ledger has 2 charge(s)" in said
    assert "BadRequestError: 400: no tool message for tool_call_id id1" in said
    assert "says nothing: None" in said
    assert said.count("PluggedOutError") == 2


def test_every_file_that_the_page_links_to_is_there() -> None:
    assert missing_links(PAGE) == []
