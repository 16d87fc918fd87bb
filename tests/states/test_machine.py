"""Starting, feeding, copying and resuming a turn (docs/rules.md#core)."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from turnwright_states import (
    AbortInput,
    AnsweredInput,
    AttemptFailedInput,
    CallModel,
    CallSettledInput,
    CallStartedInput,
    CallState,
    CallStatus,
    CallWaitingInput,
    Cause,
    Conclude,
    ConcludedInput,
    Decision,
    EndReason,
    ExpireInput,
    FailInput,
    Finish,
    IllegalInputError,
    Input,
    InterruptKind,
    InvalidJournalError,
    Limits,
    ModelRepliedInput,
    RunTools,
    StartedInput,
    State,
    SteeredInput,
    SynthesizedInput,
    ToolCall,
    Turn,
    TurnMachine,
    Usage,
    facts,
    fold,
)
from turnwright_states.chart import VERSION
from turnwright_states.construct import construct
from turnwright_states.fact_parser import parse_fact

if TYPE_CHECKING:
    from .conftest import Begin, Script

LOOK = ToolCall(name="look", arguments={})
USED = Usage(input_tokens=10)


def kinds(new: list[facts.Fact]) -> list[str]:
    return [fact.kind for fact in new]


def test_example_of_the_design_runs() -> None:
    machine, first = TurnMachine.start(StartedInput(prompt="Tidy utils.py", limits=Limits(steps=5)))
    assert kinds(first) == ["turn_started", "step_started"]
    assert machine.action == CallModel(tools=True)
    call = ToolCall(name="read_file", arguments={"path": "a.py"})
    new = machine.feed(ModelRepliedInput(calls=(call,), usage=USED))
    assert kinds(new) == ["model_replied"]
    assert isinstance(machine.action, RunTools)
    (ready,) = machine.action.calls
    assert (ready.name, ready.arguments) == ("read_file", {"path": "a.py"})


def test_turn_start_records_everything_needed_for_resumption() -> None:
    event = StartedInput(
        prompt="x",
        limits=Limits(steps=3, tool_calls=7),
        agent={"name": "Refactorer"},
        message_history=({"role": "user"},),
        synthesis=True,
        parent_turn="p",
        parent_call="call00001",
        depth=1,
        continue_from="c",
    )
    _, (started, *_rest) = TurnMachine.start(event)
    assert isinstance(started, facts.TurnStarted)
    assert started.chart == VERSION
    for name in set(StartedInput.__struct_fields__) - set(Input.__struct_fields__):
        assert getattr(started, name) == getattr(event, name)


def ask(**fields: object) -> CallWaitingInput:
    return construct(CallWaitingInput, {"call": "call00001", "interrupt_kind": InterruptKind.APPROVAL} | fields)


TWO = (ModelRepliedInput(calls=(LOOK, LOOK), usage=USED),)
ONE = (ModelRepliedInput(calls=(LOOK,), usage=USED),)
RUN = (CallStartedInput(call="call00001"), CallSettledInput(call="call00001"))
#: The inputs before, the input now, and the facts that follow.
TABLE: dict[str, tuple[dict[str, object], tuple[Input, ...], Input, list[str]]] = {
    "an answer": ({}, (), ModelRepliedInput(text="x", usage=USED), ["model_replied", "step_finished", "turn_ended"]),
    "calls": ({}, (), TWO[0], ["model_replied"]),
    "a call that cannot run": (
        {"tool_calls": 100},
        (),
        ModelRepliedInput(calls=(LOOK, ToolCall(name="?", problem="unknown")), usage=USED),
        ["model_replied", "call_settled"],
    ),
    "a retry": ({}, (), AttemptFailedInput(cause=Cause.TIMEOUT), ["attempt_failed"]),
    "a failure": (
        {},
        (),
        AttemptFailedInput(cause=Cause.REJECTED),
        ["attempt_failed", "step_finished", "turn_ended"],
    ),
    "a call starts": ({}, TWO, CallStartedInput(call="call00002"), ["call_started"]),
    "a call settles": ({}, TWO, CallSettledInput(call="call00002", status=CallStatus.ERROR), ["call_settled"]),
    "the last call settles": (
        {},
        (*ONE, RUN[0]),
        RUN[1],
        ["call_settled", "step_finished", "step_started"],
    ),
    "the last call of the last step settles": (
        {"steps": 1},
        (*ONE, RUN[0]),
        RUN[1],
        ["call_settled", "step_finished", "stopping"],
    ),
    "a call waits": ({}, TWO, ask(), ["call_waiting"]),
    "the last call waits": ({}, ONE, ask(), ["call_waiting", "paused"]),
    "a partial answer": (
        {},
        (*TWO, ask(), ask(call="call00002")),
        AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE),
        ["answered"],
    ),
    "a denial": (
        {},
        (*ONE, ask()),
        AnsweredInput(interrupt="approval-1", decision=Decision.REJECT),
        ["answered", "call_settled", "step_finished", "step_started"],
    ),
    "a synthesis": (
        {"synthesis": True},
        (*ONE, *RUN),
        SynthesizedInput(text="x"),
        ["synthesized", "step_finished", "turn_ended"],
    ),
    "a synthesis of nothing": (
        {"synthesis": True},
        (*ONE, *RUN),
        SynthesizedInput(),
        ["synthesized", "step_finished", "step_started"],
    ),
    "a synthesis that will not come": (
        {"synthesis": True, "max_retries": 0},
        (*ONE, *RUN),
        AttemptFailedInput(cause=Cause.CRASH),
        ["attempt_failed", "synthesized", "step_finished", "step_started"],
    ),
    "a message": ({}, ONE, SteeredInput(text="x"), ["message_added"]),
    "a doom loop": (
        {"doom_threshold": 2, "doom_response": "ask"},
        (*ONE, *RUN, *ONE, CallStartedInput(call="call00002")),
        CallSettledInput(call="call00002"),
        ["call_settled", "step_finished", "paused"],
    ),
    "a doom loop continues": (
        {"doom_threshold": 2, "doom_response": "ask"},
        (*ONE, *RUN, *ONE, CallStartedInput(call="call00002"), CallSettledInput(call="call00002")),
        AnsweredInput(interrupt="doom-1", decision=Decision.GO_ON),
        ["answered", "step_started"],
    ),
    "a doom loop stops": (
        {"doom_threshold": 2, "doom_response": "ask"},
        (*ONE, *RUN, *ONE, CallStartedInput(call="call00002"), CallSettledInput(call="call00002")),
        AnsweredInput(interrupt="doom-1", decision=Decision.STOP),
        ["answered", "stopping"],
    ),
    "a conclusion": ({"steps": 1}, (*ONE, *RUN), ConcludedInput(text="x"), ["concluded", "turn_ended"]),
    "an expiry": ({"seconds": 9}, (), ExpireInput(), ["step_finished", "stopping"]),
    "an abort": (
        {},
        (*TWO, RUN[0]),
        AbortInput(),
        ["call_settled", "call_settled", "step_finished", "turn_ended"],
    ),
    "an abort of a pause": ({}, (*ONE, ask()), AbortInput(), ["call_settled", "step_finished", "turn_ended"]),
    "a bug": ({}, (), FailInput(error="x"), ["step_finished", "turn_ended"]),
    "a bug while concluding": ({"steps": 1}, (*ONE, *RUN), FailInput(error="x"), ["turn_ended"]),
}


@pytest.mark.parametrize("name", TABLE)
def test_facts_of_an_event_equal_the_design(name: str) -> None:
    limits, before, event, expected = TABLE[name]
    limits = {"doom_threshold": None} | limits
    synthesis = bool(limits.pop("synthesis", False))
    machine, _ = TurnMachine.start(StartedInput(prompt="x", limits=Limits.model_validate(limits), synthesis=synthesis))
    for earlier in before:
        machine.feed(earlier)
    assert [kind for kind in kinds(machine.feed(event)) if kind != "notice"] == expected


def test_time_never_runs_backwards(begin: "Begin") -> None:
    """`elapsed` is monotonic: an event that comes with less has the time of the one before."""
    turn = begin()
    turn.clock = 5.0
    turn.reply("look")
    turn.clock = 3.0
    turn.settle()
    assert [fact.elapsed for fact in turn.of(facts.CallSettled)] == [5.0]
    assert turn.of(facts.StepFinished)[0].seconds == 5.0


def test_turn_starts_at_the_written_microsecond() -> None:
    _, first = TurnMachine.start(StartedInput(prompt="x", elapsed=1.23456789))
    assert {fact.elapsed for fact in first} == {1.234568}


def test_step_records_usage_and_duration(begin: "Begin") -> None:
    """Failed attempts of its reply included."""
    turn = begin()
    turn.clock = 1.5
    turn.feed(AttemptFailedInput(cause=Cause.INTERRUPTED, usage=Usage(input_tokens=5, cost=0.5)))
    turn.reply("look", usage=Usage(input_tokens=5, output_tokens=2, cost=0.25))
    turn.clock = 4.0
    turn.settle()
    turn.clock = 5.0
    turn.reply("list", usage=Usage(input_tokens=1))
    turn.settle()
    first, second = turn.of(facts.StepFinished)
    assert (first.number, first.seconds) == (1, 4.0)
    assert first.usage == Usage(input_tokens=10, output_tokens=2, cost=0.75)
    assert (second.number, second.seconds, second.usage) == (2, 1.0, Usage(input_tokens=1))


def test_parts_of_the_tokens_add_up(begin: "Begin") -> None:
    turn, usage = begin(), Usage(input_tokens=30, output_tokens=20, cost=0.5, cached_tokens=10, reasoning_tokens=5)
    turn.step("a", usage=usage)
    turn.step("b", usage=usage)
    assert turn.machine.turn.usage == usage + usage


def test_input_of_a_subclass_is_fed_as_the_parent_kind(begin: "Begin") -> None:
    class Marked(SteeredInput, frozen=True):
        """A message of an app's own kind."""

    assert [fact.kind for fact in begin().feed(Marked(text="And src/?"))] == ["message_added"]


