"""The README tells the truth: its example runs, its table of bounds and its exit codes are those of the code."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from turnwright.cli import codes
from turnwright_states import REASONS, EndReason, Limits

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")

BOUNDS = {
    "steps": EndReason.STEP_CAP,
    "tool calls": EndReason.BUDGET,
    "tokens": EndReason.TOKENS,
    "cost": EndReason.COST,
    "seconds": EndReason.DEADLINE,
    "rounds that repeat": EndReason.DOOM_LOOP,
}
DEFAULTS = {
    "steps": Limits().cap,
    "tool calls": Limits().call_limit,
    "tokens": Limits().tokens,
    "cost": Limits().cost,
    "seconds": Limits().seconds,
    "rounds that repeat": Limits().doom_threshold,
}


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its two head lines."""
    section = README.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def example(number: int) -> str:
    return README.split("```python\n")[number].split("```", 1)[0]


def test_the_embedding_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", example(1)], cwd=tmp_path, capture_output=True, text=True, check=True)
    promised = re.search(r"It prints `(.+?)`", README)
    assert promised is not None
    assert ran.stdout.strip() == promised[1]


def test_the_example_of_a_pause_follows_answers_and_ends(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", example(2)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "call_waiting paused finished I left old.log alone." in ran.stdout


@pytest.mark.parametrize("bound", BOUNDS)
def test_the_table_of_bounds_gives_default_reason_and_next_step(bound: str) -> None:
    row = next(row for row in rows("What stops a turn") if row[0] == bound)
    default = DEFAULTS[bound]
    assert row[1] == ("off" if default is None else f"{default:g}")
    assert row[3].endswith(f": {BOUNDS[bound]}`")
    assert row[5] == REASONS[BOUNDS[bound]].next


def test_the_table_of_bounds_is_whole() -> None:
    assert [row[0] for row in rows("What stops a turn")] == list(BOUNDS)


def test_the_journal_of_a_crash_is_the_one_that_the_page_about_it_is_tested_for() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    line = re.compile(r"^ +(\d+)  (\w+) +[\d.]+ s  (.*)$", re.MULTILINE)
    facts = {int(seq): (kind, summary) for seq, kind, summary in line.findall(page)}
    shown = line.findall(README)
    assert [int(seq) for seq, _, _ in shown] == list(range(5, 12))
    for seq, kind, said in shown:
        told, summary = facts[int(seq)]
        assert told == kind
        assert [piece for piece in said.split(" ...; ") if piece not in summary] == []


def test_the_exit_codes_are_those_of_the_command_line() -> None:
    ended = {0, codes.FAILED, codes.CAP_HIT, codes.DOOM_LOOP, codes.ABORTED}
    expected = ended | {codes.USAGE, codes.PAUSED, codes.TERMINATED}
    assert {int(row[0]) for row in rows("Exit codes")} == expected


def test_every_file_that_the_readme_links_to_is_there() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
