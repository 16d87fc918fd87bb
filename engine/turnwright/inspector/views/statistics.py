"""The statistics of the newest turns: outcomes over time, lengths, the limits that stop them, and slow tools."""

import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Final

import anyio.lowlevel
import anyio.to_thread

from turnwright.agents.bounds import LIMITS
from turnwright.errors import TurnNotFoundError, UnreadableTurnError
from turnwright.store import Store, TurnRow
from turnwright_states import REASONS, CallStatus, EndReason, Outcome, State, Usage

from .turn_query import roots
from .turn_summary import Digest, Digests

#: How many turns are looked at unless somebody asks for another number, and the most that one may ask for.
LAST: Final = 500
MOST: Final = 5_000
#: At most so many columns over time, each as wide as the first of these (in seconds) that is enough.
_COLUMNS: Final = 48
_WIDTHS: Final = (60, 300, 900, 3_600, 4 * 3_600, 86_400, 7 * 86_400, 28 * 86_400)
#: A column is no wider than if there were so many, and fills this part of its place.
_FEWEST: Final = 12
_FILLED: Final = 0.86
#: No turn began before 2001: that says a clock which nobody has set (1970, 1980, 2000). Nor so many seconds from now.
_EARLIEST: Final = 1e9
_AHEAD: Final = 86_400.0
#: Turns after which others may run.
_AT_ONCE: Final = 50
#: Upper edges of the groups of steps a turn.
_STEPS: Final = (0, 1, 2, 3, 5, 8, 13, 25, 50, 100, 200)
#: Reasons that are limits.
_LIMITS: Final = (*(reason for _, reason in LIMITS.values()), EndReason.DOOM_LOOP)
#: What a turn that has not ended is counted as.
_LIVE, _PAUSED = "running", "paused"
STANDINGS: Final = (*map(str, Outcome), _PAUSED, _LIVE)


@dataclass(frozen=True, slots=True)
class Column:
    """The turns that began in one span of time, counted by outcome. `began` is in seconds since the Unix epoch."""

    began: float
    counts: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class ColumnPart:
    """A rectangle of a drawn column: the count of one outcome. Places and sizes are percentages."""

    began: float
    standing: str
    count: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class TurnGroup:
    label: str
    count: int


@dataclass(frozen=True, slots=True)
class Fired:
    """The number of turns that a limit stopped, and of those that another one stopped when it was reached too."""

    reason: EndReason
    stopped: int
    also: int
    next: str


@dataclass(frozen=True, slots=True)
class ToolTimes:
    """The times of a tool's calls, in seconds: median, p90 and longest; and the number of failures."""

    tool: str
    calls: int
    failed: int
    median: float
    most: float
    longest: float
    total: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """The statistics of the newest turns.

    Sub-agents' turns are not counted as turns: their tools are, and their usage is part of their callers'. The copied
    part of a fork counts for its origin. `width` is the span of a column in seconds; `untimed` turns have an impossible
    start, and are in no column. `all_seen` is false if there are older turns. `unreadable` turns have a damaged row or
    journal, and the damaged part is not counted.
    """

    turns: int
    all_seen: bool
    standings: dict[str, int]
    width: float
    columns: tuple[Column, ...]
    untimed: int
    unreadable: int
    steps: tuple[TurnGroup, ...]
    limits: tuple[Fired, ...]
    reasons: tuple[tuple[EndReason, int], ...]
    tools: tuple[ToolTimes, ...]
    usage: Usage
    median_seconds: float
    retries: int
    pauses: int

    @property
    def highest(self) -> int:
        return max((column.total for column in self.columns), default=0)

    @property
    def pieces(self) -> list[ColumnPart]:
        """The columns as rectangles, on the ground of a picture that is as high as the highest of them."""
        drawn: list[ColumnPart] = []
        width = 100 / max(len(self.columns), _FEWEST)
        for place, column in enumerate(self.columns):
            y = 100.0
            for standing, count in column.counts.items():
                if count:
                    height = 100 * count / self.highest
                    y -= height
                    drawn.append(ColumnPart(column.began, standing, count, place * width, y, width * _FILLED, height))
        return drawn


