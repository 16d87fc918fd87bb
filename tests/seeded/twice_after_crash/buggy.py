"""A desk that keeps vouchers in SQLite."""

import sqlite3
from typing import Annotated, Final

from pydantic import Field

from turnwright import Agent, ToolContext, tool

DATABASE: Final = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
DATABASE.execute("CREATE TABLE vouchers (call TEXT, euros INTEGER)")


def reset() -> None:
    """Start with no voucher."""
    DATABASE.execute("DELETE FROM vouchers")


@tool(idempotent=True)
async def issue_voucher(ctx: ToolContext, euros: Annotated[int, Field(ge=1, le=50)]) -> str:
    """Issue a voucher."""
    DATABASE.execute("INSERT INTO vouchers VALUES (?, ?)", (ctx.idempotency_key, euros))
    return f"a voucher of {euros} EUR"


DESK = Agent(name="Voucher desk", instructions="Issue vouchers.", tools=("issue_voucher",))


def invariant_calls_issue_a_voucher_once() -> None:
    """A call issues at most one voucher."""
    query = "SELECT call, count(*) FROM vouchers GROUP BY call HAVING count(*) > 1"
    repeated = DATABASE.execute(query).fetchall()
    assert not repeated, f"vouchers of a call: {repeated}"
