"""The page about ACP names every outcome, and its commands exist."""

import re
import shlex
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
@pytest.mark.parametrize(
    ("redirections", "words"),
    [
        ("> out", "acp: standard output is a file"),
        ("< /dev/null", "acp: standard input is a device"),
        ("<&-", "acp: standard input is closed"),
    ],
)
def test_anything_but_pipes_is_refused(tmp_path: Path, redirections: str, words: str) -> None:
    """The editor gives pipes. A person at a shell reads so."""
    (tmp_path / "agent.md").write_text("---\nname: Agent\n---\nHelp.\n")
    options = ["--agents", "agent.md", "--model", "m", "--base-url", "http://127.0.0.1:1/v1"]
    command = shlex.join([sys.executable, "-m", "turnwright", "acp", *options])
    ran = subprocess.run(  # noqa: S602 (a shell redirects and closes)
        f"{command} {redirections}",
        shell=True,
        input="",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, words in ran.stderr, ran.stdout) == (2, True, "")
