"""A doctor's desk that finds the next free appointment of a day."""

from typing import Final, Literal

from turnwright import Agent, tool

#: The free hours of each day.
HOURS: Final[dict[str, list[int]]] = {"Monday": [9, 11], "Tuesday": [], "Friday": [15]}


@tool(read_only=True)
async def next_appointment(day: Literal["Monday", "Tuesday", "Friday"]) -> str:
    """Find the first free hour of a day."""
    return f"{day} at {min(HOURS[day])}:00"


DESK = Agent(name="Doctor's desk", instructions="Offer appointments.", tools=("next_appointment",))
