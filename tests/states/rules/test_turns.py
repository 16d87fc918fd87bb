"""Each rule of meaning that the machine holds, by its number in docs/rules.md#rules-over-calls."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import JsonValue
from tests.states.conftest import Script

from turnwright_states import (
    AnsweredInput,
    CallSettledInput,
    CallStartedInput,
    CallState,
    CallStatus,
    CallWaitingInput,
    Conclude,
    ConcludedInput,
    Decision,
    EndReason,
    Finish,
    Halt,
    InterruptKind,
    InvalidCallError,
    InvalidInputError,
    Limits,
    ModelRepliedInput,
    Outcome,
    ReviewedInput,
    RunTools,
    Spent,
    StartedInput,
    State,
    SteeredInput,
    Synthesize,
    SynthesizedInput,
    ToolCall,
    TurnMachine,
    facts,
)
from turnwright_states.inputs import AbortInput
from turnwright_states.replay import replay
from turnwright_states.verdict import Verdict

Rules = dict[str, Any]
Start = Callable[..., Script]

NEED: Rules = {"name": "need", "before": "refund", "need": "verify", "same": ["id"]}
OWE: Rules = {"name": "owe", "after": "write", "then": "test if result.ok"}


@pytest.fixture
def start() -> Iterator[Start]:
    """Begins a turn with rules. At the end its journal is checked: each cut, and the replay."""
    scripts: list[Script] = []

    def _start(*rules: Rules, prompt: str = "Go.", limits: Limits | None = None, **fields: Any) -> Script:  # noqa: ANN401 (fields of the input)
        start_input = StartedInput(prompt=prompt, rules=rules, limits=limits or Limits(steps=20), **fields)
        scripts.append(Script(start_input))
        return scripts[-1]

    yield _start
    for script in scripts:
        check_journal(script)


def check_journal(script: Script) -> None:
    """The journal folds to the same state after each fact, and each fact follows from the ones before."""
    turn = TurnMachine.resume(script.facts).turn
    assert turn.digest() == script.machine.turn.digest()
    for place, fact in enumerate(script.facts, start=1):
        if fact.hash:
            assert TurnMachine.resume(script.facts[:place]).turn.digest() == fact.hash
    replayed = replay(enumerate(script.facts, start=1))
    assert replayed.check.verdict is Verdict.HOLDS, replayed.check


def call(name: str, **arguments: JsonValue) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def startable(script: Script) -> list[str]:
    """The calls that the action offers."""
    assert isinstance(script.action, RunTools)
    return [open_call.id for open_call in script.action.calls]


def verdicts(fact: facts.CallStarted | facts.CallSettled | facts.Reviewed) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(verdict.rule, verdict.broken, verdict.by) for verdict in fact.rules]


# 6. The moment.


def test_call_is_judged_with_the_arguments_that_hooks_changed(start: Start) -> None:
    """Meaning 6: a call is judged when it starts, with its final arguments."""
    script = start({"name": "large", "never": "refund if args.amount > 100"})
    script.reply(call("refund", amount=500), call("refund", amount=5))
    script.feed(CallStartedInput(call="call00001", arguments={"amount": 50}))
    assert script.machine.turn.batch["call00001"].state is CallState.STARTED
    script.feed(CallStartedInput(call="call00002", arguments={"amount": 5000}))
    assert script.result("call00002").status is CallStatus.REFUSED
    assert script.result("call00002").arguments == {"amount": 5000}


def test_call_is_judged_before_its_question_and_at_its_start(start: Start) -> None:
    """Meaning 6: a call is judged before it asks a person, and again with the arguments that the person changed."""
    script = start({"name": "large", "never": "refund if args.amount > 100"})
    script.reply(call("refund", amount=500), call("refund", amount=5))
    script.wait("call00001")
    assert verdicts(script.result("call00001")) == [("large", "refuse", ())]
    script.wait("call00002")
    script.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE, arguments={"amount": 200}))
    script.feed(CallStartedInput(call="call00002"))
    assert script.result("call00002").status is CallStatus.REFUSED


def test_call_that_once_started_is_not_judged_again(start: Start) -> None:
    """Meaning 6: a rerun, and a call that asked after its start, are not judged again."""
    script = start({"name": "one", "at_most": 1, "of": "refund"})
    script.reply(call("refund"))
    script.feed(CallStartedInput(call="call00001"))
    script.wait("call00001")
    script.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    script.feed(CallStartedInput(call="call00001"))
    script.feed(CallStartedInput(call="call00001"))
    assert script.machine.turn.batch["call00001"].attempt == 3
    script.feed(CallSettledInput(call="call00001"))
    assert script.result("call00001").status is CallStatus.OK


# 7. The order in a batch.


def test_coupled_calls_start_in_the_order_of_the_reply(start: Start) -> None:
    """Meaning 7: coupled calls start one after the other, and calls that no rule couples run beside them."""
    script = start(NEED)
    script.reply(call("verify", id=1), call("refund", id=1), call("read"))
    assert startable(script) == ["call00001", "call00003"]
    with pytest.raises(InvalidCallError, match="'call00002': a rule couples it with call00001, which comes first"):
        script.feed(CallStartedInput(call="call00002"))
    with pytest.raises(InvalidCallError, match="comes first"):
        script.wait("call00002")
    script.settle_one("call00001")
    assert startable(script) == ["call00002", "call00003"]
    script.settle_one("call00002")
    script.settle_one("call00003")
    assert {fact.call: fact.status for fact in script.of(facts.CallSettled)} == dict.fromkeys(
        ("call00001", "call00002", "call00003"), CallStatus.OK
    )


def test_reply_with_starts_starts_only_startable_calls(start: Start) -> None:
    """Meaning 7: the reply and the starts share an append, and coupled calls start later."""
    script = start(NEED, {"name": "ask", "never": "mail", "effect": "ask"})
    calls = (call("verify", id=1), call("mail"), call("refund", id=1), call("refund", id=2), call("read"))
    script.feed(ModelRepliedInput(calls=calls, starts=True))
    states = [open_call.state for open_call in script.machine.turn.batch.values()]
    assert states == [CallState.STARTED, CallState.WAITING, CallState.READY, CallState.READY, CallState.STARTED]
    script.feed(CallSettledInput(call="call00001"))
    script.feed(CallSettledInput(call="call00005"))
    script.feed(CallStartedInput(call="call00003"))
    script.feed(CallSettledInput(call="call00003"))
    script.feed(CallStartedInput(call="call00004"))
    assert script.state is State.PAUSED
    assert script.result("call00004").status is CallStatus.REFUSED


def test_call_that_waits_for_a_person_holds_up_no_other(start: Start) -> None:
    """Meaning 7: a coupled call starts after the earlier ones have settled, or wait for a person."""
    script = start({"name": "one", "at_most": 1, "of": "refund"})
    script.reply(call("refund", id=1), call("refund", id=2))
    script.wait("call00001")
    script.settle_one("call00002")
    script.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    script.feed(CallStartedInput(call="call00001"))
    assert verdicts(script.result("call00001")) == [("one", "refuse", ("call00002",))]


# 8. Severity.


def test_all_broken_rules_are_recorded_and_the_severest_acts(start: Start) -> None:
    """Meaning 8: end, refuse, ask, report."""
    rules = [{"name": effect, "never": "x", "effect": effect} for effect in ("report", "ask", "refuse")]
    script = start(*rules)
    script.reply("x")
    script.settle_one("call00001") if script.feed(CallStartedInput(call="call00001")) == [] else None
    assert [verdict.rule for verdict in script.result("call00001").rules] == ["refuse", "ask", "report"]
    script = start(*rules, {"name": "end", "never": "x", "effect": "end"})
    script.reply("x")
    script.feed(CallStartedInput(call="call00001"))
    guardrail = script.of(facts.TurnEnded)[0].guardrail
    assert guardrail is not None
    assert guardrail.metadata["broken"] == ["end", "refuse", "ask", "report"]


# 9. Refuse.


def test_refused_call_has_the_words_the_rule_and_the_evidence(start: Start) -> None:
    """Meaning 9: a refused call is settled, never ran, and takes no place in a budget."""
    script = start({"name": "one", "at_most": 1, "of": "refund"}, limits=Limits(tool_calls=2))
    script.step(call("refund"))
    script.reply(call("refund"))
    script.feed(CallStartedInput(call="call00002"))
    settled = script.result("call00002")
    assert (settled.status, verdicts(settled)) == (CallStatus.REFUSED, [("one", "refuse", ("call00001",))])
    assert settled.result == "refused and not run: at most 1 refund (rule one)"
    assert script.calls == 1
    assert settled.summary() == "call00002: refused by one (by: call00001)"


def test_own_words_of_a_rule_are_said(start: Start) -> None:
    """Meaning 9: `say` replaces the rule's own words."""
    script = start({"name": "no", "never": "x", "say": "Ask Ann."})
    script.reply("x")
    script.feed(CallStartedInput(call="call00001"))
    assert script.result("call00001").result == "refused and not run: Ask Ann. (rule no)"


