"""The journal of a guarded turn, written from any thread.

A guarded loop may have no event loop, or one of its own that must not be blocked. So the store lives in the event loop
of a thread, and each write waits for it.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TypeVar

from turnwright.errors import StoreError, TurnwrightError
from turnwright.journal.turn_journal import stamp
from turnwright.store import Claim, NewTurn, Status, Store, open_store
from turnwright_states import Turn
from turnwright_states.facts import Fact

T = TypeVar("T")


class GuardJournal:
    """The facts of one turn in the store at `address`. It holds the turn's claim until `close`."""

    def __init__(
        self, address: str, new: NewTurn, facts: Sequence[Fact], turn: Turn, *, now: Callable[[], float] = time.time
    ) -> None:
        """Create the turn with its first facts. Raises `ConfigError` and `StoreError`."""
        self._turn_id, self._now = new.id, now
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"journal of {new.id}", daemon=True)
        self._thread.start()
        self._store: Store | None = None
        try:
            self._store, self._claim = self._wait(self._create(address, new, facts, Status.of(turn)))
        except BaseException:
            self._stop()
            raise

    def append(self, facts: Sequence[Fact], turn: Turn) -> None:
        """Write facts before anything follows from them. `turn` is the turn after them.

        Raises `StoreError` and `LeaseLostError`, and always `StoreError` after either of them.
        """
        if self._store is None:
            raise StoreError(f"turn {self._turn_id}: an earlier append failed, so the journal is incomplete")
        stamp(facts, self._now())
        try:
            self._wait(self._store.append(self._claim, facts, Status.of(turn)))
        except TurnwrightError:
            with suppress(TurnwrightError):
                self.close()
            raise

    def close(self) -> None:
        """Release the turn and the store. Only the first call has an effect."""
        store, self._store = self._store, None
        if store is not None:
            try:
                self._wait(self._release(store))
            finally:
                self._stop()

    async def _create(self, address: str, new: NewTurn, facts: Sequence[Fact], status: Status) -> tuple[Store, Claim]:
        stamp(facts, new.created_at)
        store = open_store(address)
        try:
            return store, await store.create(new, facts, status)
        except BaseException:
            await store.aclose()
            raise

    async def _release(self, store: Store) -> None:
        try:
            await store.release(self._claim)
        finally:
            await store.aclose()

    def _wait(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
