"""The benchmarks run. What they measure is not asserted: it is the machine's."""

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[1] / "bench"


def test_the_bytes_of_a_long_turn_are_printed_by_quarter() -> None:
    command = [sys.executable, str(BENCH / "journal.py"), "--steps", "9", "--calls", "2"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    assert printed[0] == "finished: 9 steps, 16 calls, 63 facts"
    assert ["".join(line.split()[:2]) for line in printed[2:-1]] == ["1-2", "3-4", "5-6", "7-8"]
    assert printed[-1].startswith("last 2 / first 2: payload ")
