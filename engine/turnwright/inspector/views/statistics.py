"""The statistics of the newest turns: outcomes over time, quantiles, the limits that stop them, and slow tools."""

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
from turnwright.privacy.redaction import redactor
from turnwright.store import Store, TurnRow
from turnwright.store.summaries import SummarizedTurn, TurnFilter
from turnwright_states import REASONS, CallStatus, EndReason, Outcome, State, Usage

from .plot import Plot, Series, plot_of
from .summaries import Summaries
from .turn_summary import Digest, Digests

#: How many turns are looked at unless somebody asks for another number, and the most that one may ask for.
LAST: Final = 500
MOST: Final = 5_000
#: No turn began before 2001: that says a clock which nobody has set (1970, 1980, 2000). Nor so many seconds from now.
_EARLIEST: Final = 1e9
_AHEAD: Final = 86_400.0
#: The newest turns whose journals are read for the times of their tools, and turns after which others may run.
_JOURNALS: Final = 200
_AT_ONCE: Final = 50
#: Upper edges of the groups of steps a turn.
_STEPS: Final = (0, 1, 2, 3, 5, 8, 13, 25, 50, 100, 200)
#: Reasons that are limits.
_LIMITS: Final = (*(reason for _, reason in LIMITS.values()), EndReason.DOOM_LOOP)
#: What a turn that has not ended is counted as.
_LIVE, _PAUSED = "running", "paused"
STANDINGS: Final = (*map(str, Outcome), _PAUSED, _LIVE)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """The values of turns or calls that half, 90 % and 99 % of them do not exceed, and the greatest."""

    p50: float
    p90: float
    p99: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Quantiles":
        return cls(quantile(values, 0.5), quantile(values, 0.9), quantile(values, 0.99), max(values, default=0.0))


@dataclass(frozen=True, slots=True)
class TurnGroup:
    label: str
    count: int


@dataclass(frozen=True, slots=True)
class Fired:
    """The number of turns that a limit stopped."""

    reason: EndReason
    stopped: int
    next: str


@dataclass(frozen=True, slots=True)
class ToolTimes:
    """The times of a tool's calls, in seconds, and the number of failures."""

    tool: str
    calls: int
    failed: int
    times: Quantiles
    total: float


@dataclass(frozen=True, slots=True)
class Statistics:
    """The statistics of the newest turns.

    Sub-agents' turns are not counted as turns: their tools are, and their usage is part of their callers'. The copied
    part of a fork counts for its origin. `plot` has the outcomes over time; `untimed` turns have an impossible start,
    and are not in it. `all_seen` is false if there are older turns. `unreadable` turns have a damaged row or journal,
    and the damaged part is not counted. `limits` are those that stopped turns. `tools` are those of the newest
    `journals` turns.
    """

    turns: int
    all_seen: bool
    standings: dict[str, int]
    plot: Plot | None
    untimed: int
    unreadable: int
    steps: tuple[TurnGroup, ...]
    limits: tuple[Fired, ...]
    reasons: tuple[tuple[EndReason, int], ...]
    tools: tuple[ToolTimes, ...]
    journals: int
    usage: Usage
    seconds: Quantiles
    step_counts: Quantiles
    tokens: Quantiles
    costs: Quantiles
    retries: int
    pauses: int


async def statistics_of(summaries: Summaries, digests: Digests, *, last: int = LAST, agent: str = "") -> Statistics:
    """Return the statistics of the newest `last` turns, at most `MOST`. `agent` is a part of their agent's name."""
    last = min(last, MOST)
    await summaries.current()
    found = await summaries.read.find(TurnFilter(agent=redactor().hide(agent)), limit=last + 1)
    turns: list[SummarizedTurn] = []
    read: list[Digest] = []
    for place, one in enumerate(found[:last]):
        if not place % _AT_ONCE:
            await anyio.lowlevel.checkpoint()
        with suppress(TurnNotFoundError):  # deleted since
            digest = await digests.of(one.row) if place < _JOURNALS or not one.summarized else None
            turns.append(one if one.summarized or digest is None else _summarized(one.row, digest))
            if digest is not None and place < _JOURNALS:
                read += [digest, *[below async for below in _below(summaries.store, digests, digest)]]
    counted = partial(_counted_up, turns, read, whole=len(found) <= last, now=time.time())
    return await anyio.to_thread.run_sync(counted)


