"""Traces: a sound one holds, each fault is found where it is, and missing information is never a pass."""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright.tools import Tool, tool
from turnwright_audit.traces import (
    InvalidTraceError,
    TraceCall,
    TraceClaim,
    TraceEvent,
    TraceLimits,
    TraceMessage,
    TraceModelCalled,
    TraceModelFailed,
    TraceModelReplied,
    TracePaused,
    TraceResumed,
    TraceToolResult,
    TraceToolRetried,
    TraceToolStarted,
    TraceTurnEnded,
    TraceTurnStarted,
    check_events,
    check_trace,
    check_turns,
    read_event,
    write_event,
)
from turnwright_audit.trajectories.journal_trace import trace_of
from turnwright_states import CallStatus, Cause, Decision, InterruptKind, Limits, LoopGuard, ToolCall, facts
from turnwright_states.verdict import Check, Verdict, worst
from turnwright_testing.play import play
from turnwright_testing.scenario import Scenario
from turnwright_testing.strategies import scenarios

LIMITS = TraceLimits(steps=3, tool_calls=3, max_retries=1)
BEGIN = TraceTurnStarted(limits=LIMITS)
CALLED = TraceModelCalled()
FAILED = TraceModelFailed(cause="timeout")
END = TraceTurnEnded(outcome="finished", reason="answered")
ANSWER = TraceModelReplied(text="Done.")


def asks(*ids: str) -> TraceModelReplied:
    return TraceModelReplied(calls=tuple(TraceCall(id=call_id, name="read") for call_id in ids))


def ran(call: str, status: CallStatus = CallStatus.OK) -> tuple[TraceEvent, ...]:
    return TraceToolStarted(call=call), TraceToolResult(call=call, status=status)


#: A turn with all that a turn can have: two calls of one id in two replies, a failure, a refusal, a retry, a pause.
SOUND: tuple[TraceEvent, ...] = (
    BEGIN,
    CALLED,
    asks("c1", "c2"),
    TraceToolStarted(call="c1"),
    TraceToolResult(call="c2", status=CallStatus.REFUSED),
    TraceToolResult(call="c1"),
    CALLED,
    FAILED,
    CALLED,
    asks("c1", "c3"),
    *ran("c1"),
    TraceToolStarted(call="c3"),
    TracePaused(),
    TraceMessage(text="Yes."),
    TraceResumed(),
    TraceToolRetried(call="c3", why="approved"),
    TraceToolStarted(call="c3"),
    TraceToolResult(call="c3", status=CallStatus.ERROR),
    TraceModelCalled(tools=False),
    ANSWER,
    END,
)


def by_claim(checks: Sequence[Check]) -> dict[str, Check]:
    return {check.claim: check for check in checks}


def verdicts(*events: TraceEvent) -> dict[str, Verdict]:
    return {check.claim: check.verdict for check in check_events(events)}


def violated(*events: TraceEvent) -> dict[str, str]:
    """Return the violated claims, each with its detail."""
    return {check.claim: check.detail for check in check_events(events) if check.verdict is Verdict.VIOLATED}


def unknown(*events: TraceEvent) -> dict[str, str]:
    return {check.claim: check.detail for check in check_events(events) if check.verdict is Verdict.INCONCLUSIVE}


def named(turn: str, events: Sequence[TraceEvent]) -> list[TraceEvent]:
    return [event.model_copy(update={"turn": turn}) for event in events]


def test_sound_trace_holds_in_every_claim() -> None:
    checks = check_events(SOUND)
    assert [check.claim for check in checks] == list(TraceClaim)
    assert {(check.verdict, check.detail, check.witness) for check in checks} == {(Verdict.HOLDS, "over 1 turn", ())}


def test_turns_may_be_interleaved() -> None:
    mixed = [event for pair in zip(named("a", SOUND), named("b", SOUND), strict=True) for event in pair]
    assert {check.detail for check in check_events(mixed)} == {"over 2 turns"}
    assert worst(check_events(mixed)) is Verdict.HOLDS


def test_each_turn_has_separate_faults_and_unknown_claims() -> None:
    late, early = named("late", (BEGIN, CALLED, ANSWER, END, TraceMessage())), named("open", (BEGIN, CALLED, CALLED))
    mixed = (*late[:2], *early, *late[2:], *named("sound", SOUND))
    of_late, of_open, of_sound = check_turns(enumerate(mixed, start=1))
    (fault,) = of_late.faults
    assert (of_late.turn, fault.claim, fault.line) == ("late", TraceClaim.NOTHING_AFTER, 8)
    assert fault.why == "message after the end"
    assert of_late.unknown == {}
    (fault,) = of_open.faults
    assert (of_open.turn, fault.claim, fault.line) == ("open", TraceClaim.REPLIED, 5)
    assert of_open.unknown == {
        claim: "the trace stops before the turn ends: there is no turn_ended"
        for claim in TraceClaim
        if claim is not TraceClaim.REPLIED
    }
    assert of_sound == ("sound", [], {})


