"""The summaries of a store's turns, as the pages keep them up to date."""

import logging
from typing import Final

import anyio

from turnwright.errors import StoreError
from turnwright.journal.summarize import summarize_turns
from turnwright.privacy.redaction import redactor
from turnwright.store import Store
from turnwright.store.memory_summaries import summaries_of

_LOG = logging.getLogger(__name__)
#: Turns that are summarized in one transaction, and the seconds that a page waits for summaries.
_AT_ONCE: Final = 50
_PATIENCE: Final = 0.3


class Summaries:
    """Reads the summaries of a store, and writes those that are missing. `search`: the texts of turns can be searched.

    Turns that other processes drove are summarized when a page needs them, and all at once while `catch_up` runs.
    """

    def __init__(self, store: Store, *, search: bool = True) -> None:
        self.store = store
        self.read = summaries_of(store)
        self._search = search
        self._writing = anyio.Lock()

    async def current(self) -> bool:
        """Summarize turns for a moment. Return whether all turns that rest are summarized now."""
        with anyio.move_on_after(_PATIENCE):
            return await self.catch_up()
        return False

    async def catch_up(self) -> bool:
        """Summarize all turns that rest. Return False if the store cannot be written."""
        async with self._writing:
            try:
                while await summarize_turns(
                    self.store, self.read, redactor().hide, limit=_AT_ONCE, search=self._search
                ):
                    await anyio.lowlevel.checkpoint()
            except StoreError as error:
                _LOG.warning("the turns cannot be summarized: %s", error)
                return False
        return True