def test_repeated_refused_round_is_a_loop(start: Start) -> None:
    """Meaning 9: an equal refused round counts for the loop detector."""
    script = start({"name": "no", "never": "x"}, limits=Limits(doom_threshold=3, nudges=0, idle_steps=None))
    for number in range(1, 4):
        script.reply("x")
        script.feed(CallStartedInput(call=f"call{number:05}"))
    assert isinstance(script.action, Conclude)
    assert script.machine.turn.carried is EndReason.DOOM_LOOP


# 10. Ask.


def test_rule_asks_a_person_and_the_approval_covers_the_call(start: Start) -> None:
    """Meaning 10: the call waits with the rules, and an approval covers them also with changed arguments."""
    script = start({"name": "large", "never": "refund if args.amount > 100", "effect": "ask", "say": "Above 100."})
    script.reply(call("refund", amount=500))
    script.feed(CallStartedInput(call="call00001"))
    assert script.state is State.PAUSED
    (interrupt,) = script.machine.turn.interrupts.values()
    assert (interrupt.kind, interrupt.question, [verdict.rule for verdict in interrupt.rules]) == (
        InterruptKind.APPROVAL,
        "Above 100.",
        ["large"],
    )
    script.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE, arguments={"amount": 300}))
    script.settle_one("call00001")
    assert script.result("call00001").status is CallStatus.OK


