"""Forgets turns: one, or those that ended long ago."""

import logging
import time
from contextlib import suppress

from turnwright._base.ids import root_of
from turnwright.errors import ConfigError, TurnBusyError, TurnNotFoundError
from turnwright.store import Store

_LOG = logging.getLogger(__name__)


async def delete_turn(store: Store, turn_id: str) -> int:
    """Delete a turn with its sub-turns, and return how many there were.

    Raises `ConfigError` for a sub-agent's turn whose caller has not ended, and what `Store.delete` does.
    """
    root = root_of(turn_id)
    if root != turn_id and (await store.get(root)).status.outcome is None:
        raise ConfigError(f"turn {turn_id} is a sub-agent's of turn {root}, which has not ended: abort or delete that")
    return await store.delete(turn_id)


async def prune_turns(store: Store, older_than: float) -> int:
    """Delete the turns that ended more than `older_than` seconds ago, with their sub-turns. Returns how many."""
    deleted = 0
    for row in await store.turns(live=False):
        # A sub-agent goes with the turn that began it: one that has not ended may still need its result.
        if row.fault:
            _LOG.warning("turn %s is left alone: %s", row.id, row.fault, extra={"turn": row.id})
        elif root_of(row.id) == row.id and row.updated_at < time.time() - older_than:  # as stores have it
            with suppress(TurnNotFoundError, TurnBusyError):  # gone with its parent, or just let go of
                deleted += await store.delete(row.id)
    return deleted
