"""The driver of a turn, for lists of turns."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from turnwright.store import Store, TurnRow
from turnwright_states import State

if TYPE_CHECKING:
    from pydantic import JsonValue


class DriverStatus(StrEnum):
    """The driver of a turn that has neither ended nor waits for a person."""

    RUNNING = "running"
    #: Its process died.
    CRASHED = "crashed"
    #: Its process released it, or it is a fork that was never driven.
    LEFT = "left"
    #: It was submitted, and no worker has started it yet.
    NOBODY = "nobody yet"


def by_command_line(context: "Mapping[str, JsonValue]") -> bool:
    """Whether the command line started the turn. Then `turnwright resume` knows its model and tools."""
    return "model" in context or "root" in context


async def driving_status(store: Store, row: TurnRow) -> tuple[TurnRow, DriverStatus | None]:
    """Return a turn's row, read again if that was necessary, and its driver; None if it needs none or is unreadable.

    Raises `TurnNotFoundError` if it was deleted meanwhile.
    """
    if row.fault:
        return row, None
    if row.owner and row.status.outcome is None:
        if await store.is_driven(row.id):
            return row, DriverStatus.RUNNING
        row = await store.get(row.id)  # its driver may just have released it
    if row.status.outcome is not None or row.status.state is State.PAUSED:
        return row, None
    if row.owner is None:
        return row, DriverStatus.NOBODY if row.epoch == 0 else DriverStatus.LEFT
    return row, DriverStatus.CRASHED
