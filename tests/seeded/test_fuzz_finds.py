"""`turnwright fuzz` finds the bugs of seeded agents, names the tool or hook, and is green on their mended twins.

`make seeded` does it with all of them and with its defaults, and writes docs/seeded-bugs.md.
"""

from pathlib import Path
from typing import Final

import pytest

from turnwright.tools import Tool
from turnwright_testing.desk import fuzz_desk, load_desk

_FOLDER: Final = Path(__file__).parent
_NAMES: Final = sorted(path.parent.name for path in _FOLDER.glob("*/buggy.py"))
#: Every seventh agent, and of its bugs those that may be missed on a busy machine.
_SAMPLE: Final = _NAMES[::7]
_MISSED: Final = 1


@pytest.mark.slow
def test_rehearsals_find_the_bugs_of_a_sample() -> None:
    """Each first line begins with a function of the agent."""
    missed: list[str] = []
    for name in _SAMPLE:
        desk = load_desk(f"{_FOLDER}/{name}/buggy.py:DESK")
        fault = fuzz_desk(desk, seed=1, seconds=40).fault
        subjects = str(fault).partition(": ")[0].replace("hook ", "").split(", ")
        functions = {tool.name for tool in vars(desk.modules[0]).values() if isinstance(tool, Tool)}
        functions |= {key for key, value in vars(desk.modules[0]).items() if callable(value)}
        missed += [] if functions & {*subjects} else [f"{name}: {fault}"]
    assert len(missed) <= _MISSED, missed


@pytest.mark.slow
@pytest.mark.parametrize("name", _SAMPLE)
def test_rehearsal_of_a_mended_agent_finds_nothing(name: str) -> None:
    desk = load_desk(f"{_FOLDER}/{name}/mended.py:DESK")
    assert fuzz_desk(desk, examples=20, seed=2, seconds=10).fault is None