def test_feeding_a_copy_does_not_change_the_turn(begin: "Begin") -> None:
    turn = begin()
    turn.reply("look", "write")
    turn.wait("call00002")
    before, twin = turn.machine.turn.digest(), turn.machine.copy()
    twin.feed(CallStartedInput(call="call00001"))
    twin.feed(CallSettledInput(call="call00001"))
    twin.feed(AnsweredInput(interrupt="approval-1", decision=Decision.APPROVE))
    assert turn.machine.turn.digest() == before
    assert turn.ready == ["call00001"]


# Resuming.


def finished(begin: "Begin") -> "Script":
    turn = begin(steps=2)
    turn.step("look")
    turn.reply(text="42")
    return turn


def test_turn_resumes_from_the_facts(begin: "Begin") -> None:
    turn = begin(steps=2)
    turn.reply("look", "write")
    turn.wait("call00002")
    resumed = TurnMachine.resume(turn.facts)
    assert resumed.turn.digest() == turn.machine.turn.digest()
    for machine in (resumed, turn.machine):
        machine.feed(CallStartedInput(call="call00001"))
        machine.feed(CallSettledInput(call="call00001"))
    assert resumed.action == turn.machine.action
    assert resumed.turn.batch["call00002"].state is CallState.WAITING


def test_machine_applies_facts_journaled_by_another_driver(begin: "Begin") -> None:
    turn = begin(steps=2)
    turn.reply("look")
    behind = TurnMachine.resume(turn.facts[:1])
    for fact in turn.facts[1:]:
        behind.apply(fact)
    assert (behind.state, behind.turn.digest()) == (State.TOOL_EXEC, turn.machine.turn.digest())
    behind.feed(CallStartedInput(call="call00001"))


