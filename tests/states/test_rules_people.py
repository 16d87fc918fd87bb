"""Pauses and messages (docs/rules.md#approvals, #messages)."""

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from turnwright_proof.rank import rank_of
from turnwright_states import (
    DECISIONS,
    AbortInput,
    AnsweredInput,
    AnswerMismatchError,
    AwaitPerson,
    CallModel,
    CallQuestion,
    CallSettledInput,
    CallStartedInput,
    CallState,
    CallStatus,
    CallWaitingInput,
    Conclude,
    Decision,
    EndReason,
    GivenResult,
    Halt,
    IllegalInputError,
    InterruptKind,
    InvalidCallError,
    Outcome,
    State,
    SteeredInput,
    ToolCall,
    facts,
)

if TYPE_CHECKING:
    from .conftest import Begin, Script

CALL_KINDS = tuple(kind for kind in InterruptKind if kind is not InterruptKind.DOOM_LOOP)


def two_waiting(begin: "Begin", **limits: object) -> "Script":
    """A paused turn: `write` and `delete` wait for approval, `look` has run."""
    turn = begin(**limits)
    turn.reply("write", "look", "delete")
    turn.wait("call00001")
    turn.wait("call00003")
    turn.settle()
    assert turn.state is State.PAUSED
    return turn


def test_message_may_precede_the_last_answer_of_a_batch(begin: "Begin") -> None:
    """CHECK follows from that answer, and includes the message."""
    turn = two_waiting(begin)
    first = AnsweredInput(interrupt="approval-1", decision=Decision.REJECT)
    assert not turn.machine.takes_messages_before(first)
    turn.feed(first)
    assert turn.machine.takes_messages_before(AnsweredInput(interrupt="approval-2", decision=Decision.REJECT))


@pytest.mark.parametrize(
    ("limits", "elapsed", "is_taken"),
    [
        ({}, 0.0, False),
        ({"steps": 1}, 0.0, True),
        ({"tool_calls": 1}, 0.0, True),
        ({"seconds": 1.0}, 0.5, False),
        ({"seconds": 1.0}, 0.999999, True),
        ({"seconds": 1.0}, 0.9999996, True),
    ],
)
def test_message_precedes_a_last_result_with_a_possible_stop(
    begin: "Begin", limits: dict[str, object], elapsed: float, *, is_taken: bool
) -> None:
    """If it continues, the message comes before the next model call in any case."""
    turn = begin(**limits)
    turn.reply("look")
    turn.feed(CallStartedInput(call="call00001"))
    result = CallSettledInput(call="call00001", elapsed=elapsed)
    assert turn.machine.takes_messages_before(result) is is_taken
    turn.feed(result)
    assert is_taken or turn.state is State.STREAM


def test_message_precedes_the_last_result_of_a_doom_loop(begin: "Begin") -> None:
    """CHECK must know that somebody said something."""
    turn = begin(doom_threshold=2)
    for is_taken in (False, True):
        turn.reply("look")
        turn.feed(CallStartedInput(call=turn.ready[0]))
        result = CallSettledInput(call=turn.machine.turn.open_calls()[0].id)
        assert turn.machine.takes_messages_before(result) is is_taken
        turn.feed(result)


def test_message_precedes_the_last_result_of_a_loop_with_a_nudge_left(begin: "Begin") -> None:
    """A step follows in any case, but with the message it is not a step for a hint."""
    turn = begin(doom_threshold=2, nudges=1)
    turn.step("look")
    turn.reply("look")
    turn.feed(CallStartedInput(call="call00002"))
    assert turn.machine.takes_messages_before(CallSettledInput(call="call00002"))


def test_message_precedes_the_last_result_beside_a_waiting_call(begin: "Begin") -> None:
    turn = begin()
    turn.reply("write", "look")
    turn.wait("call00001")
    turn.feed(CallStartedInput(call="call00002"))
    assert turn.machine.takes_messages_before(CallSettledInput(call="call00002"))


def test_message_precedes_the_last_results_arriving_together(begin: "Begin") -> None:
    turn = begin(steps=1)
    turn.reply("look", "list")
    results = []
    for call in turn.ready:
        turn.feed(CallStartedInput(call=call))
        results.append(CallSettledInput(call=call))
    assert turn.machine.takes_messages_before(*results)
    assert not turn.machine.takes_messages_before(results[0])


