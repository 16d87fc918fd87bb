"""An address desk whose users confirm in their browser who they are."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from turnwright import Agent, Message, ToolContext, ToolError, TurnResult, external_tool, tool
from turnwright.message import ToolResultPart
from turnwright.model import ModelRequest

#: The turns that changed an address.
CHANGES: Final[list[str]] = []


def reset() -> None:
    """Start with no change."""
    CHANGES.clear()


confirm_identity = external_tool(
    name="confirm_identity",
    description="Let the user confirm who they are.",
    parameters={"type": "object", "properties": {}},
    output_schema={"type": "object", "properties": {"verified": {"type": "boolean"}}, "required": ["verified"]},
)


def results(messages: Sequence[Message]) -> Iterator[str]:
    """Return the results of the confirmations that did not fail."""
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, ToolResultPart) and part.name == "confirm_identity" and part.text.startswith("{"):
            yield part.text


@tool
async def change_address(ctx: ToolContext, street: str) -> str:
    """Change the address of a user who is confirmed."""
    if not list(results(ctx.messages)):
        raise ToolError("confirm the identity first")
    CHANGES.append(ctx.turn_id)
    return f"moved to {street}"


DESK = Agent(name="Address desk", instructions="Change addresses.", tools=("confirm_identity", "change_address"))


def invariant_only_confirmed_users_move(turn: TurnResult, requests: Sequence[ModelRequest]) -> None:
    """Of a user who moves, the conversation has a confirmation."""
    verdicts = [json.loads(result)["verified"] for result in results(requests[-1].messages)]
    assert turn.id not in CHANGES or any(verdicts), f"moved, and the browser said {verdicts}"
