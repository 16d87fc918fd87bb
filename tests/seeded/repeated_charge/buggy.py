"""A cashier that charges cards through a gateway whose answers are sometimes lost."""

from typing import Annotated, Final
from uuid import uuid4

from pydantic import Field

from turnwright import Agent, ToolContext, ToolError, tool

#: The cents of each charge, by its idempotency key.
CHARGES: Final[dict[str, int]] = {}
#: The cents that customers owe for each call.
BILLS: Final[dict[str, int]] = {}


def reset() -> None:
    """Start with no charge."""
    CHARGES.clear()
    BILLS.clear()


async def post_charge(cents: int, key: str) -> None:
    """Charge once for each key, as the gateway does, and lose the answer to every second charge."""
    if key not in CHARGES:
        CHARGES[key] = cents
        if len(CHARGES) % 2 == 0:
            raise TimeoutError("the gateway did not answer")


@tool(idempotent=True)
async def charge(ctx: ToolContext, cents: Annotated[int, Field(gt=0, examples=[1999])]) -> str:
    """Charge the card of the customer."""
    BILLS[ctx.idempotency_key] = cents
    for _ in range(3):
        try:
            await post_charge(cents, str(uuid4()))
        except TimeoutError:
            continue
        return f"{cents} cents charged"
    raise ToolError("the gateway does not answer")


DESK = Agent(name="Cashier", instructions="Charge what the customer buys.", tools=("charge",))


def invariant_customers_pay_their_bills_once() -> None:
    """The charges never exceed the bills."""
    assert sum(CHARGES.values()) <= sum(BILLS.values()), f"charged {CHARGES}, owed {BILLS}"
