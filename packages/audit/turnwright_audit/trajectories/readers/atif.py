"""Reads trajectories in the Agent Trajectory Interchange Format: one, a list of them, or one in each line."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from turnwright.model.http.json_text import whole_object
from turnwright_audit.trajectories.atif import VERSION, Trajectory, TrajectoryAgent, TrajectoryStep
from turnwright_audit.trajectories.shapes import BROKEN, Shape
from turnwright_audit.trajectories.source import Recording
from turnwright_audit.trajectories.values import Values

NAME: Final = "atif"
#: Tools by which agents of several programs end a run. Their calls have no result.
_TERMINAL: Final = ["finish", "mark_task_complete", "submit", "task_done"]
_UNKNOWN: Final = {"name": "unknown", "version": "unknown"}
_RUN: Final = Shape(Trajectory)
_STEP: Final = Shape(TrajectoryStep)
_AGENT: Final = Shape(TrajectoryAgent)


class _Trajectories(Shape[list[Trajectory]]):
    """Trajectories. Of one that breaks the format, the steps that fit are kept, and the others are counted."""

    def __init__(self) -> None:
        super().__init__(list[Trajectory])

    def decode(self, data: bytes) -> list[Trajectory] | None:
        try:
            return [_decode(data)]
        except BROKEN:
            return super().decode(data)

    def convert(self, value: object) -> list[Trajectory] | None:
        runs = [self._read_one(part) for part in value] if isinstance(value, list) else [self._read_one(value)]
        return [run for run in runs if run is not None] or None

    def _read_one(self, value: object) -> Trajectory | None:
        if not isinstance(value, Mapping):
            return None
        agent = value.get("agent")
        about = {**_UNKNOWN, **agent} if isinstance(agent, Mapping) else _UNKNOWN
        other_fields = {
            name: part for name, part in value.items() if name not in ("agent", "steps", "subagent_trajectories")
        }
        run = _RUN.convert({**other_fields, "schema_version": VERSION, "agent": _UNKNOWN})
        if run is None:
            return None
        run.agent = _AGENT.convert(about) or run.agent
        steps, inner = value.get("steps"), value.get("subagent_trajectories")
        steps_read = [_read_step(step) for step in steps] if isinstance(steps, list) else []
        run.steps = [step for step in steps_read if step is not None]
        below = map(self._read_one, inner) if isinstance(inner, list) else ()
        run.subagent_trajectories = [subagent for subagent in below if subagent is not None] or None
        run.note().unreadable_lines += len(steps_read) - len(run.steps)
        if not run.steps:
            run.steps.append(TrajectoryStep(step_id=1, source="system"))
        return run


def _read_step(value: object) -> TrajectoryStep | None:
    """Return a step of a trajectory that breaks the format. Calls that do not fit are counted."""
    if not isinstance(value, Mapping):
        return None
    calls = value.get("tool_calls")
    calls = calls if isinstance(calls, list) else []
    fitting = [_fit_call(call, f"call_{value.get('step_id')}_{number}") for number, call in enumerate(calls, 1)]
    step = _STEP.convert({**value, "tool_calls": fitting or None})
    if step is not None and (missing_count := len(calls) - len(step.tool_calls or ())):
        step.note().unreadable_calls += missing_count
    return step


def _fit_call(call: object, call_id: str) -> object:
    """Return a call with an id, and with arguments that are an object."""
    if not isinstance(call, Mapping):
        return call
    call = {**call, "tool_call_id": call.get("tool_call_id") or call_id}
    text = call.get("arguments")
    arguments = whole_object(text) if isinstance(text, str) else {}
    if arguments is None:
        return {**call, "arguments": {}, "extra": {"turnwright": {"arguments_raw": text}}}
    return {**call, "arguments": arguments} if isinstance(text, str) else call


_SHAPE: Final = _Trajectories()
_decode = msgspec.json.Decoder(Trajectory).decode


def recognizes(recording: Recording) -> bool:
    """Whether the first trajectory names a version of the format."""
    first = recording.document
    if isinstance(first, list) and first:
        first = first[0]
    version = first.get("schema_version") if isinstance(first, Mapping) else None
    return isinstance(version, str) and version.startswith("ATIF-")


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield each trajectory. Its format is this one, also if it was exported from another one."""
    values = Values(recording, _SHAPE, {"steps", "subagent_trajectories"})
    return values.noted((_add_notes(run) for value in values for run in value), "no trajectory in it could be read")


def _add_notes(run: Trajectory) -> Trajectory:
    notes = run.note()
    if notes.format is None:
        notes.terminal_tools = _TERMINAL
    notes.format = NAME
    if run.continued_trajectory_ref and notes.ending is None:
        notes.ending = "continued"
    return run
