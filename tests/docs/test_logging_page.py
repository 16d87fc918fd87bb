"""The example of docs/logging.md prints the output that the page shows, and the table lists every field."""

import json
import re
import subprocess
import sys
from pathlib import Path

from turnwright.cli.log_options import LogFormat, LogLevel
from turnwright.logs import FIELDS

PAGE = (Path(__file__).parents[2] / "docs" / "logging.md").read_text(encoding="utf-8")


def run(example: str) -> str:
    """Run a program and return its output, with the turn's id as on the page."""
    ran = subprocess.run([sys.executable, "-W", "error", "-c", example], capture_output=True, text=True, check=True)
    return re.sub(r"\b[0-9a-f]{16}\b", "4f1c...", ran.stdout)


EXAMPLE = PAGE.split("```python\n")[1].split("```", 1)[0]


def test_example_prints_the_output_of_the_page() -> None:
    assert run(EXAMPLE) == PAGE.split("```text\n")[1].split("```", 1)[0]


def test_json_formatter_writes_the_record_of_the_page() -> None:
    formatter = "logging.Formatter(line, defaults=unknown)"
    assert formatter in EXAMPLE
    printed = run(EXAMPLE.replace(formatter, '__import__("turnwright.logs").logs.JsonFormatter()'))
    record = json.loads(printed.splitlines()[0])
    assert re.fullmatch(r"[-\d]+T[:.\d]+Z", record["time"])
    assert record | {"time": "..."} == json.loads(PAGE.split("```json\n")[1].split("```", 1)[0])


def test_every_field_is_in_the_table_with_the_same_words() -> None:
    table = PAGE.split("## Fields\n")[1].split("\n## ")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", table, flags=re.MULTILINE)) == dict(FIELDS)


def test_options_are_listed_with_all_choices() -> None:
    assert f"`--log-format {'|'.join(LogFormat)}` and `--log-level {'|'.join(LogLevel)}`" in PAGE
