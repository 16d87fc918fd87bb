"""Concluding, pairing, replies and retries (docs/rules.md#concluding, #pairing, #replies, #retries)."""

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from turnwright_states import (
    AttemptFailedInput,
    CallModel,
    CallStartedInput,
    CallState,
    CallStatus,
    Cause,
    Conclude,
    ConcludedInput,
    EndReason,
    ExpireInput,
    Finish,
    Halt,
    IllegalInputError,
    ModelRepliedInput,
    Outcome,
    StartedInput,
    State,
    SynthesizedInput,
    ToolCall,
    TurnMachine,
    Usage,
    facts,
)

if TYPE_CHECKING:
    from .conftest import Begin, Script

PASSING = (
    Cause.CONNECTION,
    Cause.TIMEOUT,
    Cause.CONFLICT,
    Cause.RATE_LIMITED,
    Cause.SERVER_ERROR,
    Cause.OVERLOADED,
    Cause.INTERRUPTED,
    Cause.EMPTY_REPLY,
    Cause.REPETITION,
    Cause.CRASH,
)
#: Texts that show nothing: spaces, controls, a byte order mark, zero-width and other invisible characters.
BLANK = (
    "",
    " ",
    "\n",
    " \t\r\n\x0b\x0c",
    "\x00\x1b",
    "\u200b",
    "\ufeff",
    " \u2060\u200d\n",
    "\u00a0\u2003\u3000",
    "\u3164\u2800",
)
LASTING = tuple(cause for cause in Cause if cause not in PASSING)


def concluding(begin: "Begin", reason: EndReason = EndReason.STEP_CAP, **limits: object) -> "Script":
    """A turn that was stopped by its cap, or by a doom loop, and is to conclude."""
    turn = begin(**({"steps": 1} if reason is EndReason.STEP_CAP else {"doom_threshold": 2}), **limits)
    while isinstance(turn.action, CallModel):
        turn.step("look")
    assert isinstance(turn.action, Conclude)
    return turn


# Rule 7. Concluding.


def test_concluding_call_has_separate_bounds(begin: "Begin") -> None:
    """30 s and 1,024 tokens unless the limits say otherwise; the token budget does not clamp it."""
    assert concluding(begin, tokens=5).action == Conclude(EndReason.STEP_CAP, 30.0, 1024)
    changed = concluding(begin, conclude_seconds=5, conclude_tokens=256)
    assert changed.action == Conclude(EndReason.STEP_CAP, 5.0, 256)


def test_deadline_does_not_apply_to_the_concluding_call(begin: "Begin") -> None:
    turn = concluding(begin, seconds=10)
    turn.clock = 1000.0
    with pytest.raises(IllegalInputError, match="not accepted in state CONCLUDE"):
        turn.feed(ExpireInput())
    turn.feed(ConcludedInput(text="Done so far: nothing."))
    assert turn.end == Halt(Outcome.CAP_HIT, EndReason.STEP_CAP)


@pytest.mark.parametrize("text", [*BLANK, None])
@pytest.mark.parametrize("names", [(), ("look", "write")])
def test_conclusion_without_text_is_requested_once_more(
    begin: "Begin", text: str | None, names: tuple[str, ...]
) -> None:
    """No text, with or without calls. A second reply without text ends the turn, whatever retries are left."""
    turn = concluding(begin)
    unusable = ConcludedInput(text=text, calls=tuple(ToolCall(name=name, arguments={}) for name in names))
    turn.feed(unusable)
    assert turn.action == Conclude(EndReason.STEP_CAP, 30.0, 1024, second_try=True)
    turn.feed(unusable)
    assert [(reply.text, reply.refused, reply.retry) for reply in turn.of(facts.Concluded)] == [
        (None, names, True),
        (None, names, False),
    ]
    assert turn.end == Halt(Outcome.CAP_HIT, EndReason.STEP_CAP)


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [(EndReason.STEP_CAP, Outcome.CAP_HIT), (EndReason.DOOM_LOOP, Outcome.DOOM_LOOP)],
)
def test_text_of_the_second_try_concludes(begin: "Begin", reason: EndReason, outcome: Outcome) -> None:
    turn = concluding(begin, reason)
    turn.feed(ConcludedInput())
    turn.feed(ConcludedInput(text="Half of it is done."))
    assert [reply.text for reply in turn.of(facts.Concluded)] == [None, "Half of it is done."]
    assert turn.end == Halt(outcome, reason)


