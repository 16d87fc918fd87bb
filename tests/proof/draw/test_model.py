"""The picture holds the chart: every state, every row, and the reasons of every end."""

from itertools import chain
from typing import Any

import pytest

from turnwright_proof.draw import NodeKind, Picture, extract, fold_common_rows
from turnwright_proof.draw.model import describe_defaults, endings
from turnwright_proof.texts import describe_guard
from turnwright_states import Limits
from turnwright_states.chart import CHART, ROWS, Chart, ReasonFrom, Row
from turnwright_states.limits import ToolCallLimits
from turnwright_states.reasons import REASONS, EndReason
from turnwright_states.state import FINAL, LIVE, RESTING, TRANSIENT, Outcome, State

# docs/rules.md#outcomes.
_DESIGNED = {
    Outcome.FINISHED: "answered text_only truncated",
    Outcome.SYNTHESIS_DONE: "synthesized",
    Outcome.CAP_HIT: "step_cap budget tokens cost deadline no_call_ran",
    Outcome.DOOM_LOOP: "doom_loop",
    Outcome.ABORTED: "aborted superseded",
    Outcome.FAILED: "model_error empty_reply content_filter context_overflow crashed engine_error"
    " invalid_output guardrail",
}


@pytest.mark.parametrize(
    "changed",
    [
        {"ceiling": 199},
        {"tool_calls": ToolCallLimits(read_only=51)},
        {"tool_calls": ToolCallLimits(writing=11)},
        {"tool_calls": ToolCallLimits(default=51)},
        {"doom_threshold": 4},
        {"doom_response": "ask"},
        {"nudges": 1},
        {"idle_steps": 6},
        {"max_retries": 4},
        {"output_retries": 3},
        {"max_compactions": 1},
        {"max_pauses": 101},
    ],
)
def test_legend_has_the_default_of_each_limit_of_a_guard(changed: dict[str, Any]) -> None:
    """A changed default makes the drawings stale."""
    assert describe_defaults(Limits(**changed)) != describe_defaults(Limits())


def test_nodes_are_the_states(picture: Picture) -> None:
    assert [node.state for node in picture.nodes] == list(State)


def test_lines_are_the_rows(picture: Picture) -> None:
    lines = {line.number: (arrow, line) for arrow in picture.arrows for line in arrow.lines}
    assert sorted(lines) == list(range(1, len(ROWS) + 1))
    for number, row in enumerate(ROWS, start=1):
        arrow, line = lines[number]
        assert (arrow.source, line.event, arrow.dest, line.reason) == (
            row.source,
            row.trigger,
            row.dest,
            row.reason or "",
        )
        if row.guard.text:
            assert line.guard == describe_guard(row.guard)


def test_guardless_row_says_otherwise_only_after_other_rows(picture: Picture) -> None:
    guards = {line.number: line.guard for arrow in picture.arrows for line in arrow.lines}
    for number, row in enumerate(ROWS, start=1):
        if not row.guard.text:
            before = any(
                (earlier.source, earlier.trigger) == (row.source, row.trigger) for earlier in ROWS[: number - 1]
            )
            assert guards[number] == ("otherwise" if before else "")


def test_single_arrow_joins_two_states_and_keeps_the_row_order(picture: Picture) -> None:
    pairs = [(arrow.source, arrow.dest) for arrow in picture.arrows]
    assert len(set(pairs)) == len(pairs)
    assert pairs == list(dict.fromkeys((row.source, row.dest) for row in ROWS))
    for arrow in picture.arrows:
        numbers = [line.number for line in arrow.lines]
        assert numbers == sorted(numbers)


def test_picture_and_machine_start_in_the_same_state(picture: Picture) -> None:
    assert picture.initial is State.CHECK
    assert picture.initial.name == CHART.machine.initial


