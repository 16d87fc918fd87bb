"""The outbox of a PostgreSQL store (`store/outbox.py`)."""

# ruff: noqa: S608 (every part of a statement is a constant)

from collections.abc import Collection
from typing import Final, LiteralString

from turnwright.store.outbox import NOTICE_KINDS, NoticeCounts, NoticeRow

from .connections import Connections

_COLUMNS: Final = "name, turn_id, seq, kind, at, tries, next_at, error"
_ONE: Final = "name = %(name)s AND turn_id = %(turn)s AND seq = %(seq)s"


class PostgresOutbox:
    """The outbox of a store in PostgreSQL. Its methods are described at `OutboxStore`."""

    _connections: Connections

    async def subscribe(self, names: Collection[str]) -> None:
        """See `OutboxStore.subscribe`."""
        statement: LiteralString = (
            "INSERT INTO turnwright_subscriptions SELECT name, %(kinds)s FROM unnest(%(names)s::text[]) AS name"
            " ON CONFLICT (name) DO UPDATE SET kinds = excluded.kinds"
        )
        async with self._connections.transaction() as connection:
            await connection.execute(statement, {"names": sorted(names), "kinds": list(NOTICE_KINDS)})

    async def unsubscribe(self, name: str) -> bool:
        """See `OutboxStore.unsubscribe`."""
        async with self._connections.transaction() as connection:
            await connection.execute("DELETE FROM turnwright_outbox WHERE name = %s", (name,))
            deleted = await connection.execute("DELETE FROM turnwright_subscriptions WHERE name = %s", (name,))
        return deleted.rowcount > 0

    async def lease_notices(self, names: Collection[str], now: float, until: float, limit: int) -> list[NoticeRow]:
        """See `OutboxStore.lease_notices`."""
        statement: LiteralString = f"""
            WITH due AS (
                SELECT n FROM turnwright_outbox WHERE next_at <= %(now)s AND name = ANY(%(names)s)
                ORDER BY next_at, n LIMIT %(limit)s FOR UPDATE SKIP LOCKED
            ), leased AS (
                UPDATE turnwright_outbox SET next_at = %(until)s FROM due WHERE turnwright_outbox.n = due.n
                RETURNING turnwright_outbox.n, {_COLUMNS}
            ) SELECT {_COLUMNS} FROM leased ORDER BY n
        """
        values = {"now": now, "names": list(names), "limit": limit, "until": until}
        async with self._connections.transaction() as connection:
            rows = await (await connection.execute(statement, values)).fetchall()
        return [NoticeRow(*row) for row in rows]

    async def delivered(self, notice: NoticeRow) -> None:
        """See `OutboxStore.delivered`."""
        statement: LiteralString = f"DELETE FROM turnwright_outbox WHERE {_ONE}"
        async with self._connections.transaction() as connection:
            await connection.execute(statement, {"name": notice.name, "turn": notice.turn, "seq": notice.seq})

    async def failed(self, notice: NoticeRow, error: str, next_at: float | None) -> None:
        """See `OutboxStore.failed`."""
        change: LiteralString = (
            f"UPDATE turnwright_outbox SET tries = tries + 1, next_at = %(next_at)s, error = %(error)s WHERE {_ONE}"
        )
        values = {"name": notice.name, "turn": notice.turn, "seq": notice.seq, "next_at": next_at, "error": error}
        async with self._connections.transaction() as connection:
            await connection.execute(change, values)

    async def notices(self) -> list[NoticeRow]:
        """See `OutboxStore.notices`."""
        query: LiteralString = f"SELECT {_COLUMNS} FROM turnwright_outbox ORDER BY n"
        return [NoticeRow(*row) for row in await self._connections.read(query, {})]

    async def count_notices(self) -> NoticeCounts:
        """See `OutboxStore.count_notices`."""
        query: LiteralString = "SELECT count(*), count(next_at) FROM turnwright_outbox"
        ((total, pending),) = await self._connections.read(query, {})
        return NoticeCounts(pending, total - pending)

    async def retry_notices(self) -> int:
        """See `OutboxStore.retry_notices`."""
        change: LiteralString = "UPDATE turnwright_outbox SET next_at = 0, tries = 0 WHERE next_at IS DISTINCT FROM 0"
        async with self._connections.transaction() as connection:
            return (await connection.execute(change)).rowcount
