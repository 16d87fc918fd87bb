"""Another program counts the same in the sessions of Claude Code.

It is in an environment of its own, which `make validators` makes. `TURNWRIGHT_RUNS` names a folder of recorded runs.
"""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from tests.audit.trajectories.test_claude_code import SAMPLE

from turnwright_audit.trajectories.atif import Trajectory
from turnwright_audit.trajectories.files import runs

_HERE: Final = Path(__file__).parents[3] / ".venv-validators"
PYTHON: Final = Path(os.environ.get("TURNWRIGHT_VALIDATORS", _HERE / "bin" / "python"))
RUNS: Final = os.environ.get("TURNWRIGHT_RUNS")
COUNT: Final = """
import agentpile, json, sys
found = dict.fromkeys(("calls", "results", "input", "output", "cached"), 0)
for path in sys.argv[1:]:
    for run in agentpile.load(path, reader="claude-code-jsonl"):
        for step in run.steps:
            used = step.get("metrics") or {}
            found["calls"] += len(step.get("tool_calls") or ())
            found["results"] += len((step.get("observation") or {}).get("results") or ())
            found["input"] += used.get("prompt_tokens") or 0
            found["output"] += used.get("completion_tokens") or 0
            found["cached"] += used.get("cached_tokens") or 0
print(json.dumps(found))
"""


def ours(paths: list[Path]) -> dict[str, int]:
    """The counts of our reader. A result in a line that cannot be read is none."""
    counts: Counter[str] = Counter()
    for run in runs(paths):
        assert isinstance(run.found, Trajectory)
        for step in run.found.steps:
            results = step.observation.results if step.observation else []
            notes = [result.extra.turnwright for result in results if result.extra and result.extra.turnwright]
            counts["calls"] += len(step.tool_calls or ())
            counts["results"] += sum(note.orphan_id is not None or not note.unreadable for note in notes)
            if step.metrics is not None:
                counts["input"] += step.metrics.prompt_tokens or 0
                counts["output"] += step.metrics.completion_tokens or 0
                counts["cached"] += step.metrics.cached_tokens or 0
    return dict(counts)


@pytest.mark.skipif(not PYTHON.exists(), reason="make validators makes the environment of the other program")
def test_agentpile_counts_equal_ours_for_claude_code_sessions(tmp_path: Path) -> None:
    own = tmp_path / "s-1.jsonl"
    own.write_bytes(SAMPLE)
    paths = [own, *sorted(Path(RUNS).glob("claude-extra/**/*.jsonl") if RUNS else ())]
    counted = subprocess.run([PYTHON, "-c", COUNT, *paths], check=True, capture_output=True, text=True).stdout
    assert json.loads(counted) == ours(paths)
