"""A refund desk whose large refunds a person approves, or lowers."""

from typing import Annotated, Final

from pydantic import Field

from turnwright import Agent, ToolContext, TurnResult, tool
from turnwright.message import ToolResultPart

MOST_UNAPPROVED: Final = 50
#: The euros that each call was asked for.
ASKED: Final[dict[str, int]] = {}
PAYMENTS: Final[list[int]] = []


def reset() -> None:
    """Start with no refund."""
    ASKED.clear()
    PAYMENTS.clear()


def needs_person(ctx: ToolContext, euros: int) -> bool:
    """Decide whether a person must approve the refund."""
    ASKED.setdefault(ctx.idempotency_key, euros)
    return euros > MOST_UNAPPROVED


@tool(needs_approval=needs_person)
async def refund(ctx: ToolContext, order: str, euros: Annotated[int, Field(ge=1)]) -> str:
    """Refund an order."""
    PAYMENTS.append(ASKED[ctx.idempotency_key])
    return f"refunded {euros} EUR for {order}"


DESK = Agent(name="Refund desk", instructions="Refund orders.", tools=("refund",))


def invariant_reported_refunds_are_paid(turn: TurnResult) -> None:
    """The amount in a result is that of a payment."""
    for part in (part for message in turn.messages for part in message.parts):
        if isinstance(part, ToolResultPart) and "refunded " in part.text:
            paid = [euros for euros in PAYMENTS if f"refunded {euros} EUR" in part.text]
            assert paid, f"paid {PAYMENTS}, and the result is: {part.text}"