def test_ended_turn_resumes_to_the_end(begin: "Begin") -> None:
    turn = finished(begin)
    assert TurnMachine.resume(turn.facts).action == turn.action


def test_resuming_evaluates_no_guard(begin: "Begin") -> None:
    """Decisions are facts: another budget in a later release, or in the engine, cannot change the past."""
    turn = begin(steps=5)
    for name in ("look", "list", "find"):
        turn.step(name)
    started = turn.of(facts.TurnStarted)[0]
    tighter = replace(started, limits=Limits(steps=1, tool_calls=1))
    assert TurnMachine.resume([tighter, *turn.facts[1:]]).state is State.STREAM


def test_journal_without_turn_started_at_the_beginning_is_refused(begin: "Begin") -> None:
    turn = finished(begin)
    with pytest.raises(InvalidJournalError, match="fact 1 of the journal: step_started") as caught:
        TurnMachine.resume(turn.facts[1:])
    assert caught.value.seq == 1


def test_empty_journal_is_refused() -> None:
    with pytest.raises(InvalidJournalError):
        TurnMachine.resume([])


def test_journal_with_two_beginnings_is_refused(begin: "Begin") -> None:
    turn = begin()
    with pytest.raises(InvalidJournalError, match="fact 3 of the journal: turn_started"):
        TurnMachine.resume([*turn.facts, turn.facts[0]])


