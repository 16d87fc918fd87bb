"""Replay holds for every journal of the machine, and names the first forged fact (docs/rules.md#journal)."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel, JsonValue

from turnwright_states import (
    AbortInput,
    AttemptFailedInput,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    CallWaitingInput,
    Cause,
    Decision,
    EndReason,
    ExpireInput,
    FailInput,
    Finish,
    Input,
    InterruptKind,
    InvalidJournalError,
    Limits,
    ModelRepliedInput,
    Outcome,
    Spent,
    StartedInput,
    State,
    ToolCall,
    TrippedInput,
    Turn,
    TurnMachine,
    Usage,
)
from turnwright_states import facts as f
from turnwright_states.chart import CHART, ROWS, VERSION, Chart
from turnwright_states.event_inference import infer_inputs
from turnwright_states.fact import PAYLOAD_VERSION
from turnwright_states.fact_parser import parse_fact
from turnwright_states.facts import Fact
from turnwright_states.inputs import StopInput
from turnwright_states.replay import CLAIM, Replayed, replay
from turnwright_states.turn import fold
from turnwright_states.verdict import Check, Verdict

from .conftest import Begin
from .test_properties import ANY, SHORT, Played, Setting, play

Journal = list[Fact]

#: How much of a value a fault quotes.
QUOTED: Final = 120

#: Whole journals of all kinds, a fact a line.
JOURNALS: Final[dict[str, Journal]] = {
    path.stem: [
        parse_fact(kind, payload) for kind, payload in re.findall("(.+?) (.+)", path.read_text(encoding="utf-8"))
    ]
    for path in sorted((Path(__file__).parent / "golden").glob("*.txt"))
}


def checked(journal: Iterable[Fact]) -> Replayed:
    return replay(enumerate(journal, start=1))


def fault(journal: Iterable[Fact]) -> int | None:
    """The number of the first fact that does not follow; None if all do."""
    replayed = checked(journal)
    assert (replayed.check.verdict is Verdict.VIOLATED) == (replayed.fault is not None)
    return None if replayed.fault is None else replayed.fault.seq


def why(journal: Iterable[Fact]) -> str:
    replayed = checked(journal)
    assert replayed.check.verdict is Verdict.VIOLATED
    return replayed.check.detail


# What the machine wrote holds.


def stored(transactions: Sequence[Sequence[Fact]]) -> Journal:
    """The facts as they come back from a store."""
    return [parse_fact(fact.kind, fact.payload()) for facts in transactions for fact in facts]


@given(ANY)
def test_every_turn_replays_with_the_transactions_as_groups(setting: Setting) -> None:
    played = play(setting)
    replayed = checked(stored(played.transactions))
    assert replayed.check.verdict is Verdict.HOLDS, replayed.check.detail
    assert replayed.machine is not None
    assert replayed.machine.turn.digest() == played.machine.turn.digest()
    assert [group.last - group.first + 1 for group in replayed.groups] == list(map(len, played.transactions))
    assert replayed.facts == len(played.journal)


@given(SHORT)
def test_events_are_inferred_from_the_facts(setting: Setting) -> None:
    """But two are inferred as a settled call.

    A call without a pause left, because no fact has its question; and a deadline at the last open call of a turn that
    a direct result finishes, because no fact has the deadline.
    """
    played = play(setting)
    last = played.journal[-1]
    is_finished = isinstance(last, f.TurnEnded) and last.outcome is Outcome.FINISHED
    for group, fed in zip(checked(played.journal).groups[1:], played.events, strict=True):
        as_settled = isinstance(group.event, CallSettledInput) and (
            isinstance(fed, CallWaitingInput)
            or (isinstance(fed, ExpireInput) and is_finished and group.event.status is CallStatus.ABORTED)
        )
        assert type(group.event) is type(fed) or as_settled


@given(SHORT)
def test_inferred_events_give_the_same_journal(setting: Setting) -> None:
    """They are not mere explanation: fed to a new machine, they give the facts again."""
    played = play(setting)
    groups = checked(played.journal).groups
    machine, again = TurnMachine.start(setting.started)
    for group in groups[1:]:
        again += machine.feed(group.event)
    assert again == played.journal


@given(SHORT, st.integers(0, 10_000))
def test_journal_ending_after_an_event_holds(setting: Setting, at: int) -> None:
    played = play(setting)
    ends = [group.last for group in checked(played.journal).groups]
    end = ends[at % (len(ends) - 1)]
    replayed = checked(played.journal[:end])
    assert replayed.check.verdict is Verdict.HOLDS
    assert replayed.machine is not None
    assert f"has not ended, and its state is {replayed.machine.state}" in replayed.check.detail


#: A guardrail trips beside an attempt that used tokens, while a call is open.
TRIPPED: Final = Setting(
    StartedInput(prompt="x", limits=Limits(steps=1, max_retries=0)), [0, 1, 0, 0, 0], stopped_at=None, hooked=True
)


@example(TRIPPED, 3)
@given(SHORT, st.integers(0, 10_000))
def test_journal_ending_inside_an_event_lacks_the_next_fact(setting: Setting, at: int) -> None:
    """The facts of one input are appended in one transaction, so a crash cannot leave a part of them.

    Where a stop has closed some of the open calls, and not yet all, each might also have been closed by itself.
    """
    played = play(setting)
    ends = {group.last for group in checked(played.journal).groups}
    inside = [seq for seq in range(1, len(played.journal)) if seq not in ends]
    if inside:
        end = inside[at % len(inside)]
        last, fault_seq = played.journal[end - 1], fault(played.journal[:end])
        closed = isinstance(last, f.CallSettled) and last.status is CallStatus.ABORTED
        assert fault_seq == end + 1 or (closed and fault_seq is None)


def test_journals_of_all_kinds_hold() -> None:
    for name, journal in JOURNALS.items():
        replayed = checked(journal)
        assert replayed.check.verdict is Verdict.HOLDS, f"{name}: {replayed.check.detail}"
        assert replayed.check.claim == CLAIM, name
        assert "; the turn ended: " in replayed.check.detail, name
        assert replayed.fault is None, name


def test_replay_takes_step_start_times_from_facts_and_computes_the_rest(begin: Begin) -> None:
    turn = begin()
    turn.step("a")
    turn.step("b")
    turn.reply(text="Done.")
    journal = [
        replace(fact, started_at=f"2026-11-27T07:40:0{place % 10}Z") if isinstance(fact, f.StepStarted) else fact
        for place, fact in enumerate(turn.facts)
    ]
    assert checked(journal).facts == len(journal)
    last = max(place for place, fact in enumerate(journal) if isinstance(fact, f.StepStarted))
    journal[last] = replace(journal[last], number=9)
    assert fault(journal) == last + 1
    assert "step_started: number is 9, and 3 follows" in why(journal)


def test_late_messages_are_inferred_with_the_calls_of_the_reply(begin: Begin) -> None:
    """Such a turn runs no calls, so they have no loop key."""
    turn, call = begin(steps=0), ToolCall(name="a", arguments={}, ignore_in_loop_detection=True)
    reply = ModelRepliedInput(text="Here.", calls=(call,), undelivered=("And src/?",))
    turn.feed(reply)
    assert checked(turn.facts).groups[-1].event == reply


def test_empty_journal_is_inconclusive() -> None:
    replayed = checked([])
    assert replayed.check == Check(CLAIM, Verdict.INCONCLUSIVE, "the journal is empty")
    assert (replayed.machine, replayed.facts) == (None, 0)


def test_replayed_rows_are_the_taken_rows_and_are_not_counted(begin: Begin) -> None:
    """Also where several events were tried: transition coverage is not to see what is only checked."""
    turn = begin(steps=1)
    turn.reply("a", "b")
    turn.settle_one("call00001")
    turn.settle_one("call00002", CallStatus.UNKNOWN)
    before = list(CHART.taken)
    rows = checked(turn.facts).rows
    assert CHART.taken == before
    assert [row.name for row in ROWS if row in rows] == [
        "CHECK --proceed [steps >= allowance]--> CONCLUDE",
        "CHECK --proceed--> STREAM",
        "STREAM --replied [made > 0]--> TOOL_EXEC",
        "TOOL_EXEC --settled--> CONTINUE",
        "CONTINUE --proceed--> CHECK",
    ]
    assert set(rows.values()) == {1}


def test_replay_uses_the_given_chart(begin: Begin) -> None:
    """The rows that are run are those of the chart: without the cap, another step would have started, and can start."""
    turn = begin(steps=1)
    turn.step("a")
    uncapped = Chart(tuple(row for row in ROWS if row.reason is not EndReason.STEP_CAP))
    replayed = replay(enumerate(turn.facts, start=1), chart=uncapped)
    assert replayed.fault is not None
    assert (
        str(replayed.fault)
        == "fact 7 of the journal: it is stopping, and step_started follows from the facts before it"
    )
    before = replay(enumerate(turn.facts[:4], start=1), chart=uncapped).machine
    assert before is not None
    for event in (CallStartedInput(call="call00001"), CallSettledInput(call="call00001")):
        before.feed(event)
    assert before.state is State.STREAM


# A forged one does not.


def is_quiet(journal: Journal, place: int) -> bool:
    """Whether what comes after a fact may also follow without it: it left no trace in the state that stayed."""
    fact = journal[place]
    # Of two equal messages in a row nobody can say which is missing. A failed attempt after a compaction may have been
    # the compaction's own.
    before, here, after = (fold(journal[: max(place + end, 0)]).digest() for end in (0, 1, 2))
    twice = isinstance(fact, f.MessageAdded | f.Compacted) and after == here
    return isinstance(fact, f.AttemptFailed) or twice or here == before


#: An attempt fails right after a compaction.
COMPACTED: Final = Setting(
    StartedInput(prompt="x", limits=Limits(steps=1, seconds=1.0, max_retries=0, max_compactions=1)),
    [0, 1, 307, 0, 0],
    stopped_at=None,
    hooked=True,
)


@example(COMPACTED, 3)
@given(SHORT, st.integers(0, 10_000))
def test_omitted_fact_is_reported_as_missing(setting: Setting, at: int) -> None:
    """The message names the fact in its place."""
    journal = play(setting).journal
    place = at % (len(journal) - 1)
    fault_seq = fault([*journal[:place], *journal[place + 1 :]])
    assert fault_seq == place + 1 or (is_quiet(journal, place) and (fault_seq is None or fault_seq > place + 1))


def test_facts_of_a_stop_reveal_the_preceding_attempts(begin: Begin) -> None:
    """No other fact of the stop has the retries that were left."""
    turn = begin(seconds=5)
    for _ in range(2):
        turn.feed(AttemptFailedInput(cause=Cause.CRASH))
    turn.clock = 6
    turn.feed(ExpireInput(usage=Usage(input_tokens=3)))
    journal = turn.facts
    assert [fact.kind for fact in journal[2:]] == ["attempt_failed", "attempt_failed", "step_finished", "stopping"]
    assert fault([*journal[:3], *journal[4:]]) == 4
    assert fault([*journal[:4], replace(journal[4], hash=""), *journal[5:]]) == 5


def test_state_after_a_step_is_bound_where_a_stop_closed_the_calls(begin: Begin) -> None:
    turn = begin(seconds=5)
    turn.reply("a")
    turn.feed(CallStartedInput(call="call00001"))
    turn.clock = 6
    turn.feed(ExpireInput())
    *before, finished, stopping = turn.facts
    assert (finished.kind, finished.state, stopping.kind) == ("step_finished", State.TOOL_EXEC, "stopping")
    assert fault([*before, replace(finished, state=State.CHECK), stopping]) == len(before) + 1


@given(SHORT, st.integers(0, 10_000))
def test_repeated_fact_is_refused(setting: Setting, at: int) -> None:
    """Only of a message nobody can say whether it came twice.

    The failure of a compaction may be that of the model call too, and then a fact behind it does not follow.
    """
    journal = play(setting).journal
    place = at % len(journal)
    fault_seq = fault([*journal[: place + 1], *journal[place:]])
    before = [fact for fact in journal[:place] if not isinstance(fact, f.AttemptFailed)]
    if isinstance(journal[place], f.MessageAdded):
        assert fault_seq in (place + 2, None)
    elif isinstance(journal[place], f.AttemptFailed) and isinstance(before[-1], f.CompactionStarted):
        assert fault_seq in (place + 2, place + 3)
    else:
        assert fault_seq == place + 2


@given(SHORT, st.integers(0, 10_000))
def test_swapped_neighbors_are_reported_at_either_place(setting: Setting, at: int) -> None:
    """Also two calls that ran side by side: the state that each fact is sealed with came in the other order."""
    journal = play(setting).journal
    start = at % (len(journal) - 1)
    first, second = journal[start : start + 2]
    fault_seq = fault([*journal[:start], second, first, *journal[start + 2 :]])
    if is_quiet(journal, start) or is_quiet(journal, start + 1):
        assert fault_seq in (None, start + 1, start + 2)
    else:
        assert fault_seq == start + 1


def test_no_fact_may_follow_an_end() -> None:
    for name, journal in JOURNALS.items():
        for fact in journal:
            assert fault([*journal, fact]) == len(journal) + 1, name
        assert "the turn had already ended (" in why([*journal, journal[1]]), name


class Forgery(StrEnum):
    """Change one field, and return the replay's message."""

    #: Refused, with the number of this fact.
    SEEN = "seen"
    #: It came from outside, and something else might have come: refused here, or where what followed does not, or not.
    OUTSIDE = "outside"
    #: It decided nothing: nobody can see it.
    UNSEEN = "unseen"


