"""The steps of recorded runs and their times, which formats record in different ways."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_audit.trajectories.atif import SubagentRef, Trajectory
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_inspector.views.recorded_steps import (
    inner_runs,
    lasts,
    recorded_steps,
    recorded_sub_agents,
    text_before,
)
from turnwright_inspector.views.steps import MOST_TURNS, Step
from turnwright_inspector.views.waterfall import BarKind, waterfall


def at(seconds: float) -> str:
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat()


def building(name: str = "main") -> RunBuilder:
    return RunBuilder("any", agent="Reader", id=name)


def steps_of(builder: RunBuilder) -> tuple[Step, ...]:
    return recorded_steps(builder.finish(), {})


def test_spans_have_the_times_of_replies_and_calls() -> None:
    """The time of a reply is its beginning, where the beginnings of calls are known too."""
    run = building()
    run.user("Look.", at=at(0))
    run.reply(at=at(1))
    run.call("a", "look_up", {})
    run.result("a", "nothing", status="ok", started=at(3), ended=at(4))
    run.reply("Done.", at=at(5))
    first, second = steps_of(run)
    assert (first.began, first.replied_at, first.ended) == (1, 3, 5)
    assert (first.calls[0].attempts[0][0], first.calls[0].ended) == (3, 4)
    assert first.calls[0].seconds == 1
    assert (second.began, second.ended) == (5, 5)
    assert lasts((first, second)) == 5


def test_log_has_end_times_of_replies_and_calls() -> None:
    """A model call goes from what ended before to its reply. The time until a user's message is nobody's work."""
    run = building()
    run.user("Look.", at=at(0))
    run.reply(at=at(2))
    run.call("a", "look_up", {})
    run.result("a", "nothing", ended=at(3))
    run.reply("Done.", at=at(7))
    run.user("And now?", at=at(1007))
    run.reply("Still done.", at=at(1009))
    first, second, third = steps_of(run)
    assert (first.began, first.replied_at, first.ended) == (0, 2, 3)
    assert (first.calls[0].attempts[0][0], first.calls[0].ended) == (2, 3)
    assert (second.began, second.replied_at, second.ended) == (3, 7, 7)
    assert (third.began, third.ended) == (7, 9)
    assert third.messages == ["And now?"]


def test_replies_without_other_times_last_until_the_next_reply() -> None:
    run = building()
    run.user("Look.")
    for second in (10, 14, 15):
        run.reply("Hm.", at=at(second))
        run.call(None, "look_up", {"second": second})
        run.result(None, "nothing")
    steps = steps_of(run)
    assert [(step.began, step.ended) for step in steps] == [(0, 4), (4, 5), (5, 5)]
    assert all(call.seconds is None and call.status == "recorded" for step in steps for call in step.calls)
    rows = list(waterfall(steps, {}, lasts(steps), live=False))
    assert [row.detail for row in rows if row.call] == ["recorded"] * 3


def test_run_without_times_lasts_zero_seconds() -> None:
    run = building()
    run.user("Look.")
    run.reply("Done.", at="yesterday")
    assert lasts(steps_of(run)) == 0
    assert lasts(()) == 0


def test_sub_agent_steps_are_below_the_call() -> None:
    inner = building("inner")
    inner.user("Go.", at=at(2))
    inner.reply("Gone.", at=at(3))
    run = building()
    run.user("Look.", at=at(0))
    run.reply(at=at(1))
    run.call("a", "delegate", {})
    run.result("a", "Gone.", ended=at(4), subagent=SubagentRef(trajectory_id="inner"))
    run.subagent(inner.finish())
    whole = run.finish()
    steps = recorded_steps(whole, inner_runs(whole))
    below = recorded_sub_agents(whole, steps)
    rows = list(waterfall(steps, below, lasts(steps), live=False))
    assert [(row.label, row.depth, row.owner) for row in rows] == [
        ("Step 1", 0, ""),
        ("delegate", 1, ""),
        ("Step 1", 2, "1"),
    ]
    assert rows[1].child == "1"
    assert (rows[2].began, rows[2].ended) == (2, 2)
    assert BarKind.MODEL in [span.kind for span in rows[0].spans]


def test_recursive_sub_agent_run_is_bounded() -> None:
    """Only a forged file has one: its runs are not read for ever."""
    run = building("inner")
    run.reply(at=at(1))
    for name in "ab":
        run.call(name, "delegate", {})
        run.result(name, "Gone.", ended=at(2), subagent=SubagentRef(trajectory_id="inner"))
    inner = run.finish()
    whole = Trajectory(schema_version="ATIF-v1.8", agent=inner.agent, steps=inner.steps, subagent_trajectories=[inner])
    below = recorded_sub_agents(whole, recorded_steps(whole, inner_runs(whole)))
    depth = 0
    while below:
        depth += 1
        below = next(iter(below.values())).below
    assert depth == MOST_TURNS


def test_request_consists_of_the_preceding_messages() -> None:
    run = building()
    run.user("Look.")
    run.reply("I look.")
    run.call("a", "look_up", {"word": "alpha"})
    run.result("a", "nothing")
    run.call("b", "look_up", {})
    run.reply("Done.")
    messages = ["user: Look.", "assistant: I look.", 'look_up({"word": "alpha"})', "look_up: nothing", "look_up({})"]
    text = text_before(run.finish(), 3)
    assert " ".join(text.split()) == " ".join([*messages, "look_up: no result"])


MOMENTS = st.none() | st.floats(-1e6, 1e6).map(at) | st.sampled_from(["", "9999-12-31T23:59:59Z", "0001-01-01"])


@given(st.lists(st.tuples(st.sampled_from("urc"), MOMENTS, MOMENTS), max_size=12))
def test_no_step_ends_before_the_beginning(entries: list[tuple[str, str | None, str | None]]) -> None:
    run = building()
    for kind, first, second in entries:
        if kind == "u":
            run.user("Look.", at=first)
        elif kind == "r":
            run.reply(at=first)
        else:
            run.call(None, "look_up", {})
            run.result(None, "nothing", started=first, ended=second)
    steps = steps_of(run)
    for step in steps:
        assert 0 <= step.began <= step.ended <= lasts(steps)
        for call in step.calls:
            assert call.seconds is None or call.seconds >= 0
    beginnings = [step.began for step in steps]
    assert beginnings == pytest.approx(sorted(beginnings))