@pytest.mark.parametrize(("retries", "is_taken"), [(0, True), (1, False)])
def test_message_precedes_a_call_without_another_run(begin: "Begin", retries: int, *, is_taken: bool) -> None:
    """A crash interrupted the call. Without a retry, its next start settles it."""
    turn = begin(max_retries=retries)
    turn.reply("look")
    again = CallStartedInput(call="call00001")
    assert not turn.machine.takes_messages_before(again)
    turn.feed(again)
    assert turn.machine.takes_messages_before(again) is is_taken
    turn.feed(again)
    assert is_taken is (turn.state is State.STREAM)


def test_result_beside_a_call_without_another_run_also_counts(begin: "Begin") -> None:
    turn = begin(max_retries=0)
    turn.reply("look", "look")
    first, second = (CallStartedInput(call=f"call0000{number}") for number in (1, 2))
    turn.feed(first)
    turn.feed(second)
    result = CallSettledInput(call=first.call, status=CallStatus.OK, result="seen")
    assert not turn.machine.takes_messages_before(result)
    assert turn.machine.takes_messages_before(result, second)


def test_no_message_precedes_an_answer_during_calls(begin: "Begin") -> None:
    turn = begin()
    turn.reply("write", "look")
    turn.wait("call00001")
    assert turn.state is State.TOOL_EXEC
    assert not turn.machine.takes_messages_before(AnsweredInput(interrupt="approval-1", decision=Decision.REJECT))


# Rule 12. Pause.


def test_siblings_of_a_waiting_call_run_and_keep_results(begin: "Begin") -> None:
    turn = begin()
    turn.reply("write", "look")
    (waiting,) = turn.wait("call00001")
    assert waiting.kind == "call_waiting"
    assert turn.state is State.TOOL_EXEC
    assert turn.ready == ["call00002"]
    assert turn.settle()[-1].kind == "paused"
    assert turn.result("call00002").status is CallStatus.OK


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (InterruptKind.QUESTION, "question-1"),
        (InterruptKind.GRANT, "grant-1"),
        (InterruptKind.APPROVAL, "approval-1"),
        (InterruptKind.UNKNOWN_OUTCOME, "unknown-1"),
    ],
)
def test_every_interrupt_has_an_id(begin: "Begin", kind: InterruptKind, name: str) -> None:
    """Without `=`, for the command line separates id and answer with it."""
    turn = begin()
    turn.reply("ask")
    turn.feed(
        CallWaitingInput(call="call00001", interrupt_kind=kind, question="Which?", choices=("a", "b"), expires_at=9.0)
    )
    assert isinstance(turn.action, AwaitPerson)
    (interrupt,) = turn.action.interrupts
    assert interrupt == facts.InterruptRecord(
        id=name, kind=kind, call="call00001", tool="ask", question="Which?", choices=("a", "b"), expires_at=9.0
    )


def test_ids_of_interrupts_do_not_repeat_in_a_turn(begin: "Begin") -> None:
    turn = begin()
    for number in (1, 2):
        turn.reply("write")
        turn.wait(turn.ready[0])
        assert turn.interrupts == [f"approval-{number}"]
        turn.feed(AnsweredInput(interrupt=f"approval-{number}", decision=Decision.APPROVE))
        turn.settle()


def test_no_call_runs_until_the_last_answer(begin: "Begin") -> None:
    turn = two_waiting(begin)
    turn.feed(AnsweredInput(interrupt="approval-2", decision=Decision.APPROVE))
    assert turn.state is State.PAUSED
    assert turn.interrupts == ["approval-1"]
    for call in ("call00001", "call00003"):
        with pytest.raises(IllegalInputError):
            turn.feed(CallStartedInput(call=call))
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    assert turn.ready == ["call00001", "call00003"]


def test_partial_answer_costs_no_pause(begin: "Begin") -> None:
    turn = two_waiting(begin, max_pauses=1)
    assert turn.machine.turn.counters.pauses_left == 0
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.REJECT))
    turn.feed(AnsweredInput(interrupt="approval-2", decision=Decision.APPROVE))
    assert len(turn.of(facts.Paused)) == 1


@pytest.mark.parametrize(
    ("text", "result"), [("", "rejected by the person"), ("Never", "rejected by the person: Never")]
)
def test_denied_call_is_settled_at_once(begin: "Begin", text: str, result: str) -> None:
    turn = two_waiting(begin)
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.REJECT, text=text))
    assert (turn.result("call00001").status, turn.result("call00001").result) == (CallStatus.REJECTED, result)
    turn.feed(AnsweredInput(interrupt="approval-2", decision=Decision.APPROVE))
    assert turn.ready == ["call00003"]


