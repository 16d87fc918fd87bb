"""`turnwright demo`: four scenes, with nothing configured."""

import json
from typing import TYPE_CHECKING

from turnwright_audit.cli.audit import DEMO_RUNS
from turnwright_audit.loops import LoopKind

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli


def test_four_risky_turns_end_with_clear_messages(cli: "Cli") -> None:
    nothing = {"OPENAI_API_KEY": None, "OPENAI_BASE_URL": None, "TMPDIR": str(cli.folder)}
    done = cli.run("demo", env=nothing)
    assert (done.code, done.err) == (0, "")
    cap, doom, pause, crash, end = (scene for scene in done.out.split("=" * 78) if scene.strip())
    assert "Stopped at the step limit (3 of 3)." in cap
    assert "(CHECK > STREAM > TOOL_EXEC > CONTINUE) x3 > CHECK > CONCLUDE > CAP_HIT" in cap
    assert "outcome:  doom_loop: doom_loop" in doom
    assert "delete_file waits: approval-1" in pause
    assert "Done in 2 steps (1 tool call, " in pause
    assert "--  kill -9; another process resumes the turn" in crash
    assert crash.count("record(order 17)") == 1
    assert "upload(invoice 17) attempt 2" in crash
    assert "Four turns ended clearly" in end
    assert list(cli.folder.iterdir()) == []


def test_audit_of_recorded_runs_shows_every_kind_of_loop(cli: "Cli") -> None:
    done = cli.run("demo", "audit", "--json")
    assert (done.code, done.err) == (0, "")
    *runs, summary = map(json.loads, done.out.splitlines())
    assert len(runs) == summary["runs"] == summary["labeled"]
    assert set(summary["loops"]) == set(LoopKind)
    effect, defaults = summary["suggestion"]["effect"], summary["suggestion"]["effect_of_defaults"]
    assert effect["runs_changed"] == defaults["runs_changed"] == 4
    assert effect["succeeded"] == defaults["succeeded"] == 0


def test_recorded_runs_are_small() -> None:
    assert DEMO_RUNS.stat().st_size < 100_000
