"""A bank desk whose transfers a person approves, once or always."""

from typing import Annotated, Final, Literal, Unpack

from pydantic import Field

from turnwright import Agent, Answering, Decision, Engine, tool
from turnwright_testing import EngineParts

#: The approvals that hold for all sessions.
ALWAYS: Final[set[object]] = set()
#: The transfers that people approved, and those that ran: to whom, and the euros.
APPROVED: Final[set[object]] = set()
TRANSFERS: Final[list[object]] = []


def reset() -> None:
    """Start with no transfer."""
    for notes in (ALWAYS, APPROVED, TRANSFERS):
        notes.clear()


async def note_approval(answering: Answering) -> bool:
    """Note an approval, and whether it holds always."""
    arguments = answering.arguments or answering.interrupt.arguments or {}
    if answering.decision is Decision.APPROVE:
        APPROVED.add((arguments["to"], arguments["euros"]))
        if answering.always:
            ALWAYS.add((arguments["to"], arguments["euros"]))
    return True


def needs_person(to: str, euros: int) -> bool:
    """Decide whether a person must approve the transfer, which none always approves."""
    return (to, euros) not in ALWAYS


@tool(needs_approval=needs_person)
async def transfer(to: Literal["ann", "bob"], euros: Annotated[int, Field(ge=1)]) -> str:
    """Transfer money."""
    TRANSFERS.append((to, euros))
    return f"{euros} EUR transferred to {to}"


def make_engine(**parts: Unpack[EngineParts]) -> Engine[None]:
    """Make an engine that shows the desk each answer."""
    return Engine(authorize=note_approval, **parts)


DESK = Agent(name="Bank desk", instructions="Transfer money.", tools=("transfer",))


def invariant_people_approve_transfers() -> None:
    """A person approved each transfer, or an equal one."""
    unapproved = [transferred for transferred in TRANSFERS if transferred not in APPROVED]
    assert not unapproved, f"transfers without approval: {unapproved}"