@pytest.mark.parametrize(
    ("kind", "states"),
    [(NodeKind.TRANSIENT, TRANSIENT), (NodeKind.LIVE, LIVE), (NodeKind.RESTING, RESTING), (NodeKind.FINAL, FINAL)],
)
def test_kinds_are_the_sets_of_the_states(picture: Picture, kind: NodeKind, states: frozenset[State]) -> None:
    assert {node.state for node in picture.nodes if node.kind is kind} == states


def test_ends_have_the_reasons_of_the_design(picture: Picture) -> None:
    for node in picture.nodes:
        reasons = _DESIGNED[node.state.outcome].split() if node.state.outcome else []
        assert sorted(node.reasons) == sorted(reasons)


def test_every_reason_has_an_end_and_a_meaning(picture: Picture) -> None:
    ends_by_reason = endings(picture)
    assert list(ends_by_reason) == list(EndReason)
    assert set(ends_by_reason) == set(REASONS)
    assert all(len(states) == 1 for states in ends_by_reason.values())


def test_only_an_abort_takes_the_reason_from_the_event(picture: Picture) -> None:
    for line in chain.from_iterable(arrow.lines for arrow in picture.arrows):
        assert line.shown_reason == ("" if line.reason == ReasonFrom.EVENT else line.reason)


def test_quiet_arrows_are_guardrails_aborts_and_failures_of_the_engine(picture: Picture) -> None:
    for arrow in picture.arrows:
        rows = [row for row in ROWS if (row.source, row.dest) == (arrow.source, arrow.dest)]
        assert arrow.stops == all(row.trigger in {"tripped", "abort", "fail"} for row in rows)


def test_each_row_is_in_a_single_place_of_the_review(picture: Picture) -> None:
    review = fold_common_rows(picture)
    drawn = {line.number: (arrow.source, arrow.dest) for arrow in review.arrows for line in arrow.lines}
    folded = {
        line.number: (source, rows.dest or source)
        for rows in review.folded
        for source, line in zip(rows.sources, rows.lines, strict=True)
    }
    assert len(drawn) + len(folded) == len(ROWS) == len(drawn | folded)
    assert drawn | folded == {number: (row.source, row.dest) for number, row in enumerate(ROWS, start=1)}
    assert review.nodes == picture.nodes
    assert picture.folded == ()


def _may_be_folded(row: Row) -> bool:
    return row.reason is not None or row.source is row.dest


def test_stopping_and_repeated_rows_are_folded(picture: Picture) -> None:
    folded = {line.number for rows in fold_common_rows(picture).folded for line in rows.lines}
    for number, row in enumerate(ROWS, start=1):
        alike = [
            other_row
            for other_row in ROWS
            if other_row[1:3] == row[1:3] and other_row.reason == row.reason and other_row.source != row.source
        ]
        assert (number in folded) == (_may_be_folded(row) and any(map(_may_be_folded, alike)))


def test_note_lists_each_row_once_with_event_guard_and_reason(picture: Picture) -> None:
    folded = fold_common_rows(picture).folded
    notes = [(rows.shown.event, rows.shown.guard, rows.shown.reason, rows.dest) for rows in folded]
    assert len(set(notes)) == len(notes)
    for rows in folded:
        assert len({(line.event, line.reason) for line in rows.lines}) == 1
        guards = {line.guard for line in rows.lines}
        assert guards == {rows.shown.guard} or (guards, rows.shown.guard) == ({"", "otherwise"}, "")
        assert len(set(rows.sources)) == len(rows.sources)
    assert {event for event, *_ in notes} == {"tripped", "abort", "fail", "expire", "attempt_failed", "replied"}
    assert [rows.sources for rows in folded if rows.dest is None] == [
        (State.STREAM, State.COMPACT, State.REVIEW, State.TEXT_ONLY)
    ]


def test_another_chart_gives_another_picture() -> None:
    shorter = extract(Chart(ROWS[:-1]))
    assert sum(len(arrow.lines) for arrow in shorter.arrows) == len(ROWS) - 1
    assert shorter != extract()
