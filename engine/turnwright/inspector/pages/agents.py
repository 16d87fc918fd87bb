"""The page of agents and models: how their turns end, what they take, and what they cost over time."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnwright.inspector.views.plot import Plot, plot_of, series_of
from turnwright.inspector.views.summaries import Summaries
from turnwright.inspector.views.turn_query import RANGES, Query
from turnwright.store.summaries import AgentTotals, Spending, TurnFilter
from turnwright_states import Outcome

from .turn_page import page

#: The most rows of the table.
_MOST: Final = 200
#: Spans of time for the usage, in seconds: the first that gives enough columns.
_WIDTHS: Final = (86_400.0, 3_600.0, 60.0)
_ENOUGH: Final = 3
#: No turn began before 2001, which is what a clock says that nobody has set, or a day from now.
_EARLIEST: Final = 1e9
_AHEAD: Final = 86_400.0


def success(one: AgentTotals) -> float:
    """Return the share of turns that gave an answer by themselves or by a synthesis."""
    done = one.outcomes.get(Outcome.FINISHED, 0) + one.outcomes.get(Outcome.SYNTHESIS_DONE, 0)
    return done / one.turns if one.turns else 0.0


#: The columns by which the table is sorted, the largest value first; of the successes, the smallest.
SORTS: Final[Mapping[str, Callable[[AgentTotals], float]]] = {
    "turns": lambda one: one.turns,
    "success": lambda one: -success(one),
    "steps": lambda one: one.steps.p50,
    "tokens": lambda one: one.tokens.p50,
    "cost": lambda one: one.cost.p50,
    "time": lambda one: one.seconds.p50,
    "spent": lambda one: one.total_cost,
    "failures": lambda one: sum(count for _, count in one.failures),
}

#: The sorted tables that have links, which a narrow page has instead of the columns' heads.
VIEWS: Final = {
    "Most turns": "turns",
    "Fail most": "success",
    "Most expensive": "spent",
    "Slowest": "time",
    "Most failed calls": "failures",
}


class AgentsPage:
    """The handler of the page."""

    def __init__(self, summaries: Summaries) -> None:
        self._summaries = summaries

    @property
    def routes(self) -> list[Route]:
        return [Route("/agents", self.get, name="agents")]

    async def get(self, request: Request) -> Response:
        query = Query.of(request.query_params)
        sort = request.query_params.get("sort", "turns")
        by = "model" if request.query_params.get("by") == "model" else "agent"
        current = await self._summaries.current()
        wanted = query.filter(time.time())
        found = await self._summaries.read.agents(wanted)
        found.sort(key=SORTS.get(sort, SORTS["turns"]), reverse=True)
        spent, width = await self._spending(wanted)
        cost, tokens = (_plot(unit, spent, by, width) for unit in ("dollars", "tokens"))
        values = {
            "rows": found[:_MOST],
            "all": len(found),
            "success": success,
            "current": current,
            "query": query,
            "sort": sort if sort in SORTS else "turns",
            "views": VIEWS,
            "by": by,
            "ranges": RANGES,
            "plots": [(name, one) for name, one in (("Cost", cost), ("Tokens", tokens)) if one is not None],
        }
        return page(request, "agents.html", values)

    async def _spending(self, wanted: TurnFilter) -> tuple[Sequence[Spending], float]:
        since, until = max(wanted.since or 0.0, _EARLIEST), time.time() + _AHEAD
        wanted = replace(wanted, since=since, until=min(wanted.until or until, until))
        spent: Sequence[Spending] = ()
        width = _WIDTHS[0]
        for width in _WIDTHS:
            spent = await self._summaries.read.spending(wanted, width=width)
            if len({one.began for one in spent}) >= _ENOUGH:
                break
        return spent, width


def _plot(unit: str, spent: Sequence[Spending], by: str, width: float) -> Plot | None:
    values: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for one in spent:
        values[getattr(one, by) or "no name"].append((one.began, float(one.tokens if unit == "tokens" else one.cost)))
    return plot_of(unit, series_of(values), whole=unit == "tokens", least=width)
