"""The driver's lock in a PostgreSQL store: an advisory lock on the driver's name, held by a session of its own.

The server releases the lock when the session ends, also after a crash. A living process that lost its session looks
dead, and another driver may claim its turns. The epoch then keeps the data consistent, and the process takes the lock
again when it notices.

A session ends when the last process closes its socket. So a forked process closes the connections that it inherits:
otherwise a dead driver would look alive as long as its worker lives. A connection that is being opened during the fork
is not registered yet, and stays open in the worker.
"""

import os
import select
import time
from contextlib import suppress
from typing import Final
from weakref import WeakSet

import anyio
from psycopg import AsyncConnection, Error, OperationalError
from psycopg.conninfo import make_conninfo
from psycopg.errors import LockNotAvailable
from psycopg.rows import TupleRow

from turnwright._base.ids import process_name

Connection = AsyncConnection[TupleRow]

#: The lock of the driver whose name is the parameter. The server computes the hash, so it is the same for all clients.
KEY: Final = "hashtextextended('turnwright driver ' || %s, 0)"
#: Seconds between two attempts to reach a lost server.
_PAUSE: Final = 0.1


class OwnerSession:
    """The name of this process among the drivers of a store, and the session whose lock shows that it is alive.

    `patience`: seconds to wait for a server that was reached before. Every method raises psycopg's `Error` if the
    server cannot be reached.
    """

    def __init__(self, conninfo: str, patience: float) -> None:
        self._conninfo = conninfo
        self._patience = patience
        self._session: Connection | None = None
        self._was_reached = False
        self._taking = anyio.Lock()
        #: How many checks with the server have begun, and the number of the last one that succeeded.
        self._checks = self._succeeded = 0
        self.name = process_name()

    async def take(self) -> str:
        """Take the lock and return the owner's name. A session that exists is checked with the server.

        Concurrent callers share a check: it counts for all who called before it began.
        """
        checks = self._checks
        async with self._taking:
            if self._succeeded <= checks:
                self._checks += 1
                if self._session is None or not await self._answers(self._session):
                    await self._renew()
                self._succeeded = self._checks
        return self.name

    async def keep(self) -> None:
        """Take the lock again if the session shows that it was lost, without a round trip."""
        if self._looks_alive():
            return
        async with self._taking:  # what has arrived may be the answer to a check
            if self._looks_alive():
                return
        await self.take()

    async def release(self) -> None:
        """Release the lock."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _looks_alive(self) -> bool:
        return self._session is not None and not self._session.closed and is_silent(self._session)

    async def _answers(self, session: Connection) -> bool:
        with anyio.move_on_after(self._patience), suppress(Error):
            await session.execute("")
            return True
        return False

    async def _renew(self) -> None:
        await self.release()
        ends = time.monotonic() + self._patience
        while True:
            try:
                self._session = await self._open_locked_session()
            except OperationalError:
                # A wrong address fails at once. A server that restarts is waited for.
                if not self._was_reached or time.monotonic() > ends:
                    raise
                await anyio.sleep(_PAUSE)
            else:
                self._was_reached = True
                return

    async def _open_locked_session(self) -> Connection:
        session = await AsyncConnection.connect(
            make_conninfo(self._conninfo, application_name=f"turnwright driver {self.name}"), autocommit=True
        )
        keep_from_forks(session)
        try:
            # The session is idle while the process lives: an administrator's timeout must not end it.
            await session.execute(
                "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'"
            )
            # `is_held` takes the lock too, for a moment. So this waits for it.
            await session.execute("SELECT set_config('lock_timeout', %s, false)", (f"{self._patience:.3f}s",))
            try:
                await session.execute(f"SELECT pg_advisory_lock({KEY})", (self.name,))
            except LockNotAvailable:
                # The server has not noticed that the old session is gone. Turns that were claimed under the old name
                # stay claimed. New claims use a new name.
                self.name = process_name()
                await session.execute(f"SELECT pg_advisory_lock({KEY})", (self.name,))
        except BaseException:
            await session.close()
            raise
        return session


async def is_held(connection: Connection, owner: str) -> bool:
    """Whether the process with the name `owner` holds its lock.

    Many processes may ask at once: the lock that this takes is shared, until the transaction of `connection` ends.
    """
    cursor = await connection.execute(f"SELECT NOT pg_try_advisory_xact_lock_shared({KEY})", (owner,))
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


#: The connections of this process.
_CONNECTIONS: Final[WeakSet[Connection]] = WeakSet()


def keep_from_forks(connection: Connection) -> None:
    """Register `connection`, so that a process forked from this one closes its copy of the socket."""
    _CONNECTIONS.add(connection)


def _leave_to_parent() -> None:
    sink = os.open(os.devnull, os.O_RDWR)
    for connection in list(_CONNECTIONS):
        with suppress(Error):
            # Replaced and not closed: libpq would go on using the number, which may belong to another file by then.
            os.dup2(sink, connection.fileno(), inheritable=False)
    os.close(sink)


os.register_at_fork(after_in_child=_leave_to_parent)


def is_silent(connection: Connection) -> bool:
    """Whether an idle connection has received nothing. Otherwise it was closed, or the server has sent a notice."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)
