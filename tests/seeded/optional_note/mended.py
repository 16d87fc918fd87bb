"""A booking desk with a hook that refuses rude notes."""

from typing import Final, Literal

from turnwright import Agent, CallView, Reject, ToolContext, ToolDecision, before_tool, tool

BOOKINGS: Final[list[str]] = []


def reset() -> None:
    """Start with no booking."""
    BOOKINGS.clear()


@before_tool(tools=["book"])
async def polite(_ctx: ToolContext, call: CallView) -> ToolDecision | None:
    """Refuse a rude note."""
    note = str(call.arguments.get("note", ""))
    return Reject("the note is rude") if "stupid" in note.lower() else None


@tool
async def book(room: Literal["blue", "red"], note: str = "") -> str:
    """Book a room, with a note for the house."""
    BOOKINGS.append(room)
    return f"the {room} room is booked" + (f" ({note})" if note else "")


DESK = Agent(name="Booking desk", instructions="Book rooms.", tools=("book",), hooks=(polite,))
