"""docs/logging.md tells the truth: its example prints what it says, and every field is in its table."""

import re
import subprocess
import sys
from pathlib import Path

from turnwright.cli.log_options import LogFormat, LogLevel
from turnwright.logs import FIELDS

PAGE = (Path(__file__).parents[2] / "docs" / "logging.md").read_text(encoding="utf-8")


def test_the_example_prints_what_the_page_says() -> None:
    example = PAGE.split("```python\n")[1].split("```", 1)[0]
    promised = PAGE.split("```text\n")[1].split("```", 1)[0]
    ran = subprocess.run([sys.executable, "-W", "error", "-c", example], capture_output=True, text=True, check=True)
    same_turn = re.sub(r"\b[0-9a-f]{16}\b", "4f1c...", ran.stdout)
    assert re.sub(r'"time": "[-\d]+T[:.\d]+Z"', '"time": "..."', same_turn) == promised


def test_every_field_is_in_the_table_in_the_same_words() -> None:
    table = PAGE.split("## Fields\n")[1].split("\n## ")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", table, flags=re.MULTILINE)) == dict(FIELDS)


def test_the_options_are_told_with_their_choices() -> None:
    assert f"`--log-format {'|'.join(LogFormat)}` and `--log-level {'|'.join(LogLevel)}`" in PAGE


def test_a_formatter_of_ones_own_with_defaults_writes_any_record() -> None:
    line = PAGE.split("defaults, since")[1].split("```python\n")[1].split("```", 1)[0]
    code = f"import logging; print(({line.strip()}).format(logging.makeLogRecord({{'msg': 'so', 'turn': 't1'}})))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.endswith(" t1 - so\n")
