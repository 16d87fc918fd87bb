"""A refund desk whose large refunds a person approves, up to a limit."""

from typing import Annotated, Final, Unpack

from pydantic import Field

from turnwright import Agent, Answering, Decision, Engine, tool
from turnwright_testing import EngineParts

MOST_UNAPPROVED: Final = 50
MOST_APPROVED: Final = 200
PAYMENTS: Final[list[int]] = []


def reset() -> None:
    """Start with no refund."""
    PAYMENTS.clear()


def needs_person(euros: int) -> bool:
    """Decide whether a person must approve the refund."""
    return euros > MOST_UNAPPROVED


async def may_answer(answering: Answering) -> bool | str:
    """Decide whether the answer may be given."""
    arguments = answering.arguments or answering.interrupt.arguments or {}
    euros = arguments.get("euros")
    if answering.decision is Decision.APPROVE and isinstance(euros, int) and euros > MOST_APPROVED:
        return f"at most {MOST_APPROVED} EUR"
    return True


@tool(needs_approval=needs_person)
async def refund(order: str, euros: Annotated[int, Field(ge=1)]) -> str:
    """Refund an order."""
    PAYMENTS.append(euros)
    return f"refunded {euros} EUR for {order}"


def make_engine(**parts: Unpack[EngineParts]) -> Engine[None]:
    """Make an engine that asks the desk about each answer."""
    return Engine(authorize=may_answer, **parts)


DESK = Agent(name="Refund desk", instructions="Refund orders.", tools=("refund",))


def invariant_refunds_are_within_the_limit() -> None:
    """Nobody may approve more than the limit."""
    large = [euros for euros in PAYMENTS if euros > MOST_APPROVED]
    assert not large, f"refunded {large}, at most {MOST_APPROVED} each"
