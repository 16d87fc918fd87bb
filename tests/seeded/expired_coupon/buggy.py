"""A shop that redeems coupons, each until a day."""

from datetime import date
from typing import Annotated, Final

from pydantic import Field

from turnwright import Agent, ToolError, tool

TODAY: Final = date(2026, 11, 29)
LAST_DAYS: Final = {"SUMMER": date(2026, 8, 31), "WINTER": date(2027, 2, 28)}
REDEEMED: Final[list[str]] = []


def reset() -> None:
    """Start with no redeemed coupon."""
    REDEEMED.clear()


@tool(read_only=True)
async def list_coupons() -> list[str]:
    """List the coupons of the shop."""
    return [*LAST_DAYS]


@tool
async def redeem(coupon: Annotated[str, Field(min_length=1)]) -> str:
    """Redeem a coupon once."""
    if coupon not in LAST_DAYS or coupon in REDEEMED:
        raise ToolError(f"{coupon} cannot be redeemed")
    REDEEMED.append(coupon)
    return "10 % off"


DESK = Agent(name="Shop", instructions="Redeem coupons.", tools=("list_coupons", "redeem"))


def invariant_coupons_are_redeemed_in_time() -> None:
    """No coupon is redeemed after its last day."""
    expired = [coupon for coupon in REDEEMED if LAST_DAYS[coupon] < TODAY]
    assert not expired, f"redeemed on {TODAY}: {expired}"
