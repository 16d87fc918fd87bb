"""A search desk."""

from turnwright import Agent, tool


@tool(read_only=True)
async def search(query: str) -> str:
    """Search the handbook."""
    return f"nothing about {query[:20]}"


DESK = Agent(
    name="Search desk",
    instructions="Answer from the handbook.",
    tools=("search",),
)
