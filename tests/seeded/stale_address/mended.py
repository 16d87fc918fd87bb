"""A parcel desk that looks up the address of the customer who writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from turnwright import Agent, ToolContext, TurnInfo, tool

ADDRESSES: Final = {"ann": "1 Elm Road", "bob": "2 Oak Lane"}
#: The customer and the address of each parcel.
PARCELS: Final[list[tuple[str, str]]] = []
METADATA: Final = ({"customer": "ann"}, {"customer": "bob"})
_CACHE: Final[dict[str, str]] = {}


@dataclass(frozen=True)
class Deps:
    """The customer who writes, and the register of addresses, which is slow."""

    customer: str
    register: Mapping[str, str]


def make_deps(turn: TurnInfo) -> Deps:
    """Open the register for the customer of the turn."""
    return Deps(str(turn.metadata["customer"]), ADDRESSES)


def reset() -> None:
    """Start with no parcel."""
    PARCELS.clear()
    _CACHE.clear()


@tool
async def send_parcel(ctx: ToolContext[Deps]) -> str:
    """Send a parcel to the customer."""
    customer = ctx.deps.customer
    if customer not in _CACHE:
        _CACHE[customer] = ctx.deps.register[customer]
    PARCELS.append((customer, _CACHE[customer]))
    return "the parcel is on its way"


DESK = Agent(name="Parcel desk", instructions="Send parcels.", tools=("send_parcel",))


def invariant_parcels_go_to_the_customer() -> None:
    """A parcel has the address of its customer."""
    for customer, address in PARCELS:
        assert ADDRESSES[customer] == address, f"the parcel of {customer} goes to {address}"
