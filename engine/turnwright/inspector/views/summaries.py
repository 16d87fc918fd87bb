"""The summaries of a store's turns, as the pages keep them up to date."""

import logging
from math import inf
from typing import Final

import anyio

from turnwright.errors import StoreError
from turnwright.journal.summarize import fork_word, summarize_turns
from turnwright.privacy.redaction import redactor
from turnwright.store import Store, TurnRow
from turnwright.store.memory_summaries import summaries_of
from turnwright.store.summaries import TurnFilter

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
        """Return the newest forks of a turn, of those that were summarized. Raises `StoreError`."""
        found = await self.read.find(TurnFilter(text=fork_word(turn_id)), limit=_FORKS)
        return tuple(one.row for one in found if one.row.id.startswith("fork-"))

    async def current(self, patience: float = _PATIENCE) -> bool:
        """Summarize some turns, for about `patience` seconds. Return whether all turns that rest are summarized now."""
        if self._writing.locked():  # all of them are being written
            return False
        return await self._write(anyio.current_time() + patience)

    async def catch_up(self) -> None:
        """Summarize all turns that rest."""
        await self._write(inf)

    async def _write(self, until: float) -> bool:
        async with self._writing:
            try:
                while await summarize_turns(
                    self.store, self.read, redactor().hide, limit=_AT_ONCE, search=self._search
                ):
                    if anyio.current_time() >= until:
                        return False
            except StoreError as error:
                _LOG.warning("the turns cannot be summarized: %s", error)
        return True