def _summarized(row: TurnRow, digest: Digest) -> SummarizedTurn:
    return SummarizedTurn(
        row,
        summarized=True,
        usage=digest.own_usage,
        seconds=digest.own_seconds,
        fault=digest.fault,
        retries=digest.retries,
        pauses=digest.pauses,
    )


def _counted_up(turns: Sequence[SummarizedTurn], journals: Sequence[Digest], *, whole: bool, now: float) -> Statistics:
    """The statistics of these turns and of their sub-agents'; in a thread of its own, for there may be many."""
    rows = [one.row for one in turns if not one.row.fault]
    read = [one for one in turns if not (one.row.fault or one.fault)]
    timed = [row for row in rows if _EARLIEST <= row.created_at <= now + _AHEAD]
    return Statistics(
        turns=len(rows),
        all_seen=whole,
        standings=_counted(rows),
        plot=plot_of("turns", list(_over_time(timed)), whole=True),
        untimed=len(rows) - len(timed),
        unreadable=len(turns) - len(read),
        steps=tuple(_steps(rows)),
        limits=tuple(_limits(rows)),
        reasons=tuple(Counter(row.status.reason for row in rows if row.status.reason is not None).most_common()),
        tools=tuple(sorted(_tools(journals), key=lambda one: one.times.p50, reverse=True)),
        journals=min(len(turns), _JOURNALS),
        usage=sum((one.usage for one in read), Usage()),
        seconds=Quantiles.of([one.seconds for one in read]),
        step_counts=Quantiles.of([row.status.steps for row in rows]),
        tokens=Quantiles.of([one.usage.tokens for one in read]),
        costs=Quantiles.of([one.usage.cost for one in read]),
        retries=sum(one.retries for one in read),
        pauses=sum(one.pauses for one in read),
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


def _over_time(rows: Sequence[TurnRow]) -> Iterable[Series]:
    moments: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        moments[_standing(row)].append((row.created_at, 1))
    return (Series(standing, standing, moments[standing]) for standing in STANDINGS)


def _steps(rows: Sequence[TurnRow]) -> Iterable[TurnGroup]:
    """The turns by their steps, from the first group that has any to the last."""
    groups = [
        TurnGroup(str(high) if low == high else f"{low}-{high}", sum(low <= row.status.steps <= high for row in rows))
        for low, high in zip((0, *(edge + 1 for edge in _STEPS)), _STEPS, strict=False)
    ]
    filled = [place for place, group in enumerate(groups) if group.count]
    return groups[filled[0] : filled[-1] + 1] if filled else []


def _limits(rows: Sequence[TurnRow]) -> Iterable[Fired]:
    for reason in _LIMITS:
        if stopped := sum(row.status.reason is reason for row in rows):
            yield Fired(reason, stopped, REASONS[reason].next)


def _tools(digests: Iterable[Digest]) -> Iterable[ToolTimes]:
    runs: defaultdict[str, list[tuple[float, CallStatus]]] = defaultdict(list)
    for digest in digests:
        for run in digest.runs:
            runs[run.tool].append((run.seconds, run.status))
    for tool, calls in runs.items():
        times = [seconds for seconds, _ in calls]
        failed = sum(status is not CallStatus.OK for _, status in calls)
        yield ToolTimes(tool, len(calls), failed, Quantiles.of(times), sum(times))


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed; 0 where there is none."""
    return sorted(values)[ceil(len(values) * share) - 1] if values else 0.0
