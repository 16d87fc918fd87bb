"""Exports are valid for other programs: the models of their format, and Harbor's validator.

They are in an environment of their own, which `make validators` makes.
"""

import os
import subprocess
from pathlib import Path
from typing import Final

import msgspec
import pytest
from tests.audit.trajectories import test_anthropic_messages as anthropic
from tests.audit.trajectories import test_claude_code as claude_code
from tests.audit.trajectories import test_codex as codex
from tests.audit.trajectories.reading import read
from tests.audit.trajectories.test_journals import CLERK, LINES, engine_on, turn_of

from turnwright.model.scripted import asks_for
from turnwright.store import MemoryStore
from turnwright_audit.trajectories.atif import SubagentRef, Trajectory
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.journal_run import run_of

pytestmark = [pytest.mark.anyio, pytest.mark.no_waiting]

_HERE: Final = Path(__file__).parents[3] / ".venv-validators"
PYTHON: Final = Path(os.environ.get("TURNWRIGHT_VALIDATORS", _HERE / "bin" / "python"))

if not PYTHON.exists():
    pytest.skip("make validators makes the environment of the validators", allow_module_level=True)

CHECK: Final = """
import sys
from pathlib import Path
from atif import Trajectory
from harbor.utils.trajectory_validator import TrajectoryValidator

for name in sys.argv[1:]:
    Trajectory.model_validate_json(Path(name).read_text())
    validator = TrajectoryValidator()
    if not validator.validate(Path(name)):
        raise SystemExit(f"{name}: {validator.get_errors()}")
"""


def check(folder: Path, *runs: Trajectory) -> None:
    """Raise an `AssertionError` if a validator refuses one of these runs."""
    paths = [folder / f"{number}.json" for number in range(len(runs))]
    for path, run in zip(paths, runs, strict=True):
        path.write_bytes(msgspec.json.encode(run))
    done = subprocess.run([PYTHON, "-c", CHECK, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_journals_are_valid_trajectories(tmp_path: Path) -> None:
    turn, facts = await turn_of(*LINES)
    store = MemoryStore()
    engine = engine_on(store, asks_for(("helper", {"prompt": "Find it."})), "Found.", "Done.")
    outer = (await engine.run(CLERK, "Pay the invoice.")).id
    journals = {turn: [fact for _, fact in await store.facts(turn)] for turn in (outer, f"{outer}:call00001")}
    check(tmp_path, run_of(facts, turn=turn), run_of(journals[outer], turn=outer, journals=journals.get))


def test_run_built_from_a_poor_recording_is_valid(tmp_path: Path) -> None:
    run = RunBuilder("atif", agent="")
    run.result("nowhere", None)
    run.reply()
    run.call(None, "read", "not JSON")
    run.reply("late")
    run.result(None, "", subagent=SubagentRef(trajectory_id="inner"))
    inner = RunBuilder("atif", agent="helper", id="inner")
    run.subagent(inner.finish())
    check(tmp_path, run.finish(cut=True), inner.finish())


def test_invalid_trajectory_is_refused(tmp_path: Path) -> None:
    run = RunBuilder("atif", agent="clerk").finish()
    run.steps[0].step_id = 5
    with pytest.raises(AssertionError, match="step_id"):
        check(tmp_path, run)


@pytest.mark.parametrize(
    ("data", "format"),
    [
        (claude_code.SAMPLE, "claude-code"),
        *((data, "codex") for data in codex.RECORDINGS),
        *((data, "anthropic-messages") for data in anthropic.RECORDINGS),
    ],
)
def test_runs_returned_by_readers_are_valid(data: bytes, format: str, tmp_path: Path) -> None:  # noqa: A002
    check(tmp_path, *read(data, format))
