"""The outbox of a SQLite store (`store/outbox.py`)."""

import sqlite3
from collections.abc import Collection, Iterable
from typing import Final

from turnwright.store.outbox import NOTICE_KINDS, NoticeCounts, NoticedFact, NoticeRow

from .tables import SqliteTables

_COLUMNS: Final = "name, turn_id, seq, kind, at, tries, next_at, error"
_WRITE: Final = (
    "INSERT OR IGNORE INTO outbox (name, turn_id, seq, kind, at)"
    " SELECT name, ?, ?, ?, ? FROM subscriptions WHERE instr(kinds, ?)"
)
_ONE: Final = "name = ? AND turn_id = ? AND seq = ?"


def write_notices(cursor: sqlite3.Cursor, turn_id: str, noticed: Iterable[NoticedFact], at: float) -> None:
    """Write the notices of these facts, in the transaction of the facts."""
    cursor.executemany(_WRITE, [(turn_id, seq, kind, at, kind) for seq, kind in noticed])


class SqliteOutbox(SqliteTables):
    """The outbox of a store in a file. Its methods are described at `OutboxStore`."""

    async def subscribe(self, names: Collection[str]) -> None:
        """See `OutboxStore.subscribe`."""
        rows = [(name, ",".join(NOTICE_KINDS)) for name in names]
        async with self._transaction():
            self._db.executemany("INSERT OR REPLACE INTO subscriptions VALUES (?, ?)", rows)

    async def unsubscribe(self, name: str) -> bool:
        """See `OutboxStore.unsubscribe`."""
        async with self._transaction():
            self._db.execute("DELETE FROM outbox WHERE name = ?", (name,))
            return self._db.execute("DELETE FROM subscriptions WHERE name = ?", (name,)).rowcount > 0

    async def lease_notices(self, names: Collection[str], now: float, until: float, limit: int) -> list[NoticeRow]:
        """See `OutboxStore.lease_notices`."""
        marks = ", ".join("?" * len(names))
        query = (
            f"SELECT n, {_COLUMNS} FROM outbox WHERE next_at <= ? AND name IN ({marks})"  # noqa: S608 (constants)
            " ORDER BY next_at, n LIMIT ?"
        )
        async with self._reading():
            if self._db.execute(query, (now, *names, 1)).fetchone() is None:
                return []
        async with self._transaction():
            rows = self._db.execute(query, (now, *names, limit)).fetchall()
            self._db.executemany("UPDATE outbox SET next_at = ? WHERE n = ?", [(until, row[0]) for row in rows])
        return [NoticeRow(*row[1:]) for row in rows]

    async def delivered(self, notice: NoticeRow) -> None:
        """See `OutboxStore.delivered`."""
        async with self._transaction():
            key = (notice.name, notice.turn, notice.seq)
            self._db.execute(f"DELETE FROM outbox WHERE {_ONE}", key)  # noqa: S608 (constant)

    async def failed(self, notice: NoticeRow, error: str, next_at: float | None) -> None:
        """See `OutboxStore.failed`."""
        change = f"UPDATE outbox SET tries = tries + 1, next_at = ?, error = ? WHERE {_ONE}"  # noqa: S608 (constant)
        async with self._transaction():
            self._db.execute(change, (next_at, error, notice.name, notice.turn, notice.seq))

    async def notices(self) -> list[NoticeRow]:
        """See `OutboxStore.notices`."""
        async with self._reading():
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM outbox ORDER BY n").fetchall()  # noqa: S608 (constant)
        return [NoticeRow(*row) for row in rows]

    async def count_notices(self) -> NoticeCounts:
        """See `OutboxStore.count_notices`."""
        async with self._reading():
            total, pending = self._db.execute("SELECT count(*), count(next_at) FROM outbox").fetchone()
        return NoticeCounts(pending, total - pending)

    async def retry_notices(self) -> int:
        """See `OutboxStore.retry_notices`."""
        async with self._transaction():
            return self._db.execute("UPDATE outbox SET next_at = 0, tries = 0 WHERE next_at IS NOT 0").rowcount
