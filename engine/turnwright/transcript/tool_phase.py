"""What the tools of one step came to, and the ids of the messages of a turn."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec
from pydantic import JsonValue

from turnwright.message import Message, ToolResultPart
from turnwright_states import CallStatus


class PhaseResult(StrEnum):
    """What follows the tools of a step: the next look at the limits, a person, or the end."""

    CONTINUE = "continue"
    PAUSED = "paused"
    SYNTHESIS_DONE = "synthesis_done"


class PhaseCall(msgspec.Struct, frozen=True):
    """A call of the step. `status` is None while it waits for a person."""

    id: str
    name: str
    status: CallStatus | None


class ToolPhase(msgspec.Struct, frozen=True):
    """What the tools of a step came to.

    `count` is how many of `calls` took a place in the tool budget: those that started. `next_message` is the number
    of the assistant's next message; None for a pause, after which the same step goes on. A phase that was cut off (by
    an abort, the deadline or a failure of the engine) has no result.
    """

    result: PhaseResult
    count: int
    calls: tuple[PhaseCall, ...]
    next_message: int | None = None

    def to_json(self, turn: str) -> dict[str, JsonValue]:
        """The phase as the field `tools` of an event of `turn`."""
        return {
            "result": str(self.result),
            "count": self.count,
            "calls": [
                {"id": call.id, "name": call.name, "status": "waiting" if call.status is None else str(call.status)}
                for call in self.calls
            ],
            "next_message": None if self.next_message is None else assistant_id(turn, self.next_message),
        }


def assistant_id(turn: str, number: int) -> str:
    """The id of a turn's n-th message of the assistant. Step n makes the n-th; what concludes a turn comes after."""
    return f"{turn}/assistant-{number}"


def message_ids(turn: str, messages: Sequence[Message]) -> tuple[str, ...]:
    """The id of each message of a turn, from `TurnResult.messages`: unique, and the same whenever it is asked for.

    `{turn}/user-1` is the prompt, and messages to the running turn follow it; the assistant's are counted likewise,
    and the result of a call has the call's id: `{turn}/call00007`. So an id can be told before its message is there.
    """
    ids: list[str] = []
    counts: dict[str, int] = {}
    for message in messages:
        first = message.parts[0] if message.parts else None
        if isinstance(first, ToolResultPart):
            ids.append(f"{turn}/{first.call}")
            continue
        number = counts[message.role] = counts.get(message.role, 0) + 1
        ids.append(assistant_id(turn, number) if message.role == "assistant" else f"{turn}/{message.role}-{number}")
    return tuple(ids)
