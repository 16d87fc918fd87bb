"""Endings: precedence, deadlines, aborts and new turns (docs/rules.md#precedence, #aborts, #continuing)."""

from collections.abc import Callable
from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from turnwright_states import (
    AbortInput,
    AnsweredInput,
    AttemptFailedInput,
    CallModel,
    CallStartedInput,
    CallStatus,
    Cause,
    Conclude,
    ConcludedInput,
    Decision,
    EndReason,
    ExpireInput,
    FailInput,
    Halt,
    IllegalInputError,
    InterruptKind,
    InvalidInputError,
    ModelRepliedInput,
    Outcome,
    Spent,
    StartedInput,
    State,
    TrippedInput,
    Usage,
    facts,
)
from turnwright_states.inputs import StopInput

if TYPE_CHECKING:
    from .conftest import Begin, Script

    Live = Callable[[Begin], Script]

#: The limits, in the order of the chart's rows, and what makes each hold after two steps of one call each.
AT_TWO_STEPS: dict[EndReason, dict[str, object]] = {
    EndReason.STEP_CAP: {"steps": 2},
    EndReason.DOOM_LOOP: {"doom_threshold": 2},
    EndReason.BUDGET: {"tool_calls": 2},
    EndReason.TOKENS: {"tokens": 20},
    EndReason.COST: {"cost": 0.5},
    EndReason.DEADLINE: {"seconds": 10},
}
#: The usage of an attempt that a stop cut off.
CUT_OFF = Usage(input_tokens=100, output_tokens=5)
SETS = [combination for size in range(1, 7) for combination in combinations(AT_TWO_STEPS, size)]


# Rule 3. Precedence.


@pytest.mark.parametrize("response", ["stop", "ask"])
def test_precedence_is_the_order_of_the_rows(begin: "Begin", response: str) -> None:
    """The first limit in the chart's order gives the reason; the others that held too are `also_reached`, in order."""
    for limits_reached in SETS:
        _ends_by_the_first(begin, limits_reached, response)


def _ends_by_the_first(begin: "Begin", reached: tuple[EndReason, ...], response: str) -> None:
    limits: dict[str, object] = {"steps": 9, "doom_threshold": None, "doom_response": response}
    for reason in reached:
        limits |= AT_TWO_STEPS[reason]
    turn = begin(**limits)
    turn.step("look", usage=Usage(input_tokens=10, cost=0.25))
    turn.clock = 10.0
    turn.step("look", usage=Usage(output_tokens=10, cost=0.25))
    if response == "ask" and reached == (EndReason.DOOM_LOOP,):
        assert turn.state is State.PAUSED
        return
    (stopping,) = turn.of(facts.Stopping)
    assert (stopping.reason, *stopping.also_reached) == reached
    turn.feed(ConcludedInput(text="Stopped."))
    outcome = Outcome.DOOM_LOOP if reached[0] is EndReason.DOOM_LOOP else Outcome.CAP_HIT
    assert turn.end == Halt(outcome, reached[0], reached[1:])


def test_no_limit_is_reached_just_below_all(begin: "Begin") -> None:
    turn = begin(steps=3, doom_threshold=3, tool_calls=3, tokens=21, cost=0.51, seconds=10.1)
    turn.step("look", usage=Usage(input_tokens=10, cost=0.25))
    turn.clock = 10.0
    turn.step("look", usage=Usage(output_tokens=10, cost=0.25))
    assert isinstance(turn.action, CallModel)


def test_answer_names_no_limit(begin: "Begin") -> None:
    turn = begin(steps=1, tokens=5)
    turn.reply(text="42", usage=Usage(input_tokens=9))
    assert turn.end == Halt(Outcome.FINISHED, EndReason.ANSWERED)


# The deadline, during I/O.


def test_deadline_during_a_model_call_concludes(begin: "Begin") -> None:
    turn = begin(seconds=10)
    turn.clock = 10.0
    new = turn.feed(ExpireInput(partial="I was about to"))
    assert [fact.kind for fact in new] == ["step_finished", "stopping"]
    assert turn.of(facts.Stopping)[0].partial == "I was about to"
    assert turn.action == Conclude(EndReason.DEADLINE, 30.0, 1024)


def test_time_of_the_conclusion_does_not_count(begin: "Begin") -> None:
    turn = begin(seconds=10)
    machine_turn = turn.machine.turn
    turn.clock = 4.0
    turn.reply("look")
    assert machine_turn.seconds_used == 4.0
    turn.clock = 10.0
    turn.feed(ExpireInput())
    turn.clock = 25.0
    turn.feed(ConcludedInput(text="I had no time left."))
    assert (machine_turn.elapsed, machine_turn.seconds_used) == (25.0, 10.0)
    assert ("seconds", 10.0, 10.0) in list(machine_turn.use())