def test_place_of_an_event_has_the_name_given_by_the_caller() -> None:
    events = (BEGIN, CALLED, asks("c1"), ANSWER, END)
    for checks, place in (
        (check_turns(enumerate(events, start=1)), "line"),
        (check_turns(enumerate(events, start=1), "step"), "step"),
    ):
        (check,) = checks
        (fault,) = (fault for fault in check.faults if fault.claim is TraceClaim.PAIRED)
        assert fault.why == f"the model replies, and there is no result for c1 of {place} 3"
        assert fault.witness[-1] == f"{place} 4: model_replied"


class Broken(NamedTuple):
    """A trace with one fault: the claim that it breaks, and the detail that names the fault."""

    claim: TraceClaim
    detail: str
    events: tuple[TraceEvent, ...]


BROKEN = {
    "no result before the model": Broken(
        TraceClaim.PAIRED,
        "line 5: the model is called, and there is no result for c2 of line 3",
        (BEGIN, CALLED, asks("c1", "c2"), TraceToolResult(call="c1", status=CallStatus.REJECTED), CALLED, ANSWER, END),
    ),
    "no result before the end": Broken(
        TraceClaim.PAIRED,
        "line 5: the turn ends, and there is no result for c1 of line 3",
        (BEGIN, CALLED, asks("c1"), TraceToolStarted(call="c1"), TraceTurnEnded(outcome="a", reason="b", text="c")),
    ),
    "no result before a reply without a call": Broken(
        TraceClaim.PAIRED,
        "line 3: the model replies, and there is no result for c1 of line 2",
        (BEGIN, asks("c1"), ANSWER, END),
    ),
    "a result too many": Broken(
        TraceClaim.ASKED,
        "line 6: a result for call c1, and it has one already, in line 5",
        (BEGIN, CALLED, asks("c1"), *ran("c1"), TraceToolResult(call="c1"), CALLED, ANSWER, END),
    ),
    "a result that nobody asked for": Broken(
        TraceClaim.ASKED,
        "line 3: a result for call c9, and no reply asked for it",
        (BEGIN, CALLED, TraceToolResult(call="c9"), ANSWER, END),
    ),
    "two replies": Broken(
        TraceClaim.REPLIED,
        "line 4: a reply without an open model call",
        (BEGIN, CALLED, ANSWER, ANSWER, END),
    ),
    "a failure after a reply": Broken(
        TraceClaim.REPLIED,
        "line 4: a failure without an open model call",
        (BEGIN, CALLED, ANSWER, FAILED, END),
    ),
    "two calls at once": Broken(
        TraceClaim.REPLIED,
        "line 3: the model is called, and the call of line 2 has no reply yet",
        (BEGIN, CALLED, CALLED, ANSWER, END),
    ),
    "success without a start": Broken(
        TraceClaim.STARTED,
        "line 6: call c2 of line 3 succeeds, and was never started",
        (BEGIN, CALLED, asks("c1", "c2"), *ran("c1"), TraceToolResult(call="c2"), CALLED, ANSWER, END),
    ),
    "a start that nobody asked for": Broken(
        TraceClaim.STARTED,
        "line 3: call c9 starts, and no reply asked for it",
        (BEGIN, CALLED, TraceToolStarted(call="c9"), ANSWER, END),
    ),
    "a start after its result": Broken(
        TraceClaim.STARTED,
        "line 6: call c1 starts, and it has one already, in line 5",
        (BEGIN, CALLED, asks("c1"), *ran("c1"), TraceToolStarted(call="c1"), CALLED, ANSWER, END),
    ),
    "a start too many": Broken(
        TraceClaim.RETRIED,
        "line 5: call c1 of line 3 starts again, and no tool_retried says so",
        (BEGIN, CALLED, asks("c1"), TraceToolStarted(call="c1"), *ran("c1"), CALLED, ANSWER, END),
    ),
    "two starts for one retry": Broken(
        TraceClaim.RETRIED,
        "line 7: call c1 of line 3 starts again, and no tool_retried says so",
        (
            *(
                BEGIN,
                CALLED,
                asks("c1"),
                TraceToolStarted(call="c1"),
                TraceToolRetried(call="c1"),
                TraceToolStarted(call="c1"),
            ),
            *(*ran("c1"), CALLED, ANSWER, END),
        ),
    ),
    "a retry of nothing": Broken(
        TraceClaim.RETRIED,
        "line 4: a retry of call c1 is recorded without an earlier start",
        (BEGIN, CALLED, asks("c1"), TraceToolRetried(call="c1"), *ran("c1"), CALLED, ANSWER, END),
    ),
    "a call of the concluding reply": Broken(
        TraceClaim.DISABLED,
        "line 4: call c1 of line 3 starts, and tools were disabled there",
        (BEGIN, TraceModelCalled(tools=False), asks("c1"), *ran("c1"), CALLED, ANSWER, END),
    ),
    "a tool during a pause": Broken(
        TraceClaim.RESTED,
        "line 5: call c1 starts while the turn is paused",
        (BEGIN, CALLED, asks("c1"), TracePaused(), *ran("c1"), TraceResumed(), CALLED, ANSWER, END),
    ),
    "a model call during a pause": Broken(
        TraceClaim.RESTED,
        "line 3: the model is called while the turn is paused",
        (BEGIN, TracePaused(), CALLED, ANSWER, END),
    ),
    "a step too many": Broken(
        TraceClaim.STEPS,
        "line 14: this is step 4, and the limit is 3",
        (BEGIN, *[event for call in "abc" for event in (CALLED, asks(call), *ran(call))], CALLED, ANSWER, END),
    ),
    "a tool call too many": Broken(
        TraceClaim.CALLS,
        "line 10: this is tool call 4, and the limit is 3",
        (BEGIN, CALLED, asks("a", "b", "c", "d"), *[event for call in "abcd" for event in ran(call)], ANSWER, END),
    ),
    "a model call too many": Broken(
        TraceClaim.MODEL_CALLS,
        "line 4: this is model call 2, and the limit is 1",
        (TraceTurnStarted(limits=TraceLimits(model_calls=1)), CALLED, FAILED, CALLED, ANSWER, END),
    ),
    "a retry too many": Broken(
        TraceClaim.RETRIES,
        "line 6: this is retry 2, and the limit is 1",
        (BEGIN, CALLED, FAILED, CALLED, FAILED, CALLED, ANSWER, END),
    ),
    "two endings": Broken(TraceClaim.ONE_END, "line 5: the turn ends again", (BEGIN, CALLED, ANSWER, END, END)),
    "two beginnings": Broken(TraceClaim.ONE_END, "line 2: the turn begins again", (BEGIN, BEGIN, CALLED, ANSWER, END)),
    "a tool after the end": Broken(
        TraceClaim.NOTHING_AFTER,
        "line 5: tool_started after the end",
        (BEGIN, CALLED, ANSWER, END, TraceToolStarted(call="c")),
    ),
    "a message after the end": Broken(
        TraceClaim.NOTHING_AFTER, "line 5: message after the end", (BEGIN, CALLED, ANSWER, END, TraceMessage())
    ),
    "no reason": Broken(
        TraceClaim.REASON,
        "line 4: turn_ended has no reason",
        (BEGIN, CALLED, ANSWER, TraceTurnEnded(outcome="x", reason=" ")),
    ),
    "neither outcome nor reason": Broken(
        TraceClaim.REASON, "line 4: turn_ended has no outcome and no reason", (BEGIN, CALLED, ANSWER, TraceTurnEnded())
    ),
    "a silent end": Broken(
        TraceClaim.WORDS,
        "line 4: turn_ended has a blank `text`: the user gets no text",
        (BEGIN, CALLED, ANSWER, END.model_copy(update={"text": ""})),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_fault_is_reported_with_the_line(name: str) -> None:
    broken = BROKEN[name]
    assert violated(*broken.events).get(broken.claim) == broken.detail


def test_every_claim_has_a_violating_fault() -> None:
    assert {broken.claim for broken in BROKEN.values()} == set(TraceClaim)


def test_witness_lists_the_path_and_quotes_no_text() -> None:
    events = (
        BEGIN,
        CALLED,
        FAILED,
        CALLED,
        asks("c1"),
        *ran("c1"),
        TraceMessage(text="secret"),
        TraceToolResult(call="c1"),
    )
    check = by_claim(check_events((*events, TraceModelCalled(tools=False), ANSWER, END)))[TraceClaim.ASKED]
    assert check.witness == (
        "line 2: model_called",
        "line 3: model_failed timeout",
        "line 4: model_called",
        "line 5: model_replied c1 (read)",
        "line 6: tool_started c1",
        "line 7: tool_result c1 ok",
        "line 8: message user",
        "line 9: tool_result c1 ok",
    )


def test_witness_contains_only_the_turn() -> None:
    mixed = [
        event for pair in zip(named("a", SOUND), named("b", (*SOUND[:-1], END, END)), strict=False) for event in pair
    ]
    mixed.append(named("b", [END])[0])
    check = by_claim(check_events(mixed))[TraceClaim.ONE_END]
    assert check.detail == f"line {len(mixed)}, turn b: the turn ends again"
    assert check.witness[-2:] == (
        f"line {len(mixed) - 1}: turn_ended finished: answered",
        f"line {len(mixed)}: turn_ended finished: answered",
    )


def test_first_of_several_faults_is_reported_and_the_others_counted() -> None:
    detail = violated(BEGIN, CALLED, *[TraceToolResult(call="c9")] * 2, ANSWER, END)[TraceClaim.ASKED]
    assert detail == "line 3: a result for call c9, and no reply asked for it (1 more like it)"


def test_exceeded_bound_is_reported_once() -> None:
    detail = violated(BEGIN, *((CALLED, FAILED) * 9), CALLED, ANSWER, END)[TraceClaim.MODEL_CALLS]
    assert detail == "line 18: this is model call 9, and the limit is 8"


def test_late_result_is_reported_as_late() -> None:
    faults = violated(
        BEGIN, CALLED, asks("c1"), TraceToolStarted(call="c1"), CALLED, TraceToolResult(call="c1"), ANSWER, END
    )
    assert faults[TraceClaim.PAIRED] == "line 5: the model is called, and there is no result for c1 of line 3"
    assert (
        faults[TraceClaim.ASKED] == "line 6: a result for call c1, and it comes too late: line 5 continued without it"
    )


@pytest.mark.parametrize(
    "middle",
    [
        (*ran("c"), *ran("c")),
        (TraceToolStarted(call="c"), TraceToolStarted(call="c"), TraceToolResult(call="c"), TraceToolResult(call="c")),
        (TraceToolStarted(call="c"), TraceToolResult(call="c", status=CallStatus.REFUSED), TraceToolResult(call="c")),
        (
            *(
                TraceToolStarted(call="c"),
                TraceToolRetried(call="c"),
                TraceToolStarted(call="c"),
                TraceToolStarted(call="c"),
            ),
            *(TraceToolResult(call="c"), TraceToolResult(call="c")),
        ),
    ],
)
def test_calls_with_equal_ids_are_paired_by_occurrence(middle: tuple[TraceEvent, ...]) -> None:
    assert set(verdicts(BEGIN, CALLED, asks("c", "c"), *middle, CALLED, ANSWER, END).values()) == {Verdict.HOLDS}


def test_every_call_without_a_result_is_named() -> None:
    faults = violated(BEGIN, CALLED, asks("c1", "c2"), CALLED, ANSWER, END)
    assert faults == {
        TraceClaim.PAIRED: "line 4: the model is called, and there is no result for c1 of line 3, c2 of line 3"
    }


def test_call_may_be_retried_more_than_once() -> None:
    again = (TraceToolRetried(call="c"), TraceToolStarted(call="c"))
    events = (
        BEGIN,
        CALLED,
        asks("c"),
        TraceToolStarted(call="c"),
        *again,
        *again,
        TraceToolResult(call="c"),
        CALLED,
        ANSWER,
        END,
    )
    assert set(verdicts(*events).values()) == {Verdict.HOLDS}


def test_tool_before_the_first_model_call_is_no_retry() -> None:
    limits = TraceLimits(steps=1, tool_calls=1, max_retries=0)
    assert violated(TraceTurnStarted(limits=limits), asks("c"), *ran("c"), ANSWER, END) == {}


def test_each_call_with_an_equal_id_needs_a_result() -> None:
    faults = violated(BEGIN, CALLED, asks("c", "c"), *ran("c"), CALLED, ANSWER, END)
    assert faults == {TraceClaim.PAIRED: "line 6: the model is called, and there is no result for c of line 3"}


def test_attempt_after_a_failure_is_no_step() -> None:
    limits = TraceLimits(steps=1, tool_calls=0, max_retries=2)
    events = (
        TraceTurnStarted(limits=limits),
        CALLED,
        FAILED,
        CALLED,
        FAILED,
        CALLED,
        FAILED,
        TraceModelCalled(tools=False),
    )
    assert violated(*events, ANSWER, END) == {}


def test_answered_failure_does_not_count_for_the_next_call() -> None:
    """The retries of the next call are its own."""
    beginning = (CALLED, FAILED, CALLED, asks("c"), *ran("c"))
    assert violated(BEGIN, *beginning, *beginning, CALLED, FAILED, CALLED, ANSWER, END) == {}


def test_model_call_without_tools_is_no_step() -> None:
    limits = TraceLimits(steps=0, tool_calls=0, max_retries=0)
    assert violated(TraceTurnStarted(limits=limits), TraceModelCalled(tools=False), ANSWER, END) == {}


def test_model_call_may_be_cut_off_by_the_end() -> None:
    ended = END.model_copy(update={"text": "Somebody stopped it."})
    assert set(verdicts(BEGIN, CALLED, ended).values()) == {Verdict.HOLDS}


def test_turn_may_end_before_the_model_is_called() -> None:
    ended = END.model_copy(update={"text": "Somebody stopped it."})
    assert set(verdicts(BEGIN, ended).values()) == {Verdict.HOLDS}


def test_truncated_trace_proves_nothing() -> None:
    details = unknown(*SOUND[:-1])
    assert set(details) == set(TraceClaim)
    assert set(details.values()) == {"the trace stops before the turn ends: there is no turn_ended"}


def test_trace_ending_in_a_pause_is_reported_as_paused() -> None:
    details = unknown(*SOUND[: SOUND.index(TracePaused()) + 1])
    assert set(details.values()) == {"the trace stops before the turn ends (it is paused): there is no turn_ended"}


def test_fault_in_a_truncated_trace_is_a_fault() -> None:
    claims = verdicts(BEGIN, CALLED, asks("c1"), CALLED)
    assert claims.pop(TraceClaim.PAIRED) is Verdict.VIOLATED
    assert set(claims.values()) == {Verdict.INCONCLUSIVE}


def test_trace_beginning_inside_a_turn_proves_nothing() -> None:
    """Missing events may explain an apparent fault."""
    details = unknown(TraceToolResult(call="c1"), CALLED, ANSWER, END, END)
    assert set(details) == set(TraceClaim)
    assert set(details.values()) == {"the trace begins in the middle of the turn: there is no turn_started first"}


def test_trace_without_a_turn_proves_nothing() -> None:
    details = {check.claim: check.detail for check in check_trace(["", "  \n"])}
    assert details == dict.fromkeys(TraceClaim, "there is no turn in the trace")
    assert {check.verdict for check in check_trace([])} == {Verdict.INCONCLUSIVE}
    assert worst(check_trace([])) is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("limits", "missing"),
    [
        (TraceLimits(), {TraceClaim.STEPS, TraceClaim.CALLS, TraceClaim.MODEL_CALLS, TraceClaim.RETRIES}),
        (TraceLimits(steps=3, tool_calls=3), {TraceClaim.MODEL_CALLS, TraceClaim.RETRIES}),
        (TraceLimits(tool_calls=3, max_retries=1), {TraceClaim.STEPS, TraceClaim.MODEL_CALLS}),
        (TraceLimits(steps=3, model_calls=5, max_retries=1), {TraceClaim.CALLS}),
    ],
)
def test_missing_limit_makes_the_claim_unknown(limits: TraceLimits, missing: set[TraceClaim]) -> None:
    details = unknown(TraceTurnStarted(limits=limits), *SOUND[1:])
    assert set(details) == missing
    given_by = {
        TraceClaim.STEPS: "`steps`",
        TraceClaim.CALLS: "`tool_calls`",
        TraceClaim.MODEL_CALLS: "`model_calls`, nor `steps` and `max_retries`",
        TraceClaim.RETRIES: "`max_retries`",
    }
    assert details == {claim: f"turn_started has no {given_by[claim]}" for claim in missing}


def test_claims_about_tool_starts_are_unknown_without_starts() -> None:
    silent = [event for event in SOUND if not isinstance(event, TraceToolStarted | TraceToolRetried)]
    details = unknown(*silent)
    assert set(details) == {
        TraceClaim.STARTED,
        TraceClaim.RETRIED,
        TraceClaim.CALLS,
        TraceClaim.DISABLED,
        TraceClaim.RESTED,
    }
    assert set(details.values()) == {
        "there are results and no tool_started: the runtime does not record when its tools start"
    }


def test_turn_without_a_pause_satisfies_the_pause_claim() -> None:
    error = TraceToolResult(call="c1", status=CallStatus.ERROR)
    details = unknown(BEGIN, CALLED, asks("c1"), error, CALLED, ANSWER, END)
    assert set(details) == {TraceClaim.STARTED, TraceClaim.RETRIED, TraceClaim.CALLS, TraceClaim.DISABLED}


def test_refused_call_needs_no_start() -> None:
    refused = TraceToolResult(call="c1", status=CallStatus.REFUSED)
    assert set(verdicts(BEGIN, CALLED, asks("c1"), refused, CALLED, ANSWER, END).values()) == {Verdict.HOLDS}


def test_claims_about_model_calls_are_unknown_without_model_calls() -> None:
    silent = [event for event in SOUND if not isinstance(event, TraceModelCalled)]
    details = unknown(*silent)
    assert set(details) == {
        *(
            TraceClaim.REPLIED,
            TraceClaim.STEPS,
            TraceClaim.MODEL_CALLS,
            TraceClaim.RETRIES,
            TraceClaim.DISABLED,
            TraceClaim.RESTED,
        )
    }
    assert set(details.values()) == {
        "there are replies and no model_called: the runtime does not record its model calls"
    }


def test_missing_model_calls_and_starts_are_both_reported() -> None:
    silent = [event for event in SOUND if not isinstance(event, TraceModelCalled | TraceToolStarted | TraceToolRetried)]
    assert set(unknown(*silent)) == {
        *(
            TraceClaim.REPLIED,
            TraceClaim.STEPS,
            TraceClaim.MODEL_CALLS,
            TraceClaim.RETRIES,
            TraceClaim.DISABLED,
            TraceClaim.RESTED,
        ),
        *(TraceClaim.STARTED, TraceClaim.CALLS),
        TraceClaim.RETRIED,
    }


def test_unseen_run_is_not_excused_by_a_later_refused_call() -> None:
    refused = TraceToolResult(call="c2", status=CallStatus.REFUSED)
    details = unknown(BEGIN, CALLED, asks("c1", "c2"), TraceToolResult(call="c1"), refused, CALLED, ANSWER, END)
    assert set(details) == {TraceClaim.STARTED, TraceClaim.RETRIED, TraceClaim.CALLS, TraceClaim.DISABLED}


def test_unrecorded_last_words_are_unknown() -> None:
    details = unknown(BEGIN, CALLED, asks("c1"), *ran("c1"), END)
    assert details == {TraceClaim.WORDS: "turn_ended has no `text`, and no reply had any"}


def test_unknown_claim_of_a_turn_is_unknown_for_all_turns() -> None:
    stopped = [event for turn in "bcd" for event in named(turn, SOUND[:-1])]
    details = unknown(*named("a", SOUND), *stopped)
    assert set(details.values()) == {
        "the trace stops before the turn ends: there is no turn_ended, turn b (and 2 more of 4 turns)"
    }
    assert unknown(*named("a", SOUND), *stopped[: len(SOUND) - 1])[TraceClaim.PAIRED].endswith("no turn_ended, turn b")


# The format.


@pytest.mark.parametrize(
    "event", [*SOUND, TraceTurnEnded(turn="t", data={"at": 1.5}, outcome="x", reason="y", text="é \n")]
)
def test_event_survives_a_round_trip(event: TraceEvent) -> None:
    line = write_event(event)
    assert "\n" not in line
    assert next(iter(json.loads(line))) == "event"
    assert read_event(line) == event


def test_default_fields_are_not_written() -> None:
    assert write_event(TraceToolResult(call="c1")) == '{"event": "tool_result", "call": "c1"}'


def test_separately_read_line_is_line_1() -> None:
    with pytest.raises(InvalidTraceError, match="line 1 of the trace"):
        read_event("nonsense")


def test_error_of_a_whole_line_names_no_field() -> None:
    with pytest.raises(InvalidTraceError, match=r"^line 1 of the trace: Unable to extract tag"):
        read_event("{}")


def test_unencodable_text_is_replaced() -> None:
    assert read_event(write_event(TraceModelReplied(text="a\ud83d"))) == TraceModelReplied(text="a?")


def test_lines_and_events_agree_and_empty_lines_count() -> None:
    lines = ["", *(line for event in (*SOUND, END) for line in (write_event(event) + "\n", " \n"))]
    detail = by_claim(check_trace(lines))[TraceClaim.ONE_END].detail
    assert detail == f"line {2 * len(SOUND) + 2}: the turn ends again"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "Invalid JSON"),
        ("[]", "object"),
        ("{}", "Unable to extract tag using discriminator 'event'"),
        ('{"event": "step"}', "does not match any of the expected tags: 'turn_started', 'model_called'"),
        ('{"event": "tool_started"}', "call: Field required"),
        ('{"event": "tool_started", "call": 1}', "call: Input should be a valid string"),
        ('{"event": "tool_result", "call": "c", "status": "fine"}', "status: Input should be 'ok', 'error'"),
        ('{"event": "model_called", "tool": false}', "tool: Extra inputs are not permitted"),
        ('{"event": "model_called", "tools": "yes"}', "tools: Input should be a valid boolean"),
        ('{"event": "model_replied", "calls": [{"name": "f"}]}', "calls.0.id: Field required"),
        (
            '{"event": "turn_started", "limits": {"steps": -1}}',
            "limits.steps: Input should be greater than or equal to 0",
        ),
        ('{"event": "turn_started", "limits": {"steps": true}}', "limits.steps: Input should be a valid integer"),
    ],
)
def test_unreadable_line_is_named_with_the_mistake(line: str, why: str) -> None:
    with pytest.raises(InvalidTraceError) as bad:
        check_trace([write_event(BEGIN), "", line])
    assert str(bad.value).startswith("line 3 of the trace: ")
    assert why in str(bad.value)
    assert bad.value.line == 3