def test_journal_continuing_after_the_end_is_refused(begin: "Begin") -> None:
    turn = finished(begin)
    last = len(turn.facts)
    with pytest.raises(InvalidJournalError, match=rf"fact {last + 1} of the journal: .*already ended \(finished\)"):
        TurnMachine.resume([*turn.facts, turn.facts[-1]])


@pytest.mark.parametrize(
    "stray",
    [
        facts.CallStarted(elapsed=0, state=State.TOOL_EXEC, call="call00009"),
        facts.CallSettled(elapsed=0, state=State.TOOL_EXEC, call="call00009"),
        facts.Answered(elapsed=0, state=State.TOOL_EXEC, interrupt="approval-9", decision=Decision.REJECT),
    ],
    ids=lambda fact: fact.kind,
)
def test_fact_naming_an_unknown_object_is_refused(begin: "Begin", stray: facts.Fact) -> None:
    turn = begin()
    turn.reply("look")
    with pytest.raises(InvalidJournalError, match=f"fact {len(turn.facts) + 1} of the journal: {stray.kind} names"):
        TurnMachine.resume([*turn.facts, stray])


def mishandled(journal: list[facts.Fact]) -> Iterator[list[facts.Fact]]:
    """The journal with one fact lost, repeated at any later place, or moved there."""
    for place in range(1, len(journal)):
        rest = [*journal[:place], *journal[place + 1 :]]
        yield rest
        for later in range(place + 1, len(journal) + 1):
            yield [*journal[:later], journal[place], *journal[later:]]
            yield [*rest[:later], journal[place], *rest[later:]]


def test_mishandled_journal_continues_only_from_an_earlier_state(begin: "Begin") -> None:
    turn = begin(steps=4)
    turn.step("look")
    turn.feed(ModelRepliedInput(calls=(LOOK, LOOK, LOOK), usage=Usage(), starts=True))
    ends = []
    for call in ("call00002", "call00003", "call00004"):
        turn.feed(CallSettledInput(call=call))
        ends.append(len(turn.facts))
    turn.reply("look", "write")
    turn.wait("call00006")
    turn.settle_one("call00005", CallStatus.ERROR)
    had = {fold(turn.facts[:length]).digest() for length in range(1, len(turn.facts) + 1)}
    for end in (*ends, len(turn.facts)):
        continued = set[str]()
        for journal in mishandled(turn.facts[:end]):
            with suppress(InvalidJournalError):
                continued.add(TurnMachine.resume(journal, verify=True).turn.digest())
        assert continued <= had


def test_added_result_without_a_hash_is_refused(begin: "Begin") -> None:
    turn = begin()
    turn.reply("look")
    forged_result = facts.CallSettled(elapsed=0, state=State.TOOL_EXEC, call="call00001")
    assert TurnMachine.resume([*turn.facts, forged_result]).state is State.TOOL_EXEC
    with pytest.raises(InvalidJournalError, match="fact 4 of the journal: call_settled: the turn is not in the state"):
        TurnMachine.resume([*turn.facts, forged_result], verify=True)


