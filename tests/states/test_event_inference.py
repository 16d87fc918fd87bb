"""The inferred inputs equal the fed ones, as far as the facts determine them."""

from collections.abc import Callable

import pytest
from hypothesis import given
from msgspec.structs import replace

from turnwright_states import (
    CallQuestion,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    CallWaitingInput,
    Finish,
    Input,
    InterruptKind,
    ModelRepliedInput,
    ToolCall,
    Usage,
)
from turnwright_states.event_inference import infer_inputs, only_input
from turnwright_states.facts import CallSettled, CallStarted, Fact, ModelReplied
from turnwright_states.replay import replay
from turnwright_states.turn import fold
from turnwright_states.verdict import Verdict

from .conftest import Begin, Script
from .test_golden import TURNS
from .test_properties import ANY, Setting, play


def read_back(journal: list[Fact]) -> Input:
    """The last event of a journal that holds."""
    replayed = replay(enumerate(journal, start=1))
    assert replayed.check.verdict is Verdict.HOLDS, replayed.check.detail
    return replayed.groups[-1].event


def test_reply_is_inferred_with_reasoning_and_details(begin: Begin) -> None:
    """Reasoning and its signature too: a fork sends them back to the provider."""
    reply = ModelRepliedInput(
        text="I look.",
        reasoning="There may be a file.",
        reasoning_details=({"signature": "c2ln"},),
        calls=(ToolCall(name="read", arguments={"path": "a.py"}, provider_id="toolu_1"),),
        finish=Finish.LENGTH,
        usage=Usage(input_tokens=3, output_tokens=5, cost=0.25),
    )
    turn = begin()
    turn.feed(reply)
    assert read_back(turn.facts) == reply


def test_loop_key_of_a_tool_is_inferred_as_empty(begin: Begin) -> None:
    """Only its digest was written down; that there was one still stands."""
    call = ToolCall(name="fetch", arguments={"n": 1}, loop_key="any")
    turn = begin()
    turn.reply(call)
    read = read_back(turn.facts)
    assert isinstance(read, ModelRepliedInput)
    assert read.calls == (replace(call, loop_key=""),)


def test_call_starts_of_a_reply_are_inferred(begin: Begin) -> None:
    reply = ModelRepliedInput(calls=(ToolCall(name="a", arguments={}), ToolCall(name="b", arguments={})), starts=True)
    turn = begin()
    turn.feed(reply)
    assert read_back(turn.facts) == reply
    missing = replay(enumerate(turn.facts[:-1], start=1))
    assert (
        missing.check.detail
        == f"fact {len(turn.facts)} of the journal: it is missing: call_started follows from the facts before it"
    )


def test_result_is_inferred_completely(begin: Begin) -> None:
    turn = begin()
    turn.reply("a")
    turn.feed(CallStartedInput(call="call00001"))
    settled = CallSettledInput(call="call00001", result="It is empty.")
    turn.feed(settled)
    assert read_back(turn.facts) == settled


def test_child_question_is_inferred_with_arguments(begin: Begin) -> None:
    turn = begin()
    turn.reply(ToolCall(name="agent", arguments={}, delegates=True))
    turn.feed(CallStartedInput(call="call00001"))
    more = CallQuestion(interrupt_kind=InterruptKind.QUESTION, forwarded="question-1", tool="ask", approvals=2)
    event = CallWaitingInput(
        call="call00001",
        interrupt_kind=InterruptKind.APPROVAL,
        forwarded="approval-1",
        tool="erase",
        path="call00002",
        arguments={"path": "/srv"},
        more=(more,),
    )
    turn.feed(event)
    assert read_back(turn.facts) == event


@pytest.mark.parametrize("play", TURNS, ids=lambda play: play.__name__)
def test_sole_input_of_calls_and_replies_is_inferred_without_checks(
    begin: Begin, play: Callable[[Begin], Script]
) -> None:
    """In a journal of every kind of turn."""
    journal = play(begin).facts
    for at, head in enumerate(journal):
        ran = isinstance(head, CallSettled) and head.status in (CallStatus.OK, CallStatus.ERROR, CallStatus.REFUSED)
        only = only_input(journal, at)
        assert (only is not None) is (ran or isinstance(head, CallStarted | ModelReplied))
        if only is not None and "\ud83d" not in repr(head):
            assert only == next(infer_inputs(journal, at, fold(journal[:at])))


@pytest.mark.slow
@given(ANY)
def test_sole_input_of_a_group_equals_the_first_checked_inference(setting: Setting) -> None:
    """Built without checks, it has the same fields, and no other input is possible."""
    facts = play(setting).journal
    turn, count = fold(facts[:1]), 0
    for at in range(1, len(facts)):
        only = only_input(facts, at)
        if only is not None:
            assert [only] == list(infer_inputs(facts, at, turn))
            count += 1
        turn.apply(facts[at])
    assert count or not any(isinstance(fact, ModelReplied) for fact in facts)