# Our own turns, as traces.


@tool
def read(path: str) -> str:
    """Read a file."""
    return path


@tool(needs_approval=True)
def remove(path: str) -> str:
    """Remove a file."""
    return path


TOOLS: tuple[Tool, ...] = (read, remove)


@given(scenarios(TOOLS))
def test_every_turn_of_the_engine_holds(scenario: Scenario) -> None:
    """Claims hold for any model, tools, people and crashes. Only a limit that is switched off bounds nothing."""
    for driven in play(scenario, tools=TOOLS):
        journal = [fact for _, fact in driven.facts]
        checks = check_events(trace_of("t", journal))
        started = journal[0]
        assert isinstance(started, facts.TurnStarted)
        off = {TraceClaim.CALLS} if started.limits.tool_calls is None else set()
        assert {check.claim for check in checks if check.verdict is not Verdict.HOLDS} == off, checks


def recorded() -> list[facts.Fact]:
    """The journal of a turn with an attempt that failed, two calls that ran, one that could not, and a cap."""
    guard = LoopGuard(Limits(steps=1, max_retries=1))
    guard.failed(Cause.OVERLOADED)
    read, fly = ToolCall(name="read", arguments={}), ToolCall(name="fly", problem="no tool")
    for permit in guard.replied("I look.", [read, fly, read]):
        if permit.runs:
            guard.started(permit.id)
            guard.result(permit.id)
    guard.concluded(None)
    guard.concluded("Half of it is read.")
    return guard.take_facts()


