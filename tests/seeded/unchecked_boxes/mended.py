"""A warehouse that ships full boxes of twelve, and at most fifty pieces an order."""

from typing import Annotated, Final

from pydantic import Field

from turnwright import Agent, CallView, ChangeArguments, Reject, ToolContext, ToolDecision, before_tool, tool

BOX: Final = 12
MOST_PIECES: Final = 50
#: The pieces of each shipment, and whether a person approved it.
SHIPMENTS: Final[list[tuple[int, bool]]] = []


def reset() -> None:
    """Start with no shipment."""
    SHIPMENTS.clear()


@before_tool(tools=["ship"])
async def fill_boxes(_ctx: ToolContext, call: CallView) -> ToolDecision:
    """Round the pieces up to full boxes, and refuse orders above the limit."""
    pieces = call.arguments["pieces"]
    if not isinstance(pieces, int):
        return Reject("pieces must be a whole number")
    full = -(-pieces // BOX) * BOX
    if full > MOST_PIECES:
        return Reject(f"at most {MOST_PIECES} pieces an order")
    return ChangeArguments({"pieces": full})


@tool
async def ship(ctx: ToolContext, pieces: Annotated[int, Field(ge=1, le=100)]) -> str:
    """Ship pieces."""
    SHIPMENTS.append((pieces, bool(ctx.answers)))
    return f"{pieces} pieces shipped"


DESK = Agent(name="Warehouse", instructions="Ship orders.", tools=("ship",), hooks=(fill_boxes,))


def invariant_shipments_are_small() -> None:
    """No shipment has more pieces than the limit, unless a person approved it."""
    large = [pieces for pieces, approved in SHIPMENTS if pieces > MOST_PIECES and not approved]
    assert not large, f"shipped {large}, at most {MOST_PIECES} each"
