"""The cost of building a body is printed for each API. The figures depend on the machine: no test asserts them."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "bodies.py"


@pytest.mark.slow
def test_each_wire_api_has_a_row() -> None:
    command = [sys.executable, str(SCRIPT), "--steps", "8", "--calls", "1", "--repeat", "1"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert printed[0] == "8 steps of 1 calls; us a step, and functions called"
    assert [line[:24].strip() for line in printed[2:]] == [
        "chat completions",
        "chat, strict turns",
        "chat, one call at a time",
        "chat, both",
        "Messages API",
        "Messages API, both",
        "pydantic-ai",
    ]