def test_journal_is_converted_to_trace_events() -> None:
    *lines, end = trace_of("t", recorded())
    assert lines == named(
        "t",
        [
            TraceTurnStarted(limits=TraceLimits(steps=1, tool_calls=50, max_retries=1, model_calls=4)),
            *(CALLED, TraceModelFailed(cause="overloaded"), CALLED),
            TraceModelReplied(
                text="I look.",
                calls=(
                    TraceCall(id="call00001", name="read"),
                    TraceCall(id="call00002", name="fly"),
                    TraceCall(id="call00003", name="read"),
                ),
            ),
            TraceToolResult(call="call00002", status=CallStatus.REFUSED),
            *(*ran("call00001"), *ran("call00003")),
            *(TraceModelCalled(tools=False), TraceModelReplied()),
            *(TraceModelCalled(tools=False), TraceModelReplied(text="Half of it is read.")),
        ],
    )
    assert isinstance(end, TraceTurnEnded)
    assert (end.outcome, end.reason) == ("cap_hit", "step_cap")
    assert end.text is not None
    assert end.text.startswith("Half of it is read.")


def test_beginning_of_a_journal_is_a_truncated_trace() -> None:
    lines = trace_of("t", recorded()[:-1])
    assert lines == trace_of("t", recorded())[:-1]
    assert {check.verdict for check in check_events(lines)} == {Verdict.INCONCLUSIVE}


