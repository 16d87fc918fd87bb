"""The precedence of limits, the rest for a request, and ends, compared with a second implementation of the rules."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_states import (
    AbortInput,
    AnsweredInput,
    AttemptFailedInput,
    CallModel,
    CallSettledInput,
    CallStartedInput,
    CallWaitingInput,
    Cause,
    ConcludedInput,
    Decision,
    EndReason,
    ExpireInput,
    FailInput,
    Input,
    InterruptKind,
    Limits,
    MachineError,
    ModelRepliedInput,
    Outcome,
    StartedInput,
    State,
    SteeredInput,
    SynthesizedInput,
    ToolCall,
    TurnMachine,
    Usage,
)
from turnwright_states.chart import CHART
from turnwright_states.counters import Counters
from turnwright_states.guards import list_reached_limits
from turnwright_states.state import Trigger

from .conftest import Begin, Script

SMALL: Final = st.integers(0, 3)


class Place:
    """The model that the machine moves, in CHECK."""

    state = State.CHECK


@st.composite
def counters(draw: st.DrawFn) -> Counters:
    """Any counters that a turn in CHECK can have."""
    limits = Limits(
        steps=draw(SMALL),
        tool_calls=draw(st.none() | SMALL),
        doom_response=draw(st.sampled_from(("stop", "ask"))),
        nudges=draw(st.integers(0, 1)),
        max_pauses=draw(st.integers(0, 1)),
    )
    counts = Counters(limits)
    counts.steps = draw(st.integers(0, limits.allowance))
    counts.calls = draw(st.integers(0, min(counts.budget, 4) if counts.budgeted else 4))
    for flag in ("tokens_spent", "cost_spent", "time_spent", "doom"):
        setattr(counts, flag, draw(st.booleans()))
    return counts


def expected(c: Counters) -> tuple[State, EndReason | None]:
    """Return the destination of CHECK by docs/rules.md#precedence, without the chart's guards."""
    spent = [
        reason
        for reason, holds in (
            (EndReason.BUDGET, c.budgeted and c.calls >= c.budget),
            (EndReason.TOKENS, c.tokens_spent),
            (EndReason.COST, c.cost_spent),
            (EndReason.DEADLINE, c.time_spent),
        )
        if holds
    ]
    if c.allowance == 0 or (c.budgeted and c.budget == 0):
        return State.TEXT_ONLY, None
    if c.steps == c.allowance:
        return State.CONCLUDE, EndReason.STEP_CAP
    if c.doom:
        if not spent and c.nudges_left:
            return State.STREAM, None
        if not spent and c.doom_asks and c.pauses_left:
            return State.PAUSED, None
        return State.CONCLUDE, EndReason.DOOM_LOOP
    return (State.CONCLUDE, spent[0]) if spent else (State.STREAM, None)


@given(counters())
def test_first_limit_of_the_design_wins(counts: Counters) -> None:
    place = Place()
    row = CHART.fire(place, Trigger.PROCEED, counts)
    assert (place.state, row.reason) == expected(counts)
    assert row.dest is place.state


@given(counters())
def test_every_reached_limit_is_listed_in_row_order(counts: Counters) -> None:
    holds = {
        EndReason.STEP_CAP: counts.steps == counts.allowance,
        EndReason.DOOM_LOOP: counts.doom,
        EndReason.BUDGET: counts.budgeted and counts.calls >= counts.budget,
        EndReason.TOKENS: counts.tokens_spent,
        EndReason.COST: counts.cost_spent,
        EndReason.DEADLINE: counts.time_spent,
        EndReason.NO_CALL_RAN: counts.idle_limit > 0 and counts.idle >= counts.idle_limit,
    }
    assert list(list_reached_limits(counts)) == [reason for reason, holding in holds.items() if holding]


@given(
    st.integers(1, 10_000),
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 900)), max_size=20),
)
def test_step_may_write_exactly_the_remaining_tokens(tokens: int, usages: list[tuple[int, int]]) -> None:
    """Never nothing: a step that may start may say something."""
    machine, _ = TurnMachine.start(
        StartedInput(prompt="x", limits=Limits(tokens=tokens, doom_threshold=None, idle_steps=None))
    )
    remaining = tokens
    for read, output in usages:
        action = machine.action
        if not isinstance(action, CallModel):
            assert remaining <= 0
            assert machine.turn.carried is EndReason.TOKENS
            return
        assert action.max_tokens == remaining
        machine.feed(
            ModelRepliedInput(
                calls=(ToolCall(name="a", problem="there is none"),),
                usage=Usage(input_tokens=read, output_tokens=output),
            )
        )
        remaining -= read + output


def test_provider_decides_max_tokens_without_a_token_budget(begin: Begin) -> None:
    assert begin().action == CallModel(tools=True, max_tokens=None)


@pytest.mark.parametrize("steps", [None, 199, 200, 201, 250])
@pytest.mark.parametrize("concluding", ["after", "within"])
def test_endless_model_is_stopped_at_the_ceiling(begin: Begin, steps: int | None, concluding: str) -> None:
    turn = begin(steps=steps, concluding=concluding, tool_calls=None, doom_threshold=None, idle_steps=None)
    while turn.state is State.STREAM:
        turn.reply(ToolCall(name="a", problem="there is none"))
    cap = 200 if steps is None else min(steps, 200)
    assert turn.steps == (cap if concluding == "after" else cap - 1)
    assert turn.machine.turn.carried is EndReason.STEP_CAP


EVERYTHING: Final[tuple[Input, ...]] = (
    StartedInput(prompt="x"),
    ModelRepliedInput(text="x"),
    ModelRepliedInput(calls=(ToolCall(name="a", arguments={}),)),
    AttemptFailedInput(cause=Cause.TIMEOUT),
    CallStartedInput(call="call00001"),
    CallSettledInput(call="call00001"),
    CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.APPROVAL),
    SynthesizedInput(text="x"),
    AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE),
    SteeredInput(text="x"),
    ConcludedInput(text="x"),
    ExpireInput(elapsed=9.0),
    AbortInput(),
    FailInput(error="x"),
)


def finish(turn: Script) -> None:
    turn.reply(text="x")


def synthesize(turn: Script) -> None:
    turn.step("a")
    turn.feed(SynthesizedInput(text="x"))


def hit_the_cap(turn: Script) -> None:
    turn.step("a")
    turn.feed(SynthesizedInput())
    turn.feed(ConcludedInput(text="x"))


def loop(turn: Script) -> None:
    for _ in range(2):
        turn.step("a")
        turn.feed(SynthesizedInput())
    turn.feed(ConcludedInput(text="x"))


ENDS: Final = {
    Outcome.FINISHED: (finish, {}),
    Outcome.SYNTHESIS_DONE: (synthesize, {}),
    Outcome.CAP_HIT: (hit_the_cap, {"steps": 1}),
    Outcome.DOOM_LOOP: (loop, {"doom_threshold": 2}),
    Outcome.ABORTED: (lambda turn: turn.feed(AbortInput()), {}),
    Outcome.FAILED: (lambda turn: turn.feed(FailInput(error="x")), {}),
}


@pytest.mark.parametrize("outcome", Outcome)
def test_no_event_changes_an_end(begin: Begin, outcome: Outcome) -> None:
    end, limits = ENDS[outcome]
    turn = begin(StartedInput(prompt="x", synthesis=True), **limits)
    end(turn)
    before, action = turn.machine.turn.digest(), turn.action
    for happening in EVERYTHING:
        with pytest.raises(MachineError):
            turn.machine.feed(happening)
        assert (turn.machine.turn.digest(), turn.action, turn.state.outcome) == (before, action, outcome), happening
