"""Each check of a trajectory finds what it is for, and nothing in a sound one."""

from collections.abc import Callable

import pytest

from turnwright_audit.trajectories.atif import FinalMetrics, StepMetrics, SubagentRef, Trajectory
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.checks import findings_of


def sound() -> Trajectory:
    """A run of a user message, two calls with their results, one by a sub-agent, and an answer."""
    inner = RunBuilder("atif", agent="helper", id="inner")
    inner.user("Find it.")
    run = RunBuilder("atif", agent="clerk", id="outer")
    run.user("Pay the invoice.", at="2026-01-02T03:04:05Z")
    run.reply(
        at="2026-01-02T03:04:06",
        metrics=StepMetrics(prompt_tokens=9, completion_tokens=1, cached_tokens=9, cost_usd=0.0),
    )
    run.call("c1", "helper")
    run.call("c2", "read")
    run.result("c1", "found", subagent=SubagentRef(trajectory_id="inner"))
    run.result("c2", "paid")
    run.reply("Done.", at="2026-01-02T04:04:06+01:00")
    run.subagent(inner.finish())
    return run.finish()


def change_version(run: Trajectory) -> None:
    run.schema_version = "ATIF-v9.0"


def repeat_call(run: Trajectory) -> None:
    assert run.steps[1].tool_calls is not None
    run.steps[1].tool_calls[1].tool_call_id = "c1"
    assert run.steps[1].observation is not None
    run.steps[1].observation.results.pop()


def repeat_result(run: Trajectory) -> None:
    observation = run.steps[1].observation
    assert observation is not None
    observation.results.append(observation.results[1])


def move_result(run: Trajectory) -> None:
    run.steps[2].observation, run.steps[1].observation = run.steps[1].observation, None


def lose_call(run: Trajectory) -> None:
    assert run.steps[1].tool_calls is not None
    run.steps[1].tool_calls.pop()


def lose_subagent(run: Trajectory) -> None:
    run.subagent_trajectories = None


def spend_less_than_nothing(run: Trajectory) -> None:
    run.final_metrics = FinalMetrics(total_cost_usd=-0.5)


def cache_more(run: Trajectory) -> None:
    assert run.steps[1].metrics is not None
    run.steps[1].metrics.cached_tokens = 10


def turn_back(run: Trajectory) -> None:
    run.steps[2].timestamp = "2026-01-02T03:04:05.5Z"


def test_sound_run_has_no_finding() -> None:
    assert list(findings_of(sound())) == []


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (change_version, [("unknown version", 0, "ATIF-v9.0")]),
        (repeat_call, [("duplicate call id", 2, "c1")]),
        (repeat_result, [("duplicate result", 2, "c2")]),
        (move_result, [("result at another step", 3, "c1"), ("result at another step", 3, "c2")]),
        (lose_call, [("result without its call", 2, "c2")]),
        (lose_subagent, [("sub-agent not found", 2, "inner")]),
        (spend_less_than_nothing, [("negative count", 0, "-0.5")]),
        (cache_more, [("more cached than prompt tokens", 2, "10 of 9")]),
        (turn_back, [("time runs backwards", 3, "2026-01-02T03:04:05.5Z")]),
    ],
)
def test_damaged_run_has_the_expected_finding(
    damage: Callable[[Trajectory], None], expected: list[tuple[str, int, str]]
) -> None:
    run = sound()
    damage(run)
    assert list(findings_of(run)) == expected
