"""The page shows every goal, met or missed or not measured, and what could not be measured."""

from itertools import pairwise

import pytest
from bench.collect import OWN, peers
from bench.goals import MEMORY, goals
from bench.labels import spread
from bench.measured import Measured
from bench.report import page, table
from bench.results import FOLDER, Results, machine, merged


def subject(name: str, ratio: float = 1.5, **more: object) -> Measured:
    measured: Measured = {
        "name": name,
        "python": "3.11.0",
        "versions": {"turnwright": "0.1.0"},
        "modules": [],
        "notes": [],
        "flight": {},
        "failed": {},
        "steps": {"50": {"cpu_us": 60.0, "bare_us": 40.0, "ratio": ratio, "pairs": 7}},
        **more,  # type: ignore[typeddict-item]
    }
    return measured


def results(*subjects: Measured) -> Results:
    return {
        "machine": machine(),
        "subjects": list(subjects),
        "missing": ["crewai"],
        "streams": [],
        "bodies": "",
        "counts": {"bytes-spread": 0},
    }


@pytest.mark.parametrize(("ratio", "met"), [(1.5, True), (2.0, True), (2.1, False)])
def test_a_goal_is_met_or_missed(ratio: float, met: bool) -> None:
    first = goals(results(subject(MEMORY, ratio)))[0]
    assert (first.measured, first.met) == (f"N = 50: {ratio}", met)


def test_a_goal_that_was_not_measured_is_neither() -> None:
    assert {goal.met for goal in goals({**results(), "counts": {}})} == {None}


def test_a_lost_turn_misses_the_goal() -> None:
    flight = {"turns": 10_000, "right": 9_999, "looks_missing": 0, "steps_per_cpu_s": 1.0, "cpu_s": 1.0, "wall_s": 1.0}
    found = subject(MEMORY, flight={"10000": {**flight, "kib_per_turn": 1.0, "rounds": 1}})
    (lost,) = (goal for goal in goals(results(found)) if "ended with the answer" in goal.what)
    assert (lost.measured, lost.met) == ("in memory: 9,999", False)


def test_the_page_shows_goals_missed_and_what_was_not_measured() -> None:
    text = page(results(subject(MEMORY, 3.0), subject("slow", failed={"flight 10000": "took longer than 600 s"})))
    assert "| CPU a step, of the bare loop's, in memory | at most 2 | N = 50: 3.0 | **missed** |" in text
    assert "- slow: flight 10000 not measured: took longer than 600 s" in text
    assert "- Not installed, and not measured: crewai" in text
    assert "{{" not in text


def test_columns_of_numbers_are_set_right() -> None:
    assert table(("name", "us"), [("a", "1.5"), ("b", "")]).splitlines()[1] == "| --- | ---: |"


def test_what_was_not_measured_again_is_kept() -> None:
    old, new = results(subject(MEMORY), subject("slow")), results(subject(MEMORY, 9.0))
    assert [one["name"] for one in merged(old, new)["subjects"]] == ["slow", MEMORY]


def test_every_environment_of_a_peer_has_a_file_of_subjects_and_no_file_is_left_out() -> None:
    files = {path.stem for path in (FOLDER / "peers").glob("*.py") if "main(" in path.read_text()}
    assert {peer.module for peer in peers()} == files
    assert {peer.environment for peer in peers()} == {
        path.stem for path in (FOLDER / "peers" / "requirements").glob("*.txt")
    }


def test_the_subjects_of_our_own_are_there() -> None:
    assert all((FOLDER / f"{name}.py").exists() for name in OWN)


def test_labels_are_moved_apart_and_stay_within_the_plot() -> None:
    placed = spread([0.0, 0.01, 0.02, 0.9], 0.1, 0.0, 1.0)
    assert all(above - below > 0.098 for below, above in pairwise(placed))
    assert placed[0] >= 0
    assert placed[-1] == pytest.approx(0.9)
