"""A shop whose prices change, and are cached for quotes."""

from functools import lru_cache
from typing import Final

from turnwright import Agent, ToolError, tool

PRICES: Final[dict[str, int]] = {}
#: The article of each quote, the quoted price and the price at that time, in EUR.
QUOTES: Final[list[tuple[str, int, int]]] = []


@lru_cache
def read_price(article: str) -> int:
    """Read a price, which takes long."""
    return PRICES[article]


def reset() -> None:
    """Start with two articles."""
    read_price.cache_clear()
    QUOTES.clear()
    PRICES.clear()
    PRICES.update({"lamp": 40, "desk": 200})


@tool
async def change_price(article: str, euros: int) -> str:
    """Change the price of an article."""
    if article not in PRICES:
        raise ToolError(f"{article} is not for sale")
    PRICES[article] = euros
    return f"the price of {article} is {euros} EUR"


@tool(read_only=True)
async def quote(article: str) -> int:
    """Quote the price of an article in EUR."""
    if article not in PRICES:
        raise ToolError(f"{article} is not for sale")
    QUOTES.append((article, read_price(article), PRICES[article]))
    return read_price(article)


DESK = Agent(name="Shop desk", instructions="Quote prices.", tools=("change_price", "quote"))


def invariant_quotes_are_the_prices() -> None:
    """A quote has the price of its time."""
    for article, quoted, price in QUOTES:
        assert quoted == price, f"quoted {quoted} EUR for {article} of {price} EUR"