#: Texts, and what is only kept, by kind and field.
UNSEEN: Final = frozenset(
    {
        *(
            f"turn_started.{name}"
            for name in ("prompt", "files", "session", "model", "agent", "message_history", "metadata")
        ),
        *(
            f"turn_started.{name}"
            for name in (
                "parent_turn",
                "parent_call",
                "continue_from",
                "forked_from",
                "forked_at",
                "forked_with",
            )
        ),
        *(f"model_replied.{name}" for name in ("reasoning", "reasoning_details", "calls.provider_id")),
        "step_started.started_at",
        *(f"request_prepared.{name}" for name in ("instructions", "tools", "settings", "model", "append", "decisions")),
        *(f"reviewed.{name}" for name in ("output", "decisions")),
        *(f"compacted.{name}" for name in ("text", "cleared", "kept")),
        *(f"call_started.{name}" for name in ("child", "decisions")),
        "call_settled.decisions",
        "call_waiting.decisions",
        "turn_ended.guardrail",
        "message_added.text",
        "concluded.refused",
        "turn_ended.undelivered",
    }
)
OUTSIDE: Final = frozenset(
    {
        *(f"turn_started.{name}" for name in ("synthesis", "depth")),
        *(f"model_replied.{name}" for name in ("text", "finish", "usage")),
        *(f"model_replied.calls.{name}" for name in ("name", "raw", "refused", "invalid", "output")),
        # Whether a reply is reviewed.
        "model_replied.state",
        *(f"reviewed.{name}" for name in ("refused", "feedback", "answer")),
        # Without tokens it may follow from an overflow.
        "compaction_started.tokens",
        "compacted.usage",
        # Bound to the key, unless a tool gave that, or the detector does not see the call.
        "model_replied.calls.arguments",
        *(f"attempt_failed.{name}" for name in ("cause", "message", "partial", "usage", "wait")),
        # What the machine settles by itself has no data, and an attempt that is the last has no wait.
        *(f"call_settled.{name}" for name in ("status", "result", "structured", "files", "final", "retry")),
        "call_waiting.interrupt.grant",
        # Bound in a question with terms: a wait for a result, arguments to approve, or data that the tool keeps.
        *(f"call_waiting.interrupt.{name}" for name in ("question", "choices", "expires_at")),
        # A sub-agent's; that of the turn's own call is in its reply.
        *(f"call_waiting.interrupt.{name}" for name in ("tool", "path")),
        # Of a question about a doom loop, which no call asks.
        "answered.by",
        # For a forwarded interrupt; any other has its kind in its id.
        "call_waiting.interrupt.kind",
        *(f"answered.{name}" for name in ("decision", "text")),
        "synthesized.text",
        "concluded.text",
        "stopping.partial",
        # The step is the first to say what a stopped attempt used.
        "step_finished.usage",
        *(f"turn_ended.{name}" for name in ("partial", "error")),
        # Time passes as it will. Only what one event gave was of one time.
        *(f"{kind}.elapsed" for kind in f.KINDS),
    }
)


