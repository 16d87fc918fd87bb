"""A desk that reads scans with a driver that blocks its thread."""

import time
from typing import Annotated, Final

from pydantic import Field

from turnwright import Agent, tool

#: The seconds of a page.
_SECONDS: Final = 0.2


def scan(page: int) -> str:
    """Scan a page, as the driver does."""
    time.sleep(_SECONDS)
    return f"the text of page {page}"


@tool(read_only=True)
def read_page(page: Annotated[int, Field(ge=1, le=3)]) -> str:
    """Read a page of the scanned contract."""
    return scan(page)


DESK = Agent(name="Scan desk", instructions="Read contracts.", tools=("read_page",))
