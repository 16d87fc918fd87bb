"""What the driver asks of a model, and what a model gives back.

Anything with a `name` and a `stream` is a model: there is nothing to inherit from.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Final, Literal, Protocol

import msgspec
from pydantic import JsonValue

from turnwright.errors import TurnwrightError
from turnwright.message import Message, ToolSpec
from turnwright_states import Cause, Finish, Usage
from turnwright_states.limits import MAX_CALLS_PER_REPLY

ToolChoice = Literal["auto", "none", "required"]

# What is longer is no id and no name, and would be carried into every measurement.
_LONGEST_NAME: Final = 256


class ModelRequest(msgspec.Struct, frozen=True):
    """One model call. `max_tokens` bounds what the model may write; None leaves it to the provider.

    `first` is true for the first model call of a turn.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    max_tokens: int | None = None
    first: bool = False


class TextDelta(msgspec.Struct, frozen=True):
    """A piece of the answer, as it streams in."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    """A piece of what the model thinks aloud, as it streams in."""

    text: str


#: What a model streams before its reply is whole.
Delta = TextDelta | ReasoningDelta


class ResponseToolCall(msgspec.Struct, frozen=True):
    """A tool call of a reply, as the provider sent it.

    `arguments` is None where `raw` is not one whole JSON object (an empty `raw` means no arguments: `{}`).
    """

    name: str
    arguments: Mapping[str, JsonValue] | None
    raw: str = ""
    id: str = ""


class ResponseInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider tells beside its reply. It is for telemetry: no journal keeps it, and no budget counts it.

    `id` and `model` are the provider's own, empty where it gave none. `input_tokens` are all the tokens of the prompt,
    those of a cache too; None where the usage of the reply counts them all, or nobody counts. Of them
    `cache_read_input_tokens` came from a cache, and `cache_creation_input_tokens` went into one; None where the
    provider does not say. `time_to_first_chunk` is None for a reply that was not streamed: the seconds from the start
    of the attempt to the first part of the reply, whatever is in it.
    """

    id: str = ""
    model: str = ""
    input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    time_to_first_chunk: float | None = None


def read_name(value: object) -> str:
    """Read an id or a name that a provider gave. Empty for what is no text, or too long for one."""
    if not isinstance(value, str) or len(value) > _LONGEST_NAME:
        return ""
    # Half a surrogate pair is nothing that can be sent on.
    return value.encode(errors="replace").decode()


class ModelResponse(msgspec.Struct, frozen=True, eq=False):
    """A whole reply, or as much of one as arrived before a failure.

    Two are equal that differ in `finish_reason` or in `response`, which are about the reply and no part of it.
    """

    text: str = ""
    reasoning: str = ""
    reasoning_details: tuple[Mapping[str, JsonValue], ...] = ()
    calls: tuple[ResponseToolCall, ...] = ()
    finish: Finish = Finish.STOP
    usage: Usage | None = None
    #: The provider's own word for the finish, for people and for `turnwright decode`.
    finish_reason: str | None = None
    #: What else the provider told, if the model says so.
    response: ResponseInfo | None = None

    def __eq__(self, other: object) -> bool:
        return self._compared() == other._compared() if isinstance(other, ModelResponse) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._compared())

    def _compared(self) -> tuple[object, ...]:
        return msgspec.structs.astuple(self)[:-2]


class ModelError(TurnwrightError):
    """A model call failed. The driver turns it into a fact; the chart decides whether to try again.

    `cause` is from the closed set of the design; `status` is the HTTP status where there was one; `retry_after`
    is what the provider asked for, in seconds; `partial` is what had arrived.
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
        self.cause = cause
        self.status = status
        self.retry_after = retry_after
        self.partial = partial


class Model(Protocol):
    """A model that streams one reply."""

    @property
    def name(self) -> str:
        """The model's id, as the journal and people see it."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        """Stream the reply to `request`: any number of deltas, then exactly one `ModelResponse`, which is whole.

        Raises `ModelError` for everything that can go wrong with a provider, and nothing else for it. It makes
        one attempt: retries belong to the chart (DESIGN 4.10). Cancelling it closes the connection.
        """
        ...


def too_long(model: str, reply: ModelResponse) -> ModelError:
    """Make the error of a reply that asks for more calls than a turn takes."""
    why = f"the reply asks for more than {MAX_CALLS_PER_REPLY} calls. Ask for a shorter reply."
    return ModelError(f"model {model}: {why}", cause=Cause.REJECTED, partial=reply)


def no_reply(model: str) -> ModelError:
    """Make the error of a stream that ended without a reply."""
    return ModelError(f"model {model}: the stream ended without a reply", cause=Cause.INTERRUPTED)