def test_text_beside_calls_concludes_at_once(begin: "Begin") -> None:
    """The calls are refused, and the user gets the text."""
    turn = concluding(begin)
    turn.feed(ConcludedInput(text="Half of it is done.", calls=(ToolCall(name="write", arguments={}),)))
    assert turn.end == Halt(Outcome.CAP_HIT, EndReason.STEP_CAP)


def test_second_try_needs_a_retry(begin: "Begin") -> None:
    turn = concluding(begin, max_retries=0)
    turn.feed(ConcludedInput())
    assert turn.end == Halt(Outcome.CAP_HIT, EndReason.STEP_CAP)
    assert not turn.of(facts.Concluded)[0].retry


def test_second_try_takes_a_retry_of_the_conclusion(begin: "Begin") -> None:
    """Failed attempts before it and after it take theirs: the formula of model calls stays."""
    turn = concluding(begin, max_retries=2)
    turn.feed(AttemptFailedInput(cause=Cause.TIMEOUT))
    turn.feed(ConcludedInput())
    assert turn.machine.turn.counters.retries_left == 0
    turn.feed(AttemptFailedInput(cause=Cause.TIMEOUT))
    assert turn.end == Halt(Outcome.CAP_HIT, EndReason.STEP_CAP)
    used_up = concluding(begin, max_retries=1)
    used_up.feed(AttemptFailedInput(cause=Cause.TIMEOUT))
    used_up.feed(ConcludedInput())
    assert used_up.end == Halt(Outcome.CAP_HIT, EndReason.STEP_CAP)


def test_failed_attempt_at_the_second_try_keeps_the_second_try(begin: "Begin") -> None:
    turn = concluding(begin)
    turn.feed(ConcludedInput())
    turn.feed(AttemptFailedInput(cause=Cause.TIMEOUT))
    assert turn.action == Conclude(EndReason.STEP_CAP, 30.0, 1024, second_try=True)
    turn.feed(ConcludedInput())
    assert turn.end == Halt(Outcome.CAP_HIT, EndReason.STEP_CAP)


def test_second_try_follows_from_the_journal(begin: "Begin") -> None:
    turn = concluding(begin)
    first = TurnMachine.resume(turn.facts)
    turn.feed(ConcludedInput())
    second = TurnMachine.resume(turn.facts)
    assert [second.action, second.turn.digest()] == [turn.action, turn.machine.turn.digest()]
    assert first.action == Conclude(EndReason.STEP_CAP, 30.0, 1024)


def test_empty_reply_reported_as_failure_is_an_empty_conclusion(begin: "Begin") -> None:
    turn = concluding(begin)
    nothing = AttemptFailedInput(cause=Cause.EMPTY_REPLY, message="nothing came", usage=Usage(input_tokens=7))
    assert not turn.machine.may_end_with(nothing)
    turn.feed(nothing)
    assert turn.action == Conclude(EndReason.STEP_CAP, 30.0, 1024, second_try=True)
    assert turn.machine.turn.usage.tokens == 7
    assert turn.machine.may_end_with(nothing)
    turn.feed(AttemptFailedInput(cause=Cause.EMPTY_REPLY))
    assert turn.end == Halt(Outcome.CAP_HIT, EndReason.STEP_CAP)


def test_calls_of_a_conclusion_are_recorded_once_and_never_run(begin: "Begin") -> None:
    turn = concluding(begin)
    new = turn.feed(ConcludedInput(text="Done.", calls=(ToolCall(name="write", arguments={"path": "a"}),)))
    assert [fact.kind for fact in new] == ["concluded", "turn_ended"]
    assert turn.of(facts.Concluded)[0].refused == ("write",)
    assert turn.calls == 1


