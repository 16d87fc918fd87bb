"""The full text of each refusal, after which nothing has changed (docs/rules.md#errors)."""

import copy
import pickle
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from turnwright_states import (
    AbortInput,
    AnsweredInput,
    AnswerMismatchError,
    AttemptFailedInput,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    CallWaitingInput,
    Cause,
    ConcludedInput,
    Decision,
    EndReason,
    ExpireInput,
    FailInput,
    IllegalInputError,
    Input,
    InterruptKind,
    InvalidCallError,
    InvalidInputError,
    InvalidJournalError,
    MachineError,
    ModelRepliedInput,
    Spent,
    StartedInput,
    State,
    SteeredInput,
    SynthesizedInput,
    ToolCall,
    TurnMachine,
)
from turnwright_states.fact_parser import parse_fact
from turnwright_states.inputs import StopInput

from .conftest import Begin, Script

ILLEGAL = [
    (ConcludedInput(text="x"), "concluded is not accepted in state STREAM: nothing was changed"),
    (CallStartedInput(call="call00001"), "CallStarted is not accepted in state STREAM: nothing was changed"),
    (SynthesizedInput(), "Synthesized is not accepted in state STREAM: nothing was changed"),
    (
        AnsweredInput(interrupt="x", decision=Decision.REJECT),
        "Answered is not accepted in state STREAM: nothing was changed",
    ),
    (Input(), "Input is not accepted in state STREAM: nothing was changed"),
]


@pytest.mark.parametrize(("event", "says"), ILLEGAL, ids=lambda value: type(value).__name__)
def test_event_without_an_accepting_row_is_refused(begin: Begin, event: Input, says: str) -> None:
    turn = begin()
    with pytest.raises(IllegalInputError) as caught:
        turn.feed(event)
    assert str(caught.value) == says
    assert (caught.value.event, caught.value.state) == (says.split(maxsplit=1)[0], State.STREAM)


def test_event_during_the_offer_of_a_batch_to_synthesis_is_refused(begin: Begin) -> None:
    """A message would precede the results of its batch, which has nothing left to run."""
    turn = begin(StartedInput(prompt="x", synthesis=True))
    turn.step("a")
    with pytest.raises(IllegalInputError) as caught:
        turn.feed(SteeredInput(text="x"))
    assert str(caught.value) == "Steered is not accepted in state TOOL_EXEC: nothing was changed"
    assert (caught.value.event, caught.value.state) == ("Steered", State.TOOL_EXEC)


def test_premature_or_missing_synthesis_is_refused(begin: Begin) -> None:
    early, none = begin(StartedInput(prompt="x", synthesis=True)), begin()
    for turn in (early, none):
        turn.reply("a")
        for event in (SynthesizedInput(), AttemptFailedInput(cause=Cause.CRASH)):
            with pytest.raises(IllegalInputError) as caught:
                turn.feed(event)
            assert (caught.value.event, caught.value.state) == (event.title(), State.TOOL_EXEC)
            assert str(caught.value) == f"{event.title()} is not accepted in state TOOL_EXEC: nothing was changed"


def child_with_a_lease(turn: Script) -> None:
    turn.reply(ToolCall(name="agent", arguments={}, delegates=True), "b")
    turn.feed(CallStartedInput(call="call00001"))


def child_not_begun(turn: Script) -> None:
    turn.reply(ToolCall(name="agent", arguments={}, delegates=True))


def child_that_asks(turn: Script) -> None:
    """It waits for a person, so the turn rests; an abort may still come."""
    child_not_begun(turn)
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.QUESTION, forwarded="question-1"))


def concluding(turn: Script) -> None:
    """Its batch is closed, and still known."""
    child_with_a_lease(turn)
    turn.feed(ExpireInput())


def two_calls(turn: Script) -> None:
    turn.reply("a", "b")
    turn.settle_one("call00001")


BAD_CALLS: list[tuple[Callable[[Script], None], Input, str]] = [
    (
        two_calls,
        CallStartedInput(call="call00009"),
        "CallStarted for call 'call00009': there is no such call in the open batch; nothing was changed",
    ),
    (
        two_calls,
        CallWaitingInput(call="call00009", interrupt_kind=InterruptKind.APPROVAL),
        "CallWaiting for call 'call00009': there is no such call in the open batch; nothing was changed",
    ),
    (
        two_calls,
        CallSettledInput(call="call00001"),
        "CallSettled for call 'call00001': it is settled; nothing was changed",
    ),
    (
        two_calls,
        CallSettledInput(call="call00002"),
        "CallSettled for call 'call00002': it succeeded but was never started; nothing was changed",
    ),
    (
        two_calls,
        CallWaitingInput(call="call00002", interrupt_kind=InterruptKind.DOOM_LOOP),
        "CallWaiting for call 'call00002': only the machine asks about a doom loop; nothing was changed",
    ),
    (
        two_calls,
        CallWaitingInput(call="call00002", interrupt_kind=InterruptKind.QUESTION, forwarded="question-1"),
        "CallWaiting for call 'call00002': a sub-agent asks, and the call has no lease; nothing was changed",
    ),
    (
        child_with_a_lease,
        CallSettledInput(call="call00001", spent=Spent(calls=9)),
        (
            "CallSettled for call 'call00001': its sub-agent used 9 calls, "
            "and its lease is calls=8 tokens=None cost=None; nothing was changed"
        ),
    ),
    (
        child_with_a_lease,
        CallSettledInput(call="call00002", status=CallStatus.ERROR, spent=Spent()),
        "CallSettled for call 'call00002': its sub-agent used 0 calls, and its lease is None; nothing was changed",
    ),
    (
        child_not_begun,
        CallSettledInput(call="call00001", status=CallStatus.ERROR, spent=Spent(calls=1)),
        (
            "CallSettled for call 'call00001': its sub-agent used something, but the call never started;"
            " nothing was changed"
        ),
    ),
]