def test_rule_that_is_broken_since_the_approval_asks_again(start: Start) -> None:
    """Meaning 10: an approval covers the rules that it named, and no other."""
    script = start(
        {"name": "ask", "never": "refund", "effect": "ask"},
        {"name": "one", "at_most": 1, "of": "refund", "effect": "ask"},
    )
    script.reply(call("refund", id=1), call("refund", id=2))
    script.feed(CallStartedInput(call="call00001"))
    script.feed(CallStartedInput(call="call00002"))
    for number in (1, 2):
        script.feed(AnsweredInput(interrupt=f"approval-{number}", decision=Decision.APPROVE))
    script.settle_one("call00001")
    script.feed(CallStartedInput(call="call00002"))
    (interrupt,) = script.machine.turn.interrupts.values()
    assert [(verdict.rule, verdict.by) for verdict in interrupt.rules] == [("one", ("call00001",))]


def test_question_of_the_tool_and_of_a_rule_are_one(start: Start) -> None:
    """Meaning 10: the question of a tool that needs approval has the rule's words too."""
    script = start({"name": "ask", "never": "refund", "effect": "ask", "say": "A person decides."})
    script.reply(call("refund"))
    question = CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.APPROVAL, question="Refund?")
    script.feed(question)
    (interrupt,) = script.machine.turn.interrupts.values()
    assert interrupt.question == "Refund? A person decides."
    script.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    script.settle_one("call00001")
    assert script.result("call00001").status is CallStatus.OK


@pytest.mark.parametrize("asks", [False, True])
def test_rule_that_asks_refuses_without_a_pause_left(start: Start, asks: bool) -> None:
    """Meaning 10: without a pause left, the call is refused."""
    script = start({"name": "ask", "never": "x", "effect": "ask"}, limits=Limits(max_pauses=0))
    script.reply("x")
    script.wait("call00001") if asks else script.feed(CallStartedInput(call="call00001"))
    assert verdicts(script.result("call00001")) == [("ask", "ask", ())]


def test_rule_that_reports_only_records(start: Start) -> None:
    """Meaning 10: `report` only records."""
    script = start({"name": "seen", "never": "x", "effect": "report"})
    script.step("x")
    assert verdicts(script.of(facts.CallStarted)[0]) == [("seen", "report", ())]
    assert script.result("call00001").status is CallStatus.OK


# 11. End.