def test_calls_in_a_text_only_turn_are_refused_and_never_run(begin: "Begin") -> None:
    turn = begin(steps=0)
    turn.reply("write", ToolCall(name="look", raw="{"), text="I would write it.")
    for call in ("call00001", "call00002"):
        assert turn.result(call).status is CallStatus.REFUSED
        assert turn.result(call).result == "not executed: tools are disabled in this reply"
    assert turn.calls == 0
    assert turn.end == Halt(Outcome.FINISHED, EndReason.TEXT_ONLY)


@pytest.mark.parametrize(
    ("reason", "outcome"), [(EndReason.STEP_CAP, Outcome.CAP_HIT), (EndReason.DOOM_LOOP, Outcome.DOOM_LOOP)]
)
@pytest.mark.parametrize("cause", list(Cause))
@pytest.mark.parametrize("retries", [0, 1, 3])
def test_failure_during_the_conclusion_is_never_failed(
    begin: "Begin", reason: EndReason, outcome: Outcome, cause: Cause, retries: int
) -> None:
    """After the retries that the cause allows, the fixed summary is used."""
    turn = concluding(begin, reason, max_retries=retries)
    attempts = 0
    while turn.end is None:
        attempts += 1
        turn.feed(AttemptFailedInput(cause=cause, message="502"))
    most = min(retries, 1) if cause is Cause.EMPTY_REPLY else retries
    assert attempts == (1 + most if cause in PASSING else 1)
    assert turn.end == Halt(outcome, reason)


# Rule 8. Pairing.


def test_ids_are_generated_and_unique_in_the_turn(begin: "Begin") -> None:
    """Provider ids are not unique: two calls with one id are two calls, in the order in which they were asked for."""
    twin = ToolCall(name="look", arguments={}, provider_id="call_0")
    turn = begin()
    turn.reply(twin, twin)
    turn.settle()
    turn.reply(twin)
    calls = [call for reply in turn.of(facts.ModelReplied) for call in reply.calls]
    assert [(call.id, call.provider_id) for call in calls] == [
        ("call00001", "call_0"),
        ("call00002", "call_0"),
        ("call00003", "call_0"),
    ]


def test_id_has_nine_letters_and_digits(begin: "Begin") -> None:
    turn = begin()
    turn.reply("look")
    assert turn.ready[0].isalnum()
    assert len(turn.ready[0]) == 9


def test_each_call_has_exactly_one_result_at_each_quiescent_point(begin: "Begin") -> None:
    turn = begin(tool_calls=2)
    turn.reply("look", ToolCall(name="nope", problem="there is no tool nope"), "look", "look")
    turn.settle()
    call_ids = [call.id for reply in turn.of(facts.ModelReplied) for call in reply.calls]
    assert sorted(fact.call for fact in turn.of(facts.CallSettled)) == call_ids


def test_invalid_json_arguments_become_an_empty_object(begin: "Begin") -> None:
    """With the error as the result; the journal keeps the text."""
    turn = begin()
    turn.reply(ToolCall(name="read", raw='{"path": "a.p'), "look")
    call = turn.machine.turn.batch["call00001"]
    assert (call.arguments, call.made.raw) == ({}, '{"path": "a.p')
    assert turn.result("call00001").status is CallStatus.ERROR
    assert turn.result("call00001").result == "not executed: the arguments are not one whole JSON object"


def test_batch_without_a_runnable_call_is_settled_at_once(begin: "Begin") -> None:
    turn = begin(doom_threshold=None)
    turn.reply(ToolCall(name="read", raw="{"), ToolCall(name="nope", arguments={}, problem="there is no tool nope"))
    assert turn.action == CallModel(tools=True)
    assert turn.steps == 2


# Rule 9. Continuing.


@pytest.mark.parametrize("finish", [Finish.STOP, Finish.LENGTH])
def test_calls_run_for_any_finish_reason(begin: "Begin", finish: Finish) -> None:
    turn = begin()
    turn.reply("look", text="Let me look.", finish=finish)
    assert turn.state is State.TOOL_EXEC
    assert turn.ready == ["call00001"]


