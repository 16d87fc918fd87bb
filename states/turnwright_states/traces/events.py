"""The format of a trace: one JSON object a line, each an event of a turn.

`event` says what happened, `turn` whose it is (turns may be interleaved in one file; a file of one turn may leave it
out). The lines of a turn are in the order in which things happened. What a runtime wants to keep beside that, a time
or a span's id, goes into `data`, which nothing here reads; any other unknown field is a mistake, and is named.
"""

import json
from functools import cache
from typing import Annotated, Literal

from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from turnwright_states.errors import MachineError
from turnwright_states.inputs import CallStatus, Frozen

#: A number of things, at least 0.
Count = Annotated[int, Field(ge=0)]


class InvalidTraceError(MachineError):
    """A line of a trace cannot be read. `line` counts from 1."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line} of the trace: {why}")
        self.line = line


class TraceLimits(Frozen):
    """What the turn was allowed. A limit that is left out is not known, and what needs it is inconclusive.

    `steps`: model calls that may call tools, retries not counted; for a runtime that counts its last call, in which
    tools are disabled, among the steps, it is one less than what people set. `tool_calls`: calls that may start.
    `max_retries`: further attempts at one model call. `model_calls`: all model calls together; where it is left out
    it is (steps + 1) x (1 + max_retries).
    """

    steps: Count | None = None
    tool_calls: Count | None = None
    max_retries: Count | None = None
    model_calls: Count | None = None

    @property
    def most_model_calls(self) -> int | None:
        """The bound on model calls: the one that was given, else the formula of DESIGN 4.1, else None."""
        if self.model_calls is None and self.steps is not None and self.max_retries is not None:
            return (self.steps + 1) * (1 + self.max_retries)
        return self.model_calls


class TraceCall(Frozen):
    """A tool call that a reply asked for. Its id need not be unique: it is paired by occurrence."""

    id: str
    name: str = ""


class _Event(Frozen):
    #: The turn that the event is of.
    turn: str = ""
    #: What the runtime keeps for itself.
    data: JsonValue = None

    @property
    def words(self) -> str:
        """What the event says beyond its kind, short enough for a witness. No text of a model or a person."""
        return ""


class TraceTurnStarted(_Event):
    """A turn begins: the first event of each turn."""

    event: Literal["turn_started"] = "turn_started"
    limits: TraceLimits = TraceLimits()


class TraceModelCalled(_Event):
    """The model is called. `tools`: whether it may ask for tools. After a failure, it is the same call again."""

    event: Literal["model_called"] = "model_called"
    tools: bool = True

    @property
    def words(self) -> str:
        """Whether tools are enabled."""
        return "" if self.tools else "without tools"


class TraceModelReplied(_Event):
    """The model's reply is whole."""

    event: Literal["model_replied"] = "model_replied"
    text: str = ""
    calls: tuple[TraceCall, ...] = ()

    @property
    def words(self) -> str:
        """The calls that it asks for."""
        return ", ".join(f"{call.id} ({call.name})" if call.name else call.id for call in self.calls)


class TraceModelFailed(_Event):
    """The model call brought no reply. `cause` is the runtime's own word."""

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
    """A tool call that has started is to start again, and this says so before it does."""

    event: Literal["tool_retried"] = "tool_retried"
    why: str = ""


class TraceToolResult(_OfCall):
    """A tool call has its result. One that never started has one too: `refused`, `rejected`, `error`, `aborted`."""

    event: Literal["tool_result"] = "tool_result"
    status: CallStatus = CallStatus.OK

    @property
    def words(self) -> str:
        """The call's id and its status."""
        return f"{self.call} {self.status}"


class TraceMessage(_Event):
    """Somebody said something to the turn while it went on."""

    event: Literal["message"] = "message"
    role: str = "user"
    text: str = ""

    @property
    def words(self) -> str:
        """Who."""
        return self.role


class TracePaused(_Event):
    """The turn rests until a person has answered."""

    event: Literal["paused"] = "paused"


class TraceResumed(_Event):
    """The person has answered."""

    event: Literal["resumed"] = "resumed"


class TraceTurnEnded(_Event):
    """The turn is over: the last event of each turn.

    `outcome` and `reason` are the runtime's own words. `text` is what the user is told in the end; where it is left
    out, that is the text of the last reply.
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
    """Read one line. `line` is its number, for the message.

    Raises `InvalidTraceError` when it is no JSON object, when its `event` is missing or unknown, and when a field is
    missing, unknown or of another type.
    """
    try:
        return _reader().validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:])
        raise InvalidTraceError(line, f"{field}: {first['msg']}" if field else first["msg"]) from None


def write_event(event: TraceEvent) -> str:
    """One event as a line of a trace, without the line's end. What is at its default is left out."""
    fields = {"event": event.event, **event.model_dump(exclude_defaults=True)}
    # Half a surrogate pair, which a model's text may hold, no UTF-8 can write.
    return json.dumps(fields, ensure_ascii=False).encode(errors="replace").decode()
