"""The statistics of recorded runs, as far as their data goes, in the form of those of turns."""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from turnwright.store.summaries import Spending, ToolCalls
from turnwright_states import Usage

from .plot import plot_of, series_of, spent_over_time
from .run_library import RunEntry
from .run_query import RunTotals
from .statistics import Quantiles, Statistics, grouped, is_plausible, slowest

#: The most endings and tools that a page has, the most frequent ones.
_ENDINGS: Final = 20
_TOOLS: Final = 40
#: Seconds of which spending is added up.
_SPAN: Final = 60


def run_statistics(runs: Sequence[RunEntry], by: str) -> Statistics:
    """Return the statistics of these runs. `by` is `agent` or `model`: the plots of cost and tokens are by these."""
    now, found = time.time(), [one.found for one in runs]
    timed = [(one.began, one) for one in runs if one.began is not None and is_plausible(one.began, now)]
    totals = RunTotals.of(runs)
    endings: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for began, one in timed:
        endings[one.found.ending].append((began, 1))
    counted = Counter(one.ending for one in found)
    return Statistics(
        turns=len(runs),
        all_seen=True,
        standings=counted,
        shares=_shares(totals),
        plot=plot_of("runs", series_of(endings), whole=True),
        untimed=len(runs) - len(timed),
        unreadable=0,
        steps=grouped([one.steps for one in found]),
        limits=(),
        reasons=tuple(counted.most_common(_ENDINGS)),
        tools=slowest(_tools(runs)),
        usage=Usage(
            input_tokens=sum(one.input_tokens for one in found),
            output_tokens=sum(one.output_tokens for one in found),
            cached_tokens=sum(one.cached_tokens for one in found),
            cost=totals.cost,
        ),
        seconds=Quantiles.of([one.seconds for one in runs if one.seconds is not None]),
        step_counts=Quantiles.of([one.steps for one in found]),
        tokens=Quantiles.of([one.tokens for one in found if one.tokens]),
        costs=Quantiles.of([one.cost for one in found if one.cost]),
        spent=spent_over_time([_spending(began, one) for began, one in timed], by, _SPAN),
    )


def _shares(totals: RunTotals) -> tuple[tuple[str, float], ...]:
    if not totals.runs:
        return ()
    shares = [("Ended by themselves", totals.finished / totals.runs)]
    if totals.labeled:
        shares.append(("Succeeded", totals.succeeded / totals.labeled))
    return tuple(shares)


def _tools(runs: Sequence[RunEntry]) -> Mapping[str, ToolCalls]:
    calls: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for one in runs:
        for name, tool in one.tools.items():
            calls[name] += tool.calls
            failed[name] += tool.failed
            seconds[name] += tool.seconds
    return {name: ToolCalls(number, failed[name], seconds[name]) for name, number in calls.most_common(_TOOLS)}


def _spending(began: float, one: RunEntry) -> Spending:
    return Spending(began, one.found.agent, one.found.model, 1, one.found.tokens, one.found.cost)
