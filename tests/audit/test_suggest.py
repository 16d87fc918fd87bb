"""Suggested limits come from runs that went well, fit the machine, and come with their effect."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.audit.recorded import call, run_of

from turnwright.agents.markdown import parse_agents
from turnwright_audit.measure import RunMeasure, measure
from turnwright_audit.suggest import Suggestion, rounded_up, suggest
from turnwright_audit.totals import Totals
from turnwright_audit.trajectories.atif import Trajectory
from turnwright_states import Limits


def suggested(runs: Sequence[Trajectory]) -> Suggestion | None:
    measured: list[RunMeasure] = [measure(run, "-") for run in runs]
    totals = Totals()
    for run in measured:
        totals.take(run)
    return suggest(totals, measured)


def long_run(steps: int, *, success: bool | None, cost: float | None = None) -> Trajectory:
    return run_of(*[call("read", str(number)) for number in range(steps - 1)], "Done.", success=success, cost=cost)


def test_limits_are_the_rounded_p99_of_successful_runs() -> None:
    runs = [long_run(8, success=True, cost=0.01) for _ in range(100)]
    suggestion = suggested([*runs, long_run(40, success=False), long_run(18, success=True)])
    assert suggestion is not None
    assert (suggestion.labeled, suggestion.runs) == (True, 101)
    assert suggestion.limits == {"steps": 10, "tool_calls": 10, "tokens": 800, "cost": 0.08}
    assert suggestion.python == "Limits(steps=10, tool_calls=10, tokens=800, cost=0.08)"
    assert suggestion.front_matter == ["steps: 10", "budget: {tool_calls: 10, tokens: 800, cost: 0.08}"]
    assert (suggestion.effect.runs, suggestion.effect.succeeded, suggestion.effect.failed) == (2, 1, 1)
    assert suggestion.effect.steps == 18 - 8 + 40 - 8
    assert suggestion.defaults.runs == 0


def test_runs_without_usage_do_not_affect_token_and_cost_limits() -> None:
    known_runs = [long_run(8, success=True, cost=0.01) for _ in range(3)]
    unknown = [run_of("Done.", success=True, tokens=None) for _ in range(3)]
    for runs, limited in ((known_runs + unknown, True), ([*known_runs, *unknown, *unknown], False)):
        suggestion = suggested(runs)
        assert suggestion is not None
        assert ("tokens" in suggestion.limits) is ("cost" in suggestion.limits) is limited


def test_suggested_code_evaluates_to_the_suggested_limits() -> None:
    suggestion = suggested([run_of(*[call("poll")] * 7, "Done.", success=True)])
    assert suggestion is not None
    assert suggestion.limits["doom_threshold"] is None
    limits: Limits = eval(suggestion.python, {"Limits": Limits})  # noqa: S307 (our own text)
    text = "\n".join(["---", "name: A", *suggestion.front_matter, "---", "Work."])
    [agent] = parse_agents(text)
    own = agent.limits_for(Limits())
    assert own == limits


def test_unlabeled_suggestions_come_from_finished_runs() -> None:
    suggestion = suggested([long_run(12, success=None), run_of(*[call("read", str(number)) for number in range(90)])])
    assert suggestion is not None
    assert (suggestion.labeled, suggestion.runs, suggestion.limits["steps"]) == (False, 1, 15)


def test_run_counts_with_the_largest_turn() -> None:
    run = long_run(6, success=True)
    run.steps[3].source = "user"
    run.steps[3].tool_calls = run.steps[3].observation = None
    suggestion = suggested([run])
    assert suggestion is not None
    assert (suggestion.runs, suggestion.limits["steps"], suggestion.effect.runs) == (1, 5, 0)


def test_no_steps_above_the_maximum_are_suggested() -> None:
    suggestion = suggested([long_run(250, success=True)])
    assert suggestion is not None
    assert suggestion.limits["steps"] == 200


def test_no_successful_run_gives_no_suggestion() -> None:
    assert suggested([]) is None
    assert suggested([run_of(call("read"))]) is None


@given(st.integers(0, 10**9))
def test_number_is_rounded_up_by_a_tenth_at_most(number: int) -> None:
    assert number <= rounded_up(number) <= max(number * 1.1 + 5, 5)


@pytest.mark.parametrize(
    ("number", "rounded"), [(0, 5), (12, 15), (50, 50), (51, 60), (201, 210), (1_234_567, 1_300_000)]
)
def test_limits_are_round_numbers(number: int, rounded: int) -> None:
    assert rounded_up(number) == rounded
