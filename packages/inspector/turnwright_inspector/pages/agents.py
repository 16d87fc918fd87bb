"""The page of agents and models: how their turns end, what they take, and what they cost over time."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnwright.store.summaries import AgentTotals, Grouping
from turnwright_inspector.views.plot import spent_over_time
from turnwright_inspector.views.summaries import Summaries
from turnwright_inspector.views.turn_query import RANGES, Query
from turnwright_states import Outcome

from .turn_page import page

#: The words of the rows of the table, by the value of the address.
GROUPINGS: Final = {Grouping.BOTH: "agent and model", Grouping.AGENT: "agent", Grouping.MODEL: "model"}
#: The most rows of the table.
_MOST: Final = 200


def success(totals: AgentTotals) -> float:
    """Return the share of turns that gave an answer by themselves or by a synthesis."""
    successes = totals.outcomes.get(Outcome.FINISHED, 0) + totals.outcomes.get(Outcome.SYNTHESIS_DONE, 0)
    return successes / totals.turns if totals.turns else 0.0


#: The columns by which the table is sorted, the largest value first; of the successes, the smallest.
SORTS: Final[Mapping[str, Callable[[AgentTotals], float]]] = {
    "turns": lambda totals: totals.turns,
    "success": lambda totals: -success(totals),
    "steps": lambda totals: totals.steps.p50,
    "tokens": lambda totals: totals.tokens.p50,
    "cost": lambda totals: totals.cost.p50,
    "time": lambda totals: totals.seconds.p50,
    "spent": lambda totals: totals.total_cost,
    "failures": lambda totals: sum(count for _, count in totals.failures),
}

#: The sorted tables that have links, which a narrow page has instead of the columns' heads.
VIEWS: Final = {
    "Most turns": "turns",
    "Fail most": "success",
    "Most expensive": "spent",
    "Slowest": "time",
    "Most failed calls": "failures",
}


def grouping_of(fields: Mapping[str, str]) -> Grouping:
    """Return what has a row, by the address."""
    by = fields.get("by", "")
    return Grouping(by) if by in GROUPINGS else Grouping.BOTH


def plotted_by(by: Grouping) -> str:
    """Return whose cost and tokens are plotted: those of each `agent` or each `model`."""
    return "model" if by is Grouping.MODEL else "agent"


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
        by = grouping_of(request.query_params)
        current = await self._summaries.current()
        totals = await self._summaries.read.agents(query.filter(time.time()), by=by)
        rows = sorted(totals.agents, key=SORTS.get(sort, SORTS["turns"]), reverse=True)
        values = {
            "rows": rows[:_MOST],
            "all": len(rows),
            "success": success,
            "current": current,
            "query": query,
            "sort": sort if sort in SORTS else "turns",
            "views": VIEWS,
            "by": by,
            "groupings": GROUPINGS,
            "ranges": RANGES,
            "plotted_by": plotted_by(by),
            "plots": spent_over_time(totals.spending, plotted_by(by), totals.width),
        }
        return page(request, "agents.html", values)
