"""Processes, commands and replays are measured beside turns."""

import asyncio
import sys
from pathlib import Path

import pytest
from bench.program import cpu, filled, repeated, replays


def test_cpu_of_a_process_includes_the_children() -> None:
    busy = "import time\nwhile time.process_time() < 0.2: pass"
    parent = f"import subprocess, sys\nprint(subprocess.call([sys.executable, '-c', {busy!r}]))"
    seconds, printed = cpu([sys.executable, "-c", parent])
    assert seconds >= 0.2
    assert printed == "0\n"


def test_failed_process_is_not_measured() -> None:
    with pytest.raises(SystemExit, match="exit code 3"):
        cpu([sys.executable, "-c", "raise SystemExit(3)"])


def test_command_is_repeated_in_a_single_process(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'turns.db'}"
    with pytest.raises(SystemExit, match="exit code 2"):
        repeated(("turns", "--store", store))
    asyncio.run(filled(tmp_path / "turns.db", 3, at_once=3))
    assert len(repeated(("turns", "--store", store))) == 9


def test_replay_has_a_speed() -> None:
    assert replays()["replay-facts-per-s"] > 0
