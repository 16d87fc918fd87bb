"""The calls of the open batch."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct
from pydantic import JsonValue

from .facts import Answered, CallMade, CallSettled


class CallState(StrEnum):
    """The progress of a call of the open batch."""

    READY = "ready"
    STARTED = "started"
    WAITING = "waiting"
    SETTLED = "settled"


class Call(Struct, eq=False):
    """One call of the open batch. Two calls with equal fields are still different calls."""

    #: The call as it was journaled with its reply.
    made: CallMade
    #: Its id, unique in the turn.
    id: str
    #: The tool's name.
    name: str
    #: The arguments; empty if they were not a JSON object.
    arguments: Mapping[str, JsonValue]
    state: CallState = CallState.READY
    #: The number of its starts.
    attempt: int = 0
    #: Whether the crash that interrupted it has taken a retry of the batch, so that it runs again without one.
    crash_paid: bool = False
    #: Whether it counts in the budget.
    counted: bool = False
    #: The key of its result for the doom-loop detector; empty if the result does not count.
    result_key: str = ""
    #: Its result, if that has a checksum instead of a key.
    unkeyed: CallSettled | None = None
    #: Whether its result is an error.
    failed: bool = False
    #: Whether an answer gave its result, so that it does not run.
    has_result: bool = False
    #: The tool's own data for the next run of the call: not read.
    kept: JsonValue = None
    #: The rules that people have allowed it to break.
    approved_rules: tuple[str, ...] = ()
    #: The answers to its interrupts, oldest first.
    answers: tuple[Answered, ...] = ()
