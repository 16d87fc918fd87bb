"""Reads sessions of opencode: an export, the messages of its server, and the events of `opencode run --format json`.

A message of the assistant has parts. A part of the type `step-start` begins a reply of the model; older versions have
several of them in one message. A tool part is a call together with its result.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct
from pydantic import JsonValue

from turnwright_audit.trajectories.atif import ResultStatus, StepMetrics, SubagentRef, Trajectory, TrajectoryStep
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.shapes import Shape, join_texts
from turnwright_audit.trajectories.source import Recording, iso_time
from turnwright_audit.trajectories.values import Values

NAME: Final = "opencode"
#: The tool that asks a person.
_QUESTION: Final = "question"
_DENIED: Final = ("The user rejected permission", "The user has specified a rule which prevents")
_ABORTED: Final = "Tool execution aborted"
_PARTS: Final = frozenset({"step-start", "step-finish", "tool", "text", "reasoning"})


class Cache(Struct):
    """The tokens of the prompt that were read from the cache, and written to it."""

    read: int = 0
    write: int = 0


class Tokens(Struct):
    """The tokens of a reply. Those of the cache, and those of the reasoning, are apart."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache: Cache | None = None


class Times(Struct):
    """Milliseconds since 1970."""

    created: float | None = None
    start: float | None = None
    end: float | None = None


class Metadata(Struct):
    """Facts of a call: the session of the sub-agent that it started."""

    session: str | None = None
    sessionId: str | None = None  # noqa: N815 (the field's name)


class State(Struct):
    """A call as it is now."""

    status: str = ""
    input: Any = None
    output: str | None = None
    error: str | None = None
    metadata: Metadata | None = None
    time: Times | None = None


class MessagePart(Struct):
    """A part of a message."""

    type: str = ""
    text: str | None = None
    callID: str | None = None  # noqa: N815 (the field's name)
    tool: str = ""
    state: State | None = None
    tokens: Tokens | None = None
    cost: float | None = None
    reason: str | None = None
    error: Any = None


class Info(Struct):
    """The head of a session or of a message."""

    id: str | None = None
    version: str | None = None
    role: str = ""
    modelID: str | None = None  # noqa: N815 (the field's name)
    time: Times | None = None
    tokens: Tokens | None = None
    cost: float | None = None
    finish: str | None = None
    error: Any = None


class SessionMessage(Struct):
    """A message with its parts."""

    info: Info | None = None
    parts: list[MessagePart] | None = None


class Record(SessionMessage):
    """A session, a message of one, or an event of a run."""

    messages: list[SessionMessage] | None = None
    sessionID: str | None = None  # noqa: N815 (the field's name)
    timestamp: float | None = None
    part: MessagePart | None = None
    error: Any = None


_Found = Record | list[Record]
_SHAPE: Final[Shape[_Found]] = Shape(_Found)  # type: ignore[arg-type]  # a union is not a class


