"""Compactions and prepared requests (docs/rules.md#compaction, #model-calls, #hooks)."""

from typing import TYPE_CHECKING, Final

import pytest

from turnwright_states import (
    AbortInput,
    Action,
    AttemptFailedInput,
    CallModel,
    Cause,
    CompactedInput,
    CompactHistory,
    Conclude,
    ConcludedInput,
    EndReason,
    ExpireInput,
    FailInput,
    Halt,
    IllegalInputError,
    Input,
    ModelRepliedInput,
    Outcome,
    OversizedInput,
    RequestPreparedInput,
    State,
    SteeredInput,
    TrippedInput,
    TurnMachine,
    Usage,
    facts,
)

if TYPE_CHECKING:
    from .conftest import Begin

OVERFLOW: Final = AttemptFailedInput(cause=Cause.CONTEXT_OVERFLOW)
BUSY: Final = AttemptFailedInput(cause=Cause.OVERLOADED)
PREPARED: Final = RequestPreparedInput(instructions="Be brief.")


@pytest.mark.parametrize("event", [OversizedInput(tokens=9), OVERFLOW], ids=["oversized", "overflow"])
def test_compaction_leads_back_to_the_same_model_call(begin: "Begin", event: Input) -> None:
    """In the same step, whether it succeeds or not."""
    for ended in (CompactedInput(text="x", kept=2), AttemptFailedInput(cause=Cause.BAD_REQUEST)):
        turn = begin(max_compactions=1, tokens=100)
        actions: list[Action] = []
        for next_event in (event, ended):
            turn.feed(next_event)
            actions.append(turn.action)
        assert actions == [CompactHistory(max_tokens=100), CallModel(tools=True, max_tokens=100)]
        assert turn.steps == 1


def test_empty_reply_is_no_overflow(begin: "Begin") -> None:
    turn = begin(max_compactions=1, max_retries=0)
    assert turn.machine.may_end_with(ModelRepliedInput())
    turn.reply(text="")
    assert turn.state is State.FAILED


def test_overflow_without_a_compaction_left_ends_the_turn(begin: "Begin") -> None:
    turn = begin(max_compactions=1)
    turn.feed(OVERFLOW)
    turn.feed(CompactedInput(text="x"))
    turn.feed(OVERFLOW)
    assert turn.end == Halt(Outcome.FAILED, EndReason.CONTEXT_OVERFLOW)


def test_request_without_a_compaction_left_is_sent_unchanged(begin: "Begin") -> None:
    for allowed in range(3):
        turn = begin(max_compactions=allowed)
        for _ in range(allowed):
            turn.feed(OversizedInput(tokens=9))
            turn.feed(CompactedInput(text="x"))
        with pytest.raises(IllegalInputError, match="Oversized is not accepted in state STREAM"):
            turn.feed(OversizedInput(tokens=9))
        assert turn.state is State.STREAM
        assert len(turn.of(facts.CompactionStarted)) == allowed


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_compaction_shares_the_retries_of_the_step(begin: "Begin", retries: int) -> None:
    """Else each would bring back all of them, and the model calls of a step would multiply."""
    turn = begin(max_compactions=2, max_retries=retries)
    for _ in range(retries):
        turn.feed(BUSY)
    turn.feed(OversizedInput(tokens=9))
    turn.feed(BUSY)  # no retry is left for it
    assert turn.state is State.STREAM
    turn.feed(OversizedInput(tokens=9))
    turn.feed(CompactedInput(text="x"))
    turn.feed(BUSY)
    assert turn.end == Halt(Outcome.FAILED, EndReason.MODEL_ERROR)


@pytest.mark.parametrize("compactions", [0, 1, 2])
@pytest.mark.parametrize("retries", [0, 1])
def test_compactions_reach_the_formula_of_model_calls(begin: "Begin", retries: int, compactions: int) -> None:
    """A compaction adds two: its own call, and the one that overflowed."""
    turn = begin(steps=1, max_retries=retries, max_compactions=compactions, doom_threshold=None)
    count = 0
    for _ in range(compactions):
        turn.feed(OVERFLOW)
        turn.feed(CompactedInput(text="x"))
        count += 2
    for _ in range(retries):
        turn.feed(BUSY)
        count += 1
    turn.step("a")
    count += 1
    for _ in range(retries):
        turn.feed(BUSY)
        count += 1
    turn.feed(ConcludedInput(text="Done."))
    count += 1
    assert turn.end == Halt(Outcome.CAP_HIT, EndReason.STEP_CAP)
    assert count == turn.machine.turn.limits.model_calls == 2 * (1 + retries) + 2 * compactions


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"tokens": 50}, EndReason.TOKENS),
        ({"cost": 0.5}, EndReason.COST),
        ({"tokens": 50, "cost": 0.5}, EndReason.TOKENS),
    ],
)
def test_summary_spending_a_budget_concludes_the_turn(
    begin: "Begin", limits: dict[str, object], reason: EndReason
) -> None:
    turn = begin(max_compactions=1, **limits)
    turn.feed(OversizedInput(tokens=9))
    turn.feed(CompactedInput(text="x", usage=Usage(input_tokens=50, cost=0.5)))
    assert isinstance(turn.action, Conclude)
    assert turn.action.reason is reason
    assert len(turn.of(facts.StepFinished)) == 1


