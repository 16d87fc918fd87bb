"""The summaries of a store that keeps none: a copy of its rows in SQLite, in memory.

The copy follows the store's rows before each query.
"""

import sqlite3
import weakref
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio

from turnwright.errors import TurnNotFoundError, UnreadableTurnError

from .agent_statistics import KnownGroups
from .annotations import AnnotationStore
from .protocol import Store, TurnRow, is_read_only
from .sqlite.schema import SCHEMA, immediate
from .sqlite.summaries import NEW_SUMMARIES, SqliteSummaries, delete_summaries
from .summaries import (
    MOST,
    Order,
    SummarizedTurn,
    SummaryStore,
    TurnFilter,
    Unsummarized,
)
from .summary_sql import Search

#: Rows that are read at once.
_PAGE: Final = 500


def summaries_of(store: Store) -> SummaryStore:
    """Return the store itself if it keeps summaries. Otherwise return summaries that this process keeps for it.

    So it is for a store that can only be read (`read_only`), where none could be written.
    """
    return store if isinstance(store, SummaryStore) and not is_read_only(store) else MemorySummaries(store)


class MemorySummaries(SqliteSummaries):
    """Keeps the summaries of any store, in this process. Its methods are described at `SummaryStore`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        # Nobody closes the summaries, and Python 3.13 warns of a connection that is collected open.
        weakref.finalize(self, self._db.close)
        SCHEMA.create_tables(self._db)
        self._groups = KnownGroups()
        #: The known turns that had not ended, and the number of the newest known turn.
        self._live: dict[str, TurnRow] = {}
        self._newest = 0
        self._following = anyio.Lock()

    async def unsummarized(self, *, limit: int) -> list[Unsummarized]:
        """See `SummaryStore.unsummarized`."""
        await self._follow()
        return await super().unsummarized(limit=limit)

    async def find(
        self,
        turn_filter: TurnFilter,
        *,
        order: Order = Order.NEWEST,
        ascending: bool = False,
        limit: int,
        after: int | None = None,
        texts: bool = True,
    ) -> list[SummarizedTurn]:
        """See `SummaryStore.find`. Turns that were deleted are noticed when they are found."""
        while True:
            turns = await super().find(
                turn_filter, order=order, ascending=ascending, limit=limit, after=after, texts=texts
            )
            deleted_ids = [turn.row.id for turn in turns if not await self._exists(turn.row.id)]
            if not deleted_ids:
                return turns
            for turn_id in deleted_ids:
                self._forget(turn_id)

    async def _search(self, turn_filter: TurnFilter) -> Search:
        await self._follow(turn_filter.tag)
        return await super()._search(turn_filter)

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[None]:
        yield

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        with immediate(self._db):
            yield

    async def _exists(self, turn: str) -> bool:
        try:
            await self._store.get(turn)
        except UnreadableTurnError:
            return True
        except TurnNotFoundError:
            return False
        return True

    async def _follow(self, tag: str = "") -> None:
        """Copy the rows of new turns, those of turns that had not ended, and, for a tag, the turns that have it."""
        async with self._following:
            await self._copy_all()
            if tag and isinstance(self._store, AnnotationStore):
                turns = [turn for (turn,) in self._db.execute("SELECT turn_id FROM turns").fetchall()]
                entries = await self._store.annotations(turns)
                tags = [(entry.turn, entry.name) for entry in entries if entry.kind == "tag"]
                with immediate(self._db):
                    self._db.execute("DELETE FROM annotations")
                    self._db.executemany("INSERT INTO annotations VALUES (?, 'tag', ?, NULL, '', 0)", tags)

    async def _copy_all(self) -> None:
        new: list[TurnRow] = []
        before, limit = None, _PAGE if self._newest else None
        while rows := await self._store.turns(limit=limit, before=before):
            before = rows[-1].number
            new += [row for row in rows if row.number > self._newest]
            if before <= self._newest or limit is None:
                break
        changed_rows = [row async for row in self._read_changes()]
        with immediate(self._db):
            self._copy(reversed(new))
            for row in changed_rows:
                self._db.execute(
                    "UPDATE turns SET due_at = ?, epoch = ?, owner = ?, live = ? WHERE number = ?", _changing(row)
                )
                self._write_status(row)
        for row in (*new, *changed_rows):
            self._newest = max(self._newest, row.number)
            if row.status.outcome is None:
                self._live[row.id] = row
            else:
                self._live.pop(row.id, None)

    async def _read_changes(self) -> AsyncIterator[TurnRow]:
        """Yield the rows that have changed of turns that had not ended, and forget deleted ones."""
        for turn, old_row in [*self._live.items()]:
            try:
                row = await self._store.get(turn)
            except UnreadableTurnError:
                continue
            except TurnNotFoundError:
                row = None
            if row is None or row.number != old_row.number:
                self._forget(turn)
            elif row != old_row:
                yield row

    def _copy(self, rows: Iterable[TurnRow]) -> None:
        for row in rows:
            if self._db.execute("SELECT 1 FROM turns WHERE turn_id = ?", (row.id,)).fetchone():
                self._delete(row.id)  # another turn had this id, and was deleted
            values = (row.number, row.id, row.session, row.agent, row.model, row.created_at, *_changing(row)[:-1])
            self._db.execute("INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            self._db.execute(f"{NEW_SUMMARIES} WHERE number = ?", (row.number,))
            self._write_status(row)

    def _write_status(self, row: TurnRow) -> None:
        """Write a status as that of one more fact, so that an older summary is outdated."""
        status = row.status
        counts = min(status.steps, MOST), min(status.tool_calls, MOST)  # only a forged journal has larger ones
        self._db.execute(
            "INSERT INTO facts (turn, seq, kind, payload, at, state, reason, steps, tool_calls)"
            " SELECT ?, 1 + count(*), '', '', ?, ?, ?, ?, ? FROM facts WHERE turn = ?",
            (row.number, row.updated_at, status.state, status.reason, *counts, row.number),
        )

    def _forget(self, turn: str) -> None:
        with immediate(self._db):
            self._delete(turn)
        self._live.pop(turn, None)

    def _delete(self, turn: str) -> None:
        values = {"turn": turn}
        delete_summaries(self._db, "SELECT number FROM turns WHERE turn_id = :turn", values)
        self._db.execute("DELETE FROM facts WHERE turn = (SELECT number FROM turns WHERE turn_id = :turn)", values)
        self._db.execute("DELETE FROM turns WHERE turn_id = :turn", values)


def _changing(row: TurnRow) -> Sequence[object]:
    return row.status.due_at, row.epoch, row.owner, int(row.status.outcome is None), row.number