def test_rule_that_ends_is_a_guardrail_that_trips(start: Start) -> None:
    """Meaning 11: the turn fails, and its guardrail is the rule."""
    script = start({"name": "either", "not_both": ["merge", "close"], "effect": "end"})
    script.step("merge")
    script.reply("close", "other")
    script.feed(CallStartedInput(call="call00002"))
    assert script.action == Halt(Outcome.FAILED, EndReason.GUARDRAIL, ())
    guardrail = script.of(facts.TurnEnded)[0].guardrail
    assert guardrail is not None
    assert (guardrail.name, guardrail.checks, guardrail.metadata["by"]) == ("either", "rule", ["call00001"])


def test_inputs_that_a_rule_has_overtaken_are_obsolete(start: Start) -> None:
    """Meaning 11: the driver makes several inputs at once, and drops those that a rule has overtaken."""
    script = start({"name": "no", "never": "close", "effect": "end"}, {"name": "not", "never": "mail"})
    script.reply("mail", "read", "close")
    assert script.machine.may_end_with(CallStartedInput(call="call00003"))
    script.feed(CallStartedInput(call="call00001"))
    script.feed(CallStartedInput(call="call00002"))
    settled = [CallSettledInput(call=f"call0000{number}") for number in (1, 2, 3)]
    steered = SteeredInput(text="Wait.")
    assert [script.machine.is_obsolete(event) for event in (*settled, steered)] == [True, False, False, False]
    script.feed(CallStartedInput(call="call00003"))
    assert script.end == Halt(Outcome.FAILED, EndReason.GUARDRAIL, ())
    assert all(script.machine.is_obsolete(event) for event in (*settled, steered))


# 12. Answers.


def test_answer_is_refused_while_a_call_is_owed(start: Start) -> None:
    """Meaning 12: a refused answer is a refused review in the same append, and the model tries again."""
    script = start(OWE)
    script.step("write")
    new = script.reply(text="Done.")
    assert [fact.kind for fact in new] == ["model_replied", "reviewed", "step_finished", "step_started"]
    assert verdicts(script.of(facts.Reviewed)[0]) == [("owe", "refuse", ("call00001",))]
    script.reply("test")
    script.feed(CallStartedInput(call="call00002"))
    script.feed(CallSettledInput(call="call00002", result='{"ok": true}'))
    script.reply(text="Done.")
    assert script.action == Halt(Outcome.FINISHED, EndReason.ANSWERED, ())


@pytest.mark.parametrize("finish", [Finish.STOP, Finish.LENGTH])
def test_answer_ends_the_turn_without_output_retries(start: Start, finish: Finish) -> None:
    """Meaning 12: after the output retries, the rule ends the turn; this holds for a cut-off text too."""
    script = start({"name": "p", "before": "@answer", "need": "check"}, limits=Limits(output_retries=1))
    script.reply(text="Hm.", finish=finish)
    assert script.state is State.STREAM
    script.reply(text="Hm.", finish=finish)
    assert script.action == Halt(Outcome.FAILED, EndReason.GUARDRAIL, ())


def test_rule_may_end_the_turn_at_its_answer(start: Start) -> None:
    """Meaning 12: with the effect `end` the first refused answer ends the turn."""
    script = start({"name": "p", "before": "@answer", "need": "check", "effect": "end"})
    script.reply(text="Hm.")
    assert script.action == Halt(Outcome.FAILED, EndReason.GUARDRAIL, ())


def test_answer_is_refused_before_its_review(start: Start) -> None:
    """Meaning 12: the rule comes before reviews."""
    script = start({"name": "p", "before": "@answer", "need": "check"})
    script.reply(text="Hm.", review=True)
    assert script.state is State.STREAM


def test_typed_answer_is_refused_with_its_reply(start: Start) -> None:
    """Meaning 12: a typed answer is an answer, and its text is its JSON."""
    answer = ToolCall(name="answer", arguments={"n": 1}, output=True)
    script = start({"name": "p", "before": """@answer if '"n":1' in text""", "need": "check"})
    script.reply("other", answer, review=True)
    assert [script.result(f"call0000{number}").status for number in (1, 2)] == [CallStatus.REFUSED] * 2
    script.reply(replace(answer, arguments={"n": 2}), review=True)
    script.feed(ReviewedInput(answer="call00003"))
    assert script.action == Halt(Outcome.FINISHED, EndReason.ANSWERED, ())


