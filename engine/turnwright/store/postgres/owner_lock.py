"""Who drives, in a PostgreSQL store: an advisory lock on the name of each driver, held by a session of its own.

The server lets go of the lock when the session ends, however its process died. What it cannot know is a process that
lives and has lost its session: that one looks dead, another may take its turns over, and the fence keeps the data
whole. It takes the lock again as soon as it notices.

A session ends with the last process that has its socket. Hence a process that is forked loses those that it inherits,
or a driver whose worker outlives it would look alive, and keep what its last transaction had locked. One whose
connection is only being made meanwhile is not known yet: it stays with the worker.
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

#: The lock of the driver whose name is the parameter. The server counts the hash: all who ask it get the same.
_KEY: Final = "hashtextextended('turnwright driver ' || %s, 0)"
#: Between two attempts to reach a server that was lost, in seconds.
_PAUSE: Final = 0.1


class OwnerSession:
    """The name of this process among the drivers of a store, and the session whose lock says that it lives.

    `patience`: how many seconds a server that was reached before is waited for. Every method raises psycopg's `Error`
    when it cannot be reached.
    """

    def __init__(self, conninfo: str, patience: float) -> None:
        self._conninfo = conninfo
        self._patience = patience
        self._session: Connection | None = None
        self._was_reached = False
        self._taking = anyio.Lock()
        self.name = process_name()

    async def take(self) -> str:
        """Hold the lock from now on, and return the owner's name. Asks the server whether the session still lives."""
        async with self._taking:
            if self._session is None or not await self._answers(self._session):
                await self._renew()
        return self.name

    async def keep(self) -> None:
        """Take the lock again if it was lost. Asks nobody as long as nothing points to that."""
        if self._session is None or self._session.closed or not is_silent(self._session):
            await self.take()

    async def let_go(self) -> None:
        """Give the lock up."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _answers(self, session: Connection) -> bool:
        with anyio.move_on_after(self._patience), suppress(Error):
            await session.execute("")
            return True
        return False

    async def _renew(self) -> None:
        await self.let_go()
        ends = time.monotonic() + self._patience
        while True:
            try:
                self._session = await self._locked()
            except OperationalError:
                # A wrong address is told at once; a server that starts again is waited for.
                if not self._was_reached or time.monotonic() > ends:
                    raise
                await anyio.sleep(_PAUSE)
            else:
                self._was_reached = True
                return

    async def _locked(self) -> Connection:
        session = await AsyncConnection.connect(
            make_conninfo(self._conninfo, application_name=f"turnwright driver {self.name}"), autocommit=True
        )
        keep_from_forks(session)
        try:
            # The session rests for as long as the process lives, and no administrator's time-out is to end it.
            await session.execute(
                "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'"
            )
            # Those who only ask hold the lock too, for a moment: hence it is waited for.
            await session.execute("SELECT set_config('lock_timeout', %s, false)", (f"{self._patience:.3f}s",))
            try:
                await session.execute(f"SELECT pg_advisory_lock({_KEY})", (self.name,))
            except LockNotAvailable:
                # The server has not noticed that the old session is gone. What was claimed under its name is still
                # held; what is claimed from now on needs another.
                self.name = process_name()
                await session.execute(f"SELECT pg_advisory_lock({_KEY})", (self.name,))
        except BaseException:
            await session.close()
            raise
        return session


async def is_held(connection: Connection, owner: str) -> bool:
    """Whether the process that calls itself `owner` has its lock.

    Any number may ask at once, for they share what they get, until the end of the transaction of `connection`.
    """
    cursor = await connection.execute(f"SELECT NOT pg_try_advisory_xact_lock_shared({_KEY})", (owner,))
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


#: The connections of this process.
_CONNECTIONS: Final[WeakSet[Connection]] = WeakSet()


def keep_from_forks(connection: Connection) -> None:
    """From now on `connection` is of no use in a process that is forked from this one, which does not hold it open."""
    _CONNECTIONS.add(connection)


def _leave_to_parent() -> None:
    sink = os.open(os.devnull, os.O_RDWR)
    for connection in list(_CONNECTIONS):
        with suppress(Error):
            # Not closed: libpq would go on to use the number, which another file could have by then.
            os.dup2(sink, connection.fileno(), inheritable=False)
    os.close(sink)


os.register_at_fork(after_in_child=_leave_to_parent)


def is_silent(connection: Connection) -> bool:
    """Whether nothing has arrived at a connection that rests: else it was ended, or the server has a notice."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)