def recognizes(recording: Recording) -> bool:
    """Whether the first value is a session, a message with parts, or an event with a part."""
    first = recording.document
    if isinstance(first, list):
        first = first[0] if first else None
    return isinstance(first, Mapping) and (_is_session(first) or _is_message(first) or _is_event(first))


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield the sessions."""
    values = Values(recording, _SHAPE, {"messages", "parts"})
    return values.noted(_runs(values), "no message in it could be read")


def _runs(values: Values[_Found]) -> Iterator[Trajectory]:
    own_session = _Session(Info())
    for value in values:
        for record in value if isinstance(value, list) else [value]:
            if record.messages is None:
                own_session.add_record(record)
                continue
            session = _Session(record.info or Info())
            for message in record.messages:
                session.add(message)
            yield session.finish()
    if own_session.run.steps:
        yield own_session.finish()


class _Session:
    def __init__(self, info: Info) -> None:
        self.run = RunBuilder(NAME, agent=NAME, version=info.version or "", session=info.id)
        self._reply: TrajectoryStep | None = None
        self._ending: str | None = None

    def add_record(self, record: Record) -> None:
        """Add a message, or an event of a run, whose prompt is not recorded."""
        if record.parts is not None:
            self.add(record)
            return
        if record.part is None and record.error is None:
            return
        if not self.run.steps:
            self.run.trajectory.session_id = record.sessionID
            self.run.user("")
        if record.part is not None:
            self._part(record.part, Info(time=Times(created=record.timestamp)))
        else:
            self._add_failure(record.error)

    def add(self, message: SessionMessage) -> None:
        """Add a message."""
        info = message.info or Info()
        parts = message.parts or []
        if info.role == "user":
            text = join_texts(*(part.text for part in parts if part.type == "text"))
            self.run.user(text, at=_time(info.time.created if info.time else None))
        elif info.role == "assistant":
            before = len(self.run.steps)
            self._reply = None
            for part in parts:
                self._part(part, info)
            self._ending = info.finish or self._ending
            if info.error is not None:
                self._add_failure(info.error)
            elif len(self.run.steps) == before:
                self._open(info)
            self._complete(info)

    def finish(self) -> Trajectory:
        """Return the run."""
        self.run.mark_waiting([_QUESTION])
        return self.run.finish(ending=self._ending)

    def _open(self, info: Info) -> TrajectoryStep:
        if self._reply is None:
            at = _time(info.time.created if info.time else None)
            self._reply = self.run.reply(at=at, model=info.modelID)
        return self._reply

    def _part(self, part: MessagePart, info: Info) -> None:
        match part.type:
            case "step-start":
                self._reply = None
                self._open(info)
            case "step-finish":
                self._open(info).metrics = _metrics(part.tokens, part.cost)
                self._ending = part.reason or self._ending
            case "text" if part.text:
                reply = self._open(info)
                reply.message = join_texts(reply.message, part.text)
            case "reasoning" if part.text:
                reply = self._open(info)
                reply.reasoning_content = join_texts(reply.reasoning_content, part.text)
            case "tool" if part.tool:
                self._call(self._open(info), part.callID, part.tool, part.state or State())
            case "retry":
                self._add_failure(part.error)
            case _:
                pass

    def _call(self, reply: TrajectoryStep, call_id: str | None, tool: str, state: State) -> None:
        call = self.run.call(call_id, tool, state.input, step=reply)
        if state.status not in {"completed", "error"}:
            return
        session = state.metadata and (state.metadata.sessionId or state.metadata.session)
        times = state.time or Times()
        self.run.result(
            call.tool_call_id,
            (state.error if state.status == "error" else state.output) or "",
            status=_status(state),
            started=_time(times.start),
            ended=_time(times.end),
            subagent=SubagentRef(session_id=session) if session else None,
        )

    def _add_failure(self, error: JsonValue) -> None:
        name = error.get("name") if isinstance(error, Mapping) else None
        self._ending = name if isinstance(name, str) else "error"
        self.run.system(str(error), error=True)

    def _complete(self, info: Info) -> None:
        """Give the reply of a message the tokens of the message, if its parts have none."""
        if self._reply is not None and self._reply.metrics is None:
            self._reply.metrics = _metrics(info.tokens, info.cost)
        self._reply = None


def _status(state: State) -> ResultStatus:
    if state.status == "completed":
        return "ok"
    error = state.error or ""
    if error.startswith(_DENIED):
        return "denied"
    return "canceled" if error.startswith(_ABORTED) else "error"


def _metrics(tokens: Tokens | None, cost: float | None) -> StepMetrics | None:
    if tokens is None:
        return None if cost is None else StepMetrics(cost_usd=cost)
    cache = tokens.cache or Cache()
    return StepMetrics(
        prompt_tokens=tokens.input + cache.read + cache.write,
        completion_tokens=tokens.output + tokens.reasoning,
        cached_tokens=cache.read,
        cost_usd=cost,
    )


def _time(milliseconds: float | None) -> str | None:
    return None if milliseconds is None else iso_time(milliseconds / 1000)


def _is_session(value: Mapping[str, JsonValue]) -> bool:
    messages = value.get("messages")
    info = value.get("info")
    if not isinstance(info, Mapping) or not isinstance(messages, list):
        return False
    first = messages[0] if messages else None
    return _is_message(first) if isinstance(first, Mapping) else "projectID" in info


def _is_message(value: Mapping[str, JsonValue]) -> bool:
    info = value.get("info")
    return isinstance(info, Mapping) and "role" in info and isinstance(value.get("parts"), list)


def _is_event(value: Mapping[str, JsonValue]) -> bool:
    part = value.get("part")
    return "sessionID" in value and isinstance(part, Mapping) and str(part.get("type")) in _PARTS