def test_turn_continues_after_denial_of_all_calls(begin: "Begin") -> None:
    turn = two_waiting(begin)
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.REJECT))
    turn.feed(AnsweredInput(interrupt="approval-2", decision=Decision.REJECT))
    assert turn.action == CallModel(tools=True)
    assert turn.calls == 1


def test_answer_stays_with_the_call(begin: "Begin") -> None:
    """The driver validates the approved call again, and runs it on what was said."""
    turn = begin()
    turn.reply("ask")
    turn.wait("call00001", InterruptKind.QUESTION)
    turn.feed(AnsweredInput(interrupt="question-1", decision=Decision.REPLY, text="The second"))
    call = turn.machine.turn.batch["call00001"]
    assert call.state is CallState.READY
    assert [(answer.decision, answer.text) for answer in call.answers] == [(Decision.REPLY, "The second")]


def test_grant_is_remembered_and_a_denial_is_not(begin: "Begin") -> None:
    turn = begin()
    turn.reply("read", "read")
    for call, path in (("call00001", "/etc"), ("call00002", "/srv")):
        turn.feed(CallWaitingInput(call=call, interrupt_kind=InterruptKind.GRANT, grant=path))
    turn.feed(AnsweredInput(interrupt="grant-1", decision=Decision.REJECT))
    turn.feed(AnsweredInput(interrupt="grant-2", decision=Decision.APPROVE))
    assert turn.machine.turn.grants == ("/srv",)
    assert [fact.grant for fact in turn.of(facts.Answered)] == [None, "/srv"]


@pytest.mark.parametrize("interrupt", ["approval-3", "doom-1", "", "call00001"])
def test_unknown_answer_is_refused_with_the_open_interrupts(begin: "Begin", interrupt: str) -> None:
    turn = two_waiting(begin)
    with pytest.raises(
        AnswerMismatchError, match=r"no such interrupt is open \(open: approval-1, approval-2\)"
    ) as caught:
        turn.feed(AnsweredInput(interrupt=interrupt, decision=Decision.APPROVE))
    assert (caught.value.interrupt, caught.value.interrupts) == (interrupt, ("approval-1", "approval-2"))


def test_duplicate_answer_is_refused_with_the_open_interrupts(begin: "Begin") -> None:
    turn = two_waiting(begin)
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    before = turn.machine.turn.digest()
    with pytest.raises(AnswerMismatchError) as caught:
        turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.REJECT))
    assert caught.value.interrupts == ("approval-2",)
    assert turn.machine.turn.digest() == before


def test_late_answer_is_refused(begin: "Begin") -> None:
    """After the last one was answered, and after the turn ended, nobody is asked any more."""
    turn = two_waiting(begin)
    for name in ("approval-1", "approval-2"):
        turn.feed(AnsweredInput(interrupt=name, decision=Decision.APPROVE))
    with pytest.raises(IllegalInputError, match="not accepted in state TOOL_EXEC"):
        turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    turn.feed(AbortInput())
    with pytest.raises(IllegalInputError, match="not accepted in state ABORTED"):
        turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))


@pytest.mark.parametrize("kind", CALL_KINDS)
@pytest.mark.parametrize("decision", list(Decision))
def test_each_interrupt_kind_accepts_only_matching_decisions(
    begin: "Begin", kind: InterruptKind, decision: Decision
) -> None:
    turn = begin()
    turn.reply("x")
    if kind is InterruptKind.RESULT:
        turn.feed(CallStartedInput(call="call00001"))
    turn.wait("call00001", kind)
    (name,) = turn.interrupts
    result = GivenResult(text="paid") if decision is Decision.SETTLE else None
    answer = AnsweredInput(interrupt=name, decision=decision, given=result)
    if decision in DECISIONS[kind]:
        assert turn.feed(answer)[0].kind == "answered"
        return
    with pytest.raises(AnswerMismatchError, match=f"its kind, {kind}, accepts .*, not {decision} .*open: {name}"):
        turn.feed(answer)
    assert turn.interrupts == [name]


@pytest.mark.parametrize("decision", list(Decision))
def test_doom_loop_takes_go_on_always_or_stop(begin: "Begin", decision: Decision) -> None:
    turn = begin(doom_response="ask", doom_threshold=2)
    turn.step("look")
    turn.step("look")
    answer = AnsweredInput(interrupt="doom-1", decision=decision)
    if decision in (Decision.GO_ON, Decision.ALWAYS, Decision.STOP):
        turn.feed(answer)
        assert turn.interrupts == []
    else:
        with pytest.raises(AnswerMismatchError, match="its kind, doom_loop, accepts go_on or always or stop"):
            turn.feed(answer)


