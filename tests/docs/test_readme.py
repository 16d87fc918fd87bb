"""Check the README against the code: its example runs, and its table of limits has the code's values."""

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from turnwright_states import EndReason, Limits, ToolCallLimits

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LIMITS_PAGE = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
RECORDING = (ROOT / "docs" / "assets" / "session.svg").read_text(encoding="utf-8")

REASON_OF = {
    "steps": EndReason.STEP_CAP,
    "tool calls": EndReason.BUDGET,
    "tokens": EndReason.TOKENS,
    "cost": EndReason.COST,
    "seconds": EndReason.DEADLINE,
    "steps without a call": EndReason.NO_CALL_RAN,
    "repeated rounds of tool calls": EndReason.DOOM_LOOP,
}
DEFAULTS = {
    "steps": Limits().cap,
    "tool calls": Limits().call_limit,
    "tokens": Limits().tokens,
    "cost": Limits().cost,
    "seconds": Limits().seconds,
    "steps without a call": Limits().idle_steps,
    "repeated rounds of tool calls": Limits().doom_threshold,
}


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table under a heading, without its two head lines."""
    section = page.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def run_the_example(folder: Path, *, answer: str) -> str:
    """Run the README's example with one answer on stdin, and return what it prints after its question."""
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    command = [sys.executable, "-W", "error", "-c", example]
    ran = subprocess.run(command, cwd=folder, input=f"{answer}\n", capture_output=True, text=True, check=True)
    question, printed = ran.stdout.split("(y/n) ")
    assert question == "Allow delete_file {'path': 'old.log'}? "
    return printed


def test_example_has_15_lines_and_prints_the_promised_output(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in example.splitlines() if line]) == 15
    promised = re.search(r"it prints `(.+?)`", README)
    assert promised is not None
    assert run_the_example(tmp_path, answer="y") == f"{promised[1]}\n"
    assert "old.log is deleted" in journal(tmp_path)


def test_any_other_answer_to_the_example_rejects_the_call(tmp_path: Path) -> None:
    promised = re.search(r"rejects the call: `(.+?)`", README)
    assert promised is not None
    assert run_the_example(tmp_path, answer="sure") == f"{promised[1]}\n"
    assert "old.log is deleted" not in journal(tmp_path)


def test_readme_names_the_demo_and_is_short() -> None:
    assert "`make demo`" in README
    assert len(README.split()) <= 900


def journal(folder: Path) -> str:
    """Return everything that the example stored."""
    with closing(sqlite3.connect(folder / "turns.db")) as store:
        return "\n".join(store.iterdump())


@pytest.mark.parametrize("limit", REASON_OF)
def test_both_tables_of_limits_give_the_default_and_the_reason(limit: str) -> None:
    row = next(row for row in rows(README, "What stops a turn") if row[0] == limit)
    default = DEFAULTS[limit]
    assert row[1].split(";")[0] == ("off" if default is None else f"{default:g}")
    assert row[3].endswith(f": {REASON_OF[limit]}`")
    full = next(row for row in rows(LIMITS_PAGE, "At a limit") if row[0] == limit)
    assert full[1] == row[3]


def test_tables_of_limits_are_complete() -> None:
    assert [row[0] for row in rows(README, "What stops a turn")] == list(REASON_OF)
    assert [row[0] for row in rows(LIMITS_PAGE, "At a limit")] == list(REASON_OF)
    assert f"{DEFAULTS['tool calls']}; {ToolCallLimits().writing} if a tool" in README


def test_recording_is_a_finished_turn_and_names_no_machine() -> None:
    text = " ".join(re.sub(r"<[^>]+>|&#160;", " ", RECORDING).split())
    assert "The answer to your question is: 391" in text
    assert "turn_ended" in text
    assert re.findall(r"/(?:home|root|tmp|work|Users)\b|@font-face", RECORDING) == []


def test_six_features_have_links() -> None:
    features = [line for line in README.split("## Features\n", 1)[1].splitlines() if line.startswith("- **")]
    assert ["](" in feature for feature in features] == [True] * 6


def test_every_file_linked_by_the_readme_exists() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
