"""A desk for the tickets of several companies, which are in one table."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from turnwright import Agent, ToolContext, TurnInfo, tool

DATABASE: Final = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
DATABASE.executescript(
    """
    CREATE TABLE tickets (company TEXT, title TEXT, state TEXT);
    INSERT INTO tickets VALUES
        ('acme', 'broken door', 'open'), ('acme', 'cold room', 'closed'), ('zeta', 'lost badge', 'open');
    """
)
#: The company that listed, and the company of each ticket in its list.
LISTINGS: Final[list[tuple[str, str]]] = []
METADATA: Final = ({"company": "acme"}, {"company": "zeta"})


@dataclass(frozen=True)
class Deps:
    """The company that writes, and its connection."""

    company: str
    database: sqlite3.Connection


def make_deps(turn: TurnInfo) -> Iterator[Deps]:
    """Open the database for the company of the turn."""
    yield Deps(str(turn.metadata["company"]), DATABASE)


def reset() -> None:
    """Start with no listing."""
    LISTINGS.clear()


@tool(read_only=True)
async def list_tickets(ctx: ToolContext[Deps], *, closed: bool = False) -> list[str]:
    """List the tickets of the company: those that are open, or those that are closed."""
    query = "SELECT company, title FROM tickets WHERE state = ? AND company = ?"
    rows = ctx.deps.database.execute(query, ("closed" if closed else "open", ctx.deps.company)).fetchall()
    LISTINGS.extend((ctx.deps.company, company) for company, _ in rows)
    return [title for _, title in rows]


DESK = Agent(name="Ticket desk", instructions="Answer about tickets.", tools=("list_tickets",))


def invariant_companies_see_their_own_tickets() -> None:
    """A list has tickets of the company that asked."""
    for reader, company in LISTINGS:
        assert reader == company, f"{reader} saw a ticket of {company}"
