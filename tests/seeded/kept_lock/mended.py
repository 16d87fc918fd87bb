"""A mail room with one printer, which prints a label at a time."""

import asyncio
from typing import Annotated, Final

from pydantic import Field

from turnwright import Agent, ToolError, tool

ADDRESSES: Final = {"A1": "1 Elm Street", "B1": "2 Oak Lane"}
PRINTER: Final = asyncio.Lock()


@tool(timeout=None)
async def print_label(order: Annotated[str, Field(examples=[*ADDRESSES])]) -> str:
    """Print the label of an order."""
    async with PRINTER:
        if order not in ADDRESSES:
            raise ToolError(f"there is no order {order}")
        await asyncio.sleep(1)
    return f"printed {ADDRESSES[order]}"


DESK = Agent(name="Mail room", instructions="Print labels.", tools=("print_label",))
