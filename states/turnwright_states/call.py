"""One call of the open batch, as the turn knows it."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct
from pydantic import JsonValue

from .facts import Answered, CallMade


class CallState(StrEnum):
    """Where a call of the open batch stands."""

    READY = "ready"
    STARTED = "started"
    WAITING = "waiting"
    SETTLED = "settled"


class Call(Struct, eq=False):
    """One call of the open batch. Each is itself: two that look alike are not the same."""

    #: The call as it was journalled with its reply.
    made: CallMade
    #: Its id, unique in the turn.
    id: str
    #: The tool's name.
    name: str
    #: The arguments; empty where they were not a JSON object.
    arguments: Mapping[str, JsonValue]
    state: CallState = CallState.READY
    #: Times that it was started.
    attempt: int = 0
    #: Whether it has taken its place in the budget.
    counted: bool = False
    #: What people said to its interrupts, oldest first.
    answers: tuple[Answered, ...] = ()
