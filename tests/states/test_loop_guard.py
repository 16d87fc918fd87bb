"""The machine as a guard in somebody else's loop: what it allows, what it refuses, and what it writes down."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_states import (
    REASONS,
    CallDecision,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    Cause,
    ConcludedInput,
    Decision,
    EndReason,
    Finish,
    Halt,
    IllegalInputError,
    InterruptKind,
    InvalidCallError,
    InvalidJournalError,
    Limits,
    LoopGuard,
    ModelRepliedInput,
    NeedsAnswer,
    Outcome,
    Proceed,
    ResultsMissing,
    Stall,
    StartedInput,
    State,
    Stopped,
    ToolCall,
    TurnMachine,
    Usage,
    VerdictMissing,
    facts,
)
from turnwright_states.rules import Rule, RuleList

READ = ToolCall(name="read", arguments={"path": "a.py"}, provider_id="toolu_1")


def guard(**limits: object) -> LoopGuard:
    return LoopGuard(Limits.model_validate(limits), prompt="Tidy utils.py", session="s1", model="m")


def step(guarded: LoopGuard, *calls: ToolCall, elapsed: float = 0.0) -> None:
    """One whole step: the reply, and those of its calls run that may."""
    for permit in guarded.replied("", calls or (READ,), elapsed=elapsed):
        if permit.runs:
            guarded.started(permit.id, elapsed=elapsed)
            guarded.result(permit.id, elapsed=elapsed)


def numbered(number: int) -> ToolCall:
    return ToolCall(name="read", arguments={"page": number})


def test_model_call_is_allowed_while_no_limit_is_reached() -> None:
    guarded = guard(steps=3, tokens=100)
    assert guarded.may_call_model() == Proceed(tools=True, max_tokens=100)
    step(guarded)
    assert guarded.may_call_model() == Proceed(tools=True, max_tokens=100)
    assert guarded.outcome is None


def test_asking_the_guard_changes_nothing() -> None:
    guarded = guard(steps=1)
    assert [guarded.may_call_model() for _ in range(5)] == [Proceed(tools=True)] * 5
    assert guarded.machine.turn.counters.steps == 1


def test_loop_at_the_cap_must_conclude() -> None:
    guarded = guard(steps=2, tool_calls=2)
    step(guarded)
    step(guarded)
    stop = guarded.may_call_model()
    assert stop == Stopped(EndReason.STEP_CAP, (EndReason.BUDGET,))
    assert isinstance(stop, Stopped)
    assert stop.conclude
    meaning = REASONS[EndReason.STEP_CAP]
    assert stop.words == f"{meaning.means} {meaning.next}"


def test_conclusion_ends_the_turn_and_refuses_the_calls() -> None:
    guarded = guard(steps=1)
    step(guarded)
    guarded.take_facts()
    ended = guarded.concluded("Half of it.", [READ], usage=Usage(input_tokens=7), elapsed=2.0)
    assert ended == Stopped(EndReason.STEP_CAP, (), Outcome.CAP_HIT)
    assert isinstance(ended, Stopped)
    assert not ended.conclude
    assert guarded.outcome is Outcome.CAP_HIT
    concluded, turn_ended = guarded.take_facts()
    assert isinstance(concluded, facts.Concluded)
    assert (concluded.text, concluded.refused, concluded.usage) == ("Half of it.", ("read",), Usage(input_tokens=7))
    assert (turn_ended.kind, turn_ended.elapsed) == ("turn_ended", 2.0)


def test_answer_ends_the_turn() -> None:
    guarded = guard()
    assert guarded.replied("Done.", usage=Usage(output_tokens=3), elapsed=1.5) == ()
    assert guarded.may_call_model() == Stopped(EndReason.ANSWERED, (), Outcome.FINISHED)
    assert guarded.machine.turn.usage == Usage(output_tokens=3)
    assert guarded.machine.turn.elapsed == 1.5


def test_reply_without_a_call_may_be_refused_by_the_loop() -> None:
    """As a text protocol does with a format error. It costs a step."""
    guarded = guard(steps=3)
    assert guarded.replied("I will read a.py now.", review=True, elapsed=1.0) == ()
    assert guarded.may_call_model() == VerdictMissing()
    assert guarded.reviewed("write one action in a block", elapsed=2.0) == Proceed(tools=True)
    assert guarded.machine.turn.counters.steps == 2
    (verdict,) = (fact for fact in guarded.take_facts() if isinstance(fact, facts.Reviewed))
    assert (verdict.refused, verdict.feedback, verdict.elapsed) == (True, "write one action in a block", 2.0)
    guarded.replied("It is tidy.", review=True)
    assert guarded.reviewed() == Stopped(EndReason.ANSWERED, (), Outcome.FINISHED)
    (verdict,) = (fact for fact in guarded.take_facts() if isinstance(fact, facts.Reviewed))
    assert (verdict.refused, verdict.feedback) == (False, "")


def test_verdict_without_a_time_takes_no_time() -> None:
    guarded = guard()
    guarded.replied("Let me see.", review=True)
    guarded.reviewed()
    assert guarded.machine.turn.elapsed == 0.0


def test_calls_of_a_refused_reply_do_not_run() -> None:
    guarded = guard()
    (permit,) = guarded.replied("", [READ], review=True)
    with pytest.raises(IllegalInputError):
        guarded.started(permit.id)
    assert guarded.reviewed("one tool at a time") == Proceed(tools=True)
    (settled,) = (fact for fact in guarded.take_facts() if isinstance(fact, facts.CallSettled))
    assert (settled.status, settled.result) == (CallStatus.REFUSED, "refused: one tool at a time")


def test_refused_replies_are_bounded_by_the_steps_and_the_output_retries() -> None:
    def refuse_all(guarded: LoopGuard) -> object:
        may = guarded.may_call_model()
        while isinstance(may, Proceed):
            guarded.replied("?", review=True)
            may = guarded.reviewed("no action")
        return may

    assert refuse_all(guard(steps=4, output_retries=9)) == Stopped(EndReason.STEP_CAP)
    assert refuse_all(guard()) == Stopped(EndReason.INVALID_OUTPUT, (), Outcome.FAILED)


def test_verdict_needs_a_reply_recorded_for_review() -> None:
    guarded = guard()
    guarded.replied(" ", review=True)
    with pytest.raises(IllegalInputError):
        guarded.reviewed("say something")
    assert guarded.may_call_model() == Proceed(tools=True)


@pytest.mark.parametrize(
    ("finish", "reason"), [(Finish.LENGTH, EndReason.TRUNCATED), (Finish.CONTENT_FILTER, EndReason.CONTENT_FILTER)]
)
def test_finish_reason_of_the_model_is_considered(finish: Finish, reason: EndReason) -> None:
    guarded = guard()
    guarded.replied("Do", finish=finish)
    stop = guarded.may_call_model()
    assert isinstance(stop, Stopped)
    assert stop.reason is reason


def test_each_call_of_a_reply_has_a_permit_or_a_refusal() -> None:
    """In their order: the budget has one place left, and one call could not run anyway."""
    guarded = guard(tool_calls=1)
    unknown = ToolCall(name="fly", arguments={}, problem="there is no tool fly")
    permits = guarded.replied("", [unknown, READ, READ, ToolCall(name="read", raw="{")])
    assert permits == (
        CallDecision("call00001", "fly", "", "there is no tool fly"),
        CallDecision("call00002", "read", "toolu_1"),
        CallDecision("call00003", "read", "toolu_1", "not executed: the tool budget is spent"),
        CallDecision("call00004", "read", "", "not executed: the arguments are not one whole JSON object"),
    )
    assert [permit.runs for permit in permits] == [False, True, False, False]


def test_model_call_needs_all_results() -> None:
    guarded = guard()
    first, second = guarded.replied("", [READ, numbered(2)])
    assert guarded.may_call_model() == ResultsMissing((first, second))
    assert guarded.started(first.id, elapsed=1.0) == first
    assert guarded.result(first.id, CallStatus.ERROR, "no such file", elapsed=3.0) == ResultsMissing((second,))
    guarded.started(second.id)
    assert guarded.result(second.id) == Proceed(tools=True)
    settled = [fact for fact in guarded.take_facts() if isinstance(fact, facts.CallSettled)]
    assert [(fact.status, fact.result, fact.elapsed) for fact in settled] == [
        (CallStatus.ERROR, "no such file", 3.0),
        (CallStatus.OK, "", 3.0),
    ]


def test_disallowed_reply_is_an_error_and_changes_nothing() -> None:
    """The model was called although results were owed, or after the cap."""
    owing = guard()
    owing.replied("", [READ])
    capped = guard(steps=1)
    step(capped)
    for guarded, state in ((owing, State.TOOL_EXEC), (capped, State.CONCLUDE)):
        before = guarded.may_call_model()
        with pytest.raises(IllegalInputError, match=f"ModelReplied is not accepted in state {state}"):
            guarded.replied("All done.")
        assert guarded.may_call_model() == before


def test_result_of_an_unstarted_call_is_an_error() -> None:
    guarded = guard()
    (permit,) = guarded.replied("", [READ])
    with pytest.raises(InvalidCallError, match="was never started"):
        guarded.result(permit.id)
    with pytest.raises(InvalidCallError, match="there is no such call"):
        guarded.started("call99999")


def test_doom_loop_is_detected_after_a_hint() -> None:
    guarded = guard(nudges=1)
    for _ in range(3):
        assert guarded.may_call_model() == Proceed(tools=True)
        step(guarded)
    assert guarded.may_call_model() == Proceed(tools=True, nudge=True)
    step(guarded)
    assert guarded.may_call_model() == Stopped(EndReason.DOOM_LOOP)
    assert guarded.concluded(None) == Stopped(EndReason.DOOM_LOOP, second_try=True)
    assert guarded.concluded("") == Stopped(EndReason.DOOM_LOOP, (), Outcome.DOOM_LOOP)


def test_stall_gives_a_hint_in_each_step_and_stops_nothing() -> None:
    guarded = guard(doom_threshold=None, stall_errors=2, stall_rounds=3)
    stalls = []
    for status, text in [(CallStatus.ERROR, "no such file")] * 3 + [(CallStatus.OK, "fine")] * 5:
        may = guarded.may_call_model()
        assert isinstance(may, Proceed)
        stalls.append(may.stall)
        (permit,) = guarded.replied("", [READ])
        guarded.started(permit.id)
        guarded.result(permit.id, status, text)
    error, nothing = Stall.SAME_ERROR, Stall.NOTHING_NEW
    assert stalls == [None, None, error, error, None, None, None, nothing]
    journaled = [fact.stall for fact in guarded.take_facts() if isinstance(fact, facts.StepStarted)]
    assert journaled == [*stalls, nothing]


def test_person_may_be_asked_about_a_doom_loop() -> None:
    guarded = guard(doom_response="ask", doom_threshold=2)
    step(guarded)
    step(guarded)
    ask = guarded.may_call_model()
    assert isinstance(ask, NeedsAnswer)
    (interrupt,) = ask.interrupts
    assert (interrupt.id, interrupt.kind, interrupt.tool) == ("doom-1", InterruptKind.DOOM_LOOP, "read")
    assert guarded.answered("doom-1", Decision.GO_ON, "let it", elapsed=4.0) == Proceed(tools=True)
    (answered,) = (fact for fact in guarded.take_facts() if isinstance(fact, facts.Answered))
    assert (answered.text, answered.elapsed) == ("let it", 4.0)


def test_call_may_wait_for_a_person() -> None:
    guarded = guard()
    (permit,) = guarded.replied("", [READ])
    ask = guarded.waits(permit.id, InterruptKind.APPROVAL, "May it?", elapsed=1.0)
    assert isinstance(ask, NeedsAnswer)
    assert [(interrupt.call, interrupt.question) for interrupt in ask.interrupts] == [(permit.id, "May it?")]
    assert guarded.machine.turn.elapsed == 1.0
    assert guarded.answered(ask.interrupts[0].id, Decision.APPROVE) == ResultsMissing((permit,))


def test_temporary_failure_is_retried_up_to_the_limit() -> None:
    guarded = guard(max_retries=1)
    assert guarded.failed(Cause.OVERLOADED, "try later", usage=Usage(input_tokens=2), elapsed=1.0) == Proceed(
        tools=True
    )
    stop = guarded.failed(Cause.OVERLOADED, partial="I was")
    assert stop == Stopped(EndReason.MODEL_ERROR, (), Outcome.FAILED)
    first, _, _, turn_ended = guarded.take_facts()[2:]
    assert isinstance(first, facts.Notice | facts.AttemptFailed)
    assert isinstance(turn_ended, facts.TurnEnded)
    assert turn_ended.partial == "I was"
    assert guarded.machine.turn.usage == Usage(input_tokens=2)


def test_permanent_failure_is_not_retried() -> None:
    assert guard().failed(Cause.CONTEXT_OVERFLOW) == Stopped(EndReason.CONTEXT_OVERFLOW, (), Outcome.FAILED)


def test_failed_conclusion_still_ends_the_turn() -> None:
    guarded = guard(steps=1, max_retries=1)
    step(guarded)
    assert guarded.failed(Cause.TIMEOUT) == Stopped(EndReason.STEP_CAP)
    assert guarded.failed(Cause.TIMEOUT) == Stopped(EndReason.STEP_CAP, (), Outcome.CAP_HIT)


def test_elapsed_time_stops_the_next_step() -> None:
    guarded = guard(seconds=10)
    step(guarded, elapsed=9.9)
    assert guarded.may_call_model() == Proceed(tools=True)
    step(guarded, numbered(2), elapsed=10.0)
    assert guarded.may_call_model() == Stopped(EndReason.DEADLINE)


def test_deadline_during_a_tool_closes_the_call() -> None:
    guarded = guard(seconds=10)
    (permit,) = guarded.replied("", [READ])
    guarded.started(permit.id)
    guarded.take_facts()
    assert guarded.expired(partial="I", usage=Usage(input_tokens=1), elapsed=12.0) == Stopped(EndReason.DEADLINE)
    settled, *_, stopping = guarded.take_facts()
    assert isinstance(settled, facts.CallSettled)
    assert (settled.call, settled.status, settled.elapsed) == (permit.id, CallStatus.ABORTED, 12.0)
    assert isinstance(stopping, facts.Stopping)
    assert (stopping.partial, stopping.usage) == ("I", Usage(input_tokens=1))


def test_aborted_turn_is_over() -> None:
    guarded = guard()
    assert guarded.aborted(partial="I was", elapsed=3.0) == Stopped(EndReason.ABORTED, (), Outcome.ABORTED)
    turn_ended = guarded.take_facts()[-1]
    assert isinstance(turn_ended, facts.TurnEnded)
    assert (turn_ended.partial, turn_ended.elapsed) == ("I was", 3.0)


def test_broken_loop_ends_the_turn() -> None:
    guarded = guard()
    assert guarded.broke("KeyError: 'x'", elapsed=3.0) == Stopped(EndReason.ENGINE_ERROR, (), Outcome.FAILED)
    turn_ended = guarded.take_facts()[-1]
    assert isinstance(turn_ended, facts.TurnEnded)
    assert (turn_ended.error, turn_ended.elapsed) == ("KeyError: 'x'", 3.0)


def test_turn_without_steps_is_answered_in_text() -> None:
    guarded = guard(steps=0)
    assert guarded.may_call_model() == Proceed(tools=False)
    (permit,) = guarded.replied("I cannot.", [READ])
    assert permit.refusal == "not executed: tools are disabled in this reply"
    assert guarded.may_call_model() == Stopped(EndReason.TEXT_ONLY, (), Outcome.FINISHED)


def test_default_limits_apply_if_unset() -> None:
    assert LoopGuard().machine.turn.limits == Limits().for_tools("default")


#: Each method of the guard with its required arguments, for a guard whose only call has started.
BARE: dict[str, Callable[[LoopGuard, str], object]] = {
    "started": lambda guarded, call: guarded.started(call),
    "result": lambda guarded, call: guarded.result(call),
    "waits": lambda guarded, call: guarded.waits(call, InterruptKind.QUESTION),
    "expired": lambda guarded, _: guarded.expired(),
    "aborted": lambda guarded, _: guarded.aborted(),
    "broke": lambda guarded, _: guarded.broke("KeyError"),
}


@pytest.mark.parametrize("verb", BARE)
def test_omitted_time_and_text_default_to_zero_and_empty(verb: str) -> None:
    guarded = guard()
    (permit,) = guarded.replied(calls=[READ])
    guarded.started(permit.id)
    BARE[verb](guarded, permit.id)
    assert guarded.machine.turn.elapsed == 0.0
    new_facts = guarded.take_facts()
    assert {getattr(fact, "text", "") for fact in new_facts} == {""}
    assert {getattr(fact, "partial", "") for fact in new_facts} == {""}
    assert {fact.interrupt.question for fact in new_facts if isinstance(fact, facts.CallWaiting)} <= {""}


def test_answer_without_a_text_has_no_text() -> None:
    guarded = guard()
    (permit,) = guarded.replied(calls=[READ])
    guarded.waits(permit.id, InterruptKind.APPROVAL)
    guarded.answered("approval-1", Decision.APPROVE)
    (answered,) = (fact for fact in guarded.take_facts() if isinstance(fact, facts.Answered))
    assert (answered.text, answered.elapsed) == ("", 0.0)


def test_failure_records_only_the_given_details() -> None:
    guarded = guard(max_retries=2)
    guarded.failed(Cause.OVERLOADED)
    guarded.failed(Cause.OVERLOADED, "try later", partial="I was", elapsed=2.0)
    failed = [fact for fact in guarded.take_facts() if isinstance(fact, facts.AttemptFailed)]
    assert [(fact.message, fact.partial, fact.elapsed) for fact in failed] == [
        ("", "", 0.0),
        ("try later", "I was", 2.0),
    ]


def test_call_start_records_the_time() -> None:
    guarded = guard()
    (permit,) = guarded.replied(calls=[READ])
    guarded.started(permit.id, elapsed=2.0)
    assert guarded.machine.turn.elapsed == 2.0


def test_omitted_turn_details_are_recorded_as_empty() -> None:
    started = LoopGuard().take_facts()[0]
    assert isinstance(started, facts.TurnStarted)
    assert (started.prompt, started.session, started.model) == ("", None, "")


def test_guard_facts_equal_the_machine_facts_and_are_taken_once() -> None:
    guarded = guard(steps=1)
    first = guarded.take_facts()
    assert guarded.take_facts() == []
    step(guarded)
    guarded.concluded("x")
    machine, expected = TurnMachine.start(
        StartedInput(prompt="Tidy utils.py", limits=Limits(steps=1), session="s1", model="m")
    )
    assert first == expected
    expected = machine.feed(ModelRepliedInput(calls=(READ,)))
    for event in (CallStartedInput(call="call00001"), CallSettledInput(call="call00001"), ConcludedInput(text="x")):
        expected += machine.feed(event)
    assert guarded.take_facts() == expected


def test_turn_resumes_from_the_journal() -> None:
    guarded = guard(steps=2)
    step(guarded)
    (permit,) = guarded.replied("", [READ])
    resumed = LoopGuard.resume(guarded.take_facts())
    assert resumed.may_call_model() == ResultsMissing((permit,))
    assert resumed.take_facts() == []
    resumed.started(permit.id)
    assert resumed.result(permit.id) == Stopped(EndReason.STEP_CAP)


def test_call_with_too_many_crashes_is_settled_at_once() -> None:
    """The guard says so before it runs again, and continues."""
    guarded = guard(max_retries=1)
    (permit,) = guarded.replied("", [READ])
    guarded.started(permit.id)
    resumed = LoopGuard.resume(guarded.take_facts())
    assert resumed.started(permit.id).runs
    given_up = resumed.started(permit.id)
    assert not given_up.runs
    assert given_up.refusal.startswith("outcome unknown")
    assert resumed.may_call_model() == Proceed(tools=True)


def test_turn_with_a_synthesis_is_refused_by_the_guard() -> None:
    _, first = TurnMachine.start(StartedInput(prompt="x", synthesis=True))
    message = "fact 1 of the journal: the turn has a synthesis, which a LoopGuard cannot run: resume it with its engine"
    with pytest.raises(InvalidJournalError, match=f"^{message}$"):
        LoopGuard.resume(first)


@given(
    st.builds(
        Limits,
        steps=st.none() | st.integers(0, 8),
        concluding=st.sampled_from(("after", "within", "never")),
        tool_calls=st.none() | st.integers(0, 12),
        doom_threshold=st.none() | st.integers(2, 3),
        max_retries=st.integers(0, 2),
    ),
    st.lists(st.integers(0, 5), min_size=1, max_size=30),
)
def test_any_obedient_loop_ends_within_the_limits(limits: Limits, throws: Sequence[int]) -> None:
    """For any model: one that is silent, calls tools for ever, or fails."""
    guarded = LoopGuard(limits)
    model_calls = tool_calls = 0
    may = guarded.may_call_model()
    while not (isinstance(may, Stopped) and not may.conclude):
        throw = throws[model_calls % len(throws)]
        model_calls += 1
        assert model_calls <= limits.model_calls
        if throw == 0:
            may = guarded.failed(Cause.TIMEOUT)
        elif throw == 1 and isinstance(may, Proceed):
            guarded.replied("?", review=True)
            may = guarded.may_call_model()
            if isinstance(may, VerdictMissing):
                may = guarded.reviewed("no action" if model_calls % 2 else None)
        elif isinstance(may, Stopped):
            may = guarded.concluded("x" * (throw % 2), [READ] * (throw % 3))
        else:
            permits = guarded.replied("", [numbered(place) for place in range(throw)])
            for permit in permits:
                if permit.runs:
                    tool_calls += 1
                    guarded.started(permit.id)
                    guarded.result(permit.id)
            may = guarded.may_call_model()
    assert limits.call_limit is None or tool_calls <= limits.call_limit
    assert guarded.machine.turn.counters.steps <= limits.allowance
    assert isinstance(guarded.machine.action, Halt)
    assert guarded.outcome is may.outcome


def test_guard_with_concluding_never_stops_at_once() -> None:
    guarded = guard(steps=1, concluding="never")
    (call,) = guarded.replied(calls=[ToolCall(name="a", arguments={})])
    guarded.started(call.id)
    stopped = guarded.result(call.id)
    assert isinstance(stopped, Stopped)
    assert (stopped.outcome, stopped.reason, stopped.conclude) == (Outcome.CAP_HIT, EndReason.STEP_CAP, False)


def test_resumed_guard_with_concluding_never_stops_at_once() -> None:
    guarded = guard(steps=1, concluding="never")
    (call,) = guarded.replied(calls=[ToolCall(name="a", arguments={})])
    guarded.started(call.id)
    ended = guarded.result(call.id, elapsed=2.0)
    journal = guarded.take_facts()
    resumed = LoopGuard.resume(journal[:-2])
    assert resumed.may_call_model() == ended
    assert resumed.take_facts() == journal[-2:]


def test_final_result_ends_the_guarded_turn() -> None:
    guarded = guard()
    (call,) = guarded.replied(calls=[ToolCall(name="a", arguments={})])
    guarded.started(call.id)
    stopped = guarded.result(call.id, text="done", final=True)
    assert isinstance(stopped, Stopped)
    assert (stopped.outcome, stopped.reason) == (Outcome.FINISHED, EndReason.ANSWERED)


def test_failed_result_is_never_final() -> None:
    guarded = guard()
    (call,) = guarded.replied(calls=[ToolCall(name="a", arguments={})])
    guarded.started(call.id)
    assert isinstance(guarded.result(call.id, CallStatus.ERROR, "no", final=True), Proceed)


NEED = Rule("verify-first", before="refund", need="verify if result.ok", same=["order_id"])
VERIFY = ToolCall(name="verify", arguments={"order_id": "7"})
REFUND = ToolCall(name="refund", arguments={"order_id": "7"})


def test_rule_refuses_the_start_of_a_call() -> None:
    guarded = LoopGuard(rules=[NEED])
    (refund,) = guarded.replied("", [REFUND])
    decision = guarded.started(refund.id)
    assert not decision.runs
    assert "refund needs an earlier ok verify" in decision.refusal
    verify, refund = guarded.replied("", [VERIFY, REFUND])
    with pytest.raises(InvalidCallError, match="a rule couples it with"):
        guarded.started(refund.id)
    assert guarded.started(verify.id).runs
    guarded.result(verify.id, text='{"ok": true}')
    assert guarded.started(refund.id).runs


def test_rule_asks_a_person_before_a_call_starts() -> None:
    guarded = LoopGuard(rules=[Rule("large", never="refund", effect="ask")])
    (refund,) = guarded.replied("", [REFUND])
    decision = guarded.started(refund.id)
    assert (decision.runs, decision.refusal) == (False, "")
    guarded.answered(decision.waits, Decision.APPROVE)
    assert guarded.started(refund.id).runs


def test_rule_ends_the_turn_of_a_guard() -> None:
    guarded = LoopGuard(rules=[Rule("no", never="refund", effect="end")])
    verify, refund = guarded.replied("", [VERIFY, REFUND])
    decision = guarded.started(refund.id)
    assert not decision.runs
    assert guarded.may_call_model() == Stopped(EndReason.GUARDRAIL, (), Outcome.FAILED)
    assert [fact.call for fact in guarded.take_facts() if isinstance(fact, facts.CallSettled)] == [verify.id, refund.id]


def test_resumed_guard_keeps_its_rules() -> None:
    guarded = LoopGuard(rules=[RuleList([NEED])])
    again = LoopGuard.resume(guarded.take_facts())
    (refund,) = again.replied("", [REFUND])
    assert not again.started(refund.id).runs