def forged(journal: Sequence[facts.Fact], place: int, **changes: object) -> list[facts.Fact]:
    """The journal in which the fact at an index has other values."""
    return [*journal[:place], replace(journal[place], **changes), *journal[place + 1 :]]


def test_fact_that_no_machine_writes_is_refused(begin: "Begin") -> None:
    """Also where neither its own hash nor a later one depends on what was changed."""
    turn = begin()
    turn.clock = 1.0
    turn.feed(ModelRepliedInput(calls=(LOOK, LOOK), usage=Usage(), starts=True))
    turn.feed(CallSettledInput(call="call00001"))
    turn.wait("call00002")
    _, _, reply, _, _, result, waiting, paused = journal = turn.facts
    assert isinstance(reply, facts.ModelReplied)
    assert isinstance(waiting, facts.CallWaiting)
    calls = reply.calls[0], replace(reply.calls[1], arguments={"path": "/etc/passwd"})
    another_call = replace(waiting.interrupt, call="call00001")
    for forgery, place in (
        (forged(journal, 0, hash="00000000"), 1),
        (forged(journal, 0, elapsed=-1.0), 1),
        (forged(journal, 1, state=State.PAUSED)[:2], 2),
        (forged(journal, 1, number=2)[:2], 2),
        (forged(journal, 2, calls=calls), 3),
        (forged(journal, 3, attempt=2)[:4], 4),
        (forged(journal, 3, arguments={"path": "/etc/passwd"})[:4], 4),
        ([*journal[:6], result, waiting, paused], 7),
        (forged(journal, 6, interrupt=another_call), 7),
        (forged(journal, 7, elapsed=0.5), 8),
        ([replace(fact, hash="") for fact in journal], 1),
    ):
        TurnMachine.resume(forgery)
        with pytest.raises(InvalidJournalError, match=f"fact {place} of the journal: .*: the turn is not in the state"):
            TurnMachine.resume(forgery, verify=True)


def test_journal_that_ends_within_the_facts_of_an_input_is_refused(begin: "Begin") -> None:
    """A call whose start was lost would run again."""
    turn = begin()
    turn.feed(ModelRepliedInput(calls=(LOOK, LOOK), usage=Usage(), starts=True))
    assert len(TurnMachine.resume(turn.facts, verify=True).turn.runnable()) == 2
    turn.feed(CallSettledInput(call="call00001"))
    turn.feed(CallSettledInput(call="call00002"))
    for place in (4, len(turn.facts) - 1):
        TurnMachine.resume(turn.facts[:place])
        with pytest.raises(InvalidJournalError, match=f"fact {place} of the journal: .*: the journal ends within"):
            TurnMachine.resume(turn.facts[:place], verify=True)


def test_values_that_hooks_and_people_gave_calls_are_not_forged(begin: "Begin") -> None:
    """The calls continue with these values, also after a crash."""
    turn = begin()
    turn.reply("look", "mail", "ask")
    turn.feed(CallStartedInput(call="call00001", arguments={"path": "b"}))
    approval, question = InterruptKind.APPROVAL, InterruptKind.QUESTION
    turn.feed(CallWaitingInput(call="call00002", interrupt_kind=approval, changed={"to": "ann"}))
    turn.feed(CallWaitingInput(call="call00003", interrupt_kind=question))
    turn.feed(CallSettledInput(call="call00001"))
    turn.feed(AnsweredInput(interrupt="question-1", decision=Decision.REPLY, text="5 dollars"))
    for place, change in (
        (3, {"arguments": {"path": "/etc/passwd"}}),
        (4, {"changed": {"to": "eve"}}),
        (8, {"text": "5,000 dollars"}),
    ):
        forgery = forged(turn.facts, place, **change)
        with pytest.raises(InvalidJournalError, match=f"fact {place + 1} of the journal"):
            TurnMachine.resume(forgery, verify=True)


