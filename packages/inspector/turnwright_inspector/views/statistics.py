"""The statistics of turns, and of recorded runs: outcomes over time, quantiles, limits that stop them, slow tools."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from math import ceil
from typing import Final

import anyio.lowlevel
import anyio.to_thread

from turnwright._base.background_task import run_both
from turnwright.errors import TurnNotFoundError
from turnwright.privacy.redaction import redactor
from turnwright.status import LIMIT_REASONS
from turnwright.store import TurnRow
from turnwright.store.summaries import PAUSED, UNFINISHED, SummarizedTurn, ToolCalls, TurnFilter
from turnwright_states import REASONS, EndReason, Outcome, State, Usage

from .plot import Plot, Series, plot_of
from .summaries import Summaries

#: How many turns are looked at unless somebody asks for another number, and the most that one may ask for.
LAST: Final = 500
MOST: Final = 5_000
#: No turn began before 2001: that says a clock which nobody has set (1970, 1980, 2000). Nor so many seconds from now.
_EARLIEST: Final = 1e9
_AHEAD: Final = 86_400.0
#: Turns after which others may run.
_AT_ONCE: Final = 50
#: Upper edges of the groups of steps. A turn has at most 200, a recorded run may have more.
_STEPS: Final = (0, 1, 2, 3, 5, 8, 13, 25, 50, 100, 200)
#: Reasons that are limits.
_LIMITS: Final = (*LIMIT_REASONS, EndReason.DOOM_LOOP)
#: The outcomes, and the names under which turns that have not ended are counted.
STANDINGS: Final = (*map(str, Outcome), PAUSED, UNFINISHED)


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
    """The statistics of the newest turns, or of recorded runs, which have no limits, retries and pauses.

    `shares` are the parts of them that ended well or not, by name. `spent` are plots of cost and tokens over time.

    Sub-agents' turns are not counted as turns: their tools are, and their usage is part of their callers'. The copied
    part of a fork counts for its origin. `plot` has the outcomes over time; `untimed` turns have an impossible start,
    and are not in it. `all_seen` is false if there are older turns. `unreadable` turns have a damaged row or journal,
    and the damaged part is not counted. `limits` are those that stopped turns. The tools of a turn that runs are not
    counted yet.
    """

    turns: int
    all_seen: bool
    standings: Mapping[str, int]
    shares: tuple[tuple[str, float], ...]
    plot: Plot | None
    untimed: int
    unreadable: int
    steps: tuple[TurnGroup, ...]
    limits: tuple[Fired, ...]
    reasons: tuple[tuple[str, int], ...]
    tools: tuple[ToolTimes, ...]
    usage: Usage
    seconds: Quantiles
    step_counts: Quantiles
    tokens: Quantiles
    costs: Quantiles
    retries: int = 0
    pauses: int = 0
    spent: tuple[tuple[str, Plot], ...] = ()


async def statistics_of(summaries: Summaries, *, last: int = LAST, agent: str = "") -> Statistics:
    """Return the statistics of the newest `last` turns, at most `MOST`. `agent` is a part of their agent's name."""
    last = min(last, MOST)
    await summaries.current()
    turn_filter = TurnFilter(agent=redactor().hide(agent))
    newest, tools = await run_both(
        summaries.read.find(turn_filter, limit=last + 1, texts=False),
        lambda: summaries.read.tools(turn_filter, limit=last),
    )
    turns: list[SummarizedTurn] = []
    for place, turn in enumerate(newest[:last]):
        if not place % _AT_ONCE:
            await anyio.lowlevel.checkpoint()
        with suppress(TurnNotFoundError):  # deleted since
            turns.append(await summaries.read_totals(turn))
    count_up = partial(_counted_up, turns, tools, whole=len(newest) <= last, now=time.time())
    return await anyio.to_thread.run_sync(count_up)


