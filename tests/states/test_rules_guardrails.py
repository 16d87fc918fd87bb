"""Guardrails, and what hooks and people change (docs/rules.md#guardrails, #hooks, #approvals)."""

from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from turnwright_states import (
    AnsweredInput,
    AnswerMismatchError,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    CallWaitingInput,
    Decision,
    EndReason,
    Halt,
    IllegalInputError,
    InterruptKind,
    InvalidCallError,
    Outcome,
    OversizedInput,
    Spent,
    State,
    ToolCall,
    TrippedInput,
    TurnMachine,
    Usage,
    facts,
)

if TYPE_CHECKING:
    from .conftest import Begin, Script

TRIPPED: Final = TrippedInput(guardrail="no_names", message="It names a customer.", metadata={"found": 1})
FAILED: Final = Halt(Outcome.FAILED, EndReason.GUARDRAIL)


def in_state(begin: "Begin", state: State) -> "Script":
    turn = begin(steps=0 if state is State.TEXT_ONLY else 1, max_compactions=1)
    if state in (State.TOOL_EXEC, State.REVIEW, State.PAUSED, State.CONCLUDE):
        turn.reply("a", "b", review=state is State.REVIEW)
    if state is State.CONCLUDE:
        turn.settle()
    if state is State.PAUSED:
        turn.wait("call00001")
        turn.settle()
    if state is State.COMPACT:
        turn.feed(OversizedInput(tokens=1))
    assert turn.state is state
    return turn


@pytest.mark.parametrize(
    "state", [State.STREAM, State.REVIEW, State.TOOL_EXEC, State.CONCLUDE, State.TEXT_ONLY], ids=str
)
def test_guardrail_ends_the_turn_in_every_live_state(begin: "Begin", state: State) -> None:
    """The end has its name, its message and its data; open calls get results, and nothing runs after it."""
    turn = in_state(begin, state)
    assert turn.machine.may_end_with(TRIPPED)
    turn.feed(TRIPPED)
    assert turn.end == (FAILED if state is not State.CONCLUDE else Halt(*FAILED_AT_THE_CAP))
    ended = turn.facts[-1]
    assert isinstance(ended, facts.TurnEnded)
    assert ended.guardrail == facts.TrippedGuardrail(
        name="no_names", message="It names a customer.", metadata={"found": 1}
    )
    call_ids = [call.id for reply in turn.of(facts.ModelReplied) for call in reply.calls]
    assert sorted(fact.call for fact in turn.of(facts.CallSettled)) == call_ids


FAILED_AT_THE_CAP: Final = (Outcome.FAILED, EndReason.GUARDRAIL, (EndReason.STEP_CAP,))


@pytest.mark.parametrize("state", [State.COMPACT, State.PAUSED], ids=str)
def test_guardrail_does_not_trip_during_a_summary_or_a_question(begin: "Begin", state: State) -> None:
    turn = in_state(begin, state)
    with pytest.raises(IllegalInputError, match=f"tripped is not accepted in state {state}"):
        turn.feed(TRIPPED)
    assert turn.state is state


def test_guardrail_precedes_an_answer_given_by_a_call(begin: "Begin") -> None:
    turn = begin()
    turn.reply("report", "mail")
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(CallSettledInput(call="call00001", final=True))
    turn.feed(TRIPPED)
    assert turn.end == FAILED
    assert turn.result("call00001").status is CallStatus.OK


def test_usage_of_cut_off_attempts_and_sub_agents_is_counted(begin: "Begin") -> None:
    turn = begin()
    turn.feed(replace(TRIPPED, usage=Usage(input_tokens=7), partial="Dear"))
    (finished,) = turn.of(facts.StepFinished)
    assert finished.usage == Usage(input_tokens=7)
    assert turn.machine.turn.tokens == 7
    turn = begin(tool_calls=9)
    turn.reply(ToolCall(name="agent", arguments={}, delegates=True))
    turn.feed(CallStartedInput(call="call00001"))
    with pytest.raises(InvalidCallError, match="its sub-agent used 99 calls"):
        turn.feed(replace(TRIPPED, spent={"call00001": Spent(calls=99)}))
    turn.feed(replace(TRIPPED, spent={"call00001": Spent(calls=2)}))
    assert turn.calls == 3


# Changed arguments.


def test_changed_arguments_belong_to_the_call_and_not_to_the_reply(begin: "Begin") -> None:
    """Hooks change them when the call starts or asks, and a person when it is approved."""
    turn = begin()
    turn.reply(ToolCall(name="a", arguments={"n": 1}), ToolCall(name="b", arguments={"n": 1}))
    turn.feed(CallStartedInput(call="call00001", arguments={"n": 2}, decisions=({"hook": "h"},)))
    asks = CallWaitingInput(call="call00002", interrupt_kind=InterruptKind.APPROVAL, changed={"n": 3})
    turn.feed(asks)
    assert turn.machine.turn.batch["call00002"].arguments == {"n": 3}
    turn.feed(CallSettledInput(call="call00001"))
    turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE, arguments={"n": 4}))
    for machine_turn in (turn.machine.turn, TurnMachine.resume(turn.facts).turn):
        assert [call.arguments for call in machine_turn.batch.values()] == [{"n": 2}, {"n": 4}]
        assert [call.made.arguments for call in machine_turn.batch.values()] == [{"n": 1}, {"n": 1}]


@pytest.mark.parametrize(
    ("kind", "decision"),
    [
        (InterruptKind.APPROVAL, Decision.REJECT),
        (InterruptKind.GRANT, Decision.APPROVE),
        (InterruptKind.QUESTION, Decision.REPLY),
        (InterruptKind.UNKNOWN_OUTCOME, Decision.RERUN),
    ],
)
def test_only_the_approval_of_a_call_changes_the_arguments(
    begin: "Begin", kind: InterruptKind, decision: Decision
) -> None:
    turn = begin()
    turn.reply("a")
    turn.feed(CallStartedInput(call="call00001"))
    (waiting, *_) = turn.wait("call00001", kind)
    assert isinstance(waiting, facts.CallWaiting)
    interrupt_id = waiting.interrupt.id
    with pytest.raises(AnswerMismatchError, match="only the approval of a call may change its arguments"):
        turn.feed(AnsweredInput(interrupt=interrupt_id, decision=decision, arguments={"n": 1}))
    turn.feed(AnsweredInput(interrupt=interrupt_id, decision=decision))


def test_changed_arguments_of_a_child_call_go_to_the_child(begin: "Begin") -> None:
    turn = begin()
    turn.reply(ToolCall(name="agent", arguments={"task": "look"}, delegates=True))
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.APPROVAL, forwarded="approval-1"))
    answer = AnsweredInput(interrupt="call00001/approval-1", decision=Decision.APPROVE, arguments={"n": 1})
    turn.feed(answer)
    call = turn.machine.turn.batch["call00001"]
    assert call.arguments == {"task": "look"}
    assert [answered.arguments for answered in call.answers] == [{"n": 1}]


def test_retries_requested_by_tools_are_counted_by_tool(begin: "Begin") -> None:
    turn = begin()
    turn.reply("a", "b", "a")
    for call, retry in (("call00001", True), ("call00002", False), ("call00003", True)):
        turn.feed(CallStartedInput(call=call))
        turn.feed(CallSettledInput(call=call, status=CallStatus.ERROR, retry=retry))
    assert turn.machine.turn.tool_retries == {"a": 2}
    assert TurnMachine.resume(turn.facts).turn.tool_retries == {"a": 2}
