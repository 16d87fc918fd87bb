"""A bank desk whose large transfers a person approves."""

from typing import Annotated, Final, Literal

from pydantic import Field

from turnwright import Agent, ToolContext, tool
from turnwright.context import JsonObject

MOST_UNAPPROVED: Final = 10
APPROVALS: Final[set[str]] = set()
#: The euros of each transfer, and whether a person approved it.
TRANSFERS: Final[list[tuple[int, bool]]] = []


def reset() -> None:
    """Start with no transfer."""
    APPROVALS.clear()
    TRANSFERS.clear()


def needs_person(ctx: ToolContext, arguments: JsonObject) -> bool:
    """Decide whether a person must approve the transfer, which nobody did so far."""
    large = arguments["euros"] not in range(MOST_UNAPPROVED + 1)
    return large and ctx.idempotency_key not in APPROVALS


@tool(needs_approval=needs_person)
async def transfer(ctx: ToolContext, to: Literal["ann", "bob"], euros: Annotated[int, Field(ge=1)]) -> str:
    """Transfer money."""
    if ctx.answers:
        APPROVALS.add(ctx.idempotency_key)
    TRANSFERS.append((euros, bool(ctx.answers)))
    return f"{euros} EUR transferred to {to}"


DESK = Agent(name="Bank desk", instructions="Transfer money.", tools=("transfer",))


def invariant_persons_approve_large_transfers() -> None:
    """A person approved each large transfer."""
    unapproved = [euros for euros, approved in TRANSFERS if euros > MOST_UNAPPROVED and not approved]
    assert not unapproved, f"transfers without approval: {unapproved}"
