"""Finds turns that nobody drives and that need not wait for a person, and resumes them."""

import logging
from collections.abc import Awaitable, Callable

import anyio

from turnwright.errors import (
    ConfigError,
    LeaseLostError,
    RuntimeUnavailableError,
    StoreError,
    TurnBusyError,
    TurnNotFoundError,
)
from turnwright.store import Store, TurnRow
from turnwright.store.protocol import is_due

from .inbox import has_request
from .result import TurnResult

_LOG = logging.getLogger(__name__)


class Sweep:
    """Finds turns that are due, again and again. `now` is the wall clock, in seconds since the Unix epoch."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        #: The last write of each unreadable turn, of which a warning was logged.
        self._unread: dict[str, float] = {}

    async def due(self, *, idle: float = 0.0, limit: int | None = None) -> list[TurnRow]:
        """Return the turns that are due and that nobody drives, the oldest first: see `Store.due`."""
        due_turns = await self._store.due(self._now(), idle=idle, limit=limit)
        for turn in due_turns:
            if turn.error is not None:
                self.warn_of(turn.row, turn.error)
        return [turn.row for turn in due_turns if turn.error is None]

    def warn_of(self, row: TurnRow, error: StoreError) -> None:
        """Warn that a turn cannot be read: once, until it is written to again."""
        if self._unread.get(row.id) != row.updated_at:
            _LOG.warning("turn %s is skipped: %s", row.id, error, extra={"turn": row.id})
        self._unread[row.id] = row.updated_at

    async def is_due(self, row: TurnRow) -> bool:
        """Whether driving this turn would do anything."""
        if row.status.outcome is not None:
            return False
        return is_due(row, self._now()) or has_request(await self._store.inbox(row.id))


async def recover_turns(
    store: Store, drive: Callable[[str], Awaitable[TurnResult]], *, now: Callable[[], float], at_once: int
) -> list[TurnResult]:
    """Drive every turn that is due with `drive`, at most `at_once` at a time. Returns their results, the oldest first.

    A turn that cannot run here is skipped with a warning: its tools, its model or its journal cannot be used. A turn
    that another process drives or deletes is skipped. See docs/rules.md#recovery.
    """
    results: dict[int, TurnResult] = {}
    limiter = anyio.Semaphore(at_once)
    sweep = Sweep(store, now)

    async def resume(row: TurnRow) -> None:
        async with limiter:
            try:
                row = await store.get(row.id)  # another sweep may have been faster
                if not await store.is_driven(row.id) and await sweep.is_due(row):
                    results[row.number] = await drive(row.id)
            except (ConfigError, StoreError, RuntimeUnavailableError) as error:
                _LOG.warning("turn %s is skipped: %s", row.id, error, extra={"turn": row.id})
            except (TurnBusyError, LeaseLostError, TurnNotFoundError):
                pass
            except Exception:  # noqa: BLE001 (the other turns are resumed all the same)
                _LOG.exception("turn %s is skipped: this is a bug", row.id, extra={"turn": row.id})

    due_rows = await sweep.due()
    async with anyio.create_task_group() as group:
        for row in due_rows:
            group.start_soon(resume, row)
    return [results[number] for number in sorted(results)]
