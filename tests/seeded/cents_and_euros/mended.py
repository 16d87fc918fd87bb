"""A cashier with prices in cents, and a terminal that takes euros."""

from decimal import Decimal
from typing import Annotated, Final

from pydantic import Field

from turnwright import Agent, ToolError, tool

PRICES_IN_CENTS: Final = {"tea": 350, "cake": 425}
#: The item and the euros of each payment.
PAYMENTS: Final[list[tuple[str, Decimal]]] = []


def reset() -> None:
    """Start with no payment."""
    PAYMENTS.clear()


def pay(item: str, euros: Decimal) -> None:
    """Take a payment, as the terminal does."""
    PAYMENTS.append((item, euros))


@tool
async def sell(item: Annotated[str, Field(examples=[*PRICES_IN_CENTS])]) -> str:
    """Sell an item."""
    if item not in PRICES_IN_CENTS:
        raise ToolError(f"there is no {item}")
    pay(item, Decimal(PRICES_IN_CENTS[item]) / 100)
    return f"{item} sold"


DESK = Agent(name="Cashier", instructions="Sell tea and cake.", tools=("sell",))


def invariant_customers_pay_the_price() -> None:
    """A payment is the price of its item."""
    for item, euros in PAYMENTS:
        assert euros * 100 == PRICES_IN_CENTS[item], f"{euros} EUR for {item} at {PRICES_IN_CENTS[item]} cents"
