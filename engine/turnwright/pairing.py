"""The one place that enforces pairing: each tool call has exactly one result, right after it (DESIGN 4.8).

Providers answer 400 to anything else, and every later request of the conversation fails with it. So each request is
checked again before it is sent, whatever made it.
"""

from collections.abc import Iterable, Sequence

from .errors import TurnwrightError
from .message import AnyPart, Message, ToolCallPart, ToolResultPart


class UnpairedError(TurnwrightError):
    """A message list holds a call without its result, or a result without its call. Names the message."""


def check_pairing(messages: Sequence[Message]) -> None:
    """Raise `UnpairedError` unless every call is followed by exactly one result, before anybody else speaks."""
    waiting: list[str] = []
    asked_at = 0
    for number, message in enumerate(messages):
        results = [part for part in message.parts if isinstance(part, ToolResultPart)]
        if message.role == "tool":
            if len(results) != 1 or results[0].call not in waiting:
                raise UnpairedError(f"message {number}: a tool result that answers no open call")
            waiting.remove(results[0].call)
            continue
        if waiting:
            raise UnpairedError(f"message {asked_at}: call {waiting[0]!r} has no result before message {number}")
        if results:
            raise UnpairedError(f"message {number}: a tool result in a message of role {message.role}")
        waiting, asked_at = [call.id for call in message.calls], number
    if waiting:
        raise UnpairedError(f"message {asked_at}: call {waiting[0]!r} has no result")


def renamed(messages: Iterable[Message]) -> list[Message]:
    """The messages of earlier turns with call ids of their own, so that none meets an id of the turn at hand.

    Ids pair by occurrence: the n-th use of an id is another call than the one before.
    """
    names: dict[str, str] = {}
    made = 0
    out: list[Message] = []
    for message in messages:
        parts: list[AnyPart] = []
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                made += 1
                names[part.id] = f"past{made:05d}"
                parts.append(part.model_copy(update={"id": names[part.id]}))
            elif isinstance(part, ToolResultPart):
                parts.append(part.model_copy(update={"call": names.get(part.call, part.call)}))
            else:
                parts.append(part)
        out.append(message.model_copy(update={"parts": tuple(parts)}))
    return out
