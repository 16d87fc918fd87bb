"""The result of one step's tools, and the ids of a turn's messages."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec
from pydantic import JsonValue

from turnwright.message import Message, ToolResultPart
from turnwright_states import CallStatus, State
from turnwright_states import facts as f


class PhaseResult(StrEnum):
    """The next thing after a step's tools: a check of the limits, a pause, or the end."""

    CONTINUE = "continue"
    PAUSED = "paused"
    SYNTHESIS_DONE = "synthesis_done"


class PhaseCall(msgspec.Struct, frozen=True):
    """A call of the step. `status` is None while it waits for a person."""

    id: str
    name: str
    status: CallStatus | None


class ToolPhase(msgspec.Struct, frozen=True):
    """The result of a step's tools.

    `count` is the number of `calls` that started, and so count for the tool-call limit. `next_message` is the number of
    the next assistant message; None for a pause, after which the step continues. A phase that an abort, the deadline or
    a failure cut off has no result.
    """

    result: PhaseResult
    count: int
    calls: tuple[PhaseCall, ...]
    next_message: int | None = None

    def to_json(self, turn: str) -> dict[str, JsonValue]:
        """Return the phase as the field `tools` of an event of `turn`."""
        return {
            "result": str(self.result),
            "count": self.count,
            "calls": [
                {"id": call.id, "name": call.name, "status": "waiting" if call.status is None else str(call.status)}
                for call in self.calls
            ],
            "next_message": None if self.next_message is None else assistant_id(turn, self.next_message),
        }


def phase_ended_by(
    fact: f.Fact | None, names: Mapping[str, str], results: Mapping[str, ToolResultPart], count: int, steps: int
) -> ToolPhase | None:
    """Return the phase that this fact ended, if it ended one.

    `names` are the tools of the step's calls and `results` their results so far, by call id. `count` of the calls have
    started, and `steps` have begun so far.
    """
    if not isinstance(fact, f.StepFinished | f.Synthesized | f.Paused):
        return None
    statuses = {call: part.status for call, part in results.items()}
    calls = tuple(PhaseCall(call, name, statuses.get(call)) for call, name in names.items())
    if isinstance(fact, f.Paused):
        # A doom loop's pause comes after its step has finished.
        return ToolPhase(PhaseResult.PAUSED, count, calls) if fact.interrupt is None else None
    if isinstance(fact, f.Synthesized):
        return None if fact.text is None else ToolPhase(PhaseResult.SYNTHESIS_DONE, count, calls, steps + 1)
    # Only CONTINUE leads from a finished step back to CHECK. The next assistant message comes right after it.
    is_checked = fact.state is State.CHECK
    return ToolPhase(PhaseResult.CONTINUE, count, calls, fact.number + 1) if is_checked else None


def assistant_id(turn: str, number: int) -> str:
    """Return the id of the n-th assistant message of a turn. Step n makes the n-th; the conclusion is one more."""
    return f"{turn}/assistant-{number}"


def message_ids(turn: str, messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the id of each message in `TurnResult.messages`. Ids are unique and stable.

    `{turn}/user-1` is the prompt, and messages to the running turn follow it. Assistant messages are counted likewise.
    A call's result has the call's id: `{turn}/call00007`. So an id is known before its message exists.
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
