"""A travel desk that sends its model the end of long conversations."""

from collections.abc import Sequence
from typing import Annotated, Final, Unpack

from pydantic import Field

from turnwright import Agent, Engine, Message, tool
from turnwright.model import ModelRequest
from turnwright_testing import EngineParts

PROMPTS: Final = ("Find a hotel in Rome for at most 80 EUR.", "Find a hotel in Oslo without stairs.")
_STEPS: Final = 2


async def shorten(messages: tuple[Message, ...]) -> Sequence[Message]:
    """Keep the last steps, each with its results."""
    steps = [place for place, message in enumerate(messages) if message.role == "assistant"]
    start = steps[-_STEPS] if len(steps) > _STEPS else 0
    return messages[start:]


def make_engine(**parts: Unpack[EngineParts]) -> Engine[None]:
    """Make the engine of the desk."""
    return Engine(history_processor=shorten, **parts)


@tool(read_only=True)
async def find_hotels(page: Annotated[int, Field(ge=1, le=9)]) -> str:
    """Find hotels, page by page."""
    return f"hotel {page}: {60 + 10 * page} EUR"


DESK = Agent(name="Travel desk", instructions="Find hotels.", tools=("find_hotels",))


def invariant_model_reads_the_wishes(requests: Sequence[ModelRequest]) -> None:
    """Every request has the wishes of the customer, which the first one has."""
    for number, request in enumerate(requests, start=1):
        texts = [message.text for message in request.messages]
        for wish in PROMPTS:
            lost = wish in str(requests[0].messages) and wish not in str(texts)
            assert not lost, f"request {number} lacks: {wish}"