def test_only_complete_arguments_run_after_length(begin: "Begin") -> None:
    turn = begin()
    turn.reply("look", ToolCall(name="write", raw='{"path": "a.py", "text": "def'), finish=Finish.LENGTH)
    assert turn.ready == ["call00001"]
    assert turn.result("call00002").status is CallStatus.ERROR


def test_length_without_calls_is_truncated(begin: "Begin") -> None:
    turn = begin()
    turn.reply(text="Once upon a", finish=Finish.LENGTH)
    assert turn.end == Halt(Outcome.FINISHED, EndReason.TRUNCATED)


@pytest.mark.parametrize("names", [(), ("look", "look")])
@pytest.mark.parametrize("limits", [{}, {"steps": 0}], ids=str)
def test_content_filter_fails_the_turn_and_runs_no_call(
    begin: "Begin", limits: dict[str, object], names: tuple[str, ...]
) -> None:
    turn = begin(**limits)
    turn.reply(*names, finish=Finish.CONTENT_FILTER)
    assert turn.end == Halt(Outcome.FAILED, EndReason.CONTENT_FILTER)
    assert turn.calls == 0
    assert len(turn.of(facts.CallSettled)) == len(names)


@pytest.mark.parametrize("limits", [{}, {"steps": 0}], ids=str)
@pytest.mark.parametrize("text", BLANK)
@pytest.mark.parametrize("reasoning", ["", "The user wants ..."])
@pytest.mark.parametrize("finish", [Finish.STOP, Finish.LENGTH])
def test_reply_with_neither_text_nor_calls_is_a_failed_attempt(
    begin: "Begin", finish: Finish, reasoning: str, text: str, limits: dict[str, object]
) -> None:
    """It is retried as `empty_reply`; reasoning alone is not an answer, nor are characters that nobody sees."""
    turn = begin(max_retries=1, **limits)
    empty = ModelRepliedInput(text=text, reasoning=reasoning, finish=finish, usage=Usage(input_tokens=7))
    (failed,) = turn.feed(empty)
    assert isinstance(failed, facts.AttemptFailed)
    assert (failed.cause, failed.retry) == (Cause.EMPTY_REPLY, True)
    assert ("raise the limit" in failed.message) is (finish is Finish.LENGTH)
    assert turn.machine.turn.usage.tokens == 7
    turn.feed(empty)
    assert turn.end == Halt(Outcome.FAILED, EndReason.EMPTY_REPLY)


# Rule 10. Retries.


def test_wait_before_a_retry_is_recorded_only_if_retried(begin: "Begin") -> None:
    turn = begin(max_retries=1)
    for _ in range(2):
        turn.feed(AttemptFailedInput(cause=Cause.RATE_LIMITED, wait=12.5))
    assert [(failed.retry, failed.wait) for failed in turn.of(facts.AttemptFailed)] == [(True, 12.5), (False, 0.0)]


@pytest.mark.parametrize("limits", [{}, {"steps": 0}], ids=str)
@pytest.mark.parametrize("retries", [0, 1, 3])
@pytest.mark.parametrize("cause", PASSING)
def test_temporary_cause_is_retried(begin: "Begin", cause: Cause, retries: int, limits: dict[str, object]) -> None:
    turn = begin(max_retries=retries, **limits)
    for attempt in range(1, retries + 1):
        failed = turn.feed(AttemptFailedInput(cause=cause))[0]
        assert isinstance(failed, facts.AttemptFailed)
        assert (failed.attempt, failed.retry) == (attempt, True)
        assert isinstance(turn.action, CallModel)
    turn.feed(AttemptFailedInput(cause=cause, message="gone"))
    last = turn.of(facts.AttemptFailed)[-1]
    assert (last.attempt, last.retry) == (retries + 1, False)
    assert turn.of(facts.TurnEnded)[0].error == "gone"
    reason = {Cause.EMPTY_REPLY: EndReason.EMPTY_REPLY, Cause.CRASH: EndReason.CRASHED}
    assert turn.end == Halt(Outcome.FAILED, reason.get(cause, EndReason.MODEL_ERROR))


