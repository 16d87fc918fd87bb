"""A box office that sells at most four seats to a customer."""

from collections import Counter
from typing import Annotated, Final

from pydantic import Field

from turnwright import Agent, ToolContext, ToolError, tool

MOST_SEATS: Final = 4
SEATS: Final[Counter[str]] = Counter()
METADATA: Final = ({"customer": "ann"}, {"customer": "bob"})


def reset() -> None:
    """Start with no seat sold."""
    SEATS.clear()


@tool
async def book_seats(ctx: ToolContext, seats: Annotated[int, Field(ge=1, le=10)]) -> str:
    """Book seats for the customer."""
    customer = str(ctx.metadata["customer"])
    if SEATS[customer] + seats > MOST_SEATS:
        raise ToolError(f"a customer gets at most {MOST_SEATS} seats")
    SEATS[customer] += seats
    return f"{seats} seats booked"


DESK = Agent(name="Box office", instructions="Sell seats.", tools=("book_seats",))


def invariant_customers_have_few_seats() -> None:
    """No customer has more seats than the limit."""
    for customer, seats in SEATS.items():
        assert seats <= MOST_SEATS, f"{customer} has {seats} seats of at most {MOST_SEATS}"
