"""The summaries of a store's turns, as the pages keep them up to date."""

import logging
from contextlib import suppress
from math import inf
from typing import Final

import anyio

from turnwright.journal.summarize import fork_word, summarize_turns
from turnwright.privacy.redaction import redactor
from turnwright.store import Store, TurnRow
from turnwright.store.memory_summaries import summaries_of
from turnwright.store.summaries import TurnFilter
from turnwright_inspector.http.refusals import UNREADABLE

_LOG = logging.getLogger(__name__)
#: Turns that are summarized in one transaction.
_AT_ONCE: Final = 10
#: Seconds for which a page that needs all summaries writes missing ones.
_PATIENCE: Final = 0.1
#: The most forks that a page names.
_FORKS: Final = 20


class Summaries:
    """Reads the summaries of a store, and writes those that are missing. `search`: the texts of turns can be searched.

    A page writes a few of them, and `catch_up` all.
    """

    def __init__(self, store: Store, *, search: bool = True) -> None:
        self.store = store
        self.read = summaries_of(store)
        self._search = search
        self._writing = anyio.Lock()

    async def forks_of(self, turn_id: str) -> tuple[TurnRow, ...]:
        """Return the newest forks of a turn, also those that were never driven. Raises `StoreError`."""
        await self.current(0.0)
        found = await self.read.find(TurnFilter(text=fork_word(turn_id)), limit=_FORKS)
        return tuple(one.row for one in found if one.row.id.startswith("fork-"))

    async def current(self, patience: float = _PATIENCE) -> bool:
        """Summarize some turns, for about `patience` seconds. Return whether all turns that rest are summarized now."""
        return await self._write(anyio.current_time() + patience)

    async def catch_up(self) -> None:
        """Summarize all turns that rest."""
        await self._write(inf)

    async def _write(self, until: float) -> bool:
        """Write summaries, until none is missing or it is late. Of several writers each takes its turn."""
        while await self._may_write(until):
            try:
                if not await summarize_turns(
                    self.store, self.read, redactor().hide, limit=_AT_ONCE, search=self._search
                ):
                    return True
            except UNREADABLE as error:
                _LOG.warning("the turns cannot be summarized: %s", error)
                return True
            finally:
                self._writing.release()
            if anyio.current_time() >= until:
                break
        return False

    async def _may_write(self, until: float) -> bool:
        """Wait for the lock, until it is late. One that is free is taken even then."""
        with suppress(anyio.WouldBlock):
            self._writing.acquire_nowait()
            return True
        with anyio.move_on_after(until - anyio.current_time()) as waiting:
            await self._writing.acquire()
        return not waiting.cancelled_caught
