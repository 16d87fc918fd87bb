"""A run measures what is asked of it, keeps each result at once, and is resumed."""

import json
import sys
from copy import deepcopy
from typing import cast

from bench.bare import Bare
from bench.collect import ENVIRONMENTS, OWN, Run, peers
from bench.measure import known
from bench.results import FOLDER, Measured, Results, Taken, empty

EARLIER = "2026-11-24 10:00"


def taken(run: str) -> Taken:
    return {"run": run, "seconds": 1.0, "load": 0.0}


def bare(run: str, **more: object) -> Measured:
    """A subject of an earlier run."""
    return cast("Measured", {**known(Bare()), "calls_per_step": 1.0, "taken": {"calls": taken(run)}, **more})


def measured(results: Results, **how: bool) -> list[Results]:
    """The results that a run keeps, one after the other, when it counts the calls of the bare loops."""
    kept_results: list[Results] = []
    only, measures = frozenset({"bare"}), frozenset({"calls"})
    Run(results, lambda results_kept: kept_results.append(deepcopy(results_kept)), only, measures, **how).measure()
    return kept_results


def calls(results: Results) -> dict[str, float]:
    return {subject["name"]: round(subject.get("calls_per_step", 0)) for subject in results["subjects"]}


def test_each_result_is_saved_at_once_beside_unmeasured_results() -> None:
    slow = cast("Measured", {**known(Bare()), "name": "slow", "calls_per_step": 9.0})
    kept_results = measured({**empty(), "subjects": [slow], "bodies": "as before"})
    assert [len(results["subjects"]) for results in kept_results] == [2, 3, 4]
    assert list(calls(kept_results[-1])) == ["slow", "bare loop", "bare loop, SQLite NORMAL", "bare loop, SQLite FULL"]
    assert {results["bodies"] for results in kept_results} == {"as before"}
    assert {name for subject in kept_results[-1]["subjects"] for name in subject["taken"]} == {"calls"}


def test_resumed_run_measures_only_the_rest() -> None:
    results: Results = {**empty(), "run": EARLIER, "subjects": [bare(EARLIER)]}
    kept_results = measured(results, resume=True)
    assert len(kept_results) == 2
    assert calls(kept_results[-1])["bare loop"] == 1
    assert {subject["taken"]["calls"]["run"] for subject in kept_results[-1]["subjects"]} == {EARLIER}


def test_new_run_measures_again() -> None:
    kept_results = measured({**empty(), "run": EARLIER, "subjects": [bare(EARLIER)]})
    assert len(kept_results) == 3
    assert calls(kept_results[-1])["bare loop"] > 100


def test_results_of_another_version_are_discarded() -> None:
    kept_results = measured({**empty(), "subjects": [bare(EARLIER, versions={"bare": "1"}, peak_mib=20.0)]})
    assert "peak_mib" not in kept_results[-1]["subjects"][0]
    kept_results = measured({**empty(), "subjects": [bare(EARLIER, peak_mib=20.0)]})
    assert kept_results[-1]["subjects"][0].get("peak_mib") == 20


def test_results_survive_a_json_round_trip() -> None:
    kept_results = measured(empty())
    assert json.loads(json.dumps(kept_results[-1])) == kept_results[-1]
    assert kept_results[-1]["subjects"][0]["python"] == ".".join(map(str, sys.version_info[:3]))


def test_every_peer_environment_has_a_subjects_file() -> None:
    files = {path.stem for path in (FOLDER / "peers").glob("*.py") if "main(" in path.read_text()}
    assert {peer.module for peer in peers()} == files
    assert {peer.environment for peer in peers()} == {
        path.stem for path in (FOLDER / "peers" / "requirements").glob("*.txt")
    }
    assert all(peer.python.is_relative_to(ENVIRONMENTS) for peer in peers())


def test_modules_of_peers_begin_with_one_environment_alone() -> None:
    modules = [peer.module for peer in peers()]
    assert len(set(modules)) == len(modules)


def test_own_subjects_are_present() -> None:
    assert all((FOLDER / f"{name}.py").exists() for name in OWN)
