"""A wallet that is kept behind a slow API, which reads and writes whole balances."""

from typing import Annotated, Final

import anyio
from pydantic import Field

from turnwright import Agent, tool

BALANCE: Final = {"cents": 0}
DEPOSITS: Final[list[int]] = []


def reset() -> None:
    """Start with an empty wallet."""
    BALANCE["cents"] = 0
    DEPOSITS.clear()


async def read_balance() -> int:
    """Return the balance in cents."""
    await anyio.sleep(0.01)
    return BALANCE["cents"]


async def write_balance(cents: int) -> None:
    """Replace the balance, in cents."""
    await anyio.sleep(0.01)
    BALANCE["cents"] = cents


@tool
async def deposit(cents: Annotated[int, Field(gt=0, le=10_000)]) -> str:
    """Pay cents into the wallet."""
    balance = await read_balance()
    await write_balance(balance + cents)
    DEPOSITS.append(cents)
    return f"the wallet has {balance + cents} cents"


DESK = Agent(name="Wallet", instructions="Keep the wallet.", tools=("deposit",))


def invariant_balance_has_every_deposit() -> None:
    """No deposit is lost."""
    assert BALANCE["cents"] == sum(DEPOSITS), f"balance {BALANCE['cents']} after deposits of {DEPOSITS}"