def test_deadline_in_a_model_call_is_a_failed_call() -> None:
    guard = LoopGuard(Limits(seconds=1))
    guard.expired(elapsed=1)
    assert trace_of("", guard.take_facts())[1:] == [CALLED, FAILED, TraceModelCalled(tools=False)]


def test_pause_ends_with_the_last_answer_and_the_call_is_a_retry() -> None:
    guard = LoopGuard()
    (permit,) = guard.replied("", [ToolCall(name="read", arguments={})])
    guard.started(permit.id)
    guard.waits(permit.id, InterruptKind.QUESTION)
    guard.answered("question-1", Decision.REPLY, "Yes.")
    guard.started(permit.id)
    assert trace_of("", guard.take_facts())[3:] == [
        *(TraceToolStarted(call=permit.id), TracePaused(), TraceResumed()),
        *(TraceToolRetried(call=permit.id), TraceToolStarted(call=permit.id)),
    ]


def test_pause_ending_the_turn_is_not_resumed() -> None:
    guard = LoopGuard()
    (permit,) = guard.replied("", [ToolCall(name="read", arguments={})])
    guard.waits(permit.id, InterruptKind.APPROVAL)
    guard.aborted()
    paused, result, end = trace_of("", guard.take_facts())[3:]
    assert (paused, result) == (TracePaused(), TraceToolResult(call=permit.id, status=CallStatus.ABORTED))
    assert isinstance(end, TraceTurnEnded)
    assert end.text == "The turn was aborted. You can continue in a new message."


