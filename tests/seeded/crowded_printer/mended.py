"""A print shop with two printers, which refuse a third job."""

from typing import Annotated, Final

import anyio
from pydantic import Field

from turnwright import Agent, tool

PRINTERS: Final = 2
#: The jobs at work, and the most that ever were.
JOBS: Final = {"now": 0, "most": 0}


def reset() -> None:
    """Start with free printers."""
    JOBS.update(now=0, most=0)


@tool(concurrency=PRINTERS)
async def print_page(page: Annotated[int, Field(ge=1, le=20)]) -> str:
    """Print a page."""
    JOBS["now"] += 1
    JOBS["most"] = max(JOBS.values())
    try:
        await anyio.sleep(0.01)
    finally:
        JOBS["now"] -= 1
    return f"page {page} is printed"


DESK = Agent(name="Print shop", instructions="Print pages.", tools=("print_page",))


def invariant_printers_are_not_crowded() -> None:
    """A printer has one job at a time."""
    assert JOBS["most"] <= PRINTERS, f"{JOBS['most']} jobs at once on {PRINTERS} printers"