@pytest.mark.parametrize(("before", "event", "says"), BAD_CALLS)
def test_event_for_an_unsuitable_call_is_refused(
    begin: Begin, before: Callable[[Script], None], event: Input, says: str
) -> None:
    turn = begin(tool_calls=10)
    before(turn)
    digest = turn.machine.turn.digest()
    with pytest.raises(InvalidCallError) as caught:
        turn.feed(event)
    assert str(caught.value) == says
    assert (caught.value.event, caught.value.call) == (says.split(maxsplit=1)[0], says.split("'")[1])
    assert turn.machine.turn.digest() == digest


ABORTS: list[StopInput] = [AbortInput(), AbortInput(reason=EndReason.SUPERSEDED)]
FAILS: list[StopInput] = [*ABORTS, FailInput(error="x")]
STOPS: list[StopInput] = [*FAILS, ExpireInput()]
#: Where the turn stands, what may stop it there, which call is said to have spent what, and how that is refused.
FALSE_ACCOUNTS: list[tuple[Callable[[Script], None], list[StopInput], str, Spent, str]] = [
    (
        child_with_a_lease,
        STOPS,
        "call00001",
        Spent(calls=9),
        "its sub-agent used 9 calls, and its lease is calls=8 tokens=None cost=None",
    ),
    (child_with_a_lease, STOPS, "call00002", Spent(), "its sub-agent used 0 calls, and its lease is None"),
    (child_with_a_lease, STOPS, "call00009", Spent(), "there is no such call in the open batch"),
    (child_not_begun, STOPS, "call00001", Spent(), "its sub-agent used something, but the call never started"),
    (
        child_that_asks,
        ABORTS,
        "call00001",
        Spent(calls=10),
        "its sub-agent used 10 calls, and its lease is calls=9 tokens=None cost=None",
    ),
    (two_calls, STOPS, "call00001", Spent(), "it is settled"),
    (concluding, FAILS, "call00001", Spent(), "it is settled"),
    (lambda _: None, STOPS, "call00001", Spent(), "there is no such call in the open batch"),
]


@pytest.mark.parametrize(
    ("before", "event", "why"),
    [
        (before, replace(stop, spent={call: spent}), f"for call {call!r}: {why}; nothing was changed")
        for before, stops, call, spent, why in FALSE_ACCOUNTS
        for stop in stops
    ],
)
def test_stop_with_impossible_sub_agent_usage_is_refused(
    begin: Begin, before: Callable[[Script], None], event: StopInput, why: str
) -> None:
    """It is refused before the first fact, and the turn continues as if it had not come."""
    turn = begin(tool_calls=10)
    before(turn)
    digest, facts_before = turn.machine.turn.digest(), list(turn.facts)
    with pytest.raises(InvalidCallError) as caught:
        turn.feed(event)
    assert str(caught.value) == f"{event.title()} {why}"
    assert (turn.machine.turn.digest(), turn.state, turn.facts) == (digest, turn.machine.turn.state, facts_before)
    assert turn.feed(AbortInput())[-1].kind == "turn_ended"


@pytest.mark.parametrize(
    ("interrupt", "decision", "says"),
    [
        (
            "approval-9",
            Decision.APPROVE,
            "interrupt 'approval-9': no such interrupt is open (open: approval-1, grant-1)",
        ),
        (
            "approval-1",
            Decision.REPLY,
            (
                "interrupt 'approval-1': its kind, approval, accepts approve or reject, not reply"
                " (open: approval-1, grant-1)"
            ),
        ),
    ],
)
def test_answer_to_no_open_interrupt_is_refused(begin: Begin, interrupt: str, decision: Decision, says: str) -> None:
    turn = begin()
    turn.reply("a", "b")
    turn.wait("call00001")
    turn.wait("call00002", InterruptKind.GRANT)
    with pytest.raises(AnswerMismatchError) as caught:
        turn.feed(AnsweredInput(interrupt=interrupt, decision=decision))
    assert str(caught.value) == says
    assert (caught.value.interrupt, caught.value.interrupts) == (interrupt, ("approval-1", "grant-1"))