@pytest.mark.parametrize(
    ("dropped", "claim"),
    [
        (facts.CallSettled, TraceClaim.PAIRED),
        (facts.CallStarted, TraceClaim.STARTED),
        (facts.StepStarted, TraceClaim.REPLIED),
        (facts.TurnEnded, None),
    ],
)
def test_journal_with_a_missing_fact_does_not_hold(dropped: type[facts.Fact], claim: TraceClaim | None) -> None:
    """The trace contains the journal's facts, not the facts that it should have."""
    journal = recorded()
    last = max(place for place, fact in enumerate(journal) if isinstance(fact, dropped))
    del journal[last]
    checks = check_events(trace_of("t", journal))
    assert worst(checks) is (Verdict.INCONCLUSIVE if claim is None else Verdict.VIOLATED)
    assert [check.claim for check in checks if check.verdict is Verdict.VIOLATED] == ([] if claim is None else [claim])


# A sound trace that was tampered with.

Mutation = Callable[[list[TraceEvent], int], TraceClaim]


def drop_a_result(events: list[TraceEvent], place: int) -> TraceClaim:
    results = [index for index, event in enumerate(events) if isinstance(event, TraceToolResult)]
    del events[results[place % len(results)]]
    return TraceClaim.PAIRED


def double_a_result(events: list[TraceEvent], place: int) -> TraceClaim:
    results = [index for index, event in enumerate(events) if isinstance(event, TraceToolResult)]
    index = results[place % len(results)]
    events.insert(index, events[index])
    return TraceClaim.ASKED


