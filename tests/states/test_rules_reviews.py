"""Reviews, typed answers and direct results (docs/rules.md#reviews, #typed-answers, #direct-results)."""

from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from turnwright_states import (
    AbortInput,
    AttemptFailedInput,
    CallModel,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    Cause,
    Conclude,
    ConcludedInput,
    Decision,
    EndReason,
    ExpireInput,
    Finish,
    Halt,
    IllegalInputError,
    InvalidCallError,
    ModelRepliedInput,
    Outcome,
    ReviewedInput,
    ReviewReply,
    StartedInput,
    State,
    SteeredInput,
    SynthesizedInput,
    ToolCall,
    TurnMachine,
    Usage,
    facts,
)
from turnwright_states.inputs import AnsweredInput

if TYPE_CHECKING:
    from .conftest import Begin, Script

ANSWER: Final = ToolCall(name="answer", arguments={"n": 1}, output=True)
REFUSED: Final = ReviewedInput(refused=True, feedback="Not yet.")


def settled(turn: "Script") -> dict[str, CallStatus]:
    return {fact.call: fact.status for fact in turn.of(facts.CallSettled)}


# Reviews.


def test_no_part_of_a_reply_runs_before_the_review(begin: "Begin") -> None:
    """The action has the calls, a call that cannot run has its result, and no call may start."""
    turn = begin()
    turn.reply("a", ToolCall(name="b", problem="unknown tool"), review=True)
    assert isinstance(turn.action, ReviewReply)
    assert [call.name for call in turn.action.calls] == ["a", "b"]
    assert settled(turn) == {"call00002": CallStatus.ERROR}
    with pytest.raises(IllegalInputError, match="CallStarted is not accepted in state REVIEW"):
        turn.feed(CallStartedInput(call="call00001"))
    turn.feed(ReviewedInput())
    assert turn.state is State.TOOL_EXEC
    assert turn.ready == ["call00001"]


def test_accepted_reply_leads_to_the_state_without_review(begin: "Begin") -> None:
    """With calls, without, cut off; also if none of its calls can run."""
    bad = ToolCall(name="b", problem="unknown tool")
    for reply, state in (
        (ModelRepliedInput(text="Done."), State.FINISHED),
        (ModelRepliedInput(text="Do", finish=Finish.LENGTH), State.FINISHED),
        (ModelRepliedInput(calls=(ToolCall(name="a", arguments={}),)), State.TOOL_EXEC),
        (ModelRepliedInput(calls=(bad,)), State.STREAM),
    ):
        plain, reviewed = begin(), begin()
        plain.feed(reply)
        reviewed.feed(replace(reply, review=True))
        reviewed.feed(ReviewedInput())
        assert reviewed.state is plain.state is state
        assert reviewed.end == plain.end
        assert [kind for kind in reviewed.kinds() if kind != "reviewed"] == plain.kinds()


def test_refused_reply_costs_a_step_and_refuses_the_calls(begin: "Begin") -> None:
    """The model reads the feedback as the result of each call, and asks again in the next step."""
    turn = begin(steps=3)
    turn.reply("a", ToolCall(name="b", problem="unknown tool"), "c", review=True)
    turn.feed(REFUSED)
    assert turn.action == CallModel(tools=True)
    assert turn.steps == 2
    assert settled(turn) == {
        "call00001": CallStatus.REFUSED,
        "call00002": CallStatus.ERROR,
        "call00003": CallStatus.REFUSED,
    }
    assert turn.result("call00001").result == "refused: Not yet."
    assert turn.calls == 0


@pytest.mark.parametrize("allowed", [0, 1, 2, 5])
def test_output_retries_are_shared_by_the_turn_before_failure(begin: "Begin", allowed: int) -> None:
    turn = begin(output_retries=allowed, doom_threshold=None)
    for _ in range(allowed):
        turn.reply("a", review=True)
        turn.feed(REFUSED)
        turn.reply("b", review=True)
        turn.feed(ReviewedInput())
        turn.settle()
    turn.reply("c", review=True)
    turn.feed(REFUSED)
    assert turn.end == Halt(Outcome.FAILED, EndReason.INVALID_OUTPUT)
    assert [fact.retry for fact in turn.of(facts.Reviewed) if fact.refused] == [True] * allowed + [False]
    ended = turn.facts[-1]
    assert isinstance(ended, facts.TurnEnded)
    assert ended.error == "Not yet."
    assert settled(turn)[f"call{2 * allowed + 1:05}"] is CallStatus.ABORTED


