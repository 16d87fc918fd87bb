"""A hotel that adds the extras of a guest to those that everybody gets."""

from typing import Final, Literal

from turnwright import Agent, tool

BASICS: Final = ["towels"]
#: The extras that guests ordered, and those that they get.
BOOKINGS: Final[list[tuple[list[str], list[str]]]] = []


def reset() -> None:
    """Start with no booking, and towels for everybody."""
    BASICS[:] = ["towels"]
    BOOKINGS.clear()


@tool
async def book_room(extras: list[Literal["breakfast", "parking"]]) -> str:
    """Book a room with extras."""
    provided = list(BASICS)
    provided += extras
    BOOKINGS.append((list(extras), list(provided)))
    return f"booked with {', '.join(provided)}"


DESK = Agent(name="Hotel", instructions="Book rooms.", tools=("book_room",))


def invariant_guests_get_what_they_ordered() -> None:
    """A guest gets towels and the ordered extras."""
    for ordered, provided in BOOKINGS:
        assert provided == ["towels", *ordered], f"ordered {ordered}, provided {provided}"