def _is_in(path: str, paths: frozenset[str]) -> bool:
    return any(path == prefix or path.startswith(f"{prefix}.") for prefix in paths)


def forgery(path: str) -> Forgery:
    if _is_in(path, UNSEEN):
        return Forgery.UNSEEN
    return Forgery.OUTSIDE if _is_in(path, OUTSIDE) else Forgery.SEEN


#: The other values of a field that has only a few.
CHOICES: Final[dict[str, type[StrEnum]]] = {
    "state": State,
    "finish": Finish,
    "cause": Cause,
    "status": CallStatus,
    "decision": Decision,
    "reason": EndReason,
    "also_reached": EndReason,
    "outcome": Outcome,
    "interrupt.kind": InterruptKind,
}


def others(value: JsonValue, path: str = "") -> Iterator[tuple[str, JsonValue]]:
    """Values near this one, each with the path of what differs; places in lists are left out of the paths."""
    if path in CHOICES and isinstance(value, str):
        choices = list(CHOICES[path])
        place = choices.index(CHOICES[path](value))
        yield from ((path, str(choices[place - away])) for away in (1, 2))
        return
    match value:
        case bool():
            yield path, not value
        case int() | float():
            yield path, value + 1
        case str():
            yield path, f"{value}0"
        case None:
            yield from ((path, replacement) for replacement in (1, "x"))
        case list():
            yield path, [*value, *value[-1:]]
            yield path, value[:-1]
            for place, item in enumerate(value):
                yield from (
                    (p, [*value[:place], replacement, *value[place + 1 :]]) for p, replacement in others(item, path)
                )
        case dict():
            for name, inner in value.items():
                below = f"{path}.{name}" if path else name
                yield from ((p, {**value, name: replacement}) for p, replacement in others(inner, below))


def whole(value: object) -> JsonValue:
    """A fact, or what is in one, as JSON with all its fields, those at their defaults too."""
    match value:
        case Struct():
            return {name: whole(getattr(value, name)) for name in value.__struct_fields__}
        case BaseModel():
            return {name: whole(inner) for name, inner in value}
        case tuple() | list():
            return [whole(inner) for inner in value]
        case dict():
            return {name: whole(inner) for name, inner in value.items()}
        case StrEnum():
            return str(value)
        case None | bool() | int() | float() | str():
            return value
    raise TypeError(f"{value!r} is not JSON")


