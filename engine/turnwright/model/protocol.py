"""The protocol between the driver and a model.

Any object with a `name` and a `stream` is a model; no base class is needed.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Final, Literal, Protocol

import msgspec
from msgspec.structs import force_setattr
from pydantic import JsonValue

from turnwright._base.words import cut
from turnwright.errors import TurnwrightError
from turnwright.message import Message, ToolSpec
from turnwright_states import Cause, Finish, Usage
from turnwright_states.limits import MAX_CALLS_PER_REPLY

from .model_settings import ModelSettings

ToolChoice = Literal["auto", "none", "required"]

#: Characters of the name of a call's tool, and of the provider's id of a call. Longer ones are cut: a model may write
#: names as long as a reply, and journals, events and summaries carry them on.
MAX_TOOL_NAME: Final = 200
MAX_CALL_ID: Final = 512
#: The seconds that the engine waits for the next part of a reply, unless the model has `silence_timeout`.
SILENCE_TIMEOUT: Final = 1800.0
# What is longer is neither an id nor a name, and would be carried into every measurement.
_LONGEST_NAME: Final = 256
#: Keywords of JSON Schema whose values are data, and not schemas.
_PLAIN_KEYWORDS: Final = frozenset({"enum", "const", "default", "examples", "required", "title", "description"})


class OutputFormat(msgspec.Struct, frozen=True, gc=False):
    """The JSON object that a text reply must be. `schema` is its JSON Schema, and `name` a name for the provider."""

    name: str
    schema: Mapping[str, JsonValue]

    @property
    def strict_schema(self) -> Mapping[str, JsonValue] | None:
        """The schema as a provider can hold a reply to it: without optional or further fields. None if it has some."""
        strict = _close_schema(dict(self.schema))
        return strict if isinstance(strict, dict) else None


def _close_schema(schema: JsonValue) -> JsonValue:
    """Close every object of a schema; None if one has optional or further fields."""
    if isinstance(schema, list):
        inner = [_close_schema(strict_item) for strict_item in schema]
        return (
            None
            if any(strict_item is None and item is not None for strict_item, item in zip(inner, schema, strict=True))
            else inner
        )
    if not isinstance(schema, dict):
        return schema
    closed_schema: dict[str, JsonValue] = {}
    for name, value in schema.items():
        closed_schema[name] = value if name in _PLAIN_KEYWORDS else _close_schema(value)
        if closed_schema[name] is None and value is not None:
            return None
    properties = schema.get("properties")
    if schema.get("type") == "object" or properties is not None:
        required_names = schema.get("required")
        names = set(properties) if isinstance(properties, dict) else set()
        if not names or set(required_names if isinstance(required_names, list) else ()) != names:
            return None
        if schema.get("additionalProperties", False) is not False:
            return None
        closed_schema["additionalProperties"] = False
    return closed_schema


class ModelRequest(msgspec.Struct, frozen=True, gc=False):
    """One model call. `max_tokens` limits the reply, in tokens; None leaves it to the provider.

    `first` is true for the first model call of a turn. `settings` are those of the turn, if it has any; their
    `max_tokens` is in `max_tokens`, unless a smaller limit applies. `output` is the format of a text reply, for models
    whose capabilities have `json_schema_output`.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    max_tokens: int | None = None
    first: bool = False
    settings: ModelSettings | None = None
    output: OutputFormat | None = None


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of the answer, as it streams in."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of the model's reasoning, as it streams in."""

    text: str


class ToolCallDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of the arguments of a tool call, as they stream in.

    `call_index` counts the calls of the reply from 0, in the order in which they began. The first piece of a call may
    be empty: it names the tool. Pieces are a preview; only the complete reply says which calls there are.
    """

    call_index: int
    tool: str
    arguments_delta: str

    def __post_init__(self) -> None:
        force_setattr(self, "tool", _cut_name(self.tool, MAX_TOOL_NAME))


#: A piece that a model streams before its complete reply.
Delta = TextDelta | ReasoningDelta | ToolCallDelta
DELTAS: Final = frozenset({TextDelta, ReasoningDelta, ToolCallDelta})


class ResponseToolCall(msgspec.Struct, frozen=True, gc=False):
    """A tool call of a reply, as the provider sent it.

    `arguments` is None where `raw` is not one whole JSON object. An empty `raw` means no arguments (`{}`), except in a
    reply that was cut off: see `ModelResponse`.
    """

    name: str
    arguments: Mapping[str, JsonValue] | None
    raw: str = ""
    id: str = ""

    @property
    def is_blank(self) -> bool:
        """Whether nothing of the arguments has arrived."""
        return not self.arguments and not str(self.raw).strip()

    def without_arguments(self) -> "ResponseToolCall":
        """Return the call as one whose arguments are incomplete, so that it never runs."""
        return self if self.arguments is None else msgspec.structs.replace(self, arguments=None)


def _cut_name(text: str, most: int) -> str:
    """Cut a name. Its last character becomes an ellipsis, which no tool's name has.

    A value of another type stays: `check_reply` and the machine report it.
    """
    return cut(text, most) if isinstance(text, str) else text


class ResponseInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Details of a reply for telemetry: no journal keeps them, and no budget counts them.

    `id` and `model` are the provider's own, empty where it sent none. Of the input tokens, `cache_read_input_tokens`
    came from a cache and `cache_creation_input_tokens` went into one, of which `cache_creation_1h_input_tokens` for an
    hour; None where the provider does not report them.
    `time_to_first_chunk` is in seconds from the start of the attempt to the first part of the reply; None for a reply
    that was not streamed.
    """

    id: str = ""
    model: str = ""
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation_1h_input_tokens: int | None = None
    time_to_first_chunk: float | None = None