def test_refusal_at_the_last_step_concludes(begin: "Begin") -> None:
    """The retry is a step like any other, behind every limit."""
    for limits, usage, reason in (
        ({"steps": 1}, Usage(), EndReason.STEP_CAP),
        ({"tokens": 5}, Usage(input_tokens=9), EndReason.TOKENS),
    ):
        turn = begin(**limits)
        turn.reply(text="Done.", usage=usage, review=True)
        turn.feed(REFUSED)
        assert isinstance(turn.action, Conclude)
        assert turn.action.reason is reason
        turn.feed(ConcludedInput(text="I tried."))
        assert turn.end == Halt(Outcome.CAP_HIT, reason)


def test_refused_batch_is_not_offered_to_the_synthesis(begin: "Begin") -> None:
    turn = begin(StartedInput(prompt="x", synthesis=True))
    turn.reply("a", review=True)
    turn.feed(REFUSED)
    assert isinstance(turn.action, CallModel)
    turn.reply(ToolCall(name="b", problem="unknown tool"), review=True)
    turn.feed(ReviewedInput())
    turn.feed(SynthesizedInput(text="42"))
    assert turn.end == Halt(Outcome.SYNTHESIS_DONE, EndReason.SYNTHESIZED)


def test_calls_of_refused_replies_are_rounds_of_the_doom_loop(begin: "Begin") -> None:
    """The detector compares what the model asked for, whether it ran or not."""
    turn = begin(doom_threshold=2, doom_compare="calls", output_retries=9)
    for _ in range(2):
        turn.reply("a", review=True)
        turn.feed(REFUSED)
    assert isinstance(turn.action, Conclude)
    assert turn.action.reason is EndReason.DOOM_LOOP


def test_failed_check_is_repeated_and_then_ends_the_turn(begin: "Begin") -> None:
    """It fails closed. The reply stays as it is, so the model is not called again."""
    turn = begin(max_retries=1)
    turn.reply("a", review=True)
    turn.feed(AttemptFailedInput(cause=Cause.CRASH))
    assert isinstance(turn.action, ReviewReply)
    turn.feed(AttemptFailedInput(cause=Cause.OVERLOADED))
    assert turn.end == Halt(Outcome.FAILED, EndReason.MODEL_ERROR)
    assert len(turn.of(facts.ModelReplied)) == 1
    assert settled(turn) == {"call00001": CallStatus.ABORTED}


def test_text_only_replies_and_conclusions_are_not_reviewed(begin: "Begin") -> None:
    turn = begin(steps=0)
    turn.reply(text="Hello.", review=True)
    assert turn.end == Halt(Outcome.FINISHED, EndReason.TEXT_ONLY)
    turn = begin(steps=1)
    turn.step("a")
    with pytest.raises(IllegalInputError, match="Reviewed is not accepted in state CONCLUDE"):
        turn.feed(ReviewedInput())


def test_blank_and_filtered_replies_are_not_reviewed(begin: "Begin") -> None:
    turn = begin()
    turn.reply(text=" ", review=True)
    assert turn.state is State.STREAM
    turn.reply(text="x", finish=Finish.CONTENT_FILTER, review=True)
    assert turn.end == Halt(Outcome.FAILED, EndReason.CONTENT_FILTER)


def test_message_waits_for_the_end_of_a_review(begin: "Begin") -> None:
    """An accepted answer would end the turn, and nobody would have read it."""
    turn = begin()
    turn.reply("a", review=True)
    with pytest.raises(IllegalInputError, match="Steered is not accepted in state REVIEW"):
        turn.feed(SteeredInput(text="wait"))
    turn.feed(ReviewedInput())
    turn.feed(SteeredInput(text="wait"))


def test_deadline_or_abort_closes_the_calls_of_a_reply_in_review(begin: "Begin") -> None:
    for stop, state in ((ExpireInput(), State.CONCLUDE), (AbortInput(), State.ABORTED)):
        turn = begin(seconds=5)
        turn.reply("a", review=True)
        turn.clock = 6.0
        turn.feed(stop)
        assert turn.state is state
        assert settled(turn) == {"call00001": CallStatus.ABORTED}


# Typed answers.


