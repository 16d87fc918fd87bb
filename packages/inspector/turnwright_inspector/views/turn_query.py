"""The list of turns: a query, and its results page by page."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Final

from turnwright._base.background_task import run_both
from turnwright.errors import TurnNotFoundError, UnreadableTurnError
from turnwright.journal.driving_status import DriverStatus, driving_status
from turnwright.privacy.redaction import redactor
from turnwright.store import Annotation, AnnotationKind, AnnotationStore, Store, TurnRow
from turnwright.store.summaries import MOST_WORDS, PAUSED, UNFINISHED, Order, SummarizedTurn, TurnFilter, TurnTotals
from turnwright_states import EndReason, Outcome

from .summaries import Summaries

#: Turns a page.
PAGE: Final = 50
#: Rows that are read at once, and the most unfinished turns whose drivers one page checks.
_WINDOW: Final = 500
_MOST_CHECKED: Final = 2_000
#: The most turns of sub-agents that are shown below one turn.
_BELOW: Final = 200
#: The other filters beside an outcome.
CRASHED: Final = "crashed"
STANDINGS: Final = (*map(str, Outcome), PAUSED, UNFINISHED, CRASHED)
#: The spans of time that end now, in seconds.
RANGES: Final = {"1h": 3_600.0, "24h": 86_400.0, "7d": 7 * 86_400.0, "30d": 30 * 86_400.0}
#: The most digits of a number in an address.
_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class Query:
    """A query of turns, as an address has it. An empty field matches everything.

    `text`, `agent`, `model`, `session`, `tag`, `reason`: see `TurnFilter`. `standing` is one of `STANDINGS`: an
    outcome, `paused`, `unfinished` (neither ended nor paused), or `crashed` (of these, those whose driver died). `span`
    is one of `RANGES`; `since` and `until` are days, `2026-11-27`, or seconds since the Unix epoch. `before` is the
    number of the last turn of the page before.
    """

    text: str = ""
    standing: str = ""
    reason: str = ""
    agent: str = ""
    model: str = ""
    session: str = ""
    tag: str = ""
    span: str = ""
    since: str = ""
    until: str = ""
    order: Order = Order.NEWEST
    ascending: bool = False
    before: int | None = None

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> "Query":
        # No store has a NUL in a text, and some refuse to look for one.
        fields = {name: value.replace("\0", "").strip() for name, value in fields.items()}
        standing, reason, span = fields.get("outcome", ""), fields.get("reason", ""), fields.get("range", "")
        order = fields.get("sort", "")
        return cls(
            text=fields.get("q", ""),
            standing=standing if standing in STANDINGS else "",
            reason=reason if reason in set(EndReason) else "",
            agent=fields.get("agent", ""),
            model=fields.get("model", ""),
            session=fields.get("session", ""),
            tag=fields.get("tag", ""),
            span=span if span in RANGES else "",
            since=fields.get("since", "") if _moment(fields.get("since", "")) is not None else "",
            until=fields.get("until", "") if _moment(fields.get("until", "")) is not None else "",
            order=Order(order) if order in set(Order) else Order.NEWEST,
            ascending=fields.get("way", "") == "up",
            before=whole_number(fields.get("before", "")),
        )

    @property
    def address(self) -> dict[str, str]:
        """The query as an address has it, without the page."""
        fields = {
            "q": self.text,
            "outcome": self.standing,
            "reason": self.reason,
            "agent": self.agent,
            "model": self.model,
            "session": self.session,
            "tag": self.tag,
            "range": self.span,
            "since": self.since,
            "until": self.until,
            "sort": "" if self.order is Order.NEWEST else str(self.order),
            "way": "up" if self.ascending else "",
        }
        return {name: value for name, value in fields.items() if value}

    @property
    def first(self) -> bool:
        """Whether this is the first page."""
        return self.before is None

    @property
    def left_out(self) -> int:
        """The number of words that are not searched, because there are too many."""
        return max(len(self.text.split()) - MOST_WORDS, 0)

    def sorted_by(self, order: Order) -> dict[str, str]:
        """Return the address of the list sorted by a column, or the other way round if it is already."""
        up = {"way": "up"} if self.order is order and not self.ascending else {}
        filters = {name: value for name, value in self.address.items() if name not in ("sort", "way")}
        return filters | ({} if order is Order.NEWEST else {"sort": str(order)}) | up

    def filter(self, now: float) -> TurnFilter:
        """Return the filter of the whole list, at the time `now`. `crashed` is not a part of it."""
        since, until = _moment(self.since), _moment(self.until, ends=True)
        if self.span:
            since = max(now - RANGES[self.span], since or 0.0)
        # What looks like a secret is hidden on pages: nobody may find out whether a turn has it.
        hide = redactor().hide
        return TurnFilter(
            text=hide(self.text),
            agent=hide(self.agent),
            model=hide(self.model),
            session=hide(self.session),
            tag=hide(self.tag),
            outcome=UNFINISHED if self.standing == CRASHED else self.standing,
            reason=self.reason,
            since=since,
            until=until,
        )


@dataclass(frozen=True, slots=True)
class Listed:
    """A turn in the list, with those of its sub-agents below it. `driver` is None if it needs no driver."""

    turn: SummarizedTurn
    driver: DriverStatus | None
    children: tuple["Listed", ...]

    @property
    def row(self) -> TurnRow:
        return self.turn.row


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of the list. `following` are the fields of the next page's address; None where there is none.

    `totals` are those of all pages; None for crashed turns, which are not counted. `current` is false while turns are
    still being summarized. `agents` are the names on the page.
    """

    turns: tuple[Listed, ...]
    following: dict[str, str] | None
    totals: TurnTotals | None
    current: bool

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(sorted({entry.row.agent for entry in self.turns} - {""}))