@pytest.mark.parametrize("retries", [0, 1])
@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_answer_of_a_review_is_refused_by_a_rule(start: Start, retries: int, order: tuple[int, int]) -> None:
    """Meaning 12: a reply needs one typed answer that no rule refuses, and its review may choose another one."""
    rule = {"name": "p", "before": """@answer if '"n":1' in text""", "need": "check"}
    script = start(rule, limits=Limits(output_retries=retries))
    script.reply(*(ToolCall(name="answer", arguments={"n": number}, output=True) for number in order), review=True)
    script.feed(ReviewedInput(answer=f"call0000{order.index(1) + 1}", decisions=({"hook": "choose"},)))
    if retries:
        assert verdicts(script.of(facts.Reviewed)[0]) == [("p", "refuse", ())]
        assert {fact.status for fact in script.of(facts.CallSettled)} == {CallStatus.REFUSED}
        assert script.state is State.STREAM
    else:
        assert script.end == Halt(Outcome.FAILED, EndReason.GUARDRAIL, ())


def test_synthesis_gives_no_answer_that_a_rule_refuses(start: Start) -> None:
    """Meaning 12: a refused synthesis gives no answer, and another step follows."""
    script = start({"name": "p", "before": "@answer", "need": "check"}, synthesis=True)
    script.step("other")
    assert isinstance(script.action, Synthesize)
    script.feed(SynthesizedInput(text="Done."))
    assert script.state == State.STREAM
    script.step("check")
    script.feed(SynthesizedInput(text="Done."))
    assert script.end == Halt(Outcome.SYNTHESIS_DONE, EndReason.SYNTHESIZED, ())


def test_direct_result_is_ordinary_while_a_rule_refuses_the_answer(start: Start) -> None:
    """Meaning 12: a `return_direct` result is an ordinary one, unless it meets the obligation itself."""
    script = start(OWE)
    script.step("write")
    script.reply("direct")
    script.feed(CallStartedInput(call="call00002"))
    script.feed(CallSettledInput(call="call00002", result="x", final=True))
    assert (script.state, script.result("call00002").final) == (State.STREAM, False)
    script.reply("test")
    script.feed(CallStartedInput(call="call00003"))
    script.feed(CallSettledInput(call="call00003", structured={"ok": True}, final=True))
    assert script.action == Halt(Outcome.FINISHED, EndReason.ANSWERED, ())


def test_call_that_opens_an_obligation_after_the_answer_is_refused(start: Start) -> None:
    """Meaning 12: after the answer was given, no call may open an obligation."""
    script = start(OWE)
    script.reply("direct", "write")
    script.feed(CallStartedInput(call="call00001"))
    script.feed(CallSettledInput(call="call00001", result="x", final=True))
    script.feed(CallStartedInput(call="call00002"))
    assert verdicts(script.result("call00002")) == [("owe", "refuse", ())]
    assert script.action == Halt(Outcome.FINISHED, EndReason.ANSWERED, ())
    assert script.of(facts.TurnEnded)[0].unmet == ()


# 13. Other endings.


def test_limit_ends_the_turn_and_names_the_owed_rules(start: Start) -> None:
    """Meaning 13: no rule prevents the ending of a limit or an abort, which names what was owed."""
    script = start(OWE, limits=Limits(steps=1))
    script.step("write")
    script.feed(ConcludedInput(text="Stopped."))
    assert script.action == Halt(Outcome.CAP_HIT, EndReason.STEP_CAP, ())
    assert script.of(facts.TurnEnded)[0].unmet == ("owe",)
    script = start(OWE)
    script.step("write")
    script.feed(AbortInput())
    assert script.of(facts.TurnEnded)[0].unmet == ("owe",)


def test_text_of_a_turn_without_steps_is_not_judged(start: Start) -> None:
    """Meaning 13: TEXT_ONLY is an ending of its own."""
    script = start({"name": "p", "before": "@answer", "need": "check"}, limits=Limits(steps=0))
    script.reply(text="Hi.")
    assert script.action == Halt(Outcome.FINISHED, EndReason.TEXT_ONLY, ())


# 14. Evidence.


def test_start_names_the_rules_that_allow_the_call(start: Start) -> None:
    """Meaning 14: `call_started` has each rule that allowed the call, and the call that satisfied it."""
    script = start(NEED)
    script.step(call("verify", id=1))
    script.step(call("refund", id=1))
    assert verdicts(script.of(facts.CallStarted)[1]) == [("need", "", ("call00001",))]


