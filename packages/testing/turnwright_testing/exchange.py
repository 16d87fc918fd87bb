"""A provider's part in one request, independent of providers: the suite of models asks a bench to play it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import JsonValue

from turnwright.message import Role
from turnwright.model import Model
from turnwright_states import Usage


@dataclass(frozen=True, slots=True)
class SaidCall:
    """A tool call as the provider writes it: its own id, the tool's name, and the arguments as text."""

    id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class Says:
    """The provider replies: the text in these pieces, then the calls, then why it stopped, then the usage.

    `finish`: `stop`, `calls` (it wants its calls run), `length` (cut off at the output limit) or `filter` (stopped by
    the content filter). `usage` is None where the provider says nothing of it. `then`: the reply `ends` as it should;
    or, before it says why it stopped, the connection `breaks`, or the provider `hangs` with the connection open.
    """

    pieces: tuple[str, ...] = ()
    calls: tuple[SaidCall, ...] = ()
    finish: Literal["stop", "calls", "length", "filter"] = "stop"
    usage: Usage | None = None
    then: Literal["ends", "breaks", "hangs"] = "ends"


@dataclass(frozen=True, slots=True)
class Fails:
    """The provider refuses the request with an HTTP status, or with its equivalent.

    `retry_after` is how long it asks to wait, in seconds. `about`: the words, or the code, by which it says that the
    conversation is too long (`context`) or that its content filter stepped in (`filter`).
    """

    status: int
    retry_after: float | None = None
    about: Literal["", "context", "filter"] = ""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No server listens at the provider's address."""


@dataclass(frozen=True, slots=True)
class Nonsense:
    """The provider answers with status 200 and a body that is not a reply, such as a login page."""


Exchange = Says | Fails | Unreachable | Nonsense


@dataclass(frozen=True, slots=True)
class SentCall:
    """A tool call, as it was sent back to the provider."""

    id: str
    name: str
    arguments: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message as the provider got it. `answers` is the call's id in a tool's result, whatever role it was sent as."""

    role: Role
    text: str = ""
    calls: tuple[SentCall, ...] = ()
    answers: str = ""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request as the provider got it. `tool_choice` is None where none was sent; `tools` are names."""

    messages: tuple[SentMessage, ...] = ()
    tools: tuple[str, ...] = ()
    tool_choice: str | None = None
    max_tokens: int | None = None


class ModelBench(Protocol):
    """A scripted provider, and the model under test in front of it."""

    @property
    def requests(self) -> list[SentRequest]:
        """The requests that the provider received, oldest first; a failed connection counts too."""
        ...

    @property
    def closed(self) -> bool:
        """Whether the model has no open connection."""
        ...

    def model(self, exchange: Exchange) -> Model:
        """Make a model whose provider plays this exchange for every request.

        Calls `pytest.skip` where the provider cannot do it.
        """
        ...