async def list_turns(summaries: Summaries, query: Query) -> Listing:
    """Return the next page of a query's turns, with sub-agents' turns below their callers'."""
    # The newest turns are listed without their summaries too.
    current = await (summaries.current() if query.address else summaries.current(0.0))
    turn_filter = query.filter(time.time())
    if query.standing == CRASHED:
        (turns, following), totals = await _find_crashed(summaries, query, turn_filter), None
    else:
        (turns, following), totals = await run_both(
            _find_turns(summaries, query, turn_filter), lambda: summaries.read.totals(turn_filter)
        )
    entries = [entry for turn in turns if (entry := await _list_turn(summaries, turn)) is not None]
    return Listing(tuple(entries), following, totals, current)


async def _find_turns(
    summaries: Summaries, query: Query, turn_filter: TurnFilter
) -> tuple[Sequence[SummarizedTurn], dict[str, str] | None]:
    turns = await summaries.read.find(
        turn_filter, order=query.order, ascending=query.ascending, limit=PAGE + 1, after=query.before
    )
    page = turns[:PAGE]
    return page, {"before": str(page[-1].row.number)} if len(turns) > PAGE else None


async def _find_crashed(
    summaries: Summaries, query: Query, turn_filter: TurnFilter
) -> tuple[Sequence[SummarizedTurn], dict[str, str] | None]:
    turns: list[SummarizedTurn] = []
    before, checked_count = query.before, 0
    while rows := await summaries.read.find(turn_filter, limit=_WINDOW, after=before):
        for turn in rows:
            before, checked_count = turn.row.number, checked_count + 1
            with suppress(TurnNotFoundError):
                if (await driving_status(summaries.store, turn.row))[1] is DriverStatus.CRASHED:
                    turns.append(turn)
            if len(turns) == PAGE or checked_count == _MOST_CHECKED:
                return turns, {"before": str(before)}
    return turns, None


async def _list_turn(summaries: Summaries, summary: SummarizedTurn) -> Listed | None:
    """Return a found turn as the list shows it; None if it was deleted."""
    try:
        turn, driver = await _read_turn(summaries, summary)
    except TurnNotFoundError:
        return None
    return Listed(turn, driver, await _below(summaries, turn.row.id) if turn.sub_turns else ())


async def _read_turn(summaries: Summaries, summary: SummarizedTurn) -> tuple[SummarizedTurn, DriverStatus | None]:
    row, driver = await driving_status(summaries.store, summary.row)
    return await summaries.read_totals(replace(summary, row=row)), driver


async def _below(summaries: Summaries, turn_id: str) -> tuple[Listed, ...]:
    """Return the turns of a turn's sub-agents, in the order of creation."""
    children: defaultdict[str, list[Listed]] = defaultdict(list)
    family = await summaries.read.find(TurnFilter(family=turn_id), ascending=True, limit=_BELOW)
    for summary in sorted(family, key=lambda turn: turn.row.id.count(":"), reverse=True):  # the deepest ones first
        with suppress(TurnNotFoundError):  # deleted since
            turn, driver = await _read_turn(summaries, summary)
            caller = turn.row.id.rpartition(":")[0]
            children[caller].append(Listed(turn, driver, tuple(children[turn.row.id])))
    return tuple(children[turn_id])


async def marks_of(store: Store, turn_ids: Sequence[str]) -> Mapping[str, tuple[Annotation, ...]]:
    """Return the tags and scores of some turns, for a list. A turn with a damaged one has none there."""
    if not isinstance(store, AnnotationStore):
        return {}
    try:
        annotations = await store.annotations(turn_ids)
    except UnreadableTurnError as error:
        readable_ids = [turn for turn in turn_ids if turn != error.turn]
        if len(readable_ids) == len(turn_ids):
            raise
        return await marks_of(store, readable_ids)
    marks = (mark for mark in annotations if mark.kind is not AnnotationKind.NOTE)
    return {turn: tuple(of_turn) for turn, of_turn in groupby(marks, key=lambda mark: mark.turn)}


def whole_number(text: str) -> int | None:
    """Parse a number of an address; None for a text that is not one, or has too many digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else None


def _moment(text: str, *, ends: bool = False) -> float | None:
    """Return a moment of an address: a day in UTC, whose end is meant with `ends`, or seconds since the Unix epoch."""
    if text.isascii() and text.isdecimal() and len(text) <= _DIGITS:
        return float(text)
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
        return (day + timedelta(days=1) if ends else day).timestamp()
    except (ValueError, OverflowError):
        return None