def test_arguments_with_an_answer_other_than_approval_are_refused(begin: Begin) -> None:
    turn = begin()
    turn.reply("a", "b")
    turn.wait("call00001")
    turn.wait("call00002", InterruptKind.GRANT)
    for interrupt, decision in (("approval-1", Decision.REJECT), ("grant-1", Decision.APPROVE)):
        with pytest.raises(AnswerMismatchError) as caught:
            turn.feed(AnsweredInput(interrupt=interrupt, decision=decision, arguments={}))
        assert str(caught.value) == (
            f"interrupt {interrupt!r}: only the approval of a call may change its arguments (open: approval-1, grant-1)"
        )
        assert caught.value.interrupt == interrupt


def test_answer_for_a_call_outside_the_batch_is_refused(begin: Begin) -> None:
    """Only a damaged journal has one."""
    turn = begin()
    turn.reply("a")
    turn.wait("call00001")
    turn.machine.turn.batch.clear()
    with pytest.raises(InvalidCallError) as caught:
        turn.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    assert str(caught.value) == (
        "Answered for call 'call00001': its interrupt is open, but no such call is in the batch; nothing was changed"
    )
    assert (caught.value.event, caught.value.call) == ("Answered", "call00001")


def test_answer_error_without_open_interrupts_says_none_is_open() -> None:
    error = AnswerMismatchError("doom-1", "no such interrupt is open", ())
    assert str(error) == "interrupt 'doom-1': no such interrupt is open (none is open)"


def test_unfoldable_journal_is_refused(begin: Begin) -> None:
    """Each names the fact, counted from 1, and says what is wrong with it."""
    turn = begin()
    first = list(turn.facts)
    ended = [*first, *turn.feed(AbortInput())]
    reply, *_ = begin().feed(ModelRepliedInput(calls=(ToolCall(name="a", arguments={}),)))
    settled = parse_fact("call_settled", '{"v":1,"elapsed":0,"state":"TOOL_EXEC","call":"call00007"}')
    for facts, seq, why in (
        ([], 0, "the journal is empty"),
        (first[1:], 1, "step_started: a journal begins with its only turn_started"),
        ([*first, first[0]], 3, "turn_started: a journal begins with its only turn_started"),
        ([*ended, first[1]], 5, "step_started: the turn had already ended (aborted)"),
        ([*first, reply, settled], 4, "call_settled names 'call00007', which no earlier fact made"),
    ):
        with pytest.raises(InvalidJournalError) as caught:
            TurnMachine.resume(facts)
        assert (caught.value.seq, str(caught.value)) == (seq, f"fact {seq} of the journal: {why}")


@pytest.mark.parametrize(
    ("kind", "payload", "why"),
    [
        ("guess", "{}", "its kind 'guess' is unknown to this release"),
        ("paused", "nothing", "its payload is not a JSON object"),
        ("paused", "[1]", "its payload is not a JSON object"),
        ("paused", "[" * 100_000, "its payload is nested too deeply: more than 300 lists and objects"),
        ("paused", "{}", "its payload has version None, and this release reads 1"),
        ("paused", '{"v":true}', "its payload has version True, and this release reads 1"),
        ("paused", 7, "its payload 7 is not text"),
        (
            "paused",
            '{"v":1,"elapsed":NaN,"state":"PAUSED"}',
            "its payload holds a number that JSON does not have, or is nested too deeply",
        ),
        (
            "paused",
            '{"v":1,"elapsed":0,"state":"PAUSED","a\\nb":1}',
            "its payload does not fit paused: a\nb: Object contains unknown field `a\nb`",
        ),
        (
            "paused",
            '{"v":1,"elapsed":0,"state":"THERE"}',
            "its payload does not fit paused: state: Invalid enum value 'THERE'",
        ),
        (
            "call_waiting",
            '{"v":1,"elapsed":0,"state":"TOOL_EXEC","call":"c","interrupt":{"id":"x","kind":"approval","of":1}}',
            "its payload does not fit call_waiting: interrupt.of: Object contains unknown field `of`",
        ),
    ],
)
def test_unreadable_fact_is_refused(kind: str, payload: object, why: str) -> None:
    with pytest.raises(InvalidJournalError) as caught:
        parse_fact(kind, payload, 7)
    assert (caught.value.seq, str(caught.value)) == (7, f"fact 7 of the journal: {why}")
    with pytest.raises(InvalidJournalError, match=r"^fact 0 of the journal"):
        parse_fact(kind, payload)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])  # noqa: S301 (our own)
def test_error_survives_pickling(copied: Callable[[MachineError], MachineError]) -> None:
    """A pool of processes ends if it cannot read the error of a job."""
    for error in (
        InvalidInputError("Started", "prompt: no"),
        IllegalInputError("Started", State.CHECK, made=1),
        InvalidCallError("CallStarted", "call00001", "no"),
        AnswerMismatchError("approval-1", "no", ["approval-2"]),
        InvalidJournalError(3, "no", newer=True),
    ):
        twin = copied(error)
        assert (type(twin), str(twin), vars(twin)) == (type(error), str(error), vars(error))
