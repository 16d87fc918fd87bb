"""Recorded runs of other people's agents are counted right. `TURNWRIGHT_RUNS` names their folder."""

import os
from pathlib import Path
from typing import Final

import pytest
from tests.audit.trajectories.reading import calls, results

from turnwright_audit.trajectories.formats import format_of
from turnwright_audit.trajectories.source import Recording

RUNS: Final = os.environ.get("TURNWRIGHT_RUNS")

#: Files, the format that is recognized, and the runs, steps, calls and results in them.
COUNTS: Final = [
    ("intercode/**/*.json", "intercode", (947, 6624, 6624, 6578)),
    ("isobench/**/trajectory.json", "trae-agent", (40, 2177, 2164, 2133)),
    ("mini-swe-agent/**/*.traj.json", "mini-swe-agent", (117, 4856, 4708, 4708)),
    ("bashkit/**/*.json", "anthropic-messages", (785, 3427, 2811, 2811)),
    ("sweagent-demos/**/*.traj", "swe-agent", (14, 146, 146, 146)),
    ("tau-bench/*.json", "openai-chat", (200, 2454, 1164, 1164)),
]


@pytest.mark.skipif(RUNS is None, reason="TURNWRIGHT_RUNS names no folder of recorded runs")
@pytest.mark.parametrize(("files", "format", "counts"), COUNTS)
def test_recorded_runs_have_the_counts_of_the_reference(
    files: str,
    format: str,  # noqa: A002 (the command's word)
    counts: tuple[int, int, int, int],
) -> None:
    paths = sorted(Path(RUNS or "").glob(files))
    assert paths
    read_runs = []
    for path in paths:
        recording = Recording(str(path), lambda path=path: path.open("rb"))  # type: ignore[misc]
        reader = format_of(recording)
        assert reader is not None
        assert reader.name == format
        read_runs += list(reader.read(recording))
    steps = sum(step.source == "agent" for run in read_runs for trajectory in run.every() for step in trajectory.steps)
    assert (len(read_runs), steps, calls(read_runs).total(), results(read_runs)) == counts
    assert not any(run.run_notes.cut or run.run_notes.unreadable_lines for run in read_runs)