def test_deadline_during_tools_closes_the_open_calls(begin: "Begin") -> None:
    """Started, waiting and unstarted ones; what finished keeps its result."""
    turn = begin(seconds=10)
    turn.reply("look", "write", "list", "find")
    turn.feed(CallStartedInput(call="call00001"))
    turn.wait("call00002")
    turn.settle_one("call00003")
    turn.clock = 10.0
    new = [fact.kind for fact in turn.feed(ExpireInput()) if fact.kind != "notice"]
    assert new == ["call_settled"] * 3 + ["step_finished", "stopping"]
    assert turn.result("call00003").status is CallStatus.OK
    for call in ("call00001", "call00002", "call00004"):
        assert turn.result(call).status is CallStatus.ABORTED
    assert turn.interrupts == []
    assert turn.action == Conclude(EndReason.DEADLINE, 30.0, 1024)


def test_deadline_of_a_text_only_turn_is_an_immediate_cap_hit(begin: "Begin") -> None:
    turn = begin(steps=0, seconds=10)
    turn.clock = 10.0
    turn.feed(ExpireInput(partial="I have no"))
    assert turn.end is not None
    assert (turn.end.outcome, turn.end.reason) == (Outcome.CAP_HIT, EndReason.DEADLINE)
    assert turn.of(facts.TurnEnded)[0].partial == "I have no"


@pytest.mark.parametrize("limits", [{}, {"steps": 0}], ids=str)
@pytest.mark.parametrize(
    "stop",
    [
        ExpireInput(elapsed=10.0, usage=CUT_OFF),
        AbortInput(elapsed=10.0, usage=CUT_OFF),
        FailInput(elapsed=10.0, usage=CUT_OFF, error="x"),
        TrippedInput(elapsed=10.0, usage=CUT_OFF, guardrail="g"),
    ],
)
def test_usage_of_the_cut_off_attempt_is_counted(begin: "Begin", limits: dict[str, object], stop: StopInput) -> None:
    turn = begin(seconds=10, **limits)
    turn.machine.feed(stop)
    assert turn.machine.turn.usage.tokens == 105


# Rule 11. Abort.


def streaming(begin: "Begin") -> "Script":
    return begin()


def running(begin: "Begin") -> "Script":
    turn = begin()
    turn.reply("look", "list", "find")
    turn.settle_one("call00001")
    turn.feed(CallStartedInput(call="call00002"))
    return turn


def paused(begin: "Begin") -> "Script":
    turn = begin()
    turn.reply("write")
    turn.wait("call00001")
    return turn


def concluding(begin: "Begin") -> "Script":
    turn = begin(steps=1, tool_calls=1)
    turn.step("look")
    return turn


def text_only(begin: "Begin") -> "Script":
    return begin(steps=0)


ENDINGS = {
    "an answer": (streaming, ModelRepliedInput(text="x")),
    "an answer in text": (text_only, ModelRepliedInput(text="x")),
    "a conclusion": (concluding, ConcludedInput(text="x")),
    "a conclusion that failed": (concluding, AttemptFailedInput(cause=Cause.REJECTED)),
    "an empty reply": (streaming, AttemptFailedInput(cause=Cause.REJECTED)),
    "the deadline": (text_only, ExpireInput()),
    "an abort": (running, AbortInput()),
    "a failure": (streaming, FailInput(error="x")),
}


@pytest.mark.parametrize("case", ENDINGS)
def test_undelivered_messages_are_kept_with_any_ending(begin: "Begin", case: str) -> None:
    live, event = ENDINGS[case]
    turn_ended = live(begin).feed(replace(event, undelivered=("And src/?",)))[-1]
    assert isinstance(turn_ended, facts.TurnEnded)
    assert turn_ended.undelivered == ("And src/?",)


def test_waiting_messages_are_delivered_while_the_turn_continues(begin: "Begin") -> None:
    """The last event alone says which they are."""
    turn = streaming(begin)
    turn.feed(AttemptFailedInput(cause=Cause.TIMEOUT, undelivered=("And src/?",)))
    (*_, turn_ended) = turn.feed(ModelRepliedInput(text="x"))
    assert isinstance(turn_ended, facts.TurnEnded)
    assert turn_ended.undelivered == ()


@pytest.mark.parametrize("live", [streaming, running, paused, concluding, text_only])
def test_abort_works_in_every_live_state_and_is_idempotent(begin: "Begin", live: "Live") -> None:
    """One append closes the rest and halts; a second abort is refused and changes nothing."""
    turn = live(begin)
    new = turn.feed(AbortInput(partial="I was", undelivered=("And src/?",)))
    turn_ended = new[-1]
    assert isinstance(turn_ended, facts.TurnEnded)
    assert (turn_ended.outcome, turn_ended.reason) == (Outcome.ABORTED, EndReason.ABORTED)
    assert (turn_ended.partial, turn_ended.undelivered) == ("I was", ("And src/?",))
    assert turn.machine.turn.open_calls() == []
    assert turn.steps == len(turn.of(facts.StepFinished))
    before = turn.machine.turn.digest()
    for late in (AbortInput(), AbortInput(spent={"call00001": Spent()})):
        with pytest.raises(IllegalInputError):
            turn.feed(late)
    assert turn.machine.turn.digest() == before


