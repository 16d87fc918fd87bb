"""A restaurant that holds tables, and asks where a table is to be."""

from typing import Annotated, Final

from pydantic import Field

from turnwright import Agent, ToolContext, tool

#: The call of each table that is held.
HOLDS: Final[list[str]] = []


def reset() -> None:
    """Start with no table."""
    HOLDS.clear()


@tool
async def book_table(ctx: ToolContext, guests: Annotated[int, Field(ge=1, le=8)]) -> str:
    """Book a table."""
    HOLDS.append(ctx.idempotency_key)
    area = ctx.ask("Inside, or on the terrace?", ["inside", "terrace"])
    return f"a table for {guests}: {area}"


DESK = Agent(name="Restaurant", instructions="Book tables.", tools=("book_table",))
