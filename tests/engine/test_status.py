"""The words for a turn's activity, its limits and its ending, which every surface shares."""

import pytest

from turnwright.status import (
    LIMIT_REASONS,
    LIMITS,
    describe_activity,
    describe_ending,
    describe_lost_driver,
    describe_nearest_limit,
    describe_pause,
    describe_work,
    limit_reached,
    name_limit,
    sentinel_text,
)
from turnwright_states import REASONS, EndReason, Limits, State, Turn

_ALL: Limits = Limits(steps=5, tool_calls=50, tokens=1_000, cost=1.0, seconds=60.0)


def test_limits_have_names_and_reasons() -> None:
    names = {reason: LIMITS[limit].name for reason, limit in LIMIT_REASONS.items()}
    assert list(LIMIT_REASONS.values()) == list(LIMITS)
    assert all(REASONS[reason].means == f"The turn reached its {name}." for reason, name in names.items())
    assert (name_limit(EndReason.BUDGET), name_limit(EndReason.DOOM_LOOP)) == ("the tool-call limit", "doom loop")


@pytest.mark.parametrize("reason", LIMIT_REASONS)
def test_ending_is_the_sentinel_without_the_next_step(reason: EndReason) -> None:
    turn = Turn(_ALL)
    assert limit_reached(turn, reason).startswith(f"Stopped at {name_limit(reason)} (")
    assert describe_ending(reason, sentinel_text(turn, reason)) == f"{limit_reached(turn, reason)}."
    assert describe_ending(reason) == REASONS[reason].means


def test_lost_driver_is_described_with_the_activity() -> None:
    assert describe_activity(State.TOOL_EXEC) == "Running tools"
    assert describe_lost_driver(State.TOOL_EXEC, crashed=True) == "Crashed while running tools"
    assert describe_lost_driver(State.CHECK, crashed=False) == "Released between two steps"


def test_pause_and_nearest_limit_are_sentences() -> None:
    assert [describe_pause(answers) for answers in (0, 1, 2)] == [
        "Paused: answered, and not resumed yet",
        "Paused: the turn waits for 1 answer",
        "Paused: the turn waits for 2 answers",
    ]
    assert describe_nearest_limit("the step limit (1 of 2)", is_reached=True) == (
        "The nearest other limit is the step limit (1 of 2)."
    )


def test_work_of_a_turn_lists_calls_before_figures() -> None:
    assert describe_work(2, 1, ["283 tokens", "2.9 s"]) == "2 steps (1 tool call, 283 tokens, 2.9 s)"
    assert describe_work(1, 0, ["0.1 s"]) == "1 step (0.1 s)"
