"""The recorded runs of each agent with each model: how they end, and what they take."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from turnwright.store.summaries import Grouping

from .run_library import RunEntry
from .run_query import RunTotals
from .statistics import quantile


@dataclass(frozen=True, slots=True)
class RunGroup:
    """The runs of an agent with a model, or of one of them: then the other name is empty, and `others` counts these.

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
    "runs": lambda one: one.sum.runs,
    "success": lambda one: -2.0 if one.success is None else -one.success,
    "finished": lambda one: -one.finished,
    "steps": lambda one: one.steps[0],
    "tokens": lambda one: one.tokens[0],
    "cost": lambda one: one.sum.cost,
    "errors": lambda one: one.errors,
    "lost": lambda one: one.sum.lost,
    "loops": lambda one: one.sum.loops,
}


def groups_of(runs: Sequence[RunEntry], sort: str, by: Grouping = Grouping.BOTH) -> list[RunGroup]:
    """Return the runs by agent and model, or by one of them, sorted by a column."""
    groups: defaultdict[tuple[str, str], list[RunEntry]] = defaultdict(list)
    for one in runs:
        agent, model = one.found.agent, one.found.model
        groups["" if by is Grouping.MODEL else agent, "" if by is Grouping.AGENT else model].append(one)
    found = [_group(agent, model, some) for (agent, model), some in groups.items()]
    return sorted(found, key=GROUP_COLUMNS.get(sort, GROUP_COLUMNS["runs"]), reverse=True)


def _group(agent: str, model: str, runs: Sequence[RunEntry]) -> RunGroup:
    stops = Counter(one.found.ending for one in runs if not one.found.finished).most_common(1)
    steps, tokens = [one.found.steps for one in runs], [one.found.tokens for one in runs if one.found.tokens]
    return RunGroup(
        agent=agent,
        model=model,
        sum=RunTotals.of(runs),
        stop=stops[0] if stops else None,
        steps=(quantile(steps, 0.5), quantile(steps, 0.9)),
        tokens=(quantile(tokens, 0.5), quantile(tokens, 0.9)),
        errors=sum(one.found.errors for one in runs),
        others=len({(one.found.agent, one.found.model) for one in runs}),
    )
