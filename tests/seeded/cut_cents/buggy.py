"""A receipts desk that books the cents of prices."""

from decimal import Decimal
from typing import Annotated, Final

from pydantic import BaseModel, Field

from turnwright import Agent, tool

#: The price of each booked item, and its cents.
BOOKINGS: Final[list[tuple[float, int]]] = []


class Item(BaseModel):
    """An item of a receipt, with its price in EUR."""

    title: str
    price: Annotated[float, Field(ge=0, le=10_000)]


def reset() -> None:
    """Start with no booking."""
    BOOKINGS.clear()


@tool
async def book_receipt(items: list[Item]) -> str:
    """Book the items of a receipt."""
    for item in items:
        BOOKINGS.append((item.price, int(item.price * 100)))
    return f"{len(items)} items are booked"


DESK = Agent(name="Receipts desk", instructions="Book receipts.", tools=("book_receipt",))


def invariant_cents_are_the_price() -> None:
    """A price differs from its cents by at most half a cent."""
    for price, cents in BOOKINGS:
        assert abs(Decimal(str(price)) * 100 - cents) <= Decimal("0.5"), f"{price} EUR booked as {cents} cents"
