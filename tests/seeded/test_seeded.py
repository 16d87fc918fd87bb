"""Each seeded agent has a real bug, and its twin mends this bug alone."""

import importlib
import re
from difflib import unified_diff
from pathlib import Path
from typing import Final

import pytest

from .scenes import SCENES
from .stage import Stage

_FOLDER: Final = Path(__file__).parent
_NAMES: Final = sorted(path.parent.name for path in _FOLDER.glob("*/buggy.py"))
#: The most lines by which the twins differ, those of both counted.
_DIFFERENCE: Final = 24


def _faults(name: str, twin: str) -> list[str]:
    """Play the scene of a seeded agent with its `buggy` or its `mended` twin, and return the faults."""
    stage = Stage(importlib.import_module(f"tests.seeded.{name}.{twin}"))
    stage.play(SCENES[name])
    return stage.faults


@pytest.mark.parametrize("name", _NAMES)
def test_buggy_agent_misbehaves(name: str) -> None:
    """The bug shows in the outside world, in a request, in an error, or in the length of the turn."""
    first_fault = next(iter(_faults(name, "buggy")), "")
    assert first_fault.startswith(SCENES[name].fault)


@pytest.mark.parametrize("name", _NAMES)
def test_mended_agent_behaves(name: str) -> None:
    """The same scene shows no fault of the mended agent."""
    assert _faults(name, "mended") == []


@pytest.mark.parametrize("name", _NAMES)
def test_twins_differ_in_few_lines(name: str) -> None:
    """The mended agent is the buggy one but for the mend."""
    buggy, mended = ((_FOLDER / name / f"{twin}.py").read_text(encoding="utf-8") for twin in ("buggy", "mended"))
    changes = list(unified_diff(buggy.splitlines(), mended.splitlines(), n=0))[2:]
    assert 1 <= sum(not line.startswith("@@") for line in changes) <= _DIFFERENCE


def test_every_seeded_agent_is_in_the_table() -> None:
    """The table of the README has a row for each agent, in the order of the folders."""
    page = (_FOLDER / "README.md").read_text(encoding="utf-8")
    table = page.partition("| Agent |")[2]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == _NAMES
