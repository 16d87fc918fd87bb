"""A desk whose hook adds the customer to each order that the model reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from turnwright import Agent, CallView, ReturnResult, ToolContext, ToolError, ToolResult, after_tool, tool
from turnwright.model import ModelRequest


@dataclass(frozen=True)
class Customer:
    """A customer with a card."""

    name: str
    card: str


CUSTOMERS: Final = {"A1": Customer("Ann", "4000-0012"), "B1": Customer("Bob", "4000-0034")}


@after_tool(tools=["read_order"])
async def add_customer(_ctx: ToolContext, call: CallView, result: ToolResult) -> ReturnResult | None:
    """Add the customer to the order."""
    customer = CUSTOMERS.get(str(call.arguments["order"]))
    if customer is None:
        return None
    return ReturnResult(f"{result.text}, for {customer.name}")


@tool(read_only=True)
async def read_order(order: Annotated[str, Field(examples=[*CUSTOMERS])]) -> str:
    """Read an order."""
    if order not in CUSTOMERS:
        raise ToolError(f"there is no order {order}")
    return f"{order}: a bicycle"


DESK = Agent(name="Order desk", instructions="Explain orders.", tools=("read_order",), hooks=(add_customer,))


def invariant_model_reads_no_card(requests: Sequence[ModelRequest]) -> None:
    """No request has the number of a card."""
    for number, request in enumerate(requests, start=1):
        cards = [customer.card for customer in CUSTOMERS.values() if customer.card in str(request.messages)]
        assert not cards, f"request {number} has the cards {cards}"