def test_typed_answer_is_a_call_without_execution(begin: "Begin") -> None:
    """It takes no place in the budget, and its result says that it was accepted."""
    turn = begin(tool_calls=1)
    turn.reply(ANSWER, "save", review=True)
    turn.feed(ReviewedInput(answer="call00001", output={"n": 1}))
    assert turn.ready == ["call00002"]
    assert (turn.result("call00001").status, turn.result("call00001").final) == (CallStatus.OK, True)
    turn.settle()
    assert turn.end == Halt(Outcome.FINISHED, EndReason.ANSWERED)
    assert turn.calls == 1
    (reviewed,) = turn.of(facts.Reviewed)
    assert (reviewed.answer, reviewed.output) == ("call00001", {"n": 1})


def test_only_the_chosen_typed_answer_is_accepted(begin: "Begin") -> None:
    turn = begin()
    turn.reply(ANSWER, ANSWER, review=True)
    turn.feed(ReviewedInput(answer="call00002"))
    assert settled(turn) == {"call00001": CallStatus.REFUSED, "call00002": CallStatus.OK}
    assert turn.end == Halt(Outcome.FINISHED, EndReason.ANSWERED)


def test_typed_answer_without_a_review_is_refused(begin: "Begin") -> None:
    """Else it would run as a call without a place in the budget."""
    turn = begin()
    with pytest.raises(InvalidCallError, match="ModelReplied for call 'answer': a typed answer is accepted or refused"):
        turn.reply("a", ANSWER)
    assert turn.state is State.STREAM
    turn = begin(steps=0)
    turn.reply(ANSWER, text="Here.")
    assert settled(turn) == {"call00001": CallStatus.REFUSED}


@pytest.mark.parametrize(
    ("review", "call", "words"),
    [
        (ReviewedInput(answer="call00002"), "call00002", "it is not an open typed answer of an accepted reply"),
        (ReviewedInput(answer="call00009"), "call00009", "it is not an open typed answer of an accepted reply"),
        (ReviewedInput(answer="call00003"), "call00003", "it is not an open typed answer of an accepted reply"),
        (
            ReviewedInput(answer="call00001", refused=True),
            "call00001",
            "it is not an open typed answer of an accepted reply",
        ),
        (ReviewedInput(), "call00001", "it is a typed answer, and an accepted reply names one"),
    ],
)
def test_review_must_name_a_typed_answer_of_the_reply(
    begin: "Begin", review: ReviewedInput, call: str, words: str
) -> None:
    turn = begin()
    turn.reply(ANSWER, "a", ToolCall(name="answer", raw="{", output=True), review=True)
    before = turn.machine.turn.digest()
    with pytest.raises(InvalidCallError) as caught:
        turn.feed(review)
    assert str(caught.value) == f"Reviewed for call {call!r}: {words}; nothing was changed"
    assert (caught.value.event, caught.value.call) == ("Reviewed", call)
    assert (turn.state, turn.machine.turn.digest()) == (State.REVIEW, before)


# Answers that a call gives.


def direct(begin: "Begin", *calls: str, **limits: object) -> "Script":
    """A turn in which the first call of a batch gave the answer."""
    turn = begin(**limits)
    turn.reply("report", *calls)
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(CallSettledInput(call="call00001", result="42", final=True))
    return turn


def test_final_result_ends_the_turn_after_the_batch(begin: "Begin") -> None:
    assert direct(begin).end == Halt(Outcome.FINISHED, EndReason.ANSWERED)
    turn = direct(begin, "log")
    assert turn.end is None
    turn.settle()
    assert turn.end == Halt(Outcome.FINISHED, EndReason.ANSWERED)
    assert len(turn.of(facts.ModelReplied)) == 1


def test_question_to_a_person_stays_open_beside_an_answer(begin: "Begin") -> None:
    turn = begin()
    turn.reply("report", "mail")
    turn.wait("call00002")
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(CallSettledInput(call="call00001", final=True))
    assert turn.state is State.PAUSED
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    turn.settle()
    assert turn.end == Halt(Outcome.FINISHED, EndReason.ANSWERED)


@pytest.mark.parametrize("status", [status for status in CallStatus if status is not CallStatus.OK])
def test_only_a_successful_result_is_an_answer(begin: "Begin", status: CallStatus) -> None:
    turn = begin()
    turn.reply("report")
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(CallSettledInput(call="call00001", status=status, final=True))
    assert isinstance(turn.action, CallModel)


def test_answer_precedes_a_deadline_and_an_abort_precedes_both(begin: "Begin") -> None:
    for stop, end in (
        (ExpireInput(), Halt(Outcome.FINISHED, EndReason.ANSWERED)),
        (AbortInput(), Halt(Outcome.ABORTED, EndReason.ABORTED)),
    ):
        turn = direct(begin, "log", seconds=5)
        turn.clock = 6.0
        turn.feed(stop)
        assert turn.end == end
        assert settled(turn) == {"call00001": CallStatus.OK, "call00002": CallStatus.ABORTED}