def test_hashes_of_another_chart_are_not_compared(begin: "Begin") -> None:
    turn = begin()
    turn.reply("look")
    first, *rest = turn.facts
    journal = [replace(first, chart="another"), *[replace(fact, hash="ffffffff") for fact in rest]]
    assert TurnMachine.resume(journal, verify=True).state is State.TOOL_EXEC
    with pytest.raises(InvalidJournalError, match="the turn is not in the state of its hash"):
        TurnMachine.resume([first, *journal[1:]], verify=True)


def test_turn_in_the_middle_of_a_transaction_cannot_be_fed(begin: "Begin") -> None:
    """The facts of one feed belong together: CHECK is passed through, and nothing is to be done there."""
    turn = finished(begin)
    middle = next(place for place, fact in enumerate(turn.facts) if fact.state is State.CHECK and place)
    resumed = TurnMachine.resume(turn.facts[: middle + 1])
    with pytest.raises(IllegalInputError):
        _ = resumed.action


def test_fold_equals_the_state_of_the_machine(begin: "Begin") -> None:
    turn = begin(tokens=100)
    turn.step("look", usage=Usage(input_tokens=10, output_tokens=5, cost=0.5))
    folded = fold(turn.facts)
    assert (folded.state, folded.counters.steps, folded.counters.calls) == (State.STREAM, 2, 1)
    assert folded.usage == Usage(input_tokens=10, output_tokens=5, cost=0.5)
    assert folded.digest() == turn.machine.turn.digest()


def test_turn_without_facts_has_only_defaults() -> None:
    turn = Turn()
    assert (turn.synthesis, turn.nudge, turn.step_open) == (False, False, False)
    assert (turn.depth, turn.elapsed, turn.step_started_at) == (0, 0.0, 0.0)
    assert turn.rounds.tools == ()


def test_non_fact_cannot_be_folded() -> None:
    with pytest.raises(TypeError, match=r"^Fact is not a fact of a turn$"):
        fold([facts.Fact(elapsed=0, state=State.CHECK)])


def test_fact_of_a_subclass_is_folded_as_the_parent_kind() -> None:
    class Marked(facts.Notice, frozen=True, kw_only=True):
        """A notice of an app's own kind."""

    assert fold([Marked(elapsed=0, state=State.CHECK, limit="steps")]).noticed == ("steps",)


def test_conclusion_survives_a_crash(begin: "Begin") -> None:
    turn = begin(steps=1, tool_calls=1)
    turn.step("look")
    resumed = TurnMachine.resume(turn.facts)
    assert resumed.action == Conclude(EndReason.STEP_CAP, 30.0, 1024)
    resumed.feed(ConcludedInput(text="x"))
    turn.feed(ConcludedInput(text="x"))
    assert resumed.action == turn.action


def test_truncated_answer_keeps_the_text(begin: "Begin") -> None:
    turn = begin()
    turn.reply(text="Once upon", finish=Finish.LENGTH)
    assert turn.of(facts.ModelReplied)[0].text == "Once upon"


def test_half_a_surrogate_pair_keeps_journal_and_turn_equal(begin: "Begin") -> None:
    """No UTF-8 can hold it. In a name or a grant, on which the turn's state depends, it is replaced as it comes in."""
    turn = begin(doom_threshold=2, doom_response="ask")
    turn.reply(ToolCall(name="a\ud800", arguments={}), ToolCall(name="b", arguments={"q": "\udfff"}))
    turn.feed(CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.GRANT, grant="/\ud800"))
    turn.settle_one("call00002")
    turn.feed(AnsweredInput(interrupt="grant-1", decision=Decision.APPROVE))
    facts = [parse_fact(fact.kind, fact.payload(), seq) for seq, fact in enumerate(turn.facts, start=1)]
    for length, fact in enumerate(facts, start=1):
        assert fact.hash in ("", fold(facts[:length]).digest())
    assert turn.machine.turn.grants == ("/?",)
    assert turn.machine.turn.batch["call00001"].name == "a?"
