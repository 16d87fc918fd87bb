"""Deletes turns: one, or those that ended long ago."""

import logging
import time
from contextlib import suppress
from typing import Final

from turnwright._base.ids import root_of
from turnwright.errors import ConfigError, TurnBusyError, TurnNotFoundError, need_kind
from turnwright.store import Store

_LOG = logging.getLogger(__name__)
#: The turns that are listed at once.
_PAGE: Final = 500


async def delete_turn(store: Store, turn_id: str) -> int:
    """Delete a turn with its sub-agents' turns, and return how many were deleted.

    Raises `ConfigError` for a sub-agent's turn whose root turn has not ended, and what `Store.delete` raises.
    """
    root = root_of(turn_id)
    if root != turn_id and (await store.get(root)).status.outcome is None:
        raise ConfigError(f"turn {turn_id} belongs to turn {root}, which has not ended: abort or delete turn {root}")
    return await store.delete(turn_id)


async def prune_turns(store: Store, older_than: float) -> int:
    """Delete turns that ended more than `older_than` seconds ago, and their sub-agents'. Returns how many.

    Raises `ConfigError` for anything but a number.
    """
    need_kind("older_than", older_than, int | float, "a number of seconds")
    deleted_count, before = 0, None
    while page := await store.turns(live=False, limit=_PAGE, before=before):
        before = page[-1].number
        for row in page:
            # A sub-agent's turn is deleted with its root turn, which may still need its result.
            if row.fault:
                _LOG.warning("turn %s is skipped: %s", row.id, row.fault, extra={"turn": row.id})
            elif root_of(row.id) == row.id and row.updated_at < time.time() - older_than:  # the clock of the stores
                with suppress(TurnNotFoundError, TurnBusyError):  # deleted with its parent, or just claimed
                    deleted_count += await store.delete(row.id)
    return deleted_count
