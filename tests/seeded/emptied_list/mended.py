"""A shop that reserves the items of a basket, and charges each of them."""

from typing import Annotated, Final, Literal

from pydantic import Field

from turnwright import Agent, tool

_PRICE: Final = 5
RESERVED: Final[list[str]] = []
CHARGES: Final[list[int]] = []


def reset() -> None:
    """Start with no sale."""
    RESERVED.clear()
    CHARGES.clear()


def reserve(items: list[str]) -> None:
    """Reserve items, the last one first."""
    RESERVED.extend(reversed(items))


@tool
async def buy(items: Annotated[list[Literal["cup", "pot"]], Field(min_length=1, max_length=5)]) -> str:
    """Buy items at 5 EUR each."""
    basket: list[str] = [*items]
    reserve(basket)
    CHARGES.append(_PRICE * len(basket))
    return f"{CHARGES[-1]} EUR charged"


DESK = Agent(name="Shop", instructions="Sell cups and pots.", tools=("buy",))


def invariant_reserved_items_are_charged() -> None:
    """Every reserved item is charged."""
    assert sum(CHARGES) == _PRICE * len(RESERVED), f"charged {CHARGES} for {RESERVED}"
