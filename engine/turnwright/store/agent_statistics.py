"""Agents and models, from the rows of `summary_sql.Dialect.agents`: quantiles, endings, and usage over time."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from turnwright_states import EndReason, Outcome

from .rows import Columns
from .summaries import AgentStatistics, AgentTotals, Quantiles, Spending
from .summary_sql import count_of, integers, number_of, outcome_of

_REASONS: Final = frozenset(EndReason)
#: The spans of time, in minutes: the shortest of which there are few.
_WIDTHS: Final = (1, 60, 1_440, 7 * 1_440, 28 * 1_440)
_FEW: Final = 48
#: No turn began before 2001, which is what a clock says that nobody has set, or a day from now.
_EARLIEST: Final = 10**9 // 60
_AHEAD: Final = 86_400


@dataclass(slots=True)
class _Group:
    """The turns of an agent with a model: costs in millionths, times in milliseconds, the minutes of their starts."""

    cost: float = 0.0
    steps: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    micros: list[int] = field(default_factory=list)
    millis: list[int] = field(default_factory=list)
    minutes: list[int] = field(default_factory=list)
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    reasons: Counter[EndReason] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)


def agent_statistics(measures: Iterable[Columns], failures: Iterable[Columns]) -> AgentStatistics:
    """Return the agents of rows (agent, model, outcome, reason, cost, lists) and (agent, model, tool, failures).

    The lists are those of `_Group`, as integers with commas between them.
    """
    groups: defaultdict[tuple[object, object], _Group] = defaultdict(_Group)
    for agent, model, outcome, reason, cost, *texts in measures:
        group = groups[agent, model]
        lists = (group.steps, group.tokens, group.micros, group.millis, group.minutes)
        before = len(group.steps)
        for values, text in zip(lists, texts, strict=True):
            values.extend(integers(text))
        count = len(group.steps) - before
        group.cost += number_of(cost)
        if (ending := outcome_of(outcome)) is not None:
            group.outcomes[ending] += count
        if reason in _REASONS:
            group.reasons[EndReason(reason)] += count
    for agent, model, tool, count in failures:
        groups[agent, model].failed[str(tool)] += count_of(count)
    named = {(str(agent), str(model)): group for (agent, model), group in groups.items() if group.steps}
    totals = [_totals(agent, model, group) for (agent, model), group in named.items()]
    width = _width(named.values(), latest := int(time.time() + _AHEAD) // 60)
    spending = sorted(_spending(named, width, latest), key=lambda one: (one.began, one.agent, one.model))
    return AgentStatistics(sorted(totals, key=lambda one: (-one.turns, one.agent, one.model)), spending, width * 60.0)


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
        failures=group.failed.most_common(),
    )


def _width(groups: Iterable[_Group], latest: int) -> int:
    """Return the minutes of a span."""
    known = [minute for group in groups for minute in group.minutes if _EARLIEST <= minute <= latest]
    first, last = min(known, default=0), max(known, default=0)
    return next((width for width in _WIDTHS if last // width - first // width < _FEW), _WIDTHS[-1])


def _spending(groups: Mapping[tuple[str, str], _Group], width: int, latest: int) -> Iterator[Spending]:
    for (agent, model), group in groups.items():
        spans = [minute // width for minute in group.minutes]
        tokens, micros = defaultdict[int, int](int), defaultdict[int, int](int)
        for span, used, spent in zip(spans, group.tokens, group.micros, strict=False):
            tokens[span] += used
            micros[span] += spent
        for span, turns in Counter(spans).items():
            if _EARLIEST // width <= span <= latest // width:
                yield Spending(span * width * 60.0, agent, model, turns, tokens[span], micros[span] / 1e6)


def _quantiles(values: Sequence[int], unit: float = 1) -> Quantiles:
    ordered = sorted(values)
    p50, p90 = (ordered[ceil(len(ordered) * share) - 1] / unit if ordered else 0.0 for share in (0.5, 0.9))
    return Quantiles(p50, p90)
