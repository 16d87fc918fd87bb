"""The page shows each target beside what was measured, and what could not be measured."""

from itertools import pairwise
from typing import cast

import pytest
from bench.goals import MEMORY, goals
from bench.labels import spread
from bench.report import details, page, table
from bench.results import Measured, Results, empty


def subject(name: str, ratio: float = 1.5, **more: object) -> Measured:
    measured = {
        "name": name,
        "python": "3.11.0",
        "versions": {"turnwright": "0.1.0"},
        "notes": [],
        "durable": False,
        "streamed": False,
        "store_kind": "",
        "flight": {},
        "failed": {},
        "taken": {"steps": {"run": "2026-11-24 10:00", "seconds": 90, "load": 0.52}},
        "steps": {"50": {"cpu_us": 60.0, "bare_us": 40.0, "ratio": ratio, "pairs": 7}},
        **more,
    }
    return cast("Measured", measured)


def results(*subjects: Measured) -> Results:
    return {**empty(), "subjects": list(subjects), "missing": ["crewai"], "counts": {"bytes-spread": 0}}


@pytest.mark.parametrize(("ratio", "verdict"), [(1.5, "met"), (4.5, "met"), (4.6, "**missed**")])
def test_target_is_met_or_missed(ratio: float, verdict: str) -> None:
    first = goals(results(subject(MEMORY, ratio)))[0]
    assert (first.now, first.verdict) == (f"{ratio} (in memory)", verdict)


def test_row_of_several_targets_shows_the_number_met() -> None:
    results_read = {**results(), "figures": {"start-version": 4.0, "start-help": 30.0, "start-import": 5.0}}
    (row,) = (goal for goal in goals(cast("Results", results_read)) if "python -c pass" in goal.label)
    assert row.now == "4 (`--version`), 30 (`--help`), 5 (`import turnwright`)"
    assert row.verdict == "2 of 3 met"


def test_target_may_be_a_least_value() -> None:
    results_read = {**results(), "figures": {"replay-facts-per-s": 249_999.0}}
    (row,) = (goal for goal in goals(cast("Results", results_read)) if "replay" in goal.label)
    assert (row.target, row.now, row.verdict) == ("at least 250,000", "249,999", "**missed**")


def test_unmeasured_target_is_neither_met_nor_missed() -> None:
    assert {(goal.now, goal.verdict) for goal in goals(empty())} == {("not measured", "not measured")}


def test_lost_turn_misses_the_target() -> None:
    flight = {"turns": 10_000, "right": 9_999, "looks_missing": 0, "steps_per_cpu_s": 1.0, "cpu_s": 1.0, "wall_s": 1.0}
    row = subject(MEMORY, flight={"10000": {**flight, "kib_per_turn": 1.0, "rounds": 1}})
    (lost,) = (goal for goal in goals(results(row)) if "ended with the answer" in goal.label)
    assert (lost.now, lost.verdict) == ("9,999", "**missed**")


def test_page_shows_missed_targets_and_unmeasured_subjects() -> None:
    failed = {"flight 10000": "took longer than 600 s"}
    text = page(results(subject(MEMORY, 9.0), subject("slow", failed=failed), subject("slower", failed=failed)))
    row = "at most 4.5 (in memory), 6.5 (NORMAL), 14 (FULL)"
    assert f"| CPU of a step over the bare loop's, N = 50 | {row} | 9 (in memory) | **missed** |" in text
    assert "- slow; slower: Not measured: flight 10000, took longer than 600 s." in text
    assert "- Not installed, and not measured: crewai" in text
    assert "{{" not in text


def test_page_shows_date_and_duration_of_each_measurement() -> None:
    assert f"| {MEMORY} | 2026-11-24 | 1.5 | 0.5 |" in details(results(subject(MEMORY)))


def test_session_is_shown_by_turns_and_growth() -> None:
    turns = {place: {"cpu_ms": ratio * 0.03, "ratio": ratio} for place, ratio in (("5", 2.0), ("20", 3.0), ("50", 7.0))}
    text = details(results(subject("slow", session=turns)))
    assert "| slow | 0.06 | 2.00 | 3.00 | 7.00 |  |  |  |  |  | 3.50 |" in text


def test_columns_of_numbers_are_right_aligned() -> None:
    assert table(("name", "us"), [("a", "1.5"), ("b", "")]).splitlines()[1] == "| --- | ---: |"


def test_labels_are_separated_and_stay_inside_the_plot() -> None:
    placed = spread([0.0, 0.01, 0.02, 0.9], 0.1, 0.0, 1.0)
    assert all(above - below > 0.098 for below, above in pairwise(placed))
    assert placed[0] >= 0
    assert placed[-1] == pytest.approx(0.9)


def costs(short: float, long: float, server_ms: float | None = None) -> dict[str, object]:
    """The costs of a step by the size of its results."""
    values = {"0": short, "4": short, "16": short, "48": long}
    return {kib: {"cpu_ms": value, "server_ms": server_ms, "rounds": 3} for kib, value in values.items()}


def test_plain_and_streamed_subjects_are_compared_apart() -> None:
    text = page(
        results(
            subject("slow", results=costs(2.0, 6.0)),
            subject("fast", results=costs(1.0, 1.5)),
            subject("slow, streamed", streamed=True, results=costs(3.0, 3.0)),
            subject("bare loop", results=costs(0.1, 0.1)),
        )
    )
    plain, _, streamed = text.partition("as they come:")
    assert plain.index("| bare loop |") < plain.index("| fast | 1.00 |") < plain.index("| slow | 2.00 |")
    assert "| slow | 2.00 | 2.00 | 2.00 | 6.00 | 3.00 |" in plain
    assert "| slow, streamed | 3.00 |" in streamed
    assert "| bare loop | 0.10 |" in streamed


def test_durable_steps_count_the_cpu_of_their_server() -> None:
    row = subject("far", durable=True, store_kind="PostgreSQL", results=costs(3.0, 4.0, 1.0))
    text = page(results(row))
    assert "| far | PostgreSQL | 3.00 | 1.00 | 4.00 | 1.00 | 250 | 200 |" in text
    assert "| far |" not in text.partition("## Durable")[0]


def test_queue_is_shown_by_its_workers() -> None:
    queue = {"turns": 1_000, "submits_per_s": 800.0, "first_s": 0.5, "worker_ms": 4.0, "server_ms": 2.0}
    row = subject("far, queue", durable=True, queue=[{**queue, "workers": 2, "turns_per_s": 110.0}])
    assert "| far, queue | 2 | 800 | 0.50 | 110 | 4.00 | 2.00 |" in page(results(row))
