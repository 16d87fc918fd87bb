"""Agents and models, from the rows of `summary_sql`: quantiles, endings, and usage over time."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import groupby
from math import ceil
from typing import Final

from turnwright_states import EndReason, Outcome

from .rows import Columns, count_of, integers, number_of, outcome_of
from .summaries import AgentStatistics, AgentTotals, Grouping, Quantiles, Spending

_REASONS: Final = frozenset(EndReason)
#: The spans of time, in minutes: the shortest of which there are few.
_WIDTHS: Final = (1, 60, 1_440, 7 * 1_440, 28 * 1_440)
_FEW: Final = 48
#: No turn began before 2001, which is what a clock says that nobody has set, or a day from now.
_EARLIEST: Final = 10**9 // 60
_AHEAD: Final = 86_400
#: The most requests whose groups are kept, and the seconds for which they are.
_MOST_KNOWN: Final = 16
_AGE: Final = 600


@dataclass(slots=True)
class _Group:
    """The turns of a row: costs in millionths, times in milliseconds, the minutes of their starts.

    `failing` has the number of each turn that had failed calls, and 0 for each other one.
    """

    cost: float = 0.0
    steps: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    micros: list[int] = field(default_factory=list)
    millis: list[int] = field(default_factory=list)
    minutes: list[int] = field(default_factory=list)
    failing: list[int] = field(default_factory=list)
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    reasons: Counter[EndReason] = field(default_factory=Counter)
    names: set[tuple[str, str]] = field(default_factory=set)

    def add(self, outcome: object, reason: object, cost: float, measures: Sequence[int]) -> None:
        lists = (self.steps, self.tokens, self.micros, self.millis, self.minutes, self.failing)
        for place, values in enumerate(lists):
            values.extend(measures[place :: len(lists)])
        turns = len(measures) // len(lists)
        if (ending := outcome_of(outcome)) is not None:
            self.outcomes[ending] += turns
        if reason in _REASONS:
            self.reasons[EndReason(str(reason))] += turns
        self.cost += cost


class AgentGroups:
    """The turns of rows (agent, model, outcome, reason, cost, measures), by agent and model, or by one of them.

    The measures of a turn are those of the lists of `_Group`, as integers with commas between them.
    """

    def __init__(self, rows: Iterable[Columns], by: Grouping = Grouping.BOTH) -> None:
        groups: defaultdict[tuple[str, str], _Group] = defaultdict(_Group)
        for agent, model, outcome, reason, cost, measures in rows:
            if agent:  # not those without a summary
                # A damaged name may have half a pair of surrogates, and becomes a part of an address.
                name, model_name = (str(value).encode(errors="replace").decode() for value in (agent, model))
                row = "" if by is Grouping.MODEL else name, "" if by is Grouping.AGENT else model_name
                groups[row].names.add((name, model_name))
                groups[row].add(outcome, reason, number_of(cost), integers(measures))
        totals = [_totals(agent, model, group) for (agent, model), group in groups.items()]
        width = _width(groups.values(), latest := int(time.time() + _AHEAD) // 60)
        spending = sorted(_spending(groups, width, latest), key=lambda span: (span.began, span.agent, span.model))
        agents = sorted(totals, key=lambda row: (-row.turns, row.agent, row.model))
        self._counted = AgentStatistics(agents, spending, width * 60.0)
        self._failing = {number: row for row, group in groups.items() for number in filter(None, group.failing)}

    @property
    def failing(self) -> list[int]:
        """The numbers of the turns that had failed calls."""
        return [*self._failing]

    def statistics(self, failures: Iterable[Columns]) -> AgentStatistics:
        """Return the statistics, with the failures of rows (turn, tool, failed calls)."""
        failure_counts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for turn, tool, calls in failures:
            failure_counts[self._failing[turn]][str(tool)] += count_of(calls)
        agents = [
            replace(totals, failures=failure_counts[totals.agent, totals.model].most_common())
            for totals in self._counted.agents
        ]
        return replace(self._counted, agents=agents)


class KnownGroups:
    """Makes groups, and keeps those of the last requests: to make them takes longer than to read their rows."""

    def __init__(self) -> None:
        #: By what they were made of, the newest last.
        self._recent: dict[bytes, AgentGroups] = {}

    def of(self, rows: Sequence[Columns], by: Grouping) -> AgentGroups:
        """Return the groups of rows."""
        # A turn that begins more than a day from now is counted later.
        key = blake2b(f"{by} {time.time() // _AGE} {rows}".encode(errors="replace")).digest()
        self._recent[key] = groups = self._recent.pop(key, None) or AgentGroups(rows, by)
        if len(self._recent) > _MOST_KNOWN:
            del self._recent[next(iter(self._recent))]
        return groups


def _totals(agent: str, model: str, group: _Group) -> AgentTotals:
    return AgentTotals(
        agent=agent,
        model=model,
        turns=len(group.steps),
        outcomes=group.outcomes,
        reasons=group.reasons.most_common(),
        steps=_quantiles(group.steps),
        tokens=_quantiles(group.tokens),
        cost=_quantiles(group.micros, 1e6),
        seconds=_quantiles(group.millis, 1e3),
        total_tokens=sum(group.tokens),
        total_cost=group.cost,
        failures=(),
        others=len(group.names),
    )


def _width(groups: Iterable[_Group], latest: int) -> int:
    """Return the minutes of a span."""
    ends_of_groups: list[int] = []
    for minutes in (group.minutes for group in groups if group.minutes):
        ends = min(minutes), max(minutes)
        possible = ends[0] >= _EARLIEST and ends[1] <= latest
        ends_of_groups += ends if possible else [minute for minute in minutes if _EARLIEST <= minute <= latest]
    first, last = min(ends_of_groups, default=0), max(ends_of_groups, default=0)
    return next((width for width in _WIDTHS if last // width - first // width < _FEW), _WIDTHS[-1])


def _spending(groups: Mapping[tuple[str, str], _Group], width: int, latest: int) -> Iterator[Spending]:
    for (agent, model), group in groups.items():
        sums: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0])
        start = 0
        # The turns of a span follow each other, mostly.
        for span, run in groupby([minute // width for minute in group.minutes]):
            end = start + len([*run])
            span_sums = sums[span]
            span_sums[0] += end - start
            span_sums[1] += sum(group.tokens[start:end])
            span_sums[2] += sum(group.micros[start:end])
            start = end
        for span, (turns, tokens, micros) in sums.items():
            if _EARLIEST // width <= span <= latest // width:
                yield Spending(span * width * 60.0, agent, model, turns, tokens, micros / 1e6)


def _quantiles(values: Sequence[int], unit: float = 1) -> Quantiles:
    sorted_values = sorted(values)
    p50, p90 = (
        sorted_values[ceil(len(sorted_values) * share) - 1] / unit if sorted_values else 0.0 for share in (0.5, 0.9)
    )
    return Quantiles(p50, p90)