def test_message_of_the_user_is_evidence_in_a_turn(start: Start) -> None:
    """Meaning 4 and 14: the prompt, and messages to the turn, are what the user said."""
    script = start({"name": "yes", "before": "x", "need": "@user if 'yes' in words(text)"}, prompt="yes please")
    script.step("x")
    assert verdicts(script.of(facts.CallStarted)[0]) == [("yes", "", ("prompt",))]
    script.feed(SteeredInput(text="no, wait"))
    script.reply("x")
    script.feed(CallStartedInput(call="call00002"))
    assert script.result("call00002").status is CallStatus.REFUSED


# 15. Sessions.


def test_past_of_a_session_is_the_state_before_a_turn(start: Start) -> None:
    """Meaning 15: a turn begins with the state after the last one, of the rules with the scope of a session."""
    rules = (
        {"name": "one", "at_most": 1, "of": "refund", "scope": "session"},
        {"name": "turn", "at_most": 1, "of": "mail"},
    )
    script = start(*rules)
    script.step("refund", "mail")
    rules_before = script.machine.turn.rules
    assert rules_before is not None
    later = start(*rules, past=rules_before.save_session("t1"))
    later.reply("refund", "mail")
    later.feed(CallStartedInput(call="call00001"))
    later.settle_one("call00002")
    assert verdicts(later.result("call00001")) == [("one", "refuse", ("t1/call00001",))]
    assert later.result("call00002").status is CallStatus.OK


def test_turn_after_an_incomplete_past_says_so_first(start: Start) -> None:
    """Meaning 15: the driver marks a past that is not whole, and people get a notice."""
    past = {"order": 0, "rules": {}, "incomplete": True}
    script = start({"name": "one", "at_most": 1, "of": "refund", "scope": "session"}, past=past)
    assert [notice.limit for notice in script.of(facts.Notice)] == ["rules_incomplete"]
    assert script.kinds()[:2] == ["turn_started", "notice"]


# 16. Sub-agents.


def child(name: str, *reaches: str) -> ToolCall:
    return ToolCall(name=name, arguments={}, delegates=True, reaches=reaches)


ONE: Rules = {"name": "one", "at_most": 1, "of": "refund"}


def test_sub_agent_continues_the_history_of_its_caller(start: Start) -> None:
    """Meaning 16: a sub-agent begins with the state of its caller, and returns its own."""
    script = start(ONE)
    script.reply(child("clerk", "refund", "other"))
    assert script.of(facts.ModelReplied)[0].calls[0].reaches == ("refund",)
    script.feed(CallStartedInput(call="call00001"))
    above = script.machine.turn.rules
    assert above is not None
    inner = start(
        {**ONE, "inherited": True},
        past=above.save_tree("call00001"),
        parent_turn="t",
        parent_call="call00001",
        depth=1,
    )
    inner.step("refund")
    state = inner.machine.turn.rules
    assert state is not None
    script.feed(CallSettledInput(call="call00001", spent=Spent(rules=state.save_tree())))
    script.reply("refund")
    script.feed(CallStartedInput(call="call00002"))
    assert verdicts(script.result("call00002")) == [("one", "refuse", ("call00001:call00001",))]


def test_call_waits_for_a_coupled_sub_agent(start: Start) -> None:
    """Meaning 16: a call coupled with an open delegate waits for it; if that waits for a person, it is refused."""
    script = start(ONE)
    script.reply(child("clerk", "refund"), child("desk", "refund"), "refund", "read")
    assert startable(script) == ["call00001", "call00004"]
    script.feed(CallStartedInput(call="call00001"))
    script.settle_one("call00004")
    question = CallWaitingInput(
        call="call00001", interrupt_kind=InterruptKind.APPROVAL, forwarded="approval-1", tool="refund"
    )
    script.feed(question)
    script.feed(CallStartedInput(call="call00002"))
    script.feed(CallStartedInput(call="call00003"))
    assert verdicts(script.result("call00003")) == [("one", "refuse", ("call00001",))]
    assert script.state is State.PAUSED