def test_deadline_abort_and_failure_end_a_compaction(begin: "Begin") -> None:
    for stop, state in (
        (ExpireInput(), State.CONCLUDE),
        (AbortInput(), State.ABORTED),
        (FailInput(error="x"), State.FAILED),
    ):
        turn = begin(max_compactions=1)
        turn.feed(OversizedInput(tokens=9))
        turn.feed(stop)
        assert turn.state is state
    turn = begin(max_compactions=1)
    turn.feed(OversizedInput(tokens=9))
    for refused in (TrippedInput(guardrail="g"), SteeredInput(text="x"), PREPARED):
        with pytest.raises(IllegalInputError, match="is not accepted in state COMPACT"):
            turn.feed(refused)


def test_crashed_compaction_is_retried(begin: "Begin") -> None:
    turn = begin(max_compactions=1)
    turn.feed(OversizedInput(tokens=9))
    resumed = TurnMachine.resume(turn.facts)
    assert isinstance(resumed.action, CompactHistory)
    (failed,) = resumed.feed(AttemptFailedInput(cause=Cause.CRASH))
    assert isinstance(failed, facts.AttemptFailed)
    assert (failed.retry, resumed.state) == (True, State.COMPACT)


# Prepared requests.


def test_prepared_request_is_journaled_once_a_step(begin: "Begin") -> None:
    """Every attempt of the step sends the same, also after a compaction and a crash."""
    turn = begin(max_compactions=1)
    turn.feed(PREPARED)
    turn.feed(BUSY)
    turn.feed(OversizedInput(tokens=9))
    turn.feed(CompactedInput(text="x"))
    for machine in (turn.machine, TurnMachine.resume(turn.facts)):
        assert not machine.turn.may_prepare
        with pytest.raises(IllegalInputError, match="RequestPrepared is not accepted in state STREAM"):
            machine.feed(PREPARED)
    turn.step("a")
    turn.feed(PREPARED)
    assert len(turn.of(facts.RequestPrepared)) == 2


def test_turn_without_steps_prepares_requests_but_a_conclusion_does_not(begin: "Begin") -> None:
    turn = begin(steps=0)
    turn.feed(PREPARED)
    assert turn.action == CallModel(tools=False)
    turn = begin(steps=1)
    turn.step("a")
    with pytest.raises(IllegalInputError, match="RequestPrepared is not accepted in state CONCLUDE"):
        turn.feed(PREPARED)


def test_message_is_accepted_after_a_prepared_request(begin: "Begin") -> None:
    turn = begin()
    turn.feed(PREPARED)
    turn.feed(SteeredInput(text="x"))
    assert turn.action == CallModel(tools=True)


def test_unrequested_summary_is_refused(begin: "Begin") -> None:
    turn = begin(max_compactions=1)
    with pytest.raises(IllegalInputError, match="Compacted is not accepted in state STREAM"):
        turn.feed(CompactedInput(text="x"))
    assert turn.state is State.STREAM


def test_facts_of_compactions_and_prepared_requests_have_summaries(begin: "Begin") -> None:
    turn = begin(max_compactions=2)
    turn.feed(RequestPreparedInput(instructions="Be brief.", tools=("a",), settings={"seed": 1}, append=("x",)))
    turn.feed(OversizedInput(tokens=9))
    turn.feed(CompactedInput(text="Tidied.", kept=2))
    turn.feed(OVERFLOW)
    turn.feed(CompactedInput(cleared=True, kept=2))
    assert all(fact.summary() for fact in turn.facts if isinstance(fact, facts.RequestPrepared | facts.Compacted))
    assert [fact.summary() for fact in turn.of(facts.CompactionStarted)] == [
        "about 9 tokens",
        "the provider refused the request",
    ]
