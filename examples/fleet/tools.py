"""The tools of the fleet's turns. The workers run them; the API only checks that an agent's tools exist."""

import os

import anyio

from turnwright import ToolContext, tool

#: Seconds that a shelf takes to be counted.
_PACE = float(os.environ.get("FLEET_PACE", "1"))


@tool
async def price(article: str) -> str:
    """Return the price of an article."""
    return f"{article}: {3 + len(article) % 7}.00"


@tool(idempotent=True)
async def take_stock(shelves: int) -> str:
    """Count the articles on the first so many shelves. It takes a while."""
    # It changes nothing, so the next worker may run it again after a crash: idempotent.
    await anyio.sleep(shelves * _PACE)
    return f"{shelves * 12} articles on {shelves} shelves"


@tool(needs_approval=True)
async def order(article: str, count: int, context: ToolContext) -> str:
    """Order an article. A person must approve."""
    # The key is the same however often the call runs: a shop that knows it takes the order once.
    return f"ordered {count} x {article} as {context.idempotency_key}"
