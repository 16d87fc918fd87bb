"""Takes up what was left: the turns that nobody drives, and that need not wait for a person."""

import logging
from collections.abc import Awaitable, Callable

import anyio

from turnwright_states import State

from .errors import ConfigError, Fenced, StoreError, TurnBusy, UnknownTurn
from .ids import root_of
from .inbox import CALLS
from .result import TurnResult
from .store import Store, TurnRow
from .transcript import Transcript

_LOG = logging.getLogger(__name__)


async def recover_turns(
    store: Store, drive: Callable[[str], Awaitable[TurnResult]], *, now: Callable[[], float], at_once: int
) -> list[TurnResult]:
    """Drive every turn that is due with `drive`, `at_once` of them side by side. Returns them, the oldest first.

    A turn that cannot run here, because its tools or its model are missing or its journal cannot be read, is left
    alone with a warning; one that somebody else drives, or deletes meanwhile, without. Source: DESIGN 4.13, 6.
    """
    results: dict[int, TurnResult] = {}
    limiter = anyio.Semaphore(at_once)

    async def take_up(row: TurnRow) -> None:
        async with limiter:
            try:
                row = await store.get(row.id)  # another sweep may have been faster
                if not await store.is_driven(row.id) and await _is_due(store, row, now()):
                    results[row.number] = await drive(row.id)
            except (ConfigError, StoreError) as error:
                _LOG.warning("turn %s is left alone: %s", row.id, error)
            except (TurnBusy, Fenced, UnknownTurn):
                pass

    rows = await store.turns(live=True)
    async with anyio.create_task_group() as group:
        for row in reversed(rows):
            if root_of(row.id) == row.id:  # who drives the parent drives it
                group.start_soon(take_up, row)
    return [results[number] for number in sorted(results)]


async def _is_due(store: Store, row: TurnRow, now: float) -> bool:
    """Whether driving the turn would do anything: it need not wait, was answered, or its time to answer is over."""
    if row.status.outcome is not None:
        return False
    if row.status.state is not State.PAUSED or any(item.kind in CALLS for item in await store.inbox(row.id)):
        return True
    asked = Transcript.of(await store.facts(row.id)).turn.interrupts.values()
    return any(one.expires_at is not None and one.expires_at <= now for one in asked)
