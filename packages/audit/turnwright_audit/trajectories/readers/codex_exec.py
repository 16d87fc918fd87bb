"""Reads what `codex exec --json` prints: the events of a thread. The prompt of a turn is not among them.

An item has its call together with its result. What the model writes after a result is another reply. The tokens of a
turn are those of its thread so far. A thread that another process resumes begins again with its id.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct
from pydantic import JsonValue

from turnwright_audit.trajectories.atif import ResultStatus, StepMetrics, Trajectory, TrajectoryStep
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.shapes import Shape, join_texts, json_text
from turnwright_audit.trajectories.source import Recording
from turnwright_audit.trajectories.values import Values

from .codex_items import Usage

NAME: Final = "codex-exec"
_EVENTS: Final = frozenset(
    {
        "thread.started",
        "turn.started",
        "turn.completed",
        "turn.failed",
        "item.started",
        "item.updated",
        "item.completed",
    }
)
#: Items that are calls, with the fields of their arguments and of their result.
_CALLS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "command_execution": (("command",), "aggregated_output"),
    "file_change": (("changes",), ""),
    "mcp_tool_call": ((), "result"),
    "collab_tool_call": (("prompt", "receiver_thread_ids"), "agents_states"),
    "web_search": (("query",), ""),
}
#: Items that name their tool.
_NAMED: Final = ("mcp_tool_call", "collab_tool_call")
_RUNNING: Final = "in_progress"


class Item(Struct):
    """An item as it is now."""

    id: str | None = None
    type: str = ""
    text: str | None = None
    message: str | None = None
    status: str | None = None
    command: Any = None
    aggregated_output: str | None = None
    exit_code: int | None = None
    changes: Any = None
    query: str | None = None
    server: str | None = None
    tool: str | None = None
    arguments: Any = None
    result: Any = None
    prompt: str | None = None
    receiver_thread_ids: Any = None
    agents_states: Any = None
    error: Any = None


class Event(Struct):
    """An event."""

    type: str = ""
    thread_id: str | None = None
    item: Item | None = None
    usage: Usage | None = None
    error: Any = None
    message: str | None = None


_Value = Event | list[Event]
_SHAPE: Final[Shape[_Value]] = Shape(_Value)  # type: ignore[arg-type]  # a union is not a class


def recognizes(recording: Recording) -> bool:
    """Whether one of the first lines is an event of a thread."""
    return any(map(_is_event, recording.objects))


def _is_event(record: Mapping[str, JsonValue]) -> bool:
    kind = str(record.get("type"))
    if kind not in _EVENTS:
        return False
    return "thread_id" in record if kind == "thread.started" else "item" in record or kind.startswith("turn.")


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield the run of each thread."""
    values = Values(recording, _SHAPE, ())
    return values.noted(_runs(values), "no event in it could be read")


def _runs(values: Values[_Value]) -> Iterator[Trajectory]:
    thread = _Thread()
    for event in _events(values):
        if event.type == "thread.started" and thread.run.steps and event.thread_id != thread.run.trajectory.session_id:
            yield thread.finish()
            thread = _Thread()
        thread.add(event)
    if thread.run.steps:
        yield thread.finish()


def _events(values: Values[_Value]) -> Iterator[Event]:
    """Yield the complete events."""
    for value in values:
        if isinstance(value, list):
            yield from value
        elif not values.cut:
            yield value


class _Thread:
    """A thread in the making."""

    def __init__(self) -> None:
        self.run = RunBuilder(NAME, agent="codex")
        self._reply: TrajectoryStep | None = None
        self._answered = False
        self._calls: dict[str, str] = {}
        self._usages: list[Usage] = []
        self._ending: str | None = None

    def add(self, event: Event) -> None:
        """Add an event."""
        match event.type:
            case "thread.started":
                self.run.trajectory.session_id = event.thread_id
                self._calls = {}  # the items are numbered anew
            case "turn.started":
                self._reply, self._ending = None, None
                self.run.user("")
            case "turn.completed":
                self._ending = "completed"
                if event.usage is not None:
                    if self._usages and event.usage.includes(self._usages[-1]):
                        self._usages.pop()
                    self._usages.append(event.usage)
            case "turn.failed" | "error":
                self._ending = "error"
                self.run.system(_words(event.error) or event.message or "", error=True)
            case "item.started" | "item.updated" | "item.completed" if event.item is not None:
                self._item(event.item, done=event.type == "item.completed")

    def finish(self) -> Trajectory:
        """Return the run. Tokens are known for the thread alone."""
        totals = StepMetrics.sum_of([usage.metrics for usage in self._usages]) if self._usages else None
        return self.run.finish(ending=self._ending, totals=totals)

    def _item(self, item: Item, *, done: bool) -> None:
        if item.type in _CALLS:
            self._call(item, done=done)
        elif item.type == "agent_message" and done:
            step = self._step()
            step.message = join_texts(step.message, item.text)
        elif item.type == "reasoning" and done:
            step = self._step()
            step.reasoning_content = join_texts(step.reasoning_content, item.text) or None

    def _step(self) -> TrajectoryStep:
        if self._reply is None or self._answered:
            self._reply = self.run.reply()
            self._answered = False
        return self._reply

    def _call(self, item: Item, *, done: bool) -> None:
        names, output = _CALLS[item.type]
        own_call = self._calls.get(item.id or "")
        if own_call is None:
            name = item.tool if item.type in _NAMED else item.type
            if not name:
                return
            arguments = {field: getattr(item, field) for field in names} if names else item.arguments
            own_call = self.run.call(None, name, arguments, step=self._step()).tool_call_id
            if item.id:
                self._calls[item.id] = own_call
        if done and item.status != _RUNNING and own_call in self.run.open_calls:
            text = _words(getattr(item, output)) if output else ""
            self.run.result(own_call, join_texts(text, _words(item.error)), status=_status(item))
            self._answered = True


def _status(item: Item) -> ResultStatus:
    if item.status == "declined":
        return "denied"
    has_failed = item.status == "failed" or item.error is not None or item.exit_code not in (None, 0)
    return "error" if has_failed else "ok"


def _words(value: object) -> str:
    message = value.get("message") if isinstance(value, Mapping) else None
    return message if isinstance(message, str) else json_text(value)