@pytest.mark.parametrize("limits", [{}, {"steps": 0}], ids=str)
@pytest.mark.parametrize("cause", LASTING)
def test_permanent_cause_fails_at_once(begin: "Begin", cause: Cause, limits: dict[str, object]) -> None:
    """400, 401, 403, 404, 422, context overflow, content filter."""
    turn = begin(**limits)
    turn.feed(AttemptFailedInput(cause=cause))
    reason = {
        Cause.CONTEXT_OVERFLOW: EndReason.CONTEXT_OVERFLOW,
        Cause.CONTENT_FILTER: EndReason.CONTENT_FILTER,
    }
    assert turn.end == Halt(Outcome.FAILED, reason.get(cause, EndReason.MODEL_ERROR))


def test_each_phase_has_separate_retries(begin: "Begin") -> None:
    turn = begin(StartedInput(prompt="x", synthesis=True), steps=2, max_retries=1)
    for _ in range(2):
        turn.feed(AttemptFailedInput(cause=Cause.TIMEOUT))
        turn.step("look")
        turn.feed(AttemptFailedInput(cause=Cause.TIMEOUT))
        turn.feed(SynthesizedInput())
    assert isinstance(turn.action, Conclude)
    turn.feed(AttemptFailedInput(cause=Cause.TIMEOUT))
    assert isinstance(turn.action, Conclude)
    assert all(fact.retry for fact in turn.of(facts.AttemptFailed))


@pytest.mark.parametrize(("retries", "cause"), [(0, Cause.CRASH), (2, Cause.CRASH), (2, Cause.BAD_REQUEST)])
def test_synthesis_without_retries_left_is_null(begin: "Begin", retries: int, cause: Cause) -> None:
    """So is one whose failure will not pass: the turn continues without it."""
    turn = begin(StartedInput(prompt="x", synthesis=True), max_retries=retries)
    turn.step("look")
    attempts = 0
    while turn.steps == 1:
        attempts += 1
        turn.feed(AttemptFailedInput(cause=cause))
    assert attempts == (retries + 1 if cause.may_pass else 1)
    assert [fact.text for fact in turn.of(facts.Synthesized)] == [None]
    assert turn.action == CallModel(tools=True)


@pytest.mark.parametrize("text", BLANK)
def test_blank_synthesis_is_null(begin: "Begin", text: str) -> None:
    turn = begin(StartedInput(prompt="x", synthesis=True))
    turn.step("look")
    turn.feed(SynthesizedInput(text=text))
    assert [fact.text for fact in turn.of(facts.Synthesized)] == [None]
    assert turn.action == CallModel(tools=True)


def test_calls_starting_with_the_reply_make_the_facts_of_later_starts() -> None:
    def begun() -> TurnMachine:
        return TurnMachine.start(StartedInput(prompt="go"))[0]

    calls = (ToolCall(name="a", arguments={}), ToolCall(name="b", arguments=None), ToolCall(name="c", arguments={}))
    together, apart = begun(), begun()
    facts = together.feed(ModelRepliedInput(calls=calls, starts=True, elapsed=1))
    one_by_one = apart.feed(ModelRepliedInput(calls=calls, elapsed=1))
    for call in apart.turn.runnable():
        one_by_one += apart.feed(CallStartedInput(call=call.id, elapsed=1))
    assert facts == [replace(fact, hash="") if fact.kind == "call_started" else fact for fact in one_by_one]
    assert [fact.kind for fact in facts if fact.kind != "notice"] == [
        "model_replied",
        "call_settled",
        "call_started",
        "call_started",
    ]


def test_no_call_starts_with_a_reviewed_reply() -> None:
    machine, _ = TurnMachine.start(StartedInput(prompt="go"))
    calls = (ToolCall(name="a", arguments={}),)
    machine.feed(ModelRepliedInput(calls=calls, starts=True, review=True, elapsed=1))
    assert [call.state for call in machine.turn.batch.values()] == [CallState.READY]
