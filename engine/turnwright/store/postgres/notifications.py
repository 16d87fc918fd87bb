"""Notifications of writes to a PostgreSQL store, received on one connection for the process.

The connection and the task that reads it exist while at least one turn is watched. A lost connection is reopened.
Meanwhile a wait takes its full time, and all watchers are woken after the reconnect, because notifications were missed.
The task is an asyncio task, as psycopg needs, and not part of a task group: a watching block may be in an async
generator, which any task may close.
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

#: Seconds between two attempts to listen.
_PAUSE: Final = 1.0
#: Seconds before the first one. A turn that a worker of the same process drives is waited for less, and a connection
#: costs as much as ten appends.
_DELAY: Final = 0.1


class Notifications:
    """Wakes the watchers of a turn when something was written to it. `conninfo` is psycopg's connection string."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = make_conninfo(conninfo, application_name="turnwright listener")
        #: The watchers of each turn.
        self._watchers: dict[str, set[_Watcher]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._closed = False

    @asynccontextmanager
    async def watching(self, turn_id: str) -> AsyncIterator[Changed]:
        """See `Store.watching`. The connection is opened at the first wait."""
        watcher = _Watcher()

        async def wait_for_change(seconds: float) -> None:
            self._listen()
            await watcher.wait(seconds)

        self._watchers.setdefault(turn_id, set()).add(watcher)
        try:
            yield wait_for_change
        finally:
            watchers = self._watchers[turn_id]
            watchers.remove(watcher)
            if not watchers:
                del self._watchers[turn_id]
            if not self._watchers:
                self._stop()

    async def aclose(self) -> None:
        """Close the connection and wake all watchers. Later waits take their full time."""
        self._closed = True
        listening = self._stop()
        if listening is not None:
            await asyncio.wait({listening})
        self._notify_all()

    def _listen(self) -> None:
        if self._listening is None and not self._closed:
            self._listening = asyncio.get_running_loop().create_task(self._keep_listening())

    def _stop(self) -> asyncio.Task[None] | None:
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
        return listening

    async def _keep_listening(self) -> None:
        await asyncio.sleep(_DELAY)
        while True:
            # Readers of the store get the same error and report it.
            with suppress(Error, OSError):
                await self._listen_until_lost()
            await asyncio.sleep(_PAUSE)

    async def _listen_until_lost(self) -> None:
        connection = await AsyncConnection.connect(self._conninfo, autocommit=True)
        keep_from_forks(connection)
        try:
            await connection.execute(f"LISTEN {CHANNEL}")
            self._notify_all()
            async for notification in connection.notifies():
                self._notify(notification.payload)
        finally:
            await connection.close()

    def _notify(self, turn_id: str) -> None:
        for watcher in self._watchers.get(turn_id, ()):
            watcher.notify()

    def _notify_all(self) -> None:
        for turn_id in self._watchers:
            self._notify(turn_id)


class _Watcher:
    def __init__(self) -> None:
        self._notified = anyio.Event()

    def notify(self) -> None:
        """Wake the watcher: something was written, or may have been."""
        self._notified.set()

    async def wait(self, seconds: float) -> None:
        """Wait for a notification since the last wait, at most for the given seconds."""
        with anyio.move_on_after(seconds):
            await self._notified.wait()
        if self._notified.is_set():
            self._notified = anyio.Event()
