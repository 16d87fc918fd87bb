"""Finds turns that nobody drives and that need not wait for a person, and resumes them."""

import logging
from collections.abc import Awaitable, Callable, Collection

import anyio

from turnwright._base.ids import root_of
from turnwright.errors import (
    ConfigError,
    LeaseLostError,
    RuntimeUnavailableError,
    StoreError,
    TurnBusyError,
    TurnNotFoundError,
    UnreadableTurnError,
)
from turnwright.result import TurnResult
from turnwright.store import Store, TurnRow
from turnwright.transcript.transcript import Transcript, reading
from turnwright_states import State

from .inbox import RESUMING_KINDS

_LOG = logging.getLogger(__name__)


class Sweep:
    """Finds turns that are due, again and again. `now` is the wall clock, in seconds since the Unix epoch.

    A turn is due if driving it does anything: it is not paused, was answered or aborted, or an interrupt has expired.
    """

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        #: The first expiry of each paused turn, with the time of its last write.
        self._expiries: dict[str, tuple[float, float | None]] = {}
        #: The last write of each unreadable turn, of which a warning was logged.
        self._unread: dict[str, float] = {}

    async def due(self, *, idle: float = 0.0) -> list[TurnRow]:
        """Return the turns that are due, that nobody drives, and that were not written to for `idle` seconds.

        The oldest is first. Sub-agents' turns are left out: the driver of the root turn drives them.
        """
        rows = [row for row in reversed(await self._store.turns(live=True)) if root_of(row.id) == row.id]
        requested = {item.turn for item in await self._store.requests(*RESUMING_KINDS)}
        self._expiries = {row.id: self._expiries[row.id] for row in rows if row.id in self._expiries}
        self._unread = {row.id: self._unread[row.id] for row in rows if row.id in self._unread}
        owners: dict[str, bool] = {}
        resumable: list[TurnRow] = []
        for row in rows:
            try:
                if row.fault:
                    raise UnreadableTurnError(row.id, row.fault)
                is_idle = not idle or row.updated_at <= self._now() - idle  # clocks of machines differ
                if is_idle and await self._must_go_on(row, requested) and not await self._is_driven(row, owners):
                    resumable.append(row)
            except TurnNotFoundError:
                continue  # deleted meanwhile
            except StoreError as error:
                self.warn_of(row, error)
        return resumable

    def warn_of(self, row: TurnRow, error: StoreError) -> None:
        """Warn that a turn cannot be read: once, until it is written to again."""
        if self._unread.get(row.id) != row.updated_at:
            _LOG.warning("turn %s is skipped: %s", row.id, error, extra={"turn": row.id})
        self._unread[row.id] = row.updated_at

    async def is_due(self, row: TurnRow) -> bool:
        """Whether driving this turn would do anything."""
        if row.status.outcome is not None:
            self._expiries.pop(row.id, None)
            return False
        requested = {item.turn for item in await self._store.inbox(row.id) if item.kind in RESUMING_KINDS}
        return await self._must_go_on(row, requested)

    async def _must_go_on(self, row: TurnRow, requested: Collection[str]) -> bool:
        if row.status.state is not State.PAUSED:
            self._expiries.pop(row.id, None)
            return True
        if row.id in requested:
            return True
        expiry = self._expiries.get(row.id)
        if expiry is None or expiry[0] != row.updated_at:
            facts = await self._store.facts(row.id)
            with reading(row.id):
                interrupts = Transcript.of(facts).turn.interrupts.values()
            ends = min(
                (interrupt.expires_at for interrupt in interrupts if interrupt.expires_at is not None), default=None
            )
            expiry = self._expiries[row.id] = (row.updated_at, ends)
        return expiry[1] is not None and expiry[1] <= self._now()

    async def _is_driven(self, row: TurnRow, owners: dict[str, bool]) -> bool:
        if not row.owner:
            return False
        # Whether another process lives is asked once, not for each of its turns.
        if row.owner == self._store.owner or row.owner not in owners:
            owners[row.owner] = await self._store.is_driven(row.id)
        return owners[row.owner]


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

    due = await sweep.due()
    async with anyio.create_task_group() as group:
        for row in due:
            group.start_soon(resume, row)
    return [results[number] for number in sorted(results)]