def _counted_up(
    turns: Sequence[SummarizedTurn], tools: Mapping[str, ToolCalls], *, whole: bool, now: float
) -> Statistics:
    """The statistics of these turns and of their sub-agents'; in a thread of its own, for there may be many."""
    rows = [turn.row for turn in turns if not turn.row.fault]
    readable_turns = [turn for turn in turns if not (turn.row.fault or turn.fault)]
    timed_rows = [row for row in rows if is_plausible(row.created_at, now)]
    standings = _count_standings(rows)
    return Statistics(
        turns=len(rows),
        all_seen=whole,
        standings=standings,
        shares=tuple(_shares(standings, len(rows))),
        plot=plot_of("turns", list(_over_time(timed_rows)), whole=True),
        untimed=len(rows) - len(timed_rows),
        unreadable=len(turns) - len(readable_turns),
        steps=group_by_steps([row.status.steps for row in rows]),
        limits=tuple(_limits(rows)),
        reasons=tuple(Counter(row.status.reason for row in rows if row.status.reason is not None).most_common()),
        tools=slowest(tools),
        usage=sum((turn.usage for turn in readable_turns), Usage()),
        seconds=Quantiles.of([turn.seconds for turn in readable_turns]),
        step_counts=Quantiles.of([row.status.steps for row in rows]),
        tokens=Quantiles.of([turn.usage.tokens for turn in readable_turns]),
        costs=Quantiles.of([turn.usage.cost for turn in readable_turns]),
        retries=sum(turn.retries for turn in readable_turns),
        pauses=sum(turn.pauses for turn in readable_turns),
    )


def _standing(row: TurnRow) -> str:
    if row.status.outcome is not None:
        return str(row.status.outcome)
    return PAUSED if row.status.state is State.PAUSED else UNFINISHED


def _count_standings(rows: Iterable[TurnRow]) -> dict[str, int]:
    counts = Counter(map(_standing, rows))
    return {standing: counts[standing] for standing in STANDINGS}


def _shares(standings: Mapping[str, int], turns: int) -> Iterable[tuple[str, float]]:
    if turns:
        yield "Finished", (standings[Outcome.FINISHED] + standings[Outcome.SYNTHESIS_DONE]) / turns
        yield "Stopped by a limit", (standings[Outcome.CAP_HIT] + standings[Outcome.DOOM_LOOP]) / turns
        yield "Failed", standings[Outcome.FAILED] / turns


def _over_time(rows: Sequence[TurnRow]) -> Iterable[Series]:
    moments: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        moments[_standing(row)].append((row.created_at, 1))
    return (Series(standing, standing, moments[standing]) for standing in STANDINGS)


def group_by_steps(steps: Sequence[int]) -> tuple[TurnGroup, ...]:
    """Return the turns by their steps, from the first group that has any to the last."""
    groups = [
        TurnGroup(str(high) if low == high else f"{low}-{high}", sum(low <= number <= high for number in steps))
        for low, high in zip((0, *(edge + 1 for edge in _STEPS)), _STEPS, strict=False)
    ]
    groups.append(TurnGroup(f"over {_STEPS[-1]}", sum(number > _STEPS[-1] for number in steps)))
    filled_places = [place for place, group in enumerate(groups) if group.count]
    return tuple(groups[filled_places[0] : filled_places[-1] + 1]) if filled_places else ()


def _limits(rows: Sequence[TurnRow]) -> Iterable[Fired]:
    for reason in _LIMITS:
        if stop_count := sum(row.status.reason is reason for row in rows):
            yield Fired(reason, stop_count, REASONS[reason].next)


def slowest(tools: Mapping[str, ToolCalls]) -> tuple[ToolTimes, ...]:
    """Return the tools with the times of their calls, the slowest first."""
    times = starmap(_times, tools.items())
    return tuple(sorted(times, key=lambda tool_times: (tool_times.times.p50, tool_times.calls), reverse=True))


def _times(tool: str, calls: ToolCalls) -> ToolTimes:
    return ToolTimes(tool, calls.calls, calls.failed, Quantiles.of(calls.seconds), sum(calls.seconds))


def is_plausible(start: float, now: float) -> bool:
    """Whether something can have begun at that time: no clock that nobody has set says it."""
    return _EARLIEST <= start <= now + _AHEAD


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed; 0 where there is none."""
    return sorted(values)[ceil(len(values) * share) - 1] if values else 0.0