def double_a_start(events: list[TraceEvent], place: int) -> TraceClaim:
    starts = [index for index, event in enumerate(events) if isinstance(event, TraceToolStarted)]
    index = starts[place % len(starts)]
    events.insert(index, events[index])
    return TraceClaim.RETRIED


def drop_a_start(events: list[TraceEvent], place: int) -> TraceClaim:
    starts = [index for index, event in enumerate(events) if isinstance(event, TraceToolStarted)]
    del events[starts[place % len(starts)]]
    return TraceClaim.STARTED


def drop_a_reply(events: list[TraceEvent], place: int) -> TraceClaim:
    replies = [index for index, event in enumerate(events) if isinstance(event, TraceModelReplied)]
    # The last one may be missing: the end has cut the call off.
    del events[replies[place % (len(replies) - 1)]]
    return TraceClaim.REPLIED


def end_twice(events: list[TraceEvent], _: int) -> TraceClaim:
    events.append(events[-1])
    return TraceClaim.ONE_END


def end_early(events: list[TraceEvent], place: int) -> TraceClaim:
    events.insert(1 + place % (len(events) - 2), events[-1])
    return TraceClaim.NOTHING_AFTER


def end_without_a_reason(events: list[TraceEvent], _: int) -> TraceClaim:
    events[-1] = END.model_copy(update={"reason": ""})
    return TraceClaim.REASON


