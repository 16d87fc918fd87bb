"""The format of a trace: one JSON object per line, each an event of a turn.

`event` is the kind, and `turn` the id of the turn: turns may be interleaved in one file, and a file of one turn may
omit it. The lines of a turn are in the order of the events. A runtime's own values, such as a time or a span's id, go
into `data`, which is not read. Any other unknown field is an error that names it.
"""

import json
from functools import cache
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from turnwright_states.errors import MachineError
from turnwright_states.inputs import CallStatus

#: A number of at least 0.
Count = Annotated[int, Field(ge=0)]


class InvalidTraceError(MachineError):
    """A line of a trace cannot be read. `line` counts from 1."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line} of the trace: {why}")
        self.line = line


class Frozen(BaseModel):
    """An immutable part of a trace. Unknown fields are refused."""

    # Building a validator takes time, so it is deferred until the first value is made.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class TraceLimits(Frozen):
    """The limits of the turn. A claim whose limit is omitted is inconclusive.

    `steps`: model calls that may call tools, without retries. A runtime that counts its last call, in which tools are
    disabled, as a step gives one less than its setting. `tool_calls`: calls that may start. `max_retries`: further
    attempts at one model call. `model_calls`: all model calls; (steps + 1) x (1 + max_retries) by default.
    """

    steps: Count | None = None
    tool_calls: Count | None = None
    max_retries: Count | None = None
    model_calls: Count | None = None

    @property
    def most_model_calls(self) -> int | None:
        """The bound on model calls: the given one, else the formula (docs/rules.md#model-calls), else None."""
        if self.model_calls is None and self.steps is not None and self.max_retries is not None:
            return (self.steps + 1) * (1 + self.max_retries)
        return self.model_calls


class TraceCall(Frozen):
    """A tool call in a reply. Its id need not be unique, because results are paired in order."""

    id: str
    name: str = ""


class _Event(Frozen):
    #: The id of the event's turn.
    turn: str = ""
    #: The runtime's own values.
    data: JsonValue = None

    @property
    def words(self) -> str:
        """The event without its kind, in a few words for a witness. It has no text of a model or a person."""
        return ""


class TraceTurnStarted(_Event):
    """The beginning of a turn, and its first event."""

    event: Literal["turn_started"] = "turn_started"
    limits: TraceLimits = TraceLimits()


class TraceModelCalled(_Event):
    """The model is called. `tools`: whether it may call tools. After a failure, this is a retry of the same call."""

    event: Literal["model_called"] = "model_called"
    tools: bool = True

    @property
    def words(self) -> str:
        """Whether tools are enabled."""
        return "" if self.tools else "without tools"


class TraceModelReplied(_Event):
    """The model's reply is complete."""

    event: Literal["model_replied"] = "model_replied"
    text: str = ""
    calls: tuple[TraceCall, ...] = ()

    @property
    def words(self) -> str:
        """The calls of the reply."""
        return ", ".join(f"{call.id} ({call.name})" if call.name else call.id for call in self.calls)


class TraceModelFailed(_Event):
    """The model call failed. `cause` is the runtime's own word."""

    event: Literal["model_failed"] = "model_failed"
    cause: str = ""

    @property
    def words(self) -> str:
        """The cause."""
        return self.cause


class _OfCall(_Event):
    call: str

    @property
    def words(self) -> str:
        """The call's id."""
        return self.call


class TraceToolStarted(_OfCall):
    """A tool call is about to run."""

    event: Literal["tool_started"] = "tool_started"


class TraceToolRetried(_OfCall):
    """A started tool call will start again. This event must come before the second start."""

    event: Literal["tool_retried"] = "tool_retried"
    why: str = ""


class TraceToolResult(_OfCall):
    """A tool call has its result. The status is `refused`, `rejected`, `error` or `aborted` if it never started."""

    event: Literal["tool_result"] = "tool_result"
    status: CallStatus = CallStatus.OK

    @property
    def words(self) -> str:
        """The call's id and its status."""
        return f"{self.call} {self.status}"


class TraceMessage(_Event):
    """A message to the running turn."""

    event: Literal["message"] = "message"
    role: str = "user"
    text: str = ""

    @property
    def words(self) -> str:
        """The role of the writer."""
        return self.role


class TracePaused(_Event):
    """The turn waits for a person's answer."""

    event: Literal["paused"] = "paused"


class TraceResumed(_Event):
    """The person has answered."""

    event: Literal["resumed"] = "resumed"


class TraceTurnEnded(_Event):
    """The end of a turn, and its last event.

    `outcome` and `reason` are the runtime's own words. `text` is the final text for the user; the text of the last
    reply by default.
    """

    event: Literal["turn_ended"] = "turn_ended"
    outcome: str = ""
    reason: str = ""
    text: str | None = None

    @property
    def words(self) -> str:
        """The outcome and the reason."""
        return f"{self.outcome}: {self.reason}"


TraceEvent = Annotated[
    TraceTurnStarted
    | TraceModelCalled
    | TraceModelReplied
    | TraceModelFailed
    | TraceToolStarted
    | TraceToolRetried
    | TraceToolResult
    | TraceMessage
    | TracePaused
    | TraceResumed
    | TraceTurnEnded,
    Field(discriminator="event"),
]


@cache
def _reader() -> TypeAdapter[TraceEvent]:
    return TypeAdapter(TraceEvent)


def read_event(text: str, line: int = 1) -> TraceEvent:
    """Parse one line. `line` is its number, for the message.

    Raises `InvalidTraceError` for a line that is not a JSON object, for a missing or unknown `event`, and for a field
    that is missing, unknown or of another type.
    """
    try:
        return _reader().validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:])
        raise InvalidTraceError(line, f"{field}: {first['msg']}" if field else first["msg"]) from None


def write_event(event: TraceEvent) -> str:
    """Return an event as a line of a trace, without the line end. Default values are omitted."""
    fields = {"event": event.event, **event.model_dump(exclude_defaults=True)}
    # A model's text may have half a surrogate pair, which UTF-8 cannot encode.
    return json.dumps(fields, ensure_ascii=False).encode(errors="replace").decode()
