"""The invariants of a turn (`turnwright_audit.traces`), checked on recorded runs of any format."""

from collections.abc import Iterator, Mapping
from typing import Final

from turnwright_audit import traces
from turnwright_audit.traces import TraceClaim, TurnCheck
from turnwright_audit.trajectories.atif import ResultStatus, RunNotes, Trajectory, TrajectoryStep
from turnwright_audit.trajectories.traced_run import DAMAGE, TracedRun
from turnwright_states import CallStatus

from .measure import is_finished
from .rounds import is_reply, shared_result, text_of
from .verdicts import Invariants

_STATUSES: Final[Mapping[ResultStatus | None, CallStatus]] = {
    "error": CallStatus.ERROR,
    "denied": CallStatus.REJECTED,
    "canceled": CallStatus.ABORTED,
}
#: Claims about the end of a turn, which a recording of steps does not mark.
_OF_ENDS: Final = (TraceClaim.ONE_END, TraceClaim.NOTHING_AFTER, TraceClaim.REASON)
_NO_END: Final = "the format does not record the ends of turns"


def check_run(run: Trajectory, file: str, name: str) -> Invariants:
    """Check the turns of a run and of its sub-agents."""
    invariants = Invariants()
    for check in (
        _of_events(run) if isinstance(run, TracedRun) else (check for inner in run.every() for check in _checks(inner))
    ):
        invariants.take(check, file, name)
    return invariants


def _of_events(run: TracedRun) -> Iterator[TurnCheck]:
    for check in traces.check_turns(run.events(), run.place):
        yield _drop_faults(check, run.damage) if run.damage else check


def _checks(run: Trajectory) -> Iterator[TurnCheck]:
    is_damaged = run.run_notes.unreadable_lines > 0
    for check in traces.check_turns(events_of(run), "step"):
        unknown_claims = {claim: _NO_END for claim in _OF_ENDS if claim not in check.unknown}
        yield _drop_faults(check, DAMAGE) if is_damaged else check._replace(unknown={**check.unknown, **unknown_claims})


def _drop_faults(check: TurnCheck, why: str) -> TurnCheck:
    """Return a check without faults, because what could not be read may explain them."""
    return check._replace(faults=(), unknown=dict.fromkeys(TraceClaim, why))


def events_of(run: Trajectory) -> Iterator[tuple[int, traces.TraceEvent]]:
    """Yield the events of the turns of a run, each with the number of its step; turns are named by their place.

    A call of a terminal tool, and one whose result could not be read, count as having one.
    """
    notes = run.run_notes
    turn = 0
    number = 0
    for step in run.steps:
        if step.is_copied_context or (not turn and step.source == "system"):
            continue
        if step.step_notes.steered and turn:
            yield step.step_id, traces.TraceMessage(turn=str(turn), text=text_of(step.message))
            continue
        if step.source == "user" or not turn:
            if turn:
                yield number, _end(str(turn), "")
            turn += 1
            yield step.step_id, traces.TraceTurnStarted(turn=str(turn))
        number = step.step_id
        for event in _events(step, str(turn), notes):
            yield number, event
    if turn and not notes.cut and (notes.ending or is_finished(run)):
        yield number, _end(str(turn), notes.ending or "")


def _end(turn: str, ending: str) -> traces.TraceTurnEnded:
    # Such a claim cannot be decided.
    return traces.TraceTurnEnded(turn=turn, outcome=ending or "ended", reason=ending or "ended")


def _events(step: TrajectoryStep, turn: str, notes: RunNotes) -> Iterator[traces.TraceEvent]:
    if step.source == "system" and step.step_notes.error:
        yield traces.TraceModelFailed(turn=turn, cause=text_of(step.message))
    calls = step.tool_calls or ()
    if is_reply(step):
        traced_calls = tuple(traces.TraceCall(id=call.tool_call_id, name=call.function_name) for call in calls)
        yield traces.TraceModelReplied(turn=turn, text=text_of(step.message), calls=traced_calls)
    answered_ids = set()
    common_result = shared_result(step)
    for result in step.results:
        result_notes = result.result_notes
        answered_ids.add(result.source_call_id)
        if result is not common_result and (result.source_call_id is not None or not result_notes.unreadable):
            answers = result.source_call_id or result_notes.orphan_id or "without an id"
            yield traces.TraceToolResult(
                turn=turn, call=answers, status=_STATUSES.get(result_notes.status, CallStatus.OK)
            )
    for call in calls:
        has_ended = common_result is not None or call.function_name in (notes.terminal_tools or ())
        if has_ended and call.tool_call_id not in answered_ids:
            yield traces.TraceToolResult(turn=turn, call=call.tool_call_id)