def test_abort_closes_unfinished_calls(begin: "Begin") -> None:
    turn = running(begin)
    turn.feed(AbortInput())
    statuses = [turn.result(f"call0000{number}").status for number in (1, 2, 3)]
    assert statuses == [CallStatus.OK, CallStatus.ABORTED, CallStatus.ABORTED]


@pytest.mark.parametrize(
    ("stop", "status", "why", "paused"),
    [
        (AbortInput(), CallStatus.ABORTED, "not finished: the turn ended (aborted)", True),
        (AbortInput(), CallStatus.ABORTED, "not finished: the turn ended (aborted)", False),
        (
            AbortInput(reason=EndReason.SUPERSEDED),
            CallStatus.REJECTED,
            "not finished: the turn ended (superseded)",
            True,
        ),
        (FailInput(error="x"), CallStatus.ABORTED, "not finished: the turn ended (engine_error)", False),
        (ExpireInput(), CallStatus.ABORTED, "not finished: the turn's time is up", False),
    ],
)
def test_closed_call_tells_whether_execution_had_begun(
    begin: "Begin", stop: StopInput, status: CallStatus, why: str, *, paused: bool
) -> None:
    """Whether it still waits or has its answer, for it did work before it asked; one that waited for leave did none."""
    turn = begin()
    turn.reply("asks", "asked", "waits for leave", "is ready")
    asks, waiting, leave, ready = turn.ready
    for call in (asks, waiting):
        turn.feed(CallStartedInput(call=call))
        turn.wait(call, InterruptKind.QUESTION)
    turn.wait(leave)
    if paused:
        turn.settle_one(ready)
        turn.feed(AnsweredInput(interrupt="question-2", decision=Decision.REPLY, text="yes"))
        assert turn.state is State.PAUSED
    turn.feed(stop)
    begun = f"{why}; it had begun: verify before retrying"
    assert (turn.result(asks).status, turn.result(asks).result) == (status, begun)
    assert turn.result(waiting).result == begun
    assert (turn.result(leave).status, turn.result(leave).result) == (status, why)
    assert paused or turn.result(ready).result == why


def test_abort_wins_over_a_cap(begin: "Begin") -> None:
    """The carried reason goes to `also_reached`, before the others that it was found with."""
    turn = concluding(begin)
    turn.feed(AbortInput())
    assert turn.end == Halt(Outcome.ABORTED, EndReason.ABORTED, (EndReason.STEP_CAP, EndReason.BUDGET))


def test_abort_during_a_doom_loop_question_names_the_loop(begin: "Begin") -> None:
    turn = begin(doom_response="ask", doom_threshold=2)
    turn.step("look")
    turn.step("look")
    turn.feed(AbortInput())
    assert turn.end == Halt(Outcome.ABORTED, EndReason.ABORTED, (EndReason.DOOM_LOOP,))


def test_abort_reason_is_only_aborted_or_superseded() -> None:
    """The chart's row takes its reason from the event, so the event must not bring another."""
    assert AbortInput(reason=EndReason.SUPERSEDED).reason is EndReason.SUPERSEDED
    with pytest.raises(InvalidInputError, match="reason"):
        AbortInput(reason=EndReason.ANSWERED)  # type: ignore[arg-type]


# A bug in the engine.


@pytest.mark.parametrize("live", [streaming, running, concluding, text_only])
def test_failure_of_the_engine_fails_the_turn(begin: "Begin", live: "Live") -> None:
    turn = live(begin)
    turn.feed(FailInput(error="KeyError: 'x'", partial="I was"))
    turn_ended = turn.of(facts.TurnEnded)[0]
    assert (turn_ended.outcome, turn_ended.reason) == (Outcome.FAILED, EndReason.ENGINE_ERROR)
    assert (turn_ended.error, turn_ended.partial) == ("KeyError: 'x'", "I was")
    assert turn.machine.turn.open_calls() == []
    assert turn.steps == len(turn.of(facts.StepFinished))


def test_engine_failure_names_the_limit_being_concluded(begin: "Begin") -> None:
    """Other limits that held too are listed as `also_reached`."""
    turn = concluding(begin)
    turn.feed(FailInput(error="x"))
    assert turn.end == Halt(Outcome.FAILED, EndReason.ENGINE_ERROR, (EndReason.STEP_CAP, EndReason.BUDGET))


def test_paused_turn_neither_expires_nor_fails(begin: "Begin") -> None:
    turn = paused(begin)
    for event in (ExpireInput(), FailInput(error="x")):
        with pytest.raises(IllegalInputError):
            turn.feed(event)
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    assert turn.ready == ["call00001"]


# Rule 16. Continuing after a limit.


def test_continuation_is_a_new_turn_with_fresh_limits(begin: "Begin") -> None:
    turn = begin(StartedInput(prompt="Go on", continue_from="turn-1"), steps=2)
    (started,) = turn.of(facts.TurnStarted)
    assert started.continue_from == "turn-1"
    assert (turn.steps, turn.calls) == (1, 0)
    assert turn.action == CallModel(tools=True)
