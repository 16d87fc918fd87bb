"""A desk that gives loyalty points to the customer of an order."""

from collections import Counter
from typing import Annotated, Final

from pydantic import Field

from turnwright import Agent, ToolError, tool

CUSTOMERS: Final = {"A1": "ann", "A2": "ann", "B1": "bob"}
POINTS: Final[Counter[str]] = Counter()


def reset() -> None:
    """Start with no points."""
    POINTS.clear()


def add_points(account: str, points: int) -> None:
    """Add points to an account, which the first points open."""
    POINTS[account] += points


@tool
async def give_points(
    order: Annotated[str, Field(examples=[*CUSTOMERS])], points: Annotated[int, Field(ge=1, le=100)]
) -> str:
    """Give points to the customer of an order."""
    if order not in CUSTOMERS:
        raise ToolError(f"there is no order {order}")
    add_points(order, points)
    return f"{points} points given"


DESK = Agent(name="Loyalty desk", instructions="Give points for delayed orders.", tools=("give_points",))


def invariant_accounts_belong_to_customers() -> None:
    """Only customers have points."""
    strangers = POINTS.keys() - set(CUSTOMERS.values())
    assert not strangers, f"no customers: {strangers}"
