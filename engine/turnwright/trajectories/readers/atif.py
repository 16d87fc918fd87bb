"""Reads trajectories in the Agent Trajectory Interchange Format: one document, or one in each line."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from pydantic import JsonValue

from turnwright.trajectories.atif import VERSION, RunExtra, RunNotes, Trajectory, TrajectoryAgent, TrajectoryStep
from turnwright.trajectories.source import Recording, UnreadableRecordingError

NAME: Final = "atif"
_decode = msgspec.json.Decoder(Trajectory).decode


def recognizes(recording: Recording) -> bool:
    """Whether the document, or the first line, names a version of the format."""
    first = recording.document
    version = first.get("schema_version") if isinstance(first, Mapping) else None
    return isinstance(version, str) and version.startswith("ATIF-")


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield each trajectory. Of a document that is cut or corrupt, the complete steps are kept."""
    data = recording.data()
    if data is not None:
        try:
            yield _noted(_decode(data))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
        else:
            return
    if len(recording.records) > 1:
        yield from _lines(recording)
    else:
        yield _pieces(recording)


def _lines(recording: Recording) -> Iterator[Trajectory]:
    unreadable = 0
    latest: Trajectory | None = None
    for line in recording.lines():
        try:
            found = _noted(_decode(line))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            unreadable += 1
        else:
            if latest is not None:
                yield latest
            latest = found
    if latest is None:
        raise UnreadableRecordingError("no line of it is a trajectory")
    latest.run_notes.unreadable_lines += unreadable
    yield latest


def _pieces(recording: Recording) -> Trajectory:
    first = recording.document
    head = first if isinstance(first, Mapping) else {}
    items = recording.items("steps.item")
    steps: list[TrajectoryStep] = []
    bad = 0
    for item in items:
        try:
            step = msgspec.convert(item, TrajectoryStep)
        except msgspec.ValidationError:
            bad += 1
        else:
            step.step_id = len(steps) + 1
            steps.append(step)
    steps = steps or [TrajectoryStep(step_id=1, source="system")]
    run = Trajectory(schema_version=VERSION, agent=_agent(head.get("agent")), steps=steps)
    session, own = head.get("session_id"), head.get("trajectory_id")
    run.session_id = session if isinstance(session, str) else None
    run.trajectory_id = own if isinstance(own, str) else None
    notes = _noted(run).run_notes
    notes.cut, notes.unreadable_lines = items.cut, bad
    return run


def _agent(found: JsonValue) -> TrajectoryAgent:
    try:
        return msgspec.convert(found, TrajectoryAgent)
    except msgspec.ValidationError:
        return TrajectoryAgent(name="unknown", version="unknown")


def _noted(run: Trajectory) -> Trajectory:
    """Return the run with notes, which a trajectory of another program has not."""
    if run.extra is None:
        run.extra = RunExtra()
    if run.extra.turnwright is None:
        run.extra.turnwright = RunNotes()
    run.extra.turnwright.format = run.extra.turnwright.format or NAME
    return run
