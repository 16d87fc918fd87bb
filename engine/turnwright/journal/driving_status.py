"""Who sees to a turn: as lists of turns tell it."""

from collections.abc import Mapping
from enum import StrEnum

from pydantic import JsonValue

from turnwright.store import Store, TurnRow
from turnwright_states import State


class DriverStatus(StrEnum):
    """Who sees to a turn that has neither ended nor waits for a person."""

    RUNNING = "running"
    #: Its process died.
    CRASHED = "crashed"
    #: Its process let go of it, or it is a fork that was not begun.
    LEFT = "left"
    #: It was submitted, and no worker has taken it up yet.
    NOBODY = "nobody yet"


def by_command_line(context: Mapping[str, JsonValue]) -> bool:
    """Whether a command line began the turn with this context: `turnwright resume` knows its model and its tools."""
    return "model" in context or "root" in context


async def driving_status(store: Store, row: TurnRow) -> tuple[TurnRow, DriverStatus | None]:
    """A turn's row, as it is now if that was asked, and who sees to it; None where nobody needs to.

    Of a row that cannot be read nobody knows. Raises `TurnNotFoundError` for one that was deleted since.
    """
    if row.fault:
        return row, None
    if row.owner and row.status.outcome is None:
        if await store.is_driven(row.id):
            return row, DriverStatus.RUNNING
        row = await store.get(row.id)  # its driver may just have let go of it
    if row.status.outcome is not None or row.status.state is State.PAUSED:
        return row, None
    if row.owner is None:
        return row, DriverStatus.NOBODY if row.epoch == 0 else DriverStatus.LEFT
    return row, DriverStatus.CRASHED
