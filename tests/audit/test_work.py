"""Runs are read in batches, in one process or several, and the totals are the same."""

import os
from pathlib import Path

import msgspec
import pytest
from tests.audit.recorded import call, run_of

from turnwright_audit.measure import RunMeasure
from turnwright_audit.outcomes import Outcomes
from turnwright_audit.suggest import suggest
from turnwright_audit.totals import Totals
from turnwright_audit.trajectories.atif import StepMetrics
from turnwright_audit.work import Audit, Settings


def write_runs(folder: Path, count: int) -> None:
    for number in range(count):
        run = run_of(*[call("read", "a")] * (number % 5), "Done.", name=f"r{number}", success=number % 2 == 0, cost=0.5)
        (folder / f"{number:03}.json").write_bytes(msgspec.json.encode(run))


def audited(path: Path, *, jobs: int = 1, outcomes: Outcomes | None = None) -> tuple[list[RunMeasure], Totals]:
    with Audit([path], Settings(outcomes=outcomes), jobs=jobs) as audit:
        runs = [run for batch in audit.batches() for run in batch.runs()]
        assert list(audit.runs()) == runs
        return runs, audit.totals


def test_totals_add_up_the_runs(tmp_path: Path) -> None:
    write_runs(tmp_path, 10)
    runs, totals = audited(tmp_path)
    assert [run.run for run in runs] == [f"r{number}" for number in range(10)]
    assert (totals.runs, totals.succeeded, totals.failed) == (10, 5, 5)
    assert totals.steps == sum(run.steps for run in runs) == 30
    assert totals.endings == {"answered": 10}
    assert totals.looping == totals.kinds["same result"].runs == 4
    assert totals.formats["atif"].files == 10
    assert totals.all.calls.shares() == {"p50": 2, "p95": 4, "p99": 4, "max": 4}
    assert totals.groups["clerk / m1"].runs == 10
    assert totals.good.runs == 5
    tally = totals.tallies["doom_threshold results:3"]
    assert (tally.runs, tally.succeeded, tally.failed, tally.steps) == (4, 2, 2, 6)


@pytest.mark.slow
def test_several_processes_give_the_same_totals(tmp_path: Path) -> None:
    write_runs(tmp_path, 210)
    assert audited(tmp_path, jobs=2) == audited(tmp_path)


def test_outcome_labels_replace_recorded_labels(tmp_path: Path) -> None:
    write_runs(tmp_path, 3)
    runs, totals = audited(tmp_path, outcomes=Outcomes.parse("run,success\nr0,no\nr1,yes\n"))
    assert [run.success for run in runs] == [False, True, True]
    assert totals.succeeded == 2


def test_unreadable_file_is_a_problem_only_if_named(tmp_path: Path) -> None:
    write_runs(tmp_path, 1)
    (tmp_path / "notes.json").write_text("{}")
    with Audit([tmp_path]) as audit:
        assert [batch.problems for batch in audit.batches()] == [[]]
        assert (audit.files, audit.skipped) == (1, 1)
    with Audit([tmp_path / "notes.json", tmp_path / "missing"]) as audit:
        [batch] = audit.batches()
        assert [Path(problem.file).name for problem in batch.problems] == ["notes.json", "missing"]


class Confused(Outcomes):
    """Outcomes that fail for one run."""

    def of(self, run: RunMeasure, place: int) -> bool | None:
        if run.run == "r1":
            raise ValueError("what is it?")
        return super().of(run, place)


def test_run_failing_to_be_audited_does_not_end_the_audit(tmp_path: Path) -> None:
    write_runs(tmp_path, 3)
    with Audit([tmp_path], Settings(outcomes=Confused())) as audit:
        [batch] = audit.batches()
    assert batch.problems[0].message == "run 1 could not be audited: ValueError: what is it?"
    assert audit.totals.runs == 2


def test_progress_reports_the_bytes_read(tmp_path: Path) -> None:
    write_runs(tmp_path, 3)
    read: list[int] = []
    with Audit([tmp_path]) as audit:
        list(audit.batches(read.append))
        assert sum(read) == audit.size > 0


def test_impossible_numbers_and_invalid_utf8_names_are_audited(tmp_path: Path) -> None:
    run = run_of(*[call("read")] * 4, "Done.", model="m")
    run.steps[1].metrics = StepMetrics(prompt_tokens=-5, cost_usd=-1.0)
    run.steps[2].metrics = StepMetrics(prompt_tokens=10**30, cost_usd=1e300)
    (tmp_path / os.fsdecode(b"r\xff.json")).write_bytes(msgspec.json.encode(run))
    [read], totals = audited(tmp_path)
    assert (Path(read.file).name, read.tokens, read.cost) == ("r?.json", 300, 0.0)
    assert suggest(totals, [read]) is not None


def test_measured_run_survives_serialization(tmp_path: Path) -> None:
    write_runs(tmp_path, 5)
    runs, _ = audited(tmp_path)
    assert runs[4].measured[0].acts["calls:3"] == [2, 3]
    assert [loop.length for loop in runs[4].loops] == [4]
