"""The statistics of recorded runs, in the form of those of turns, and the runs of each agent with each model."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from turnwright.store.summaries import Grouping, Spending, ToolCalls
from turnwright_states import Usage

from .plot import plot_of, series_of, spent_over_time
from .run_library import RunEntry
from .run_query import RunTotals
from .statistics import Quantiles, Statistics, group_by_steps, is_plausible, quantile, slowest

#: The most endings and tools that a page has, the most frequent ones.
_ENDINGS: Final = 20
_TOOLS: Final = 40
#: Seconds of which spending is added up.
_SPAN: Final = 60


def run_statistics(runs: Sequence[RunEntry], by: str) -> Statistics:
    """Return the statistics of these runs. `by` is `agent` or `model`: the plots of cost and tokens are by these."""
    now, measures = time.time(), [run.measures for run in runs]
    timed_runs = [(run.began, run) for run in runs if run.began is not None and is_plausible(run.began, now)]
    totals = RunTotals.of(runs)
    endings: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for start, run in timed_runs:
        endings[run.measures.ending].append((start, 1))
    ending_counts = Counter(measure.ending for measure in measures)
    return Statistics(
        turns=len(runs),
        all_seen=True,
        standings=ending_counts,
        shares=_shares(totals),
        plot=plot_of("runs", series_of(endings), whole=True),
        untimed=len(runs) - len(timed_runs),
        unreadable=0,
        steps=group_by_steps([measure.steps for measure in measures]),
        limits=(),
        reasons=tuple(ending_counts.most_common(_ENDINGS)),
        tools=slowest(_tools(runs)),
        usage=Usage(
            input_tokens=sum(measure.input_tokens for measure in measures),
            output_tokens=sum(measure.output_tokens for measure in measures),
            cached_tokens=sum(measure.cached_tokens for measure in measures),
            cost=totals.cost,
        ),
        seconds=Quantiles.of([run.seconds for run in runs if run.seconds is not None]),
        step_counts=Quantiles.of([measure.steps for measure in measures]),
        tokens=Quantiles.of([measure.tokens for measure in measures if measure.tokens]),
        costs=Quantiles.of([measure.cost for measure in measures if measure.cost]),
        spent=spent_over_time([_spending(start, run) for start, run in timed_runs], by, _SPAN),
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
    failure_counts: Counter[str] = Counter()
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for run in runs:
        for name, tool in run.tools.items():
            calls[name] += tool.calls
            failure_counts[name] += tool.failed
            seconds[name] += tool.seconds
    return {name: ToolCalls(number, failure_counts[name], seconds[name]) for name, number in calls.most_common(_TOOLS)}


def _spending(start: float, run: RunEntry) -> Spending:
    return Spending(start, run.measures.agent, run.measures.model, 1, run.measures.tokens, run.measures.cost)


@dataclass(frozen=True, slots=True)
class RunGroup:
    """The runs of an agent with a model, or of one: then the other name is empty, and `others` counts the others.

    `stop` is the most frequent ending of those that did not end by themselves, with its count. `steps` and `tokens` are
    those of one run: what half of the runs do not exceed, and nine of ten. `errors` counts failed calls.
    """

    agent: str
    model: str
    sum: RunTotals
    stop: tuple[str, int] | None
    steps: tuple[float, float]
    tokens: tuple[float, float]
    errors: int
    others: int

    @property
    def success(self) -> float | None:
        """The share of successes, of the runs that say; None where none does."""
        return self.sum.succeeded / self.sum.labeled if self.sum.labeled else None

    @property
    def finished(self) -> float:
        """The share of runs that ended by themselves."""
        return self.sum.finished / self.sum.runs


#: The columns by which the table is sorted, the largest value first; of the successes, the smallest.
GROUP_COLUMNS: Final[Mapping[str, Callable[[RunGroup], float]]] = {
    "runs": lambda group: group.sum.runs,
    "success": lambda group: -2.0 if group.success is None else -group.success,
    "finished": lambda group: -group.finished,
    "steps": lambda group: group.steps[0],
    "tokens": lambda group: group.tokens[0],
    "cost": lambda group: group.sum.cost,
    "errors": lambda group: group.errors,
    "lost": lambda group: group.sum.lost,
    "loops": lambda group: group.sum.loops,
}


def groups_of(runs: Sequence[RunEntry], sort: str, by: Grouping = Grouping.BOTH) -> list[RunGroup]:
    """Return the runs by agent and model, or by one of them, sorted by a column."""
    groups: defaultdict[tuple[str, str], list[RunEntry]] = defaultdict(list)
    for run in runs:
        agent, model = run.measures.agent, run.measures.model
        groups["" if by is Grouping.MODEL else agent, "" if by is Grouping.AGENT else model].append(run)
    rows = [_group(agent, model, measures) for (agent, model), measures in groups.items()]
    return sorted(rows, key=GROUP_COLUMNS.get(sort, GROUP_COLUMNS["runs"]), reverse=True)


def _group(agent: str, model: str, runs: Sequence[RunEntry]) -> RunGroup:
    stops = Counter(run.measures.ending for run in runs if not run.measures.finished).most_common(1)
    steps, tokens = [run.measures.steps for run in runs], [run.measures.tokens for run in runs if run.measures.tokens]
    return RunGroup(
        agent=agent,
        model=model,
        sum=RunTotals.of(runs),
        stop=stops[0] if stops else None,
        steps=(quantile(steps, 0.5), quantile(steps, 0.9)),
        tokens=(quantile(tokens, 0.5), quantile(tokens, 0.9)),
        errors=sum(run.measures.errors for run in runs),
        others=len({(run.measures.agent, run.measures.model) for run in runs}),
    )