def allow_a_step_less(events: list[TraceEvent], _: int) -> TraceClaim:
    steps = sum(isinstance(event, TraceModelCalled) and event.tools for event in events)
    events[0] = TraceTurnStarted(limits=TraceLimits(steps=steps - 1))
    return TraceClaim.STEPS


def allow_a_call_less(events: list[TraceEvent], _: int) -> TraceClaim:
    starts = sum(isinstance(event, TraceToolStarted) for event in events)
    events[0] = TraceTurnStarted(limits=TraceLimits(tool_calls=starts - 1))
    return TraceClaim.CALLS


def pause_for_ever(events: list[TraceEvent], place: int) -> TraceClaim:
    events.insert(1 + place % (len(events) - 4), TracePaused())
    return TraceClaim.RESTED


MUTATIONS: tuple[Mutation, ...] = (
    *(drop_a_result, double_a_result, double_a_start, drop_a_start, drop_a_reply, end_twice, end_early),
    *(end_without_a_reason, allow_a_step_less, allow_a_call_less, pause_for_ever),
)

#: Turns of some steps, each of some calls, all of which run; ids are those of a provider that numbers each reply anew.
TURNS = st.lists(st.integers(2, 4), min_size=1, max_size=5).map(
    lambda steps: [
        BEGIN,
        *(
            event
            for calls in steps
            for event in (
                CALLED,
                asks(*(f"c{number}" for number in range(calls))),
                *(event for number in range(calls) for event in ran(f"c{number}")),
            )
        ),
        CALLED,
        ANSWER,
        END,
    ]
)


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_tampered_trace_is_detected(mutate: Mutation) -> None:
    @given(TURNS, st.integers(0, 99))
    def finds(events: list[TraceEvent], place: int) -> None:
        tampered = list(events)
        claim = mutate(tampered, place)
        assert claim in violated(*tampered)

    finds()
