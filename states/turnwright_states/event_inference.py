"""The inputs of a turn, inferred from the facts that followed from them.

One input gives a group of facts, and the first fact has most of the input's values. A group may have several possible
inputs: an open call that gets its result may have finished, or a stop may have closed it, which only the end of the
group shows. This module returns each candidate, and the replay (`replay.py`) tries them.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from . import facts as f
from .batch import NO_LEASE, TOO_DEEP
from .construct import construct, construct_unchecked
from .inputs import (
    AbortInput,
    AbortReason,
    AttemptFailedInput,
    CallQuestion,
    CallSettledInput,
    CallStartedInput,
    CallStatus,
    CallWaitingInput,
    ConcludedInput,
    ExpireInput,
    FailInput,
    Finish,
    Input,
    ModelRepliedInput,
    ReviewedInput,
    StartedInput,
    ToolCall,
    TrippedInput,
    Usage,
)
from .limits import MAX_CALLS_PER_REPLY
from .reasons import CUT_SHORT, Cause, EndReason
from .state import State
from .turn import Turn

#: The statuses of calls that a stop closes.
_CLOSED: Final = (CallStatus.ABORTED, CallStatus.REJECTED)
#: Facts that never follow a stop. After one of them no stop is tried, because that would take minutes in a forged
#: journal.
_GOES_ON: Final = (f.StepStarted, f.CallStarted, f.CallWaiting, f.Paused, f.Answered, f.ModelReplied)
_Input = TypeVar("_Input", bound=Input)
_ABORTED: Final[tuple[AbortReason, ...]] = (EndReason.ABORTED, EndReason.SUPERSEDED)


def started_input(fact: f.TurnStarted) -> StartedInput:
    """Return the input that begins a journal."""
    return _copy_input(fact, StartedInput)


def only_input(facts: Sequence[f.Fact], at: int) -> Input | None:
    """Return the input of the group that begins at the index `at`; None if several are possible, or the kind is rare.

    Nothing is checked: compare the facts that follow, and check the values with `infer_inputs` if they differ.
    """
    fact = facts[at]
    match fact:
        case f.CallStarted():
            return construct_unchecked(
                CallStartedInput,
                elapsed=fact.elapsed,
                call=fact.call,
                child=fact.child,
                arguments=fact.arguments,
                decisions=fact.decisions,
            )
        case f.CallSettled() if fact.rules:
            return _refused_start(fact)
        case f.CallSettled(status=CallStatus.OK | CallStatus.ERROR | CallStatus.REFUSED):
            return construct_unchecked(
                CallSettledInput,
                elapsed=fact.elapsed,
                call=fact.call,
                status=fact.status,
                result=fact.result,
                structured=fact.structured,
                files=fact.files,
                spent=fact.spent,
                final=fact.final,
                retry=fact.retry,
                decisions=fact.decisions,
            )
        case f.ModelReplied() if len(fact.calls) <= MAX_CALLS_PER_REPLY:
            return construct_unchecked(
                ModelRepliedInput,
                elapsed=fact.elapsed,
                text=fact.text,
                reasoning=fact.reasoning,
                reasoning_details=fact.reasoning_details,
                calls=tuple([construct_unchecked(ToolCall, **_rebuild_call_fields(call)) for call in fact.calls]),
                finish=fact.finish,
                usage=fact.usage,
                review=_needs_review(fact),
                starts=_starts(facts, at),
            )
        case _:
            return None


def infer_inputs(facts: Sequence[f.Fact], at: int, turn: Turn) -> Iterator[Input]:  # noqa: C901 (one case a fact: flat)
    """Yield the possible inputs of the group that begins at the index `at`, the most likely first.

    `turn` is the fold of the facts before it. A fact that only follows from others has no input. Raises
    `InvalidInputError` for a value that no input can have, such as a negative time.
    """
    head = facts[at]
    elapsed = head.elapsed
    match head:
        case f.ModelReplied():
            calls = tuple(ToolCall(**_rebuild_call_fields(call)) for call in head.calls)
            yield _copy_input(
                head, ModelRepliedInput, calls=calls, review=_needs_review(head), starts=_starts(facts, at)
            )
        case f.AttemptFailed():
            if head.cause is Cause.EMPTY_REPLY:
                finish = Finish.LENGTH if head.message == CUT_SHORT else Finish.STOP
                yield ModelRepliedInput(elapsed=elapsed, finish=finish, usage=head.usage)
            yield _copy_input(head, AttemptFailedInput)
        case f.CallSettled() if head.rules:
            yield _refused_start(head)
        case f.CallSettled():
            if head.status is CallStatus.UNKNOWN:  # perhaps a rerun for which no retry was left
                yield CallStartedInput(elapsed=elapsed, call=head.call)
            yield _copy_input(head, CallSettledInput)
            if head.status in _CLOSED:
                yield from _list_stops(facts, at, turn)
        case f.CallWaiting():
            yield _rebuild_wait(head)
        case f.Reviewed():
            yield from _list_reviews(head, turn)
        case f.Concluded():
            yield _copy_input(head, ConcludedInput, calls=tuple(ToolCall(name=name) for name in head.refused))
        case f.StepFinished() | f.TurnEnded():
            yield from _list_stops(facts, at, turn)
        case _ if head.follows_from is not None:
            yield _copy_input(head, head.follows_from)


def _copy_input(fact: f.Fact, kind: type[_Input], **changes: object) -> _Input:
    """Return the input of this kind with the fields that it shares with the fact, and with `changes` values."""
    shared_fields = {*kind.__struct_fields__} & {*fact.__struct_fields__} - changes.keys()
    return construct(kind, {**{name: getattr(fact, name) for name in shared_fields}, **changes})


def _needs_review(fact: f.ModelReplied) -> bool:
    # The reply of a content filter is in no state that shows a review.
    return fact.state is State.REVIEW or True in [call.output for call in fact.calls]


def _starts(facts: Sequence[f.Fact], at: int) -> bool:
    """Return whether the calls of the reply at the index `at` started with it: only then has a start no hash."""
    for place in range(at + 1, len(facts)):
        fact = facts[place]
        asks_by_rule = isinstance(fact, f.CallWaiting) and bool(fact.interrupt.rules) and not fact.interrupt.forwarded
        if not asks_by_rule and not isinstance(fact, f.CallSettled | f.Notice):
            return isinstance(fact, f.CallStarted) and not fact.hash
    return False


def _rebuild_call_fields(call: f.CallMade) -> dict[str, Any]:
    """Return the fields of the call as the driver fed it. Its tool's `loop_key` cannot be recovered from the key."""
    return {
        "name": call.name,
        "arguments": call.arguments,
        "raw": call.raw,
        "provider_id": call.provider_id,
        "problem": call.refused if call.invalid else "",
        "loop_key": "" if call.own_key else None,
        "ignore_in_loop_detection": not call.key,
        "delegates": call.lease is not None or call.refused in (TOO_DEEP, NO_LEASE),
        "output": call.output,
        "reaches": call.reaches,
    }


