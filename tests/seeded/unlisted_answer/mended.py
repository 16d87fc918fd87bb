"""A tea house that asks for the size of a cup."""

from typing import Annotated, Final

from pydantic import Field

from turnwright import Agent, ToolContext, ToolError, tool

PRICES: Final = {"small": 3, "large": 5}


@tool
async def order_tea(ctx: ToolContext, cups: Annotated[int, Field(ge=1, le=9)]) -> str:
    """Order tea."""
    size = ctx.ask("Small or large?", [*PRICES])
    if size not in PRICES:
        raise ToolError(f"there is no size {size}")
    return f"{cups} {size} cups for {cups * PRICES[size]} EUR"


DESK = Agent(name="Tea house", instructions="Order tea.", tools=("order_tea",))
