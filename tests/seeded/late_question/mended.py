"""A desk that refunds orders, and asks the customer before a refund goes to a gift card."""

from typing import Annotated, Final, Literal

from pydantic import Field

from turnwright import Agent, ToolContext, ToolError, TurnResult, tool
from turnwright.message import ToolResultPart

PRICES: Final = {"A1": 40, "A2": 250}
#: The call that refunded an order, by the order.
REFUNDS: Final[dict[str, str]] = {}


def reset() -> None:
    """Start with no refund."""
    REFUNDS.clear()


@tool
async def refund(
    ctx: ToolContext, order: Annotated[str, Field(examples=[*PRICES])], to: Literal["card", "gift card"] = "card"
) -> str:
    """Refund an order, once."""
    if order not in PRICES or REFUNDS.get(order, ctx.idempotency_key) != ctx.idempotency_key:
        raise ToolError(f"nothing to refund for {order}")
    if to == "gift card" and ctx.ask(f"Refund {order} to a gift card?", ["yes", "no"]) != "yes":
        return "not refunded: the customer does not want a gift card"
    REFUNDS[order] = ctx.idempotency_key
    return f"{PRICES[order]} EUR refunded to the {to}"


DESK = Agent(name="Refund desk", instructions="Refund orders.", tools=("refund",))


def invariant_refunds_wait_for_their_answers(turn: TurnResult) -> None:
    """Nothing is refunded that the customer refused."""
    for part in (part for message in turn.messages for part in message.parts):
        if isinstance(part, ToolResultPart) and part.text.startswith("not refunded"):
            assert f"{turn.id}:{part.call}" not in REFUNDS.values(), f"refunded, and the result is: {part.text}"
