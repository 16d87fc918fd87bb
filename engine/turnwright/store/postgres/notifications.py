"""Who waits for what others write to a PostgreSQL store: one connection hears of it for a whole process.

The connection, and the task that reads it, are there while somebody waits. When the connection is lost it is made
again; meanwhile whoever waits looks again when the time is over, and once more when it is there, for nobody knows what
was missed. The task is asyncio's, which psycopg needs, and belongs to nobody's task group: a block that watches may be
in an async generator, which is closed by whoever comes.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
from psycopg import AsyncConnection, Error
from psycopg.conninfo import make_conninfo

from turnwright.store.protocol import Changed

from .owner_lock import keep_from_forks
from .statements import CHANNEL

#: Between two attempts to listen, in seconds.
_PAUSE: Final = 1.0


class Notifications:
    """Tells those who watch turns that something was written to them. `conninfo` is psycopg's connection string."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = make_conninfo(conninfo, application_name="turnwright listener")
        #: Those who watch, by turn.
        self._watchers: dict[str, set[_Watcher]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._closed = False

    @asynccontextmanager
    async def watching(self, turn_id: str) -> AsyncIterator[Changed]:
        """See `Store.watching`. Nothing is connected before the first wait: who never waits needs to hear nothing."""
        watcher = _Watcher()

        async def changed(seconds: float) -> None:
            self._listen()
            await watcher.wait(seconds)

        self._watchers.setdefault(turn_id, set()).add(watcher)
        try:
            yield changed
        finally:
            watchers = self._watchers[turn_id]
            watchers.remove(watcher)
            if not watchers:
                del self._watchers[turn_id]
            if not self._watchers:
                self._stop()

    async def aclose(self) -> None:
        """Let go of the connection. Who waits is woken, and from now on waits for the time alone."""
        self._closed = True
        listening = self._stop()
        if listening is not None:
            await asyncio.wait({listening})
        self._tell_all()

    def _listen(self) -> None:
        if self._listening is None and not self._closed:
            self._listening = asyncio.get_running_loop().create_task(self._keep_listening())

    def _stop(self) -> asyncio.Task[None] | None:
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
        return listening

    async def _keep_listening(self) -> None:
        while True:
            # Whoever reads the store is told what is wrong with it.
            with suppress(Error, OSError):
                await self._hear_all()
            await asyncio.sleep(_PAUSE)

    async def _hear_all(self) -> None:
        connection = await AsyncConnection.connect(self._conninfo, autocommit=True)
        keep_from_forks(connection)
        try:
            await connection.execute(f"LISTEN {CHANNEL}")
            self._tell_all()
            async for news in connection.notifies():
                self._tell(news.payload)
        finally:
            await connection.close()

    def _tell(self, turn_id: str) -> None:
        for watcher in self._watchers.get(turn_id, ()):
            watcher.tell()

    def _tell_all(self) -> None:
        for turn_id in self._watchers:
            self._tell(turn_id)


class _Watcher:
    """One who watches a turn."""

    def __init__(self) -> None:
        self._told = anyio.Event()

    def tell(self) -> None:
        """Something was written, or may have been."""
        self._told.set()

    async def wait(self, seconds: float) -> None:
        """Wait until told, since the last wait, or so many seconds."""
        with anyio.move_on_after(seconds):
            await self._told.wait()
        if self._told.is_set():
            self._told = anyio.Event()