def forgeries(journal: Journal) -> Iterator[tuple[int, str, Journal]]:
    """Each journal in which one field of one fact is another: the fact's index, the field, and the journal.

    Of a turn that does the same again and again, the first few times.
    """
    times: Counter[str] = Counter()
    for place, fact in enumerate(journal):
        for path, changed in others(whole(fact)):
            assert isinstance(changed, dict)
            times[f"{fact.kind}.{path}"] += 1
            if times[f"{fact.kind}.{path}"] > 3:
                continue
            try:
                forged = parse_fact(fact.kind, json.dumps({"v": PAYLOAD_VERSION, **changed}))
            except InvalidJournalError:
                continue  # impossible in a journal
            if forged != fact:
                yield place, f"{fact.kind}.{path}", [*journal[:place], forged, *journal[place + 1 :]]


@pytest.mark.slow
@pytest.mark.parametrize("name", JOURNALS)
def test_changed_field_is_reported_at_the_changed_fact(name: str) -> None:
    """All but those of the two tables above, which say for each field whether anybody can see it."""
    for place, path, forged in forgeries(JOURNALS[name]):
        fault_seq = fault(forged)
        fact = JOURNALS[name][place]
        # A start without a hash came with its reply, and follows from it.
        came_with_reply = isinstance(fact, f.CallStarted) and not fact.hash
        match Forgery.SEEN if came_with_reply else forgery(path):
            case Forgery.SEEN:
                assert fault_seq == place + 1, f"{path} of fact {place + 1}: {checked(forged).check.detail}"
            case Forgery.OUTSIDE:
                assert fault_seq is None or fault_seq >= place + 1, f"{path} of fact {place + 1}"
            case Forgery.UNSEEN:
                assert fault_seq is None, f"{path} of fact {place + 1}: {checked(forged).check.detail}"


#: What follows from the facts before, whatever hash is written beside it.
DECIDED: Final = frozenset(
    {
        "turn_started.chart",
        *(f"{kind}.state" for kind in f.KINDS if kind != "step_finished"),
        *(f"step_started.{name}" for name in ("number", "nudge", "stall", "elapsed")),
        "model_replied.calls.lease",
        "call_started.attempt",
        *(f"attempt_failed.{name}" for name in ("attempt", "retry")),
        *(f"paused.{name}" for name in ("interrupt", "elapsed")),
        *(f"answered.{name}" for name in ("grant", "always_for")),
        "reviewed.retry",
        *(f"step_finished.{name}" for name in ("number", "seconds")),
        *(f"stopping.{name}" for name in ("reason", "also_reached", "elapsed")),
        *(f"turn_ended.{name}" for name in ("outcome", "also_reached")),
        *(f"notice.{name}" for name in ("limit", "used", "of", "elapsed")),
    }
)


def sealed(journal: Journal) -> Journal:
    """The journal with the hashes that a careful forger would write."""
    turn, new = Turn(), []
    for fact in journal:
        turn.apply(fact)
        new.append(replace(fact, hash=turn.digest()) if fact.hash else fact)
    return new


@pytest.mark.slow
@pytest.mark.parametrize("name", JOURNALS)
def test_recomputed_hashes_do_not_hide_a_wrong_count_or_decision(name: str) -> None:
    for place, path, forged in forgeries(JOURNALS[name]):
        if _is_in(path, DECIDED):
            try:
                resealed = sealed(forged)
            except KeyError:  # it names an interrupt that nothing made, and cannot be folded
                continue
            fault_seq = fault(resealed)
            # Another reply might have been reviewed: what followed from it does not.
            states = forged[place].state, JOURNALS[name][place].state
            later = path == "model_replied.state" and State.REVIEW in states
            assert fault_seq == place + 1 or (later and fault_seq is not None and fault_seq > place + 1), (
                f"{path} of fact {place + 1}"
            )


def with_fact(journal: Journal, kind: type[Fact], **changes: object) -> tuple[int, Journal]:
    """The journal with the last fact of a kind changed and everything sealed anew; and the number of that fact."""
    place = max(index for index, fact in enumerate(journal) if isinstance(fact, kind))
    forged = replace(journal[place], **changes)
    return place + 1, sealed([*journal[:place], forged, *journal[place + 1 :]])


def test_skipped_count_is_reported_with_both_values() -> None:
    seq, forged = with_fact(JOURNALS["step_cap"], f.StepStarted, number=1)
    assert why(forged) == (
        f"fact {seq} of the journal: step_started: number is 1, and 2 follows from the facts before it"
    )


def test_unanswered_call_is_reported_at_the_next_step(begin: Begin) -> None:
    turn = begin()
    turn.reply("a", "b")
    turn.settle()
    place = max(index for index, fact in enumerate(turn.facts) if isinstance(fact, f.CallSettled))
    forged = sealed([*turn.facts[:place], *turn.facts[place + 1 :]])
    assert fault(forged) == place + 1
    assert forged[place].kind == "step_finished"


def test_dependent_fact_begins_no_event(begin: Begin) -> None:
    """A step starts when the last one has ended, and not by itself."""
    turn = begin()
    turn.reply("a")
    assert why([*turn.facts, turn.facts[1]]) == (
        "fact 4 of the journal: step_started: it does not follow from the facts before it, and no input gives it"
    )


def test_step_after_the_cap_is_refused_for_any_hash(begin: Begin) -> None:
    turn = begin(steps=1)
    turn.step("a")
    *before, stopping = turn.facts
    forged = f.StepStarted(elapsed=stopping.elapsed, state=State.STREAM, number=2)
    assert fault(sealed([*before, forged])) == len(before) + 1


def test_journal_of_another_chart_version_is_refused_at_the_first_fact() -> None:
    _, forged = with_fact(JOURNALS["answered"], f.TurnStarted, chart=VERSION + 1)
    assert why(forged) == (
        f"fact 1 of the journal: it was written under chart {VERSION + 1}, and this release checks chart {VERSION}"
    )


def test_journal_must_begin_exactly_once() -> None:
    journal = JOURNALS["answered"]
    assert "a journal begins with turn_started" in why(journal[1:])
    assert fault([journal[0], journal[0]]) == 2
    assert fault([journal[2]]) == 1
    assert checked(journal[1:]).check.claim == CLAIM


