"""Reads the results of InterCode: an object with a `turn_history` for each task.

Each action of a history is one reply of the model with one call. The environment names the tool.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from turnwright_audit.trajectories.atif import ResultStatus, Trajectory
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.shapes import Shape, json_text
from turnwright_audit.trajectories.source import Recording
from turnwright_audit.trajectories.values import Values

NAME: Final = "intercode"
_SUBMIT: Final = "submit"
#: The action in the place of a reply when the request to the model failed.
_BLOCKED: Final = "blocked"


class History(Struct):
    """The actions of the model and their observations, in parallel lists."""

    actions: list[Any] | None = None
    observations: list[Any] | None = None
    valid_action: list[bool | None] | None = None
    thoughts: list[str] | None = None
    steps: list[str] | None = None


class Summary(Struct):
    """The outcome of a task."""

    max_reward: float | None = None
    turns_taken: int | None = None
    turns_max: int | None = None


class Task(Struct):
    """The run of a task."""

    environment: str = ""
    query: str = ""
    turn_history: History | None = None
    summary: Summary | None = None


class Logs(Struct):
    """A file that has the tasks beside their settings."""

    logs: dict[str, Task] | None = None


_TASKS: Final = Shape(dict[str, Task])
_LOGS: Final = Shape(Logs)


def recognizes(recording: Recording) -> bool:
    """Whether the first task of the document has a history of turns with actions."""
    first = recording.document
    tasks = first.get("logs", first) if isinstance(first, Mapping) else None
    task = next(iter(tasks.values()), None) if isinstance(tasks, Mapping) else None
    history = task.get("turn_history") if isinstance(task, Mapping) else None
    return isinstance(history, Mapping) and "actions" in history


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield the run of each task."""
    first = recording.document
    beside = isinstance(first, Mapping) and "logs" in first
    logs = Values(recording, _LOGS, ())
    tasks = Values(recording, _TASKS, ())
    values = logs if beside else tasks
    logs_read = (log.logs or {} for log in logs) if beside else tasks
    runs = (
        _run(name, task, task.turn_history, cut=values.cut and name == next(reversed(log)))
        for log in logs_read
        for name, task in log.items()
        if task.turn_history is not None
    )
    return values.noted(runs, "no task in it has a history of turns")


def _run(name: str, task: Task, history: History, *, cut: bool) -> Trajectory:
    run = RunBuilder(NAME, agent=NAME, run=name)
    run.notes.terminal_tools = [_SUBMIT]
    tool = task.environment.removeprefix("ic_") or "execute"
    run.user(task.query)
    actions = [json_text(action) for action in history.actions or ()]
    thoughts = history.thoughts or history.steps or []
    observations = history.observations or []
    valid = history.valid_action or []
    for number, action in enumerate(actions):
        step = run.reply(thoughts[number] if number < len(thoughts) else action)
        tool_used = _SUBMIT if action.split(maxsplit=1)[:1] == [_SUBMIT] else tool
        call = run.call(None, tool_used, {"command": action}, step=step)
        if number < len(observations):
            status: ResultStatus | None = "error" if number < len(valid) and valid[number] is False else None
            run.result(call.tool_call_id, json_text(observations[number]), status=status)
    if cut:  # the observations come after the actions
        run.mark_unreadable(run.open_calls)
    summary = task.summary or Summary()
    success = None if summary.max_reward is None else summary.max_reward >= 1
    return run.finish(ending=_ending(actions, len(observations), summary, solved=bool(success)), success=success)


def _ending(actions: list[str], observations: int, summary: Summary, *, solved: bool) -> str | None:
    last = actions[-1] if actions else ""
    if last == _BLOCKED and observations < len(actions):
        return _BLOCKED
    if last.startswith(_SUBMIT):
        return "submitted"
    if solved:
        return "reward 1"
    at_cap = summary.turns_max is not None and (summary.turns_taken or 0) >= summary.turns_max
    return "cap" if at_cap else None
