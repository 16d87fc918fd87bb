"""The connection pool of a PostgreSQL store: its address, and its errors when the server is lost."""

import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, LiteralString
from urllib.parse import quote

import anyio
import anyio.lowlevel
import psycopg
from psycopg import AsyncConnection, ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import DuplicateTable, UndefinedColumn, UndefinedTable
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from turnwright.errors import ConfigError, StoreError
from turnwright.store.rows import Columns

from .owner_lock import is_silent, keep_from_forks
from .pipeline import Statement, run_together
from .schema import VERSION, Connection, Schema, damaged

#: Takes the driver's lock, before a connection is used.
Lock = Callable[[], Awaitable[object]]
_VERSION: Final = Statement("turnwright_version", VERSION)
#: The errors of a store that lacks tables or columns, or has tables without a version.
_MISFITS: Final = (DuplicateTable, UndefinedColumn, UndefinedTable)
_BEGIN: Final = Statement("turnwright_begin", "BEGIN")
_COMMIT: Final = Statement("turnwright_commit", "COMMIT")


class Connections:
    """At most `most` connections to the database of `conninfo`, each opened when it is needed.

    `place` is the store's name in errors. `patience` is the timeout for a connection, and for an answer, in seconds.
    """

    def __init__(self, conninfo: str, place: str, schema: Schema, patience: float, most: int) -> None:
        self._conninfo = conninfo
        self._place = place
        self._schema = schema
        self._patience = patience
        self._most = most
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._opening = anyio.Lock()
        self._closed = False

    async def read(
        self, query: LiteralString | bytes, parameters: Sequence[object] | Mapping[str, object]
    ) -> list[Columns]:
        """Return the rows of one query. The schema version is read in the same round trip."""
        await anyio.lowlevel.checkpoint_if_cancelled()  # a loop of shielded reads could not be canceled
        async with self.lend() as connection:
            # An interrupted read costs its connection. So a canceled caller waits for the answer, up to the timeout.
            with anyio.fail_after(self._patience, shield=True):
                version, cursor = connection.cursor(), connection.cursor()
                # Results are fetched behind the block: its end asks the server once more.
                async with connection.pipeline():
                    await version.execute(VERSION)
                    await cursor.execute(query, parameters)
                self._schema.check(await version.fetchone(), self._place)
                return await cursor.fetchall()

    async def read_prepared(self, statement: Statement, values: Mapping[str, object]) -> list[Columns]:
        """Do what `read` does with a prepared statement, in a third of the CPU time."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        async with self.lend() as connection:
            with anyio.fail_after(self._patience, shield=True):
                return await self._run_checked(connection, (statement, values))

    @asynccontextmanager
    async def prepared_transaction(
        self, lock: Lock, statement: Statement, values: Mapping[str, object]
    ) -> AsyncIterator[tuple[Connection, list[Columns]]]:
        """Open a transaction as `transaction` does, for `run_together`, and run its first statement at once.

        The context value is the connection, and the rows of that statement.
        """
        async with self.lend(lock, writes=True) as connection:
            try:
                yield connection, await self._run_checked(connection, (_BEGIN, {}), (statement, values))
                await run_together(connection, (_COMMIT, {}))
            except psycopg.Error:
                raise  # which closes the connection
            except BaseException:
                await connection.close()
                raise

    async def _run_checked(
        self, connection: Connection, *statements: tuple[Statement, Mapping[str, object]]
    ) -> list[Columns]:
        """Run statements on a store that has the schema of this release. Return the rows of the last one."""
        version, *_, rows = await run_together(connection, (_VERSION, {}), *statements)
        self._schema.check(version[0] if version else None, self._place)
        return rows

    @asynccontextmanager
    async def transaction(self, lock: Lock | None = None) -> AsyncIterator[Connection]:
        """Open a transaction on a store that has the schema of this release."""
        async with self.lend(lock, writes=True) as connection, connection.transaction():
            self._schema.check(await (await connection.execute(VERSION)).fetchone(), self._place)
            yield connection

    @asynccontextmanager
    async def lend(
        self, lock: Lock | None = None, *, writes: bool = False, migrates: bool = False
    ) -> AsyncIterator[Connection]:
        """Lend a connection that commits each statement by itself, after taking `lock`.

        With `writes`, the block is shielded from cancellation, so that the caller learns the outcome of its write.
        Every error of psycopg becomes a `StoreError`, or the schema's own if another schema is the cause. A block that
        `migrates` expects one.
        """
        is_lent = False
        try:
            pool = await self._open_pool(lock)
            connection = await pool.getconn()
            try:
                is_lent = True
                with anyio.CancelScope(shield=writes):
                    yield connection
            except psycopg.Error:
                # A pipeline that fails skips the rest, also a PREPARE whose statement psycopg then takes for prepared.
                with anyio.CancelScope(shield=True):
                    await connection.close()
                raise
            finally:
                with anyio.CancelScope(shield=True):
                    if connection.pgconn.pipeline_status:
                        # A read was interrupted. The next write on this connection would be queued and never sent.
                        await connection.close()
                    await pool.putconn(connection)
        except (psycopg.Error, TimeoutError, UnicodeError) as error:
            if isinstance(error, ProgrammingError) and not migrates:
                await self._check_version()
            if isinstance(error, _MISFITS):
                raise damaged(error.diag.message_primary, self._place) from error
            why = str(error).strip() or f"no answer after {self._patience:g} s"
            if isinstance(error, PoolTimeout):
                why = f"no connection after {self._patience:g} s: the server is down, or all {self._most} are used"
            consequence = "; nothing was written, and the turn can be resumed" if writes else ""
            if is_lent and writes and _was_lost(error):
                consequence = (
                    "; it is not known whether the last write was made: read the journal; the turn can be resumed"
                )
            raise StoreError(f"store {self._place}: {why}{consequence}") from error

    async def _check_version(self) -> None:
        """Raise the error of the schema, if it is another one, after a statement failed: on a new connection."""
        with suppress(psycopg.Error):
            async with await AsyncConnection.connect(self._conninfo, autocommit=True) as connection:
                try:
                    row = await (await connection.execute(VERSION)).fetchone()
                except UndefinedTable:
                    row = None
                self._schema.check(row, self._place)

    async def aclose(self) -> None:
        """Close all connections. Later calls raise `StoreError`."""
        self._closed = True
        async with self._opening:
            pool, self._pool = self._pool, None
            if pool is not None:
                await pool.close()

    async def _open_pool(self, lock: Lock | None) -> AsyncConnectionPool[Connection]:
        """Return the pool, once `lock` is held.

        A pool hides why it cannot connect. So the first connection is the lock's or a trial, whose error is exact.
        """
        if self._closed:
            raise StoreError(f"store {self._place}: the store is closed; nothing was written")
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
                    # psycopg must prepare nothing: after a rollback it would deallocate all that the session has.
                    kwargs={"autocommit": True, "prepare_threshold": None},
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
    """Set the isolation level, whatever the database's default is: after a row lock, the other's write is visible.

    The encoding is that of `run_together`. Compiling a query takes longer than any query here.
    """
    keep_from_forks(connection)
    await connection.execute(
        "SET default_transaction_isolation TO 'read committed'; SET client_encoding TO 'UTF8'; SET jit TO off"
    )


async def _check(connection: Connection) -> None:
    """Raise psycopg's error if the server has closed the idle connection, as a restart does."""
    if not is_silent(connection):
        await connection.execute("")