def _refused_start(fact: f.CallSettled) -> CallStartedInput:
    """Return the start that a rule refused. A question of the call gives the same fact."""
    return CallStartedInput(elapsed=fact.elapsed, call=fact.call, arguments=fact.arguments, decisions=fact.decisions)


def _rebuild_wait(fact: f.CallWaiting) -> CallWaitingInput:
    interrupt = fact.interrupt
    return CallWaitingInput(
        elapsed=fact.elapsed,
        call=fact.call,
        changed=fact.changed,
        decisions=fact.decisions,
        kept=interrupt.kept,
        more=tuple([CallQuestion(**_rebuild_question(question)) for question in fact.more]),
        **_rebuild_question(interrupt),
    )


def _rebuild_question(interrupt: f.InterruptRecord) -> dict[str, Any]:
    """Return the fields of a question as the driver fed it."""
    shared_fields = {*CallQuestion.__struct_fields__} & {*f.InterruptRecord.__struct_fields__} - {"tool"}
    return {name: getattr(interrupt, name) for name in shared_fields} | {
        "interrupt_kind": interrupt.kind,
        "forwarded": interrupt.id.removeprefix(f"{interrupt.call}/") if interrupt.forwarded else None,
        "tool": interrupt.tool if interrupt.forwarded else "",
        "rules": tuple([verdict.rule for verdict in interrupt.rules if interrupt.forwarded]),
    }


def _list_reviews(fact: f.Reviewed, turn: Turn) -> Iterator[ReviewedInput]:
    """Yield the reviews of a reply. The fact does not name an answer that a rule refused: try each open call."""
    if not fact.rules:
        yield _copy_input(fact, ReviewedInput)
        return
    for call in turn.open_calls():
        yield ReviewedInput(elapsed=fact.elapsed, answer=call.id, decisions=fact.decisions)


def _list_stops(facts: Sequence[f.Fact], at: int, turn: Turn) -> Iterator[Input]:
    """Yield the stops that may have closed the open calls, finished the step and ended the turn, from `at` on.

    A group without such an end is cut off or forged, so every stop is possible.
    """
    elapsed, end = facts[at].elapsed, at
    while end < len(facts) and isinstance(facts[end], f.CallSettled | f.Notice | f.StepFinished):
        end += 1
    last = facts[end] if end < len(facts) else None
    if isinstance(last, _GOES_ON) and isinstance(facts[at], f.CallSettled):
        return
    stop = last if isinstance(last, f.Stopping | f.TurnEnded) else None
    partial, usage = (stop.partial, stop.usage) if stop else ("", None)
    settled_facts = [fact for fact in facts[at:end] if isinstance(fact, f.CallSettled)]
    spent_by_call = {fact.call: fact.spent for fact in settled_facts if fact.spent is not None}
    if not isinstance(stop, f.Stopping):
        for reason in _ABORTED:
            yield AbortInput(elapsed=elapsed, partial=partial, spent=spent_by_call, usage=usage, reason=reason)
        error = stop.error if stop else ""
        yield FailInput(elapsed=elapsed, error=error, partial=partial, spent=spent_by_call, usage=usage)
        guardrail = f.TrippedGuardrail(name="") if stop is None else stop.guardrail
        if guardrail is not None:
            yield TrippedInput(
                elapsed=elapsed,
                guardrail=guardrail.name,
                message=guardrail.message,
                metadata=guardrail.metadata,
                checks=guardrail.checks,
                partial=partial,
                usage=usage,
                spent=spent_by_call,
            )
    yield ExpireInput(elapsed=elapsed, partial=partial, spent=spent_by_call, usage=usage)
    step_end = facts[end - 1]
    if isinstance(step_end, f.StepFinished):
        # The step's usage is the first to include the attempt that was cut off.
        unspent_usage = _subtract_usage(step_end.usage, turn.step_usage)
        yield ExpireInput(elapsed=elapsed, partial=partial, spent=spent_by_call, usage=unspent_usage)
        if stop is None:
            yield TrippedInput(elapsed=elapsed, guardrail="", partial=partial, spent=spent_by_call, usage=unspent_usage)


def _subtract_usage(whole: Usage, part: Usage) -> Usage | None:
    try:
        return whole - part
    except ValueError:  # the part is larger than the whole
        return None
