"""The connections of a PostgreSQL store: a pool, and what comes of them where the server is lost."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import LiteralString

import anyio
import anyio.lowlevel
import psycopg
from psycopg import AsyncConnection
from psycopg.errors import UndefinedTable
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from turnwright.errors import StoreError
from turnwright.store.rows import Columns

from .owner_lock import is_silent, keep_from_forks
from .schema import VERSION, Connection, check, older

#: What is to be held before a connection is used: the lock of a driver.
Lock = Callable[[], Awaitable[object]]


class Connections:
    """At most `most` connections to the database of `conninfo`, each made when it is needed.

    `place` is how the store is called in errors. `patience`: how many seconds a call waits for one, and for an answer.
    """

    def __init__(self, conninfo: str, place: str, patience: float, most: int) -> None:
        self._conninfo = conninfo
        self._place = place
        self._patience = patience
        self._most = most
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._opening = anyio.Lock()
        self._closed = False

    async def read(self, query: LiteralString, parameters: Sequence[object] | dict[str, object]) -> list[Columns]:
        """The rows of one query, which goes with the question for the version: one round trip."""
        await anyio.lowlevel.checkpoint_if_cancelled()  # else who reads again and again is never seen to wait
        async with self.one() as connection:
            # One that is cut off costs its connection: who is cancelled waits for the server's answer, if that is soon.
            with anyio.fail_after(self._patience, shield=True):
                async with connection.pipeline():
                    version = await connection.execute(VERSION)
                    cursor = await connection.execute(query, parameters)
                    check(await version.fetchone(), self._place)
                    return await cursor.fetchall()

    @asynccontextmanager
    async def transaction(self, lock: Lock | None = None) -> AsyncIterator[Connection]:
        """A connection on which what follows happens all or not at all, with the schema of this release."""
        async with self.one(lock, writes=True) as connection, connection.transaction():
            check(await (await connection.execute(VERSION)).fetchone(), self._place)
            yield connection

    @asynccontextmanager
    async def one(self, lock: Lock | None = None, *, writes: bool = False) -> AsyncIterator[Connection]:
        """A connection that commits each statement by itself; `lock` comes first.

        What `writes` is short and not cancelled once it has begun: its caller is told what came of it. Every error of
        psycopg becomes a `StoreError`.
        """
        asked = False
        try:
            pool = await self._opened(lock)
            connection = await pool.getconn()
            try:
                asked = True
                with anyio.CancelScope(shield=writes):
                    yield connection
            finally:
                with anyio.CancelScope(shield=True):
                    if connection.pgconn.pipeline_status:
                        # A read was cut off: what somebody wrote on it next would be queued, and never sent.
                        await connection.close()
                    await pool.putconn(connection)
        except UndefinedTable as error:
            raise older(0, self._place) from error
        except (psycopg.Error, TimeoutError, UnicodeError) as error:
            why = str(error).strip() or f"no answer after {self._patience:g} s"
            if isinstance(error, PoolTimeout):
                why = f"no connection after {self._patience:g} s: the server is down, or all {self._most} are used"
            rest = "; nothing was written, and the turn can be resumed" if writes else ""
            if asked and writes and _was_lost(error):
                rest = "; it is not known whether the last write was made: the journal tells; the turn can be resumed"
            raise StoreError(f"store {self._place}: {why}{rest}") from error

    async def aclose(self) -> None:
        """Close them. Whatever is asked of them afterwards raises `StoreError`."""
        self._closed = True
        async with self._opening:
            pool, self._pool = self._pool, None
            if pool is not None:
                await pool.close()

    async def _opened(self, lock: Lock | None) -> AsyncConnectionPool[Connection]:
        """The pool, once `lock` is held. A pool only says that it has no connection: something else goes first."""
        if self._closed:
            raise StoreError(f"store {self._place}: it was closed; nothing was written")
        if lock is not None:
            await lock()
        if self._pool is not None:
            return self._pool
        async with self._opening:
            if self._pool is None:
                if lock is None:
                    await (await AsyncConnection.connect(self._conninfo)).close()
                pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
                    self._conninfo,
                    kwargs={"autocommit": True},
                    min_size=0,
                    max_size=self._most,
                    timeout=self._patience,
                    reconnect_timeout=self._patience,
                    configure=_configure,
                    check=_check,
                    open=False,
                )
                with anyio.CancelScope(shield=True):
                    await pool.open()
                self._pool = pool
            return self._pool


async def _configure(connection: Connection) -> None:
    """What waited for a row is to see what the other wrote, whatever the database's own default is."""
    keep_from_forks(connection)
    await connection.execute("SET default_transaction_isolation TO 'read committed'")


async def _check(connection: Connection) -> None:
    """Raise psycopg's error if the connection was ended while it rested, as when the server was started again."""
    if not is_silent(connection):
        await connection.execute("")


def _was_lost(error: Exception) -> bool:
    """Whether the server could not say what came of a statement: an error that it reports has undone all of it."""
    return isinstance(error, psycopg.OperationalError) and (error.sqlstate is None or error.sqlstate.startswith("08"))