def test_counters_survive_a_pause(begin: "Begin") -> None:
    turn = begin(steps=2, tool_calls=3)
    turn.step("look")
    turn.reply("write", "look")
    turn.wait("call00002")
    turn.settle()
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    assert (turn.steps, turn.calls) == (2, 2)
    turn.settle()
    assert turn.action == Conclude(EndReason.STEP_CAP, 30.0, 1024)
    assert turn.of(facts.Stopping)[0].also_reached == (EndReason.BUDGET,)


@pytest.mark.parametrize("pauses", [0, 1, 2])
def test_waiting_call_without_a_pause_left_is_refused_at_once(begin: "Begin", pauses: int) -> None:
    """Each entry to PAUSED costs one: a call that asks again and again comes to an end."""
    turn = begin(max_pauses=pauses)
    turn.reply("ask")
    for number in range(1, pauses + 1):
        turn.wait("call00001", InterruptKind.QUESTION)
        turn.feed(AnsweredInput(interrupt=f"question-{number}", decision=Decision.REPLY))
    turn.wait("call00001", InterruptKind.QUESTION)
    settled = turn.result("call00001")
    assert settled.status is CallStatus.REFUSED
    assert settled.result == "not executed: this turn may not pause for a person any more"
    assert turn.action == CallModel(tools=True)


def test_waiting_call_cannot_start_settle_or_wait(begin: "Begin") -> None:
    turn = begin()
    turn.reply("write", "look")
    turn.wait("call00001")
    with pytest.raises(InvalidCallError, match="it is waiting"):
        turn.feed(CallStartedInput(call="call00001"))
    with pytest.raises(InvalidCallError, match="it is waiting"):
        turn.wait("call00001")


def test_new_message_denies_pending_calls_and_supersedes_the_turn(begin: "Begin") -> None:
    turn = two_waiting(begin)
    turn.feed(AbortInput(reason=EndReason.SUPERSEDED))
    assert turn.end == Halt(Outcome.ABORTED, EndReason.SUPERSEDED)
    assert turn.result("call00002").status is CallStatus.OK
    assert [turn.result(call).status for call in ("call00001", "call00003")] == [CallStatus.REJECTED] * 2


# Rule 15. Steering.


def test_message_is_accepted_during_an_open_batch(begin: "Begin") -> None:
    """The model reads it after the results. Its fact precedes the batch's last one and the next step."""
    turn = begin()
    turn.reply("look")
    turn.feed(CallStartedInput(call="call00001"))
    (fact,) = turn.feed(SteeredInput(text="Only src/"))
    assert isinstance(fact, facts.MessageAdded)
    assert fact.text == "Only src/"
    turn.settle()
    assert turn.kinds()[-3:] == ["call_settled", "step_finished", "step_started"]


def test_message_restores_no_budget(begin: "Begin") -> None:
    turn = begin(steps=2)
    turn.reply("look")
    before = rank_of(turn.machine.turn)
    turn.feed(SteeredInput(text="Only src/"))
    assert rank_of(turn.machine.turn) == before
    turn.settle()
    turn.step("list")
    assert turn.action == Conclude(EndReason.STEP_CAP, 30.0, 1024)


def test_message_is_accepted_before_a_model_call_with_tools(begin: "Begin") -> None:
    """The first one too, and one that is tried again; the rounds before it are forgotten, and nothing else changes."""
    turn = begin(doom_threshold=2)
    turn.step("look")
    before = rank_of(turn.machine.turn)
    (fact,) = turn.feed(SteeredInput(text="Only src/"))
    assert (fact.kind, fact.state, rank_of(turn.machine.turn)) == ("message_added", State.STREAM, before)
    turn.step("look")
    assert turn.machine.state is State.STREAM
    turn.step("look")
    assert turn.action == Conclude(EndReason.DOOM_LOOP, 30.0, 1024)


def test_message_is_accepted_during_a_waiting_call(begin: "Begin") -> None:
    """'No, do something else': the rounds before it are forgotten, whatever becomes of the calls."""
    turn = two_waiting(begin)
    before = rank_of(turn.machine.turn)
    (fact,) = turn.feed(SteeredInput(text="Only src/"))
    assert (fact.kind, fact.state, rank_of(turn.machine.turn)) == ("message_added", State.PAUSED, before)
    assert turn.machine.turn.rounds.latest == ()


