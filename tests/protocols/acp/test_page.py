"""The page about ACP names every outcome, and its commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from turnwright_states import Outcome

PAGE = (Path(__file__).parents[3] / "docs" / "acp.md").read_text(encoding="utf-8")


def test_every_outcome_has_a_row() -> None:
    endings = PAGE.split("## Endings\n")[1].split("\n## ")[0]
    assert {str(outcome) for outcome in Outcome} <= set(re.findall(r"[a-z_]+", endings))


def test_command_has_the_options_of_the_page() -> None:
    command = [sys.executable, "-m", "turnwright", "acp", "--help"]
    options = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert all(name in options for name in re.findall(r"`(--[a-z]+)`", PAGE))


@pytest.mark.slow
def test_standard_output_in_a_file_is_refused(tmp_path: Path) -> None:
    """The editor gives pipes. A person at a shell reads so."""
    (tmp_path / "agent.md").write_text("---\nname: Agent\n---\nHelp.\n")
    options = ["--agents", "agent.md", "--model", "m", "--base-url", "http://127.0.0.1:1/v1"]
    command = [sys.executable, "-m", "turnwright", "acp", *options]
    with (tmp_path / "out").open("wb") as file:
        ran = subprocess.run(  # noqa: PLW1510 (its code is compared)
            command, stdout=file, stderr=subprocess.PIPE, text=True, cwd=tmp_path, timeout=60
        )
    assert (ran.returncode, "acp: standard output is a file" in ran.stderr) == (2, True)