def read_name(value: object) -> str:
    """Return an id or a name that a provider sent; empty for a value that is not text, or too long."""
    if not isinstance(value, str) or len(value) > _LONGEST_NAME:
        return ""
    # Half a surrogate pair cannot be encoded.
    return value.encode(errors="replace").decode()


class ModelResponse(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A complete reply, or the part of one that arrived before a failure.

    In a reply that was cut off (`Finish.LENGTH`), a call without arguments is incomplete: its `arguments` become None.
    A model whose provider has closed such a call gives it the `raw` text `{}`. The same holds if the reply has
    arguments without the name of their call: they may be those of any call without arguments. Names of tools are cut
    at 200 characters, and ids of calls at 512.

    Comparisons ignore `finish_reason`, `response` and `max_tokens`, which describe the reply.
    """

    text: str = ""
    reasoning: str = ""
    reasoning_details: tuple[Mapping[str, JsonValue], ...] = ()
    calls: tuple[ResponseToolCall, ...] = ()
    finish: Finish = Finish.STOP
    usage: Usage | None = None
    #: The provider's own finish reason, for people and for `turnwright decode`.
    finish_reason: str | None = None
    #: Details for telemetry, if the model has them.
    response: ResponseInfo | None = None
    #: Of a reply that was cut off, the limit that the provider was sent, in tokens; None if the model sent none.
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if not self.calls or (self.finish is not Finish.LENGTH and _are_plain(self.calls)):
            return
        calls = tuple(map(_with_short_names, self.calls))
        if self.finish is Finish.LENGTH or any(map(_is_nameless, calls)):
            calls = tuple(map(_unless_blank, calls))
        force_setattr(self, "calls", calls)

    def __eq__(self, other: object) -> bool:
        return self._compared() == other._compared() if isinstance(other, ModelResponse) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._compared())

    def _compared(self) -> tuple[object, ...]:
        return msgspec.structs.astuple(self)[:-3]


def _are_plain(calls: Sequence[ResponseToolCall]) -> bool:
    """Whether every call has a name and an id that need no change. This runs for each reply, so it makes no calls."""
    for call in calls:
        if type(call) is not ResponseToolCall or type(call.name) is not str or type(call.id) is not str:
            return False
        if not call.name or call.name[MAX_TOOL_NAME:] or call.id[MAX_CALL_ID:]:
            return False
    return True


def _with_short_names(call: ResponseToolCall) -> ResponseToolCall:
    """Return a call with a name and an id of bounded length. `check_reply` reports a call of another type."""
    if not isinstance(call, ResponseToolCall):
        return call
    name, call_id = _cut_name(call.name, MAX_TOOL_NAME), _cut_name(call.id, MAX_CALL_ID)
    is_short = name is call.name and call_id is call.id
    return call if is_short else msgspec.structs.replace(call, name=name, id=call_id)


def _is_nameless(call: ResponseToolCall) -> bool:
    """Whether a call is only arguments."""
    return isinstance(call, ResponseToolCall) and not call.name and not call.is_blank


def _unless_blank(call: ResponseToolCall) -> ResponseToolCall:
    """Return a call whose arguments may be missing."""
    return call.without_arguments() if isinstance(call, ResponseToolCall) and call.is_blank else call


#: The fields of a call, with their types, for `check_reply`.
_CALL_FIELDS: Final[tuple[tuple[str, tuple[type, ...], str], ...]] = (
    ("name", (str,), "a str"),
    ("arguments", (Mapping, type(None)), "a dict (parse the model's JSON text) or None"),
    ("raw", (str,), "a str"),
    ("id", (str,), "a str"),
)


class ModelError(TurnwrightError):
    """A model call failed. The driver records it as a fact; the chart decides whether to try again.

    `status` is the HTTP status, if there was one; `retry_after` is the wait that the provider asked for, in seconds;
    `partial` is the part of the reply that had arrived.

    Raises `ValueError` for an unknown cause, and `TypeError` for a `retry_after` or a `partial` of another type: else
    the turn would fail later, without their names.
    """

    def __init__(
        self,
        message: str,
        *,
        cause: Cause,
        status: int | None = None,
        retry_after: float | None = None,
        partial: ModelResponse | None = None,
    ) -> None:
        super().__init__(message)
        if not isinstance(retry_after, int | float | None):
            raise TypeError(f"ModelError: retry_after must be a number of seconds, not {type(retry_after).__name__}")
        if not isinstance(partial, ModelResponse | None):
            raise TypeError(f"ModelError: partial must be a ModelResponse, not {type(partial).__name__}")
        self.cause = Cause(cause)
        self.status = status
        self.retry_after = retry_after
        self.partial = partial


class Model(Protocol):
    """A model that streams one reply.

    A model that sends `ModelRequest.settings` has a method `unsupported_settings(settings)` too: it returns the
    reason for each setting that it does not send, by name (see `settings_mapping.py`). A model whose replies have
    their cost has an attribute `capabilities`, with `reports_cost=True`. The engine waits at most `silence_timeout`
    seconds for each part of a reply: 1,800 for a model without this attribute. It is None for a model with timeouts
    of its own.
    """

    @property
    def name(self) -> str:
        """The model's id, as the journal and people see it."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        """Stream the reply to `request`: any number of deltas, then exactly one `ModelResponse`, the complete reply.

        It makes one attempt, because the chart decides on retries (docs/rules.md#retries). Cancellation closes
        the connection.

        Raises `ModelError`, and nothing else, for every failure of a provider.
        """
        ...


def stream_reply(model: Model, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
    """Stream the reply of a model. No model keeps its turn open (docs/rules.md#time-limits).

    Raises `ModelError` with `Cause.TIMEOUT` after `silence_timeout` seconds without a part of the reply.
    """
    seconds: float | None = getattr(model, "silence_timeout", SILENCE_TIMEOUT)
    if seconds is None:
        return model.stream(request)
    return _limit_silence(model, request, seconds)


async def _limit_silence(
    model: Model, request: ModelRequest, seconds: float
) -> AsyncGenerator[Delta | ModelResponse, None]:
    from .read_timeout import ReadTimedOutError, read_timeout  # noqa: PLC0415 (loads asyncio, and few models need it)

    stream, timeout = model.stream(request), read_timeout()
    parts = aiter(stream)
    try:
        while True:
            with timeout.until(timeout.now() + seconds):
                item = await anext(parts, None)
            if item is None:
                return
            yield item
    except ReadTimedOutError as late:
        why = f"model {model.name} yielded no part of its reply for {seconds:g} s (`silence_timeout`)"
        raise ModelError(why, cause=Cause.TIMEOUT) from late
    finally:
        timeout.off()
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


def too_long(model: str, reply: ModelResponse) -> ModelError:
    """Make the error of a reply that asks for more calls than a turn takes."""
    why = f"the reply asks for more than {MAX_CALLS_PER_REPLY} calls. Ask for a shorter reply."
    return ModelError(f"model {model}: {why}", cause=Cause.REJECTED, partial=reply)


def no_delta(model: str, item: object) -> TypeError:
    """Make the error of a stream that yields something else than a part of a reply or a reply."""
    kind = type(item).__name__
    return TypeError(f"model {model}: `stream` yielded a {kind}: yield deltas, and last a ModelResponse")


def no_text(model: str, delta: object, value: object) -> TypeError:
    """Make the error of a part of a reply whose text is another value."""
    return TypeError(f"model {model}: a {type(delta).__name__} must have a str, not {type(value).__name__}")


def check_reply(model: str, reply: ModelResponse) -> None:
    """Raise `TypeError` for a text that is not text, and for calls of another type or with such fields."""
    if not isinstance(reply.text, str):
        raise TypeError(f"model {model}: ModelResponse.text must be a str, not {type(reply.text).__name__}")
    for call in reply.calls:
        if not isinstance(call, ResponseToolCall):
            kind = type(call).__name__
            raise TypeError(f"model {model}: ModelResponse.calls must be of ResponseToolCall, not {kind}")
        for name, kinds, expected in _CALL_FIELDS:
            value = getattr(call, name)
            if not isinstance(value, kinds):
                kind = type(value).__name__
                raise TypeError(f"model {model}: ResponseToolCall.{name} must be {expected}, not {kind}")


def no_reply(model: str) -> ModelError:
    """Make the error of a stream that ended without a reply."""
    return ModelError(f"model {model}: the stream ended without a reply", cause=Cause.INTERRUPTED)
