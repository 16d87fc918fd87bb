"""The context of a running turn, and the dependencies that its functions use.

`Deps` is the type of an engine's dependencies: connections, clients, the user who asks. The engine passes them to tools
and approval functions. They are never written to the journal.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, TypeAlias

from pydantic import GetCoreSchemaHandler, JsonValue
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypeVar

from turnwright_states import Usage

from .message import Message

#: An engine's dependencies. An engine without any has None.
DepsT = TypeVar("DepsT", default=None)
#: The dependencies that a context has. `object` is the default: a function that needs none takes any context.
DepsT_co = TypeVar("DepsT_co", default=object, covariant=True)
#: The dependencies that a tool or an agent needs. One that needs none fits every engine.
DepsT_contra = TypeVar("DepsT_contra", default=object, contravariant=True)
#: The type of an agent's answer.
OutT_co = TypeVar("OutT_co", default=str, covariant=True)
T = TypeVar("T")

#: Made unchecked, because the first check would build pydantic's validator at import.
_NOTHING_USED: Final = Usage()

JsonObject: TypeAlias = Mapping[str, JsonValue]
MaybeAwaitable: TypeAlias = T | Awaitable[T]


class NotGiven(Enum):
    """The type of `NOT_GIVEN`."""

    NOT_GIVEN = "not given"

    def __repr__(self) -> str:
        return self.name


#: The default of an argument for which None is a value.
NOT_GIVEN: Final = NotGiven.NOT_GIVEN


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnInfo:
    """The turn that is about to be driven, for the function that makes its dependencies.

    `agent` is the name of its agent. `metadata` is the JSON data that the turn was started with. `resumed` is True if
    another driver had the turn before: after a pause, a crash, or in a worker.
    """

    turn_id: str
    agent: str
    session: str | None = None
    metadata: JsonObject = field(default_factory=dict)
    resumed: bool = False


#: Makes the dependencies of a turn: a function, or a generator that yields once and then closes them, async or not. The
#: type lacks the plain function, because type checkers would take a coroutine for the dependencies.
DepsFactory: TypeAlias = (
    Callable[[TurnInfo], Awaitable[T]] | Callable[[TurnInfo], AsyncIterator[T]] | Callable[[TurnInfo], Iterator[T]]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContext(Generic[DepsT_co]):
    """The context of a running turn, for functions of yours that the engine calls.

    `deps` are the engine's dependencies. `agent` is the name of the turn's agent. `session` is its conversation, and
    `metadata` the JSON data that it was started with; in a sub-agent's turn, those of the turn at the top. `step`
    counts from 1. `usage` is what the turn's model calls have used so far. `messages` are those before the turn and its
    own so far, as its model is sent them, without instructions.

    For a test of a function, `TurnContext(turn_id="t", deps=...)` is enough.
    """

    turn_id: str
    deps: DepsT_co = None  # type: ignore[assignment]  # None only where nothing needs them: see `Engine`
    session: str | None = None
    metadata: JsonObject = field(default_factory=dict)
    agent: str = ""
    step: int = 0
    usage: Usage = _NOTHING_USED
    messages: Sequence[Message] = field(default=(), repr=False)


class AppCode(Generic[DepsT_contra]):
    """Code of the app, as a field of an agent takes it: an instance of the class."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return pydantic's schema."""
        return core_schema.is_instance_schema(cls)


class HooksBase(AppCode[DepsT_contra], Generic[DepsT_contra]):
    """The base of `Hooks`: an agent needs its type, but not the modules that hooks need."""


class GuardrailBase(AppCode[DepsT_contra], Generic[DepsT_contra]):
    """The base of `Guardrail`, likewise."""