def test_synthesis_is_skipped_if_a_call_gave_the_answer(begin: "Begin") -> None:
    turn = begin(StartedInput(prompt="x", synthesis=True))
    turn.reply("report")
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(CallSettledInput(call="call00001", final=True))
    assert turn.end == Halt(Outcome.FINISHED, EndReason.ANSWERED)


def test_message_is_too_late_after_a_final_result(begin: "Begin") -> None:
    """It is kept with the end, which the machine announces before it comes."""
    turn = direct(begin, "log")
    turn.feed(CallStartedInput(call="call00002"))
    with pytest.raises(IllegalInputError, match="Steered is not accepted in state TOOL_EXEC"):
        turn.feed(SteeredInput(text="wait"))
    last = CallSettledInput(call="call00002", undelivered=("wait",))
    assert turn.machine.may_end_with(last)
    assert not turn.machine.takes_messages_before(last)
    turn.feed(last)
    ended = turn.facts[-1]
    assert isinstance(ended, facts.TurnEnded)
    assert ended.undelivered == ("wait",)


def test_message_is_too_late_for_the_last_step_after_a_final_result(begin: "Begin") -> None:
    """Nothing of the step is asked any more, so the spent cap does not count."""
    turn = begin(steps=1)
    turn.reply("report", "log")
    for call in turn.ready:
        turn.feed(CallStartedInput(call=call))
    turn.feed(CallSettledInput(call="call00001", final=True))
    assert not turn.machine.takes_messages_before(CallSettledInput(call="call00002"))


def test_message_is_not_taken_just_before_the_answer(begin: "Begin") -> None:
    """No CHECK follows that would include it. After any other result of the last step, one does."""
    turn = begin(steps=1)
    turn.reply("report")
    turn.feed(CallStartedInput(call="call00001"))
    for final, status, takes_messages in (
        (True, CallStatus.OK, False),
        (True, CallStatus.ERROR, True),
        (False, CallStatus.OK, True),
    ):
        end = CallSettledInput(call="call00001", status=status, final=final)
        assert turn.machine.takes_messages_before(end) is takes_messages
        assert turn.machine.may_end_with(end) is not takes_messages
    waiting = begin()
    waiting.reply("report", "mail")
    waiting.wait("call00002")
    waiting.feed(CallStartedInput(call="call00001"))
    waiting.feed(CallSettledInput(call="call00001", final=True))
    answer = AnsweredInput(interrupt="approval-1", decision=Decision.REJECT)
    assert waiting.machine.may_end_with(answer)
    assert not waiting.machine.takes_messages_before(answer)


def test_each_of_several_simultaneous_results_may_be_the_answer(begin: "Begin") -> None:
    turn = begin(steps=2)
    turn.reply("report", "mail")
    for call in ("call00001", "call00002"):
        turn.feed(CallStartedInput(call=call))
    answer = CallSettledInput(call="call00001", final=True)
    settled = CallSettledInput(call="call00002")
    assert not turn.machine.may_end_with(settled)
    assert turn.machine.may_end_with(settled, answer)
    assert turn.machine.may_end_with(answer, settled)


def test_next_reply_discards_an_earlier_typed_answer(begin: "Begin") -> None:
    """A typed answer of a refused reply is forgotten."""
    turn = begin()
    turn.reply(ANSWER, review=True)
    assert turn.machine.may_end_with(ReviewedInput(answer="call00001"))
    assert not turn.machine.may_end_with(REFUSED)
    turn.feed(REFUSED)
    turn.reply("a", review=True)
    assert not turn.machine.may_end_with(ReviewedInput())
    turn.feed(ReviewedInput())
    turn.settle()
    assert isinstance(turn.action, CallModel)
    assert not turn.machine.turn.counters.final


def test_turn_in_review_is_resumed_in_review(begin: "Begin") -> None:
    turn = begin()
    turn.reply("a", ANSWER, review=True)
    resumed = TurnMachine.resume(turn.facts)
    assert isinstance(resumed.action, ReviewReply)
    assert [call.id for call in resumed.action.calls] == ["call00001", "call00002"]
    assert resumed.feed(ReviewedInput(answer="call00002")) == turn.machine.feed(ReviewedInput(answer="call00002"))
