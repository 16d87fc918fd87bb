"""The summaries of a store's turns, as the pages keep them up to date."""

import logging
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Final

import anyio
import anyio.lowlevel

from turnwright.errors import StoreError, TurnNotFoundError, UnreadableTurnError
from turnwright.journal.summarize import fork_word, summarize_turns, totals_of
from turnwright.privacy.redaction import redactor
from turnwright.store import Store, TurnRow
from turnwright.store.memory_summaries import summaries_of
from turnwright.store.summaries import SummarizedTurn, TurnFilter, TurnSummary
from turnwright_inspector.http.refusals import UNREADABLE
from turnwright_states import State

_LOG = logging.getLogger(__name__)
#: Turns that are summarized in one transaction.
_AT_ONCE: Final = 10
#: Seconds for which a page that needs all summaries writes missing ones.
_PATIENCE: Final = 0.1
#: The most forks that a page names.
_FORKS: Final = 20
#: The most turns whose totals are kept: more than the statistics look at.
_MOST_READ: Final = 12_000


@dataclass(frozen=True, slots=True)
class _Totals:
    """The totals of a turn's first `facts` facts. `creation` says which turn it is, because an id can be used again."""

    creation: tuple[int, float]
    facts: int
    ended: bool
    summary: TurnSummary


class Summaries:
    """Reads the summaries of a store, and writes those that are missing. `search`: the texts of turns can be searched.

    A page writes a few of them, and `catch_up` all.
    """

    def __init__(self, store: Store, *, search: bool = True) -> None:
        self.store = store
        self.read = summaries_of(store)
        self._search = search
        self._writing = anyio.Lock()
        #: By the turn's id, the one that was read last at the end.
        self._totals: OrderedDict[str, _Totals] = OrderedDict()

    async def forks_of(self, turn_id: str) -> tuple[TurnRow, ...]:
        """Return the newest forks of a turn, also those that were never driven. Raises `StoreError`."""
        await self.current(0.0)
        turns = await self.read.find(TurnFilter(text=fork_word(turn_id)), limit=_FORKS)
        return tuple(turn.row for turn in turns if turn.row.id.startswith("fork-"))

    async def read_totals(self, turn: SummarizedTurn) -> SummarizedTurn:
        """Return a turn of a list with its totals so far, which are never older than its row.

        A turn that runs, or has no summary yet, is read from its journal. A damaged turn has its `fault`. Raises
        `TurnNotFoundError`.
        """
        row = turn.row
        if row.fault:
            return SummarizedTurn(row, summarized=True, fault=row.fault)
        if turn.summarized and (row.status.outcome is not None or row.status.state is State.PAUSED):
            return turn
        totals = self._totals.get(row.id)
        if totals is None or totals.creation != _creation(row) or not await self._is_current(row.id, totals):
            # Other tasks run between two turns, because a store may answer without waiting.
            await anyio.lowlevel.checkpoint()
            totals = self._totals[row.id] = await self._read(row)
            if len(self._totals) > _MOST_READ:
                self._totals.popitem(last=False)
        self._totals.move_to_end(row.id)
        summary = totals.summary
        return SummarizedTurn(
            row,
            summarized=True,
            usage=summary.usage,
            seconds=summary.seconds,
            prompt=summary.prompt,
            fault=summary.fault,
            sub_turns=summary.sub_turns,
            retries=summary.retries,
            pauses=summary.pauses,
        )

    async def _is_current(self, turn_id: str, totals: _Totals) -> bool:
        """Return whether the journal has no newer facts. The time of its last fact may be the same as before."""
        if totals.ended:
            return True
        try:
            return not await self.store.facts(turn_id, after=totals.facts)
        except TurnNotFoundError:
            raise
        except StoreError:
            return False

    async def _read(self, row: TurnRow) -> _Totals:
        try:
            journal = await self.store.facts(row.id)
            summary = totals_of(row.id, journal, redactor().hide)
        except UnreadableTurnError as error:
            return _Totals(_creation(row), 0, ended=False, summary=TurnSummary(fault=error.why))
        return _Totals(_creation(row), len(journal), summary.outcome is not None, summary)

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


def _creation(row: TurnRow) -> tuple[int, float]:
    return row.number, row.created_at
