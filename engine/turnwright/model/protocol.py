"""What the driver asks of a model, and what a model gives back.

Anything with a `name` and a `stream` is a model: there is nothing to inherit from.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Literal, Protocol

import msgspec
from pydantic import JsonValue

from turnwright.errors import TurnwrightError
from turnwright.message import Message
from turnwright_states import Cause, Finish, Usage

ToolChoice = Literal["auto", "none", "required"]


class ToolSpec(msgspec.Struct, frozen=True, weakref=True):
    """A tool as the model sees it: `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, JsonValue]


class Request(msgspec.Struct, frozen=True):
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


class ReplyCall(msgspec.Struct, frozen=True):
    """A tool call of a reply, as the provider sent it.

    `arguments` is None where `raw` is not one whole JSON object (an empty `raw` means no arguments: `{}`).
    """

    name: str
    arguments: Mapping[str, JsonValue] | None
    raw: str = ""
    id: str = ""


class Reply(msgspec.Struct, frozen=True, eq=False):
    """A whole reply, or as much of one as arrived before a failure. Two are equal that differ in `finish_reason`."""

    text: str = ""
    reasoning: str = ""
    reasoning_details: tuple[Mapping[str, JsonValue], ...] = ()
    calls: tuple[ReplyCall, ...] = ()
    finish: Finish = Finish.STOP
    usage: Usage | None = None
    #: The provider's own word for the finish, for people and for `turnwright decode`.
    finish_reason: str | None = None

    def __eq__(self, other: object) -> bool:
        return self._compared() == other._compared() if isinstance(other, Reply) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._compared())

    def _compared(self) -> tuple[object, ...]:
        return msgspec.structs.astuple(self)[:-1]


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
        partial: Reply | None = None,
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

    def stream(self, request: Request) -> AsyncIterator[Delta | Reply]:
        """Stream the reply to `request`: any number of deltas, then exactly one `Reply`, which is whole.

        Raises `ModelError` for everything that can go wrong with a provider, and nothing else for it. It makes
        one attempt: retries belong to the chart (DESIGN 4.10). Cancelling it closes the connection.
        """
        ...
