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
from turnwright.store import Store, TurnRow
from turnwright_states import REASONS, CallStatus, EndReason, Outcome, State, Usage

from .plot import Plot, Series, plot_of
from .turn_query import roots
from .turn_summary import Digest, Digests

#: How many turns are looked at unless somebody asks for another number, and the most that one may ask for.
LAST: Final = 500
MOST: Final = 5_000
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
    """The number of turns that a limit stopped, and of those that another one stopped when it was reached too."""

    reason: EndReason
    stopped: int
    also: int
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
    and the damaged part is not counted. `limits` are those that turns reached.
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
    usage: Usage
    seconds: Quantiles
    step_counts: Quantiles
    tokens: Quantiles
    costs: Quantiles
    retries: int
    pauses: int


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
    read = [(row, digest) for row, digest in seen if not digest.fault]
    timed = [row for row in rows if _EARLIEST <= row.created_at <= now + _AHEAD]
    return Statistics(
        turns=len(rows),
        all_seen=whole,
        standings=_counted(rows),
        plot=plot_of("turns", list(_over_time(timed)), whole=True),
        untimed=len(rows) - len(timed),
        unreadable=sum(bool(digest.fault) for _, digest in seen),
        steps=tuple(_steps(rows)),
        limits=tuple(_limits(seen)),
        reasons=tuple(Counter(row.status.reason for row in rows if row.status.reason is not None).most_common()),
        tools=tuple(
            sorted(_tools([*(digest for _, digest in seen), *below]), key=lambda one: one.times.p50, reverse=True)
        ),
        usage=sum((digest.own_usage for _, digest in seen), Usage()),
        seconds=Quantiles.of([digest.own_seconds for _, digest in read]),
        step_counts=Quantiles.of([row.status.steps for row in rows]),
        tokens=Quantiles.of([digest.own_usage.tokens for _, digest in read]),
        costs=Quantiles.of([digest.own_usage.cost for _, digest in read]),
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


def _limits(seen: Sequence[tuple[TurnRow, Digest]]) -> Iterable[Fired]:
    for reason in _LIMITS:
        stopped = sum(row.status.reason is reason for row, _ in seen)
        also = sum(reason in digest.also_reached for _, digest in seen)
        if stopped or also:
            yield Fired(reason, stopped, also, REASONS[reason].next)


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