def test_message_is_refused_during_loop_question_conclusion_and_text_only(
    begin: "Begin",
) -> None:
    """It stays with the driver, who takes it in before the next model call, or returns it as undelivered."""
    stopped = begin(steps=1)
    stopped.step("look")
    paused = begin(doom_threshold=2, doom_response="ask")
    paused.step("look")
    paused.step("look")
    assert paused.machine.state is State.PAUSED
    for turn in (begin(steps=0), stopped, paused):
        with pytest.raises(IllegalInputError, match="Steered is not accepted"):
            turn.feed(SteeredInput(text="Only src/"))


def test_answer_to_a_call_outside_the_batch_is_refused(begin: "Begin") -> None:
    """No journal of ours says so. One that somebody changed can, and nothing follows from the answer then."""
    turn = begin()
    turn.reply("a")
    turn.feed(CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.APPROVAL))
    turn.machine.turn.batch.clear()
    digest = turn.machine.turn.digest()
    with pytest.raises(InvalidCallError, match="no such call is in the batch"):
        turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    assert turn.machine.turn.digest() == digest


def ask_several(turn: "Script", *questions: CallQuestion) -> None:
    """The sub-agent of the only call asks for an approval, and these questions too."""
    turn.reply(ToolCall(name="agent", arguments={}, delegates=True))
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(
        CallWaitingInput(
            call="call00001",
            interrupt_kind=InterruptKind.APPROVAL,
            forwarded="approval-1",
            tool="erase",
            more=questions,
        )
    )


def test_sub_agent_asks_all_its_questions_in_one_pause(begin: "Begin") -> None:
    """Rule 16: its call continues after the last answer, also after a rejection."""
    turn = begin()
    names = [f"approval-{number}" for number in (2, 3, 4)]
    ask_several(turn, *(CallQuestion(interrupt_kind=InterruptKind.APPROVAL, forwarded=name) for name in names))
    assert turn.interrupts == [f"call00001/{name}" for name in ("approval-1", *names)]
    assert turn.machine.turn.interrupts["call00001/approval-1"].tool == "erase"
    assert turn.machine.turn.counters.waiting == 4
    for name in ("call00001/approval-4", "call00001/approval-1", "call00001/approval-3"):
        turn.feed(AnsweredInput(interrupt=name, decision=Decision.REJECT))
        assert turn.state is State.PAUSED
    turn.feed(AnsweredInput(interrupt="call00001/approval-2", decision=Decision.APPROVE))
    assert turn.state is State.TOOL_EXEC
    assert turn.ready == ["call00001"]
    assert len(turn.of(facts.Paused)) == 1
    assert len(turn.machine.turn.batch["call00001"].answers) == 4


def test_call_waits_for_at_most_64_answers(begin: "Begin") -> None:
    """Rule 16."""
    turn = begin()
    names = [f"approval-{number}" for number in range(2, 66)]
    with pytest.raises(InvalidCallError, match="it may wait for at most 64 answers at once"):
        ask_several(turn, *(CallQuestion(interrupt_kind=InterruptKind.APPROVAL, forwarded=name) for name in names))


def test_same_question_twice_is_refused(begin: "Begin") -> None:
    turn = begin()
    with pytest.raises(InvalidCallError, match="two of its questions have the same id"):
        ask_several(turn, CallQuestion(interrupt_kind=InterruptKind.APPROVAL, forwarded="approval-1"))


def test_own_question_beside_a_forwarded_one_is_refused(begin: "Begin") -> None:
    turn = begin()
    with pytest.raises(InvalidCallError, match="it asks itself, and its sub-agent asks too"):
        ask_several(turn, CallQuestion(interrupt_kind=InterruptKind.APPROVAL))


def test_rejecting_a_question_of_several_rejects_the_call(begin: "Begin") -> None:
    """Rule 17: the call's other questions are closed with it; those of other calls stay open."""
    turn = begin()
    turn.reply("order", "write")
    turn.feed(CallStartedInput(call="call00001"))
    more = (CallQuestion(interrupt_kind=InterruptKind.QUESTION), CallQuestion(interrupt_kind=InterruptKind.GRANT))
    turn.feed(CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.QUESTION, more=more))
    turn.wait("call00002")
    assert turn.interrupts == ["question-1", "question-2", "grant-1", "approval-1"]
    turn.feed(AnsweredInput(interrupt="question-2", decision=Decision.REJECT))
    assert turn.result("call00001").status is CallStatus.REJECTED
    assert turn.interrupts == ["approval-1"]
    assert turn.state is State.PAUSED


