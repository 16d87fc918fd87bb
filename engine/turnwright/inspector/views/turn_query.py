"""The list of turns: a query, and its results page by page."""

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import anyio.lowlevel

from turnwright._base.ids import root_of
from turnwright.errors import TurnNotFoundError, UnreadableTurnError
from turnwright.journal.driving_status import DriverStatus, driving_status
from turnwright.store import Store, TurnRow
from turnwright_states import EndReason, Outcome, State

from .turn_summary import Digest, Digests

#: Turns a page.
PAGE: Final = 50
#: Rows that are read at once, and the most that one page looks at: a search that finds little must end too.
_WINDOW: Final = 500
_MOST_LOOKED_AT: Final = 5_000
#: Rows after which others may run. To look through the prompts of these takes a thousandth of a second.
_AT_ONCE: Final = 16
#: What may be asked for beside an outcome.
PAUSED, UNFINISHED, CRASHED = "paused", "unfinished", "crashed"
STANDINGS: Final = (*map(str, Outcome), PAUSED, UNFINISHED, CRASHED)


@dataclass(frozen=True, slots=True)
class Query:
    """A query of turns. An empty field matches everything.

    `text` is a part of the turn's id, agent, model, session or prompt, ignoring case.
    `standing` is one of `STANDINGS`: an outcome, `paused`, `unfinished` (neither ended nor paused), or `crashed` (of
    these, those whose driver died). `before` is the number of the last turn of the page before.
    """

    text: str = ""
    standing: str = ""
    reason: str = ""
    agent: str = ""
    session: str = ""
    before: int | None = None

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> "Query":
        # No store has a NUL in a text, and some refuse to look for one.
        asked = {name: value.replace("\0", "").strip() for name, value in asked.items()}
        standing, reason, before = asked.get("outcome", ""), asked.get("reason", ""), asked.get("before", "")
        return cls(
            text=asked.get("q", ""),
            standing=standing if standing in STANDINGS else "",
            reason=reason if reason in set(EndReason) else "",
            agent=asked.get("agent", ""),
            session=asked.get("session", ""),
            before=int(before) if before.isascii() and before.isdecimal() and len(before) < len(str(2**63)) else None,
        )

    @property
    def address(self) -> dict[str, str]:
        """The query as an address has it, without the page."""
        fields = {"q": self.text, "outcome": self.standing, "reason": self.reason, "agent": self.agent}
        return {name: value for name, value in (fields | {"session": self.session}).items() if value}


@dataclass(frozen=True, slots=True)
class Listed:
    """A turn in the list, with those of its sub-agents below it. `driver` is None if it needs no driver."""

    row: TurnRow
    driver: DriverStatus | None
    digest: Digest
    children: tuple["Listed", ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of the list. `after` is where the next one begins; None where there is none.

    `looked_at` is the number of searched turns, `agents` are their names.
    """

    turns: tuple[Listed, ...]
    after: int | None
    looked_at: int
    agents: tuple[str, ...]

    @property
    def full(self) -> bool:
        """Whether the page is full; otherwise the search stopped after enough turns."""
        return len(self.turns) == PAGE


async def roots(store: Store, *, session: str = "", before: int | None = None) -> AsyncIterator[TurnRow]:
    """The turns that are no sub-agent's, the newest first: those of a session, or all, with a number below `before`.

    Other tasks run between the rows, because a caller may not wait for anything.
    """
    while True:
        rows = await store.turns(session=session or None, limit=_WINDOW, before=before)
        for place, row in enumerate(rows):
            if not place % _AT_ONCE:
                await anyio.lowlevel.checkpoint()
            if root_of(row.id) == row.id:
                yield row
        if len(rows) < _WINDOW:
            return
        before = rows[-1].number


async def list_turns(store: Store, digests: Digests, query: Query) -> Listing:
    """Return the next page of a query's turns, newest first, with sub-agents' turns below their callers'."""
    found: list[TurnRow] = []
    agents: set[str] = set()
    looked_at, last = 0, None
    async for row in roots(store, session=query.session, before=query.before):
        if len(found) == PAGE or looked_at == _MOST_LOOKED_AT:
            break
        looked_at, last = looked_at + 1, row.number
        agents |= {row.agent} - {""}
        if await _answers(store, digests, row, query):
            found.append(row)
    else:
        last = None
    turns = [one for row in found if (one := await _listed(store, digests, row)) is not None]
    return Listing(tuple(turns), last, looked_at, tuple(sorted(agents)))


async def _answers(store: Store, digests: Digests, row: TurnRow, query: Query) -> bool:
    if query.agent and row.agent != query.agent:
        return False
    if query.reason and row.status.reason != query.reason:
        return False
    if query.standing and not await _stands(store, row, query.standing):
        return False
    text = query.text.casefold()
    if not text or any(text in (field or "").casefold() for field in (row.id, row.agent, row.model, row.session)):
        return True
    with suppress(TurnNotFoundError):
        return text in (await digests.of(row)).prompt.casefold()
    return False


async def _stands(store: Store, row: TurnRow, standing: str) -> bool:
    if row.fault:
        return False
    outcome, state = row.status.outcome, row.status.state
    if standing == PAUSED:
        return state is State.PAUSED
    if standing == UNFINISHED:
        return outcome is None and state is not State.PAUSED
    if standing == CRASHED:
        with suppress(TurnNotFoundError):
            return (await driving_status(store, row))[1] is DriverStatus.CRASHED
        return False
    return outcome == standing


async def _row(store: Store, turn: str) -> TurnRow:
    try:
        return await store.get(turn)
    except UnreadableTurnError as error:
        return TurnRow.damaged(turn, error.why)


async def _listed(store: Store, digests: Digests, row: TurnRow) -> Listed | None:
    try:
        row, driver = await driving_status(store, row)
        digest = await digests.of(row)
    except TurnNotFoundError:
        return None
    children: list[Listed] = []
    for child in digest.children:
        with suppress(TurnNotFoundError):  # it never began, or was deleted
            below = await _listed(store, digests, await _row(store, child))
            if below is not None:
                children.append(below)
    return Listed(row, driver, digest, tuple(children))