def test_call_that_waited_for_a_person_waits_for_an_open_sub_agent(start: Start) -> None:
    """Meaning 16: an earlier call that was approved meanwhile starts after the sub-agent, and sees its calls."""
    script = start(ONE)
    script.reply("refund", child("clerk", "refund"))
    script.wait("call00001")
    script.feed(CallStartedInput(call="call00002"))
    script.feed(
        CallWaitingInput(call="call00002", interrupt_kind=InterruptKind.APPROVAL, forwarded="approval-1", tool="x")
    )
    script.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    script.feed(AnsweredInput(interrupt="call00002/approval-1", decision=Decision.APPROVE))
    assert startable(script) == ["call00002"]
    script.feed(CallStartedInput(call="call00002"))
    state: dict[str, JsonValue] = {
        "order": 9,
        "rules": {"one": [{"starts": [["", 1, [[8, "call00002:call00001", 1]], []]]}]},
    }
    script.feed(CallSettledInput(call="call00002", spent=Spent(rules=state)))
    script.feed(CallStartedInput(call="call00001"))
    assert verdicts(script.result("call00001")) == [("one", "refuse", ("call00002:call00001",))]


def test_rules_refuse_after_a_sub_agent_without_a_report(start: Start) -> None:
    """Meaning 16: what a sub-agent did that did not report is unknown, so its rules refuse."""
    script = start(ONE)
    script.reply(child("clerk", "refund"))
    script.feed(CallStartedInput(call="call00001"))
    script.feed(CallSettledInput(call="call00001", status=CallStatus.UNKNOWN))
    script.reply("refund")
    script.feed(CallStartedInput(call="call00002"))
    assert "a sub-agent did not report its calls" in script.result("call00002").result


def test_inherited_rule_judges_no_answer_of_a_sub_agent(start: Start) -> None:
    """Meaning 16: what the caller's answer owes, a sub-agent's answer does not; nor is its prompt the user's."""
    inherited = (
        {**OWE, "inherited": True},
        {"name": "yes", "before": "x", "need": "@user", "inherited": True},
    )
    script = start(*inherited, parent_turn="t", parent_call="call00001", depth=1)
    script.reply("write", "x")
    script.settle_one("call00001")
    script.feed(CallStartedInput(call="call00002"))
    assert script.result("call00002").status is CallStatus.REFUSED
    script.reply(text="Done.")
    assert script.of(facts.TurnEnded)[0].unmet == ()


# 17. The state.


def test_state_that_was_saved_gives_the_same_judgments(start: Start) -> None:
    """Meaning 17: a saved state, also of sums and of values for `this`, restores to the same state."""
    rules = (
        {"name": "sum", "at_most": 1.5, "of": "pay", "sum": "args.x", "scope": "session"},
        {
            "name": "paid",
            "before": "pay",
            "need": "look if result.paid >= this.args.x",
            "once": True,
            "scope": "session",
        },
        {"name": "owe", "after": "pay if result.open", "then": "close", "scope": "session", "effect": "report"},
    )
    script = start(*rules)
    script.reply("look", call("pay", x=0.7))
    script.feed(CallStartedInput(call="call00001"))
    script.feed(CallSettledInput(call="call00001", structured={"paid": 1}))
    script.feed(CallStartedInput(call="call00002"))
    script.feed(CallSettledInput(call="call00002", structured={"open": True}))
    state = script.machine.turn.rules
    assert state is not None
    saved = state.save_session("t")
    again = start(*rules, past=saved).machine.turn.rules
    assert again is not None
    assert again.save_session("t2")["rules"] == saved["rules"]
    assert [broken.rule for broken in again.judge("pay", {"x": 0.7})] == ["paid"]
    assert [broken.rule for broken in again.judge("pay", {"x": 0.9})] == ["sum", "paid"]
    assert again.unmet() == ("owe",)


def test_rules_of_a_later_language_are_refused() -> None:
    """Rules are pinned with the version of their language."""
    with pytest.raises(InvalidInputError, match="upgrade"):
        StartedInput(prompt="x", rules=({"name": "a", "never": "x", "language": 2},))


def test_forged_start_that_a_rule_forbids_is_named(start: Start) -> None:
    """The replay judges again: a start that a rule forbids does not follow."""
    script = start()
    script.step("x")
    (first, *rest) = script.facts
    forged = [replace(first, rules=({"name": "no", "never": "x"},)), *rest]
    assert replay(enumerate(forged, start=1)).check.verdict is Verdict.VIOLATED