def _was_lost(error: Exception) -> bool:
    """Whether the outcome of a statement is unknown. An error that the server reports has undone the statement."""
    return isinstance(error, psycopg.OperationalError) and (error.sqlstate is None or error.sqlstate.startswith("08"))


def parse_address(address: str, patience: float) -> tuple[str, str]:
    """Return the connection string for psycopg, and the store's name in messages, without user, password and options.

    `patience` is the connection timeout in seconds, unless the address sets one. Raises `ConfigError`, which repeats
    no part of the address: libpq's message may quote a part of a password that was not encoded.
    """
    try:
        parameters = conninfo_to_dict(address)
    except ProgrammingError:
        raise _unreadable() from None
    host, port, database = (str(parameters.get(name) or "") for name in ("host", "port", "dbname"))
    authority, _, path = address.partition("://")[2].partition("/")
    # libpq ends user and password at the first @ or slash. It reads the rest of a password as host or database.
    read_on = (authority.partition("@")[2], path)
    if any("@" in part.partition("?")[0] for part in read_on) or re.search("[^0-9,]", port):
        raise _unreadable()
    place = f"postgresql://{quote(host, safe=':,')}{f':{port}' if port else ''}/{database}"
    # libpq accepts whole seconds, at least two.
    seconds = parameters.get("connect_timeout", max(2, math.ceil(patience)))
    name = parameters.get("application_name", "turnwright")
    return make_conninfo(address, connect_timeout=seconds, application_name=name), place


def _unreadable() -> ConfigError:
    return ConfigError(
        "store postgresql://...: PostgreSQL cannot read this address: write"
        " postgresql://user:password@host:port/database?option=value, special characters percent-encoded (@ as %40)"
    )