async def statistics_of(store: Store, digests: Digests, *, last: int = LAST, agent: str = "") -> Statistics:
    """Return the statistics of the newest `last` turns, at most `MOST`, or of those of one agent."""
    newest: list[TurnRow] = []
    last, whole = min(last, MOST), True
    async for row in roots(store):
        if len(newest) == last:
            whole = False
            break
        newest.append(row)
    seen: list[tuple[TurnRow, Digest]] = []
    below: list[Digest] = []
    for place, row in enumerate(newest):
        if not place % _AT_ONCE:
            await anyio.lowlevel.checkpoint()
        if not agent or row.agent == agent:
            with suppress(TurnNotFoundError):  # deleted since
                seen.append((row, digest := await digests.of(row)))
                below += [one async for one in _below(store, digests, digest)]
    return await anyio.to_thread.run_sync(partial(_counted_up, seen, below, whole=whole, now=time.time()))


def _counted_up(
    seen: Sequence[tuple[TurnRow, Digest]], below: Sequence[Digest], *, whole: bool, now: float
) -> Statistics:
    """The statistics of these turns and of their sub-agents'; in a thread of its own, for there may be many."""
    rows = [row for row, _ in seen if not row.fault]
    timed = [row for row in rows if _EARLIEST <= row.created_at <= now + _AHEAD]
    width = _width([row.created_at for row in timed])
    return Statistics(
        turns=len(rows),
        all_seen=whole,
        standings=_counted(rows),
        width=width,
        columns=tuple(_columns(timed, width)),
        untimed=len(rows) - len(timed),
        unreadable=sum(bool(digest.fault) for _, digest in seen),
        steps=tuple(_steps(rows)),
        limits=tuple(_limits(seen)),
        reasons=tuple(Counter(row.status.reason for row in rows if row.status.reason is not None).most_common()),
        tools=tuple(
            sorted(_tools([*(digest for _, digest in seen), *below]), key=lambda one: one.median, reverse=True)
        ),
        usage=sum((digest.own_usage for _, digest in seen), Usage()),
        median_seconds=_quantile([digest.own_seconds for _, digest in seen], 0.5),
        retries=sum(digest.retries for _, digest in seen),
        pauses=sum(digest.pauses for _, digest in seen),
    )


async def _below(store: Store, digests: Digests, digest: Digest) -> AsyncIterator[Digest]:
    for child in digest.children:
        with suppress(TurnNotFoundError, UnreadableTurnError):  # it never began, was deleted, or is damaged
            one = await digests.of(await store.get(child))
            yield one
            async for other in _below(store, digests, one):
                yield other


def _standing(row: TurnRow) -> str:
    if row.status.outcome is not None:
        return str(row.status.outcome)
    return _PAUSED if row.status.state is State.PAUSED else _LIVE


def _counted(rows: Iterable[TurnRow]) -> dict[str, int]:
    counts = Counter(map(_standing, rows))
    return {standing: counts[standing] for standing in STANDINGS}


def _width(times: Sequence[float]) -> float:
    span = max(times) - min(times) if times else 0.0
    return next((width for width in _WIDTHS if span <= width * (_COLUMNS - 1)), float(ceil(span / (_COLUMNS - 1))))


def _columns(rows: Sequence[TurnRow], width: float) -> Iterable[Column]:
    if not rows:
        return
    places: defaultdict[int, list[TurnRow]] = defaultdict(list)
    for row in rows:
        places[int(row.created_at // width)].append(row)
    for place in range(min(places), max(places) + 1):
        yield Column(place * width, _counted(places.get(place, ())))


def _steps(rows: Sequence[TurnRow]) -> Iterable[TurnGroup]:
    low = 0
    for high in _STEPS:
        label = str(high) if low == high else f"{low}-{high}"
        yield TurnGroup(label, sum(low <= row.status.steps <= high for row in rows))
        low = high + 1


def _limits(seen: Sequence[tuple[TurnRow, Digest]]) -> Iterable[Fired]:
    for reason in _LIMITS:
        stopped = sum(row.status.reason is reason for row, _ in seen)
        also = sum(reason in digest.also_reached for _, digest in seen)
        yield Fired(reason, stopped, also, REASONS[reason].next)


def _tools(digests: Iterable[Digest]) -> Iterable[ToolTimes]:
    runs: defaultdict[str, list[tuple[float, CallStatus]]] = defaultdict(list)
    for digest in digests:
        for run in digest.runs:
            runs[run.tool].append((run.seconds, run.status))
    for tool, calls in runs.items():
        times = [seconds for seconds, _ in calls]
        failed = sum(status is not CallStatus.OK for _, status in calls)
        median, most = _quantile(times, 0.5), _quantile(times, 0.9)
        yield ToolTimes(tool, len(calls), failed, median, most, max(times), sum(times))


def _quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed; 0 where there is none."""
    return sorted(values)[ceil(len(values) * share) - 1] if values else 0.0
