"""Reads traces of turns, an event per line (docs/how-to/audit-your-runs.md). A trace has no arguments or results."""

from collections.abc import Iterator
from functools import partial
from typing import Final

import msgspec

from turnwright_audit import traces
from turnwright_audit.trajectories.atif import ResultStatus, Trajectory
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.source import Recording, UnreadableRecordingError
from turnwright_audit.trajectories.traced_run import TracedRun
from turnwright_states import CallStatus

NAME: Final = "trace"
_STATUSES: Final[dict[CallStatus, ResultStatus]] = {
    CallStatus.OK: "ok",
    CallStatus.REJECTED: "denied",
    CallStatus.REFUSED: "denied",
    CallStatus.ABORTED: "canceled",
}


def recognizes(recording: Recording) -> bool:
    """Whether the first line is an event of a trace, in the form that only a trace has."""
    first = next(iter(recording.records), None)
    if first is None or not isinstance(first.get("event"), str):
        return False
    try:
        traces.read_event(msgspec.json.encode(first).decode(), 1)
    except traces.InvalidTraceError:
        return False
    return True


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield a run for each turn, in the order of their beginnings."""
    turns: dict[str, list[tuple[int, traces.TraceEvent]]] = {}
    unreadable: list[int] = []
    with recording.open() as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                event = traces.read_event(line.decode(), number)
            except (traces.InvalidTraceError, UnicodeError):
                unreadable.append(number)
            else:
                turns.setdefault(event.turn, []).append((number, event))
    if not turns:
        raise UnreadableRecordingError("it has no line that is an event of a trace")
    damage = f"line {unreadable[0]} is not an event of a trace" if unreadable else ""
    for place, (name, events) in enumerate(turns.items()):
        run = TracedRun.of(_run(name, events), partial(list, events), damage=damage)
        run.run_notes.unreadable_lines = 0 if place else len(unreadable)
        yield run


def _run(name: str, events: list[tuple[int, traces.TraceEvent]]) -> Trajectory:
    run = RunBuilder(NAME, agent="unknown", run=name or None)
    ending = None
    for _, event in events:
        match event:
            case traces.TraceTurnStarted():
                run.user("")
            case traces.TraceMessage():
                run.system(event.text)
            case traces.TraceModelReplied():
                run.reply(event.text)
                for call in event.calls:
                    run.call(call.id, call.name)
            case traces.TraceModelFailed():
                run.system(event.cause, error=True)
            case traces.TraceToolResult():
                run.result(event.call, None, status=_STATUSES.get(event.status, "error"))
            case traces.TraceTurnEnded():
                ending = ": ".join(filter(None, (event.outcome, event.reason)))
            case _:
                pass
    return run.finish(ending=ending)