def test_omitted_or_invented_notice_is_refused() -> None:
    """A limit at 80 % has one notice, when it is reached. Recomputed hashes do not help."""
    for name, journal in JOURNALS.items():
        limits = {fact.limit for fact in journal if isinstance(fact, f.Notice)}
        for place, fact in enumerate(journal):
            if isinstance(fact, f.Notice):
                assert fault(sealed([*journal[:place], *journal[place + 1 :]])) == place + 1, name
        invented = f.Notice(elapsed=journal[0].elapsed, state=journal[0].state, limit="tool_calls", used=1, of=1)
        if "tool_calls" not in limits:
            assert fault(sealed([journal[0], invented, *journal[1:]])) == 2, name


def test_time_does_not_go_back(begin: Begin) -> None:
    turn = begin()
    turn.clock = 5.0
    turn.reply("a")
    turn.clock = 6.0
    turn.settle()
    earlier = replace(turn.facts[3], elapsed=4.0)
    assert why([*turn.facts[:3], earlier, *turn.facts[4:]]) == (
        "fact 4 of the journal: call_started: elapsed is 4.0, and 5.0 follows from the facts before it"
    )


@pytest.mark.parametrize("elapsed", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("place", [0, 2, 3])
def test_invalid_time_is_refused(begin: Begin, elapsed: float, place: int) -> None:
    turn = begin()
    turn.reply("a")
    turn.settle()
    turn.facts[place] = replace(turn.facts[place], elapsed=elapsed)
    assert f"fact {place + 1} of the journal: {turn.facts[place].kind}: elapsed" in why(turn.facts)


@pytest.mark.parametrize(
    ("forged", "words"),
    [
        (
            f.CallStarted(elapsed=0, state=State.TOOL_EXEC, call="call00009"),
            "CallStarted for call 'call00009': there is no such call in the open batch",
        ),
        (f.Concluded(elapsed=0, state=State.PAUSED, text="x"), "concluded is not accepted in state PAUSED"),
        (
            f.Answered(elapsed=0, state=State.TOOL_EXEC, interrupt="doom-1", decision=Decision.GO_ON),
            "interrupt 'doom-1': no such interrupt is open (open: approval-1)",
        ),
    ],
)
def test_refused_event_is_reported_in_the_words_of_the_machine(begin: Begin, forged: Fact, words: str) -> None:
    """All but the last of them, that nothing was changed: of a journal that is not news."""
    turn = begin()
    turn.reply("a", "b")
    turn.wait("call00001")
    if not isinstance(forged, f.CallStarted):
        turn.settle()
    assert why([*turn.facts, forged]) == f"fact {len(turn.facts) + 1} of the journal: {forged.kind}: {words}"


# The numbers of the facts.


@pytest.mark.parametrize(
    ("numbers", "fault_seq", "words"),
    [
        ([1, 2, 4], 3, "it is missing: fact 4 is in its place"),
        ([1, 2, 2], 2, "it comes twice: again after fact 2"),
        ([1, 3, 2], 2, "it is missing: fact 3 is in its place"),
        ([2, 3, 4], 1, "it is missing: fact 2 is in its place"),
        ([0, 1, 2], 0, "it comes twice: again after fact 0"),
    ],
)
def test_facts_must_be_numbered_without_gaps_from_1(
    begin: Begin, numbers: list[int], fault_seq: int, words: str
) -> None:
    turn = begin()
    turn.reply("a")
    replayed = replay(zip(numbers, turn.facts, strict=True))
    assert replayed.check.detail == f"fact {fault_seq} of the journal: {words}"


def test_fault_before_a_gap_comes_first(begin: Begin) -> None:
    turn = begin()
    turn.reply("a")
    turn.facts[1] = replace(turn.facts[1], number=2)
    replayed = replay(zip([1, 2, 4], turn.facts, strict=True))
    assert replayed.fault is not None
    assert replayed.fault.seq == 2


# What cannot be read.


def reading(journal: Journal, broken: str, kind: str = "call_started") -> Replayed:
    """Replays the journal followed by one fact that is read only then."""

    def lines() -> Iterator[tuple[int, Fact]]:
        yield from enumerate(journal, start=1)
        yield len(journal) + 1, parse_fact(kind, broken, len(journal) + 1)

    return replay(lines())


def test_unreadable_fact_is_the_fault_at_the_place(begin: Begin) -> None:
    turn = begin()
    turn.reply("a")
    unknown = reading(turn.facts, '{"v": 1}', "tool_dreamt")
    assert unknown.check.verdict is Verdict.VIOLATED
    assert unknown.check.detail == "fact 4 of the journal: its kind 'tool_dreamt' is unknown to this release"
    assert reading(turn.facts, '{"v": 0}').check.verdict is Verdict.VIOLATED
    assert reading(turn.facts, '{"v": 1}').check.verdict is Verdict.VIOLATED


def test_fact_of_a_later_release_is_inconclusive(begin: Begin) -> None:
    turn = begin()
    turn.reply("a")
    replayed = reading(turn.facts, '{"v": 2}')
    assert replayed.check.verdict is Verdict.INCONCLUSIVE
    assert "its payload has version 2, and this release reads 1" in replayed.check.detail
    assert replayed.facts == 3


def test_fault_before_an_unreadable_fact_comes_first(begin: Begin) -> None:
    turn = begin()
    turn.reply("a")
    turn.facts[1] = replace(turn.facts[1], number=2)
    replayed = reading(turn.facts, '{"v": 2}')
    assert replayed.check.verdict is Verdict.VIOLATED
    assert replayed.fault is not None
    assert replayed.fault.seq == 2


def test_event_ending_in_an_unreadable_fact_is_inconclusive(begin: Begin) -> None:
    turn = begin()
    replayed = reading(turn.facts[:1], '{"v": 2}', "step_started")
    assert replayed.check.verdict is Verdict.INCONCLUSIVE


# Where one fact may have come from several events.


def groups_of(journal: Journal) -> list[tuple[type, int, int]]:
    replayed = checked(journal)
    assert replayed.check.verdict is Verdict.HOLDS, replayed.check.detail
    return [(type(group.event), group.first, group.last) for group in replayed.groups]


@pytest.mark.parametrize(
    "stop",
    [
        AbortInput(partial="half"),
        AbortInput(reason=EndReason.SUPERSEDED, undelivered=("stop",)),
        FailInput(error="a bug"),
        ExpireInput(usage=Usage(input_tokens=7, cost=0.3)),
        TrippedInput(guardrail="g", message="no", metadata={"n": 1}, usage=Usage(input_tokens=7)),
    ],
)
def test_stop_closing_every_call_is_a_single_event(begin: Begin, stop: StopInput) -> None:
    turn = begin()
    turn.reply("a", "b", "c", usage=Usage(input_tokens=3, cost=0.1))
    turn.feed(CallStartedInput(call="call00001"))
    before = len(turn.facts)
    turn.feed(stop)
    assert groups_of(turn.facts)[-1] == (type(stop), before + 1, len(turn.facts))
    assert checked(turn.facts).groups[-1].event == stop


@pytest.mark.parametrize(
    "stop",
    [
        AbortInput(partial="half"),
        FailInput(error="a bug", partial="half"),
        ExpireInput(partial="half"),
        TrippedInput(guardrail="g", partial="half"),
    ],
)
def test_stop_between_steps_has_the_elapsed_time(begin: Begin, stop: StopInput) -> None:
    turn = begin()
    turn.step("a")
    turn.clock = 7.0
    turn.feed(stop)
    assert checked(turn.facts).groups[-1].event == replace(stop, elapsed=7.0)


@pytest.mark.parametrize("stop", [AbortInput(), ExpireInput(), TrippedInput(guardrail="g", message="no")])
def test_incomplete_stop_lacks_the_end(begin: Begin, stop: StopInput) -> None:
    turn = begin()
    turn.reply("a")
    turn.feed(stop)
    last = turn.facts[-1]
    assert why(turn.facts[:-1]) == (
        f"fact {len(turn.facts)} of the journal: it is missing: {last.kind} follows from the facts before it"
    )


@pytest.mark.parametrize(
    "stop",
    [
        AbortInput,
        ExpireInput,
        partial(FailInput, error="x"),
        partial(TrippedInput, guardrail="g"),
        partial(TrippedInput, guardrail="g", usage=Usage(input_tokens=7)),
    ],
)
def test_sub_agent_usage_is_inferred_with_the_stop(begin: Begin, stop: Callable[..., StopInput]) -> None:
    """From the results of their calls, so also if the end of the turn is missing."""
    turn, fed = begin(), stop(spent={"call00001": Spent(calls=2)})
    turn.reply(ToolCall(name="agent", arguments={}, delegates=True))
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(fed)
    assert checked(turn.facts).groups[-1].event == fed
    assert why(turn.facts[:-1]).endswith(f"it is missing: {turn.facts[-1].kind} follows from the facts before it")


def cut_off(begin: Begin) -> Journal:
    """The journal of a turn whose second attempt was cut off when the time was up."""
    turn = begin()
    turn.feed(AttemptFailedInput(cause=Cause.TIMEOUT, usage=Usage(input_tokens=3, output_tokens=5, cost=0.25)))
    turn.feed(ExpireInput(partial="half", usage=Usage(input_tokens=7, output_tokens=2, cost=0.5)))
    return turn.facts


def test_usage_of_a_cut_off_attempt_is_inferred_from_the_step(begin: Begin) -> None:
    *before, stopping = cut_off(begin)
    assert isinstance(stopping, f.Stopping)
    assert f"fact {len(before) + 1} of the journal: it is missing: stopping" in why(before)


def test_usage_of_a_cut_off_attempt_must_match_step_and_stop(begin: Begin) -> None:
    seq, forged = with_fact(cut_off(begin), f.Stopping, usage=Usage(input_tokens=8))
    assert why(forged).startswith(f"fact {seq} of the journal: stopping: usage.input_tokens is 8, and 7 follows")


def test_sub_agent_usage_does_not_hide_a_wrong_usage_of_the_stop(begin: Begin) -> None:
    turn = begin()
    turn.reply(ToolCall(name="agent", arguments={}, delegates=True))
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(ExpireInput(usage=Usage(input_tokens=7), spent={"call00001": Spent(calls=2)}))
    seq, forged = with_fact(turn.facts, f.Stopping, usage=Usage(input_tokens=8))
    assert why(forged).startswith(f"fact {seq} of the journal: stopping: usage.input_tokens is 8, and 7 follows")


@pytest.mark.parametrize("stop", [AbortInput(), FailInput(error="x"), ExpireInput(), TrippedInput(guardrail="g")])
@pytest.mark.parametrize(
    ("place", "spent", "words"),
    [
        (
            0,
            Spent(calls=1000),
            "call 'call00001': its sub-agent used 1000 calls, and its lease is calls=3 tokens=None cost=None",
        ),
        (1, Spent(), "call 'call00002': its sub-agent used 0 calls, and its lease is None"),
        (2, Spent(calls=1), "call 'call00003': its sub-agent used something, but the call never started"),
    ],
)
def test_stop_with_impossible_sub_agent_usage_is_refused(
    begin: Begin, stop: StopInput, place: int, spent: Spent, words: str
) -> None:
    """Recomputed hashes do not help."""
    turn = begin(tool_calls=9)
    child = ToolCall(name="agent", arguments={}, delegates=True)
    turn.reply(child, "a", child)
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(stop)
    closed = next(index for index, fact in enumerate(turn.facts) if isinstance(fact, f.CallSettled))
    forged = list(turn.facts)
    forged[closed + place] = replace(forged[closed + place], spent=spent)
    assert words in why(sealed(forged))


def test_lease_removed_from_a_reply_is_missed_by_an_asking_sub_agent(begin: Begin) -> None:
    """No hash depends on a lease."""
    turn = begin(tool_calls=9)
    turn.reply(ToolCall(name="agent", arguments={}, delegates=True))
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(CallWaitingInput(call="call00001", interrupt_kind=InterruptKind.QUESTION, forwarded="question-1"))
    forged = [
        replace(fact, calls=(replace(fact.calls[0], lease=None),)) if isinstance(fact, f.ModelReplied) else fact
        for fact in turn.facts
    ]
    assert "call 'call00001': a sub-agent asks, and the call has no lease" in why(forged)


def test_unexpected_value_is_named(begin: Begin) -> None:
    turn = begin()
    turn.feed(AbortInput())
    _, forged = with_fact(turn.facts, f.TurnEnded, error="none")
    assert "turn_ended: error is " in why(forged)
    assert why(forged).endswith(", and '' follows from the facts before it")


def test_value_unfit_for_every_event_is_named_with_the_place(begin: Begin) -> None:
    turn = begin()
    turn.feed(AbortInput())
    turn.facts[-1] = replace(turn.facts[-1], undelivered=(1,))
    assert ": undelivered.0: " in why(turn.facts)


def test_enumeration_value_is_quoted_as_written() -> None:
    _, forged = with_fact(JOURNALS["answered"], f.TurnEnded, outcome=Outcome.FAILED)
    assert "turn_ended: outcome is failed, and finished follows from the facts before it" in why(forged)


@pytest.mark.parametrize(
    ("length", "quoted"), [(QUOTED - 2, f"'{'x' * (QUOTED - 2)}'"), (QUOTED - 1, f"'{'x' * (QUOTED - 4)}...")]
)
def test_long_value_is_cut(begin: Begin, length: int, quoted: str) -> None:
    """Its quotation marks count."""
    turn = begin()
    turn.facts[-1] = replace(turn.facts[-1], hash="x" * length)
    assert f"hash is {quoted}, and" in why(turn.facts)


def test_witness_is_the_list_of_events_before_the_fault(begin: Begin) -> None:
    turn = begin()
    turn.reply("a")
    turn.feed(CallStartedInput(call="call00001"))
    turn.facts += turn.facts[:1]
    assert checked(turn.facts).check.witness == (
        "facts 1 to 2: Started -> STREAM",
        "fact 3: ModelReplied -> TOOL_EXEC",
        "fact 4: CallStarted -> TOOL_EXEC",
    )


def test_step_usage_below_the_attempt_usage_is_refused(begin: Begin) -> None:
    """The rest for the attempt that was cut off would be negative."""
    turn = begin()
    turn.feed(AttemptFailedInput(cause=Cause.TIMEOUT, usage=Usage(input_tokens=3)))
    turn.feed(ExpireInput())
    assert "step_finished: usage.input_tokens is 2, and 3" in why(
        with_fact(turn.facts, f.StepFinished, usage=Usage(input_tokens=2))[1]
    )


def test_rerun_without_a_retry_left_is_inferred_as_a_call_start(begin: Begin) -> None:
    turn = begin(max_retries=0)
    turn.reply("a")
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(CallStartedInput(call="call00001"))
    assert groups_of(turn.facts)[-1] == (CallStartedInput, 5, 7)


def test_empty_reply_is_inferred_as_reply_or_failed_synthesis(begin: Begin) -> None:
    turn = begin()
    turn.reply()
    assert groups_of(turn.facts)[-1][0] is ModelRepliedInput
    turn.feed(AttemptFailedInput(cause=Cause.EMPTY_REPLY, message="nothing came"))
    assert groups_of(turn.facts)[-1][0] is AttemptFailedInput


def test_loop_key_of_a_tool_is_believed_and_reported(begin: Begin) -> None:
    """It cannot be made again from what is written: the arguments of that call are not checked."""
    turn = begin()
    turn.reply(
        ToolCall(name="a", arguments={"n": 1}, loop_key="any"),
        ToolCall(name="a", arguments={"n": 1}),
        ToolCall(name="a", arguments={"n": 1}, ignore_in_loop_detection=True),
    )
    replayed = checked(turn.facts)
    assert replayed.check.verdict is Verdict.HOLDS
    assert replayed.believed == ("call00001", "call00003")  # one that is exempt has no key


def test_unchecked_calls_of_a_turn_without_tools_are_reported(begin: Begin) -> None:
    turn = begin(steps=0)
    turn.reply(ToolCall(name="a", arguments={"n": 1}), text="Here.")
    replayed = checked(turn.facts)
    assert replayed.check.verdict is Verdict.HOLDS
    assert replayed.believed == ("call00001",)


def test_call_settled_during_a_turn_is_inferred_as_no_stop(begin: Begin) -> None:
    """Each stop that is tried takes a copy of the turn: in a forged journal that adds up to minutes."""
    turn = begin()
    turn.reply(*(ToolCall(name="a", arguments={"n": n}) for n in range(3)))
    for call in tuple(turn.machine.turn.batch):
        turn.feed(CallSettledInput(call=call, status=CallStatus.REJECTED, result="no"))
    at = next(place for place, fact in enumerate(turn.facts) if isinstance(fact, f.CallSettled))
    folded = TurnMachine.resume(turn.facts[:at]).turn
    assert [type(event) for event in infer_inputs(turn.facts, at, folded)] == [CallSettledInput]
    assert checked(turn.facts).check.verdict is Verdict.HOLDS


@pytest.mark.parametrize(
    ("call", "change", "words"),
    [
        (ToolCall(name="a", arguments={}), {"key": "any"}, "calls.0.key is 'any', and"),
        (ToolCall(name="a", arguments={}), {"key": "0" * 12}, "calls.0.key is '000000000000', and"),
        (ToolCall(name="a", arguments={}), {"arguments": {"n": 2}}, "calls.0.key is "),
        (ToolCall(name="a", arguments={}), {"own_key": True, "key": "0" * 12}, "hash is"),
        (ToolCall(name="a", arguments={}), {"own_key": True}, "calls.0.key is "),
        (ToolCall(name="a", raw="{"), {"own_key": True}, "calls.0.key is "),
        (
            ToolCall(name="a", arguments={}, ignore_in_loop_detection=True),
            {"own_key": True},
            "calls.0.own_key is True, and False",
        ),
        (
            ToolCall(name="a", arguments={}, ignore_in_loop_detection=True, loop_key="k"),
            {"own_key": True},
            "calls.0.own_key is ",
        ),
        (ToolCall(name="a", arguments={}, loop_key="k"), {"key": "any"}, "calls.0.key is 'any', and"),
        (ToolCall(name="a", arguments={}, loop_key="k"), {"key": "0" * 12}, "hash is"),
        (ToolCall(name="a", arguments={}, loop_key="k"), {"own_key": False}, "calls.0.key is "),
    ],
)
def test_invalid_call_key_is_refused(begin: Begin, call: ToolCall, change: dict[str, object], words: str) -> None:
    """It is made from the arguments, or said to be the tool's own; and the hash binds the rounds to it."""
    turn = begin()
    turn.reply(call)
    reply = turn.facts[2]
    assert isinstance(reply, f.ModelReplied)
    forged = replace(reply, calls=(replace(reply.calls[0], **change),))
    assert f"fact 3 of the journal: model_replied: {words}" in why([*turn.facts[:2], forged])


@pytest.mark.parametrize("calls", [512, 513, pytest.param(100_000, marks=pytest.mark.slow)])
def test_reply_asks_for_512_calls_at_most(begin: Begin, calls: int) -> None:
    """A larger journal is refused before its parts are read, so that no journal takes minutes."""
    turn = begin()
    calls_made = tuple(f.CallMade(id=f"call{place:05}", name="a", arguments={}) for place in range(1, calls + 1))
    reply = f.ModelReplied(elapsed=0.0, state=State.TOOL_EXEC, calls=calls_made)
    detail = why([*turn.facts, reply])
    assert ("length <= 512" in detail) is (calls > 512)
    names = f.Concluded(elapsed=0.0, state=State.CONCLUDE, refused=("a",) * calls)
    turn.feed(ExpireInput())
    assert ("length <= 512" in why([*turn.facts, names])) is (calls > 512)


def test_unencodable_arguments_have_the_key_of_the_written_text(begin: Begin) -> None:
    """Half a surrogate pair is replaced where it is written, and the key is made of what is written."""
    turn = begin()
    turn.reply(ToolCall(name="a", arguments={"q": "\ud800 é"}), ToolCall(name="a", raw="\udfff"))
    facts = [parse_fact(fact.kind, fact.payload(), seq) for seq, fact in enumerate(turn.facts, start=1)]
    assert checked(facts).check.verdict is Verdict.HOLDS
    assert checked(facts).believed == ()


def test_step_seconds_follow_from_the_written_times(begin: Begin) -> None:
    """A clock is finer than what is written of it: what is computed must not know more than the journal."""
    for number in range(40):
        turn = begin()
        turn.clock = 0.0115625 * number
        turn.reply("a")
        turn.clock = 0.0578125 * number
        turn.settle()
        assert fault(turn.facts) is None


@given(SHORT, st.integers(0, 10_000))
def test_replayed_machine_has_the_state_of_the_fold(setting: Setting, at: int) -> None:
    """One can go on from it."""
    played: Played = play(setting)
    number = at % len(played.events)
    before = [fact for transaction in played.transactions[: number + 1] for fact in transaction]
    machine = checked(before).machine
    assert machine is not None
    assert machine.feed(played.events[number]) == played.transactions[number + 1]


def test_group_names_the_facts_and_the_final_state(begin: Begin) -> None:
    turn = begin()
    turn.reply("a")
    turn.feed(CallStartedInput(call="call00001"))
    turn.feed(AbortInput())
    texts = [str(group) for group in checked(turn.facts).groups]
    assert texts == [
        "facts 1 to 2: Started -> STREAM",
        "fact 3: ModelReplied -> TOOL_EXEC",
        "fact 4: CallStarted -> TOOL_EXEC",
        "facts 5 to 7: Abort -> ABORTED",
    ]


@pytest.mark.parametrize(
    "last",
    [
        AbortInput(elapsed=3.5, partial="I w", undelivered=("one",)),
        AbortInput(elapsed=3.5, reason=EndReason.SUPERSEDED),
        AbortInput(elapsed=3.5, usage=Usage(input_tokens=3, output_tokens=4, cost=0.5)),
        FailInput(elapsed=3.5, error="RuntimeError: x", partial="I w"),
        FailInput(elapsed=3.5, error="RuntimeError: x", usage=Usage(input_tokens=3, output_tokens=4, cost=0.5)),
        ExpireInput(elapsed=3.5, partial="I w", usage=Usage(input_tokens=3, output_tokens=4, cost=0.5)),
        ExpireInput(elapsed=3.5, partial="I w"),
        ExpireInput(elapsed=3.5),
        TrippedInput(
            elapsed=3.5, guardrail="g", message="no", metadata={"n": [1]}, partial="I w", undelivered=("one",)
        ),
        TrippedInput(elapsed=3.5, guardrail="g", usage=Usage(input_tokens=3, output_tokens=4, cost=0.5)),
    ],
)
@pytest.mark.parametrize("where", [State.STREAM, State.TOOL_EXEC, State.TEXT_ONLY])
def test_stop_is_inferred_completely(begin: Begin, where: State, last: Input) -> None:
    """With its time, its words and what it used; after an attempt that used something of its own."""
    turn = begin(steps=0 if where is State.TEXT_ONLY else 5, seconds=3.0)
    usage = Usage(input_tokens=10, output_tokens=20, cost=0.25)
    turn.feed(AttemptFailedInput(cause=Cause.TIMEOUT, usage=usage))
    if where is State.TOOL_EXEC:
        turn.reply("a", "b")
        turn.feed(CallStartedInput(call="call00001"))
    turn.facts += turn.machine.feed(last)
    assert checked(turn.facts).groups[-1].event == last


def test_truncated_journal_holds_only_at_a_group_boundary() -> None:
    """At each fact: the events are those of the whole, and inside a group the first missing fact is named."""
    for name, journal in JOURNALS.items():
        whole = checked(journal).groups
        ends = {group.last: place for place, group in enumerate(whole, start=1)}
        for length in range(1, len(journal)):
            replayed = checked(journal[:length])
            if length in ends:
                assert replayed.check.verdict is Verdict.HOLDS, name
                events = [group.event for group in whole[: ends[length]]]
                assert [group.event for group in replayed.groups] == events, name
            elif replayed.check.verdict is Verdict.VIOLATED:
                assert fault(journal[:length]) == length + 1, name


def test_difference_is_quoted_briefly_with_the_field_name(begin: Begin) -> None:
    """An enumeration by its value, a long text cut, a field inside a field by its way there."""
    turn = begin()
    turn.reply("a", "b", usage=Usage())
    reply = turn.facts[2]
    assert isinstance(reply, f.ModelReplied)
    call = reply.calls[1]
    for change, says in (
        ({"lease": f.Lease(calls=1)}, "calls.1.lease.calls is 1, and 48 follows"),
        ({"id": "x" * 118}, f"calls.1.id is '{'x' * 118}', and 'call00002' follows"),
        ({"id": "x" * 119}, f"calls.1.id is '{'x' * 116}..., and 'call00002' follows"),
    ):
        forged = replace(reply, calls=(reply.calls[0], replace(call, **change)))
        assert says in why([*turn.facts[:2], forged])
    forged_state = replace(reply, state=State.STREAM)
    assert "state is STREAM, and TOOL_EXEC follows" in why([*turn.facts[:2], forged_state])