def test_call_with_several_questions_runs_after_the_last_answer(begin: "Begin") -> None:
    """Rule 17."""
    turn = begin()
    turn.reply("order")
    turn.feed(CallStartedInput(call="call00001"))
    more = (CallQuestion(interrupt_kind=InterruptKind.QUESTION),)
    turn.feed(CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.QUESTION, more=more))
    turn.feed(AnsweredInput(interrupt="question-2", decision=Decision.REPLY, text="two"))
    assert turn.state is State.PAUSED
    turn.feed(AnsweredInput(interrupt="question-1", decision=Decision.REPLY, text="one"))
    assert turn.ready == ["call00001"]
    assert [answer.text for answer in turn.machine.turn.batch["call00001"].answers] == ["two", "one"]


def test_approval_by_two_needs_two_different_names(begin: "Begin") -> None:
    """Rule 14: the machine counts them."""
    turn = begin()
    turn.reply("pay")
    turn.feed(CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.APPROVAL, approvals=2))
    approval = AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE, by="ann")
    with pytest.raises(AnswerMismatchError, match="it needs a name: give by="):
        turn.feed(replace(approval, by=" "))
    with pytest.raises(AnswerMismatchError, match="several people approve the same arguments: reject instead"):
        turn.feed(replace(approval, arguments={"amount": 1}))
    turn.feed(approval)
    assert turn.state is State.PAUSED
    assert turn.machine.turn.interrupts["approval-1"].approved_by == ("ann",)
    with pytest.raises(AnswerMismatchError, match="it needs another approver: ann has approved"):
        turn.feed(approval)
    turn.feed(replace(approval, by="Ann"))
    assert turn.ready == ["call00001"]


def test_single_rejection_rejects_a_call_that_needs_two(begin: "Begin") -> None:
    """Rule 14."""
    turn = begin()
    turn.reply("pay")
    turn.feed(CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.APPROVAL, approvals=2))
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE, by="ann"))
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.REJECT))
    assert turn.result("call00001").status is CallStatus.REJECTED


def wait_for_result(begin: "Begin") -> "Script":
    turn = begin()
    turn.reply("render")
    turn.feed(CallStartedInput(call="call00001"))
    turn.wait("call00001", InterruptKind.RESULT)
    return turn


def test_given_result_settles_the_call_without_another_start(begin: "Begin") -> None:
    """Rule 10: `answered` has the result, and `call_settled` follows."""
    turn = wait_for_result(begin)
    answer = AnsweredInput(interrupt="result-call00001", decision=Decision.SETTLE, given=GivenResult(text="film"))
    turn.feed(answer)
    assert turn.ready == ["call00001"]
    with pytest.raises(InvalidCallError, match="it has its result, and does not run"):
        turn.feed(CallStartedInput(call="call00001"))
    with pytest.raises(InvalidCallError, match="it has its result"):
        turn.wait("call00001")
    turn.feed(CallSettledInput(call="call00001", result="film"))
    assert turn.result("call00001").status is CallStatus.OK
    assert len(turn.of(facts.CallStarted)) == 1


def test_decision_settle_needs_a_result_and_no_other_does(begin: "Begin") -> None:
    turn = wait_for_result(begin)
    for decision, result in ((Decision.SETTLE, None), (Decision.RERUN, GivenResult(text="film"))):
        with pytest.raises(AnswerMismatchError, match="a result comes with settle, and only with it"):
            turn.feed(AnsweredInput(interrupt="result-call00001", decision=decision, given=result))


def test_result_of_a_call_that_never_started_cannot_come_later(begin: "Begin") -> None:
    """Rule 2: a call starts, and counts, before it waits for its result."""
    turn = begin()
    turn.reply("render")
    with pytest.raises(InvalidCallError, match="its result comes later, but it was never started"):
        turn.wait("call00001", InterruptKind.RESULT)


def test_given_result_of_a_leased_call_spends_the_whole_lease(begin: "Begin") -> None:
    """Rule 11."""
    turn = begin(tool_calls=5)
    turn.reply(ToolCall(name="agent", arguments={}, delegates=True))
    turn.feed(CallStartedInput(call="call00001"))
    turn.wait("call00001", InterruptKind.UNKNOWN_OUTCOME)
    turn.feed(AnsweredInput(interrupt="unknown-1", decision=Decision.SETTLE, given=GivenResult(text="paid")))
    turn.feed(CallSettledInput(call="call00001", result="paid"))
    assert turn.calls == 5
