"""The pages of runs that were recorded elsewhere."""

from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlencode

import anyio.to_thread
import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Match, Route
from starlette.types import Scope

from turnwright.privacy.redaction import redactor
from turnwright_audit.trajectories.atif import Trajectory
from turnwright_inspector.views.comparison import Comparison, compare
from turnwright_inspector.views.recorded_run import recorded_run, run_timeline
from turnwright_inspector.views.run_library import RunEntry, RunLibrary
from turnwright_inspector.views.run_query import RESULTS, RunQuery, list_runs, others_of
from turnwright_inspector.views.run_side import run_side
from turnwright_inspector.views.run_statistics import GROUP_COLUMNS, RunGroup, groups_of, run_statistics
from turnwright_inspector.views.statistics import Statistics
from turnwright_inspector.views.turn_query import whole_number

from .agents import GROUPINGS, grouping_of
from .turn_page import page

#: Problems that are listed.
_PROBLEMS: Final = 20
#: The most rows of the table of agents.
_GROUPS: Final = 200
#: The most characters of a part of the time.
_LONGEST: Final = 50
#: The lists that one click shows: their names, and the fields of their addresses.
VIEWS: Final = {
    "All": {},
    "Failed": {"result": "failed"},
    "Stopped or cut": {"result": "stopped or cut"},
    "Loops": {"result": "with a loop", "sort": "loops"},
    "Lost results": {"result": "with a lost result", "sort": "lost"},
    "Most expensive": {"sort": "cost"},
    "Longest": {"sort": "steps"},
}
#: The sorted tables of agents that have links, which a narrow page has instead of the columns' heads.
GROUP_VIEWS: Final = {
    "Most runs": "runs",
    "Fail most": "success",
    "Stopped most": "finished",
    "Most expensive": "cost",
    "Most failed calls": "errors",
}


class _FirstPage(Route):
    """The first page of an inspector that has recorded runs and no turns."""

    def __init__(self, path: str, endpoint: Callable[[Request], Awaitable[Response]], library: RunLibrary) -> None:
        super().__init__(path, endpoint)
        self._library = library

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match nothing where there are turns."""
        return (Match.NONE, {}) if self._library.turns else super().matches(scope)


class RunPages:
    """The handlers of the list of runs, and of each run."""

    def __init__(self, library: RunLibrary) -> None:
        self._library = library

    @property
    def routes(self) -> list[Route]:
        return [
            _FirstPage("/", self.first, self._library),
            Route("/runs", self.runs, name="runs"),
            Route("/runs/agents", self.agents, name="run-agents"),
            Route("/runs/statistics", self.statistics, name="run-statistics"),
            Route("/runs/compare", self.compare, name="run-compare"),
            Route("/runs/{number}", self.run, name="run"),
            Route("/runs/{number}/atif.json", self.file, name="run-file"),
        ]

    async def first(self, request: Request) -> Response:
        """Lead from the list of turns, which has none, to the runs."""
        return RedirectResponse(request.url_for("runs").path)

    async def runs(self, request: Request) -> Response:
        """List the runs of a query, page by page."""
        library, query = self._library, RunQuery.of(request.query_params)
        start = whole_number(request.query_params.get("start", "")) or 0
        listing = await anyio.to_thread.run_sync(list_runs, library, query, start)
        values = {
            "query": query,
            "listing": listing,
            "results": tuple(RESULTS),
            "views": VIEWS,
            "reading": library.reading,
            "problems": library.problems[:_PROBLEMS],
            "more_problems": max(len(library.problems) - _PROBLEMS, 0),
        }
        return page(request, "runs.html", values)

    async def agents(self, request: Request) -> Response:
        """Show the runs of a query by agent and model, or `by` one of them, sorted by the column `sort`."""
        library, query, sort = self._library, RunQuery.of(request.query_params), request.query_params.get("sort", "")
        by = grouping_of(request.query_params)

        def group_runs() -> list[RunGroup]:
            return groups_of(query.runs(library, library.entries), sort, by)

        rows = await anyio.to_thread.run_sync(group_runs)
        values = {
            "query": query,
            "sort": sort if sort in GROUP_COLUMNS else "runs",
            "views": GROUP_VIEWS,
            "by": by,
            "groupings": GROUPINGS,
            "rows": rows[:_GROUPS],
            "all": len(rows),
            "reading": library.reading,
        }
        return page(request, "run_agents.html", values)

    async def statistics(self, request: Request) -> Response:
        """Show the statistics of the runs of a query, with cost and tokens over time by `by`: agent or model."""
        library, query = self._library, RunQuery.of(request.query_params)
        by = "model" if request.query_params.get("by") == "model" else "agent"

        def count_runs() -> Statistics:
            return run_statistics(query.runs(library, library.entries), by)

        statistics = await anyio.to_thread.run_sync(count_runs)
        values = {"statistics": statistics, "of": "run", "query": query, "by": by, "reading": library.reading}
        return page(request, "statistics.html", values)

    async def run(self, request: Request) -> Response:
        """Show a run, or with `inner` the run of a sub-agent in it, as a transcript or, with `tab`, as a timeline.

        Raises `HTTPException` (404).
        """
        entry, whole = await self._find_run(request.path_params["number"])
        fields = request.query_params
        inner, step = (whole_number(fields.get(name, "")) or 0 for name in ("inner", "step"))
        until, zoom, call = (
            whole_number(fields.get("until", "")),
            fields.get("zoom", "")[:_LONGEST],
            fields.get("call", ""),
        )
        path = request.url_for("run", number=str(entry.number)).path
        shows_times = fields.get("tab") == "timeline"
        is_stale = self._library.is_stale(entry)

        def link(**changes: object) -> str:
            query = {
                "inner": inner or None,
                "tab": "timeline" if shows_times else None,
                "step": step or None,
                "zoom": zoom or None,
                **changes,
            }
            if query["tab"] != "timeline":
                query |= {"tab": None, "zoom": None}
            fields_of_link = {name: value for name, value in query.items() if value is not None}
            page = f"{path}?{urlencode(fields_of_link)}" if fields_of_link else path
            return f"{page}#{fields_of_link['call']}" if "call" in fields_of_link else page

        def inner_link(number: str, **query: object) -> str:
            return link(**{"inner": number, "tab": None, "step": None, **query})

        def make_values() -> dict[str, object]:
            run_view = recorded_run(whole, entry.measures, inner=inner, step=step, until=None if shows_times else until)
            chosen_step = next((candidate for candidate in run_view.steps if candidate.key == str(step)), None)
            values: dict[str, object] = {"recorded": run_view, "step": chosen_step, "view": None, "stale": is_stale}
            if shows_times and run_view.seconds:
                values["view"] = run_timeline(whole, run_view, zoom=zoom, step=step, until=until)
            return values

        values = await anyio.to_thread.run_sync(make_values)
        values |= {"entry": entry, "number": inner, "opened": call, "link": link, "inner": inner_link, "whole": "run"}
        return page(request, "run.html", values)

    async def compare(self, request: Request) -> Response:
        """Compare the runs with the numbers `left` and `right`. With one of them, others are offered.

        `pair` is the number of the pair of steps to show. Raises `HTTPException` (404).
        """
        numbers = {name: request.query_params.get(name, "").strip() for name in ("left", "right")}
        runs = {name: await self._find_run(number) for name, number in numbers.items() if number}
        values = {"noun": "run", "path": "run-compare", "forked_at": None, **numbers}
        if len(runs) < len(numbers):
            similar_runs = [
                similar for entry, _ in runs.values() for similar in others_of(entry, self._library.entries)
            ]
            return page(request, "compare.html", {**values, "found": None, "offered": similar_runs})
        pair = whole_number(request.query_params.get("pair", ""))

        def compare_sides() -> Comparison:
            return compare(run_side(*runs["left"]), run_side(*runs["right"]), pair)

        return page(request, "compare.html", {**values, "found": await anyio.to_thread.run_sync(compare_sides)})

    async def file(self, request: Request) -> Response:
        """Return a run in the Agent Trajectory Interchange Format, without secrets."""
        entry, whole = await self._find_run(request.path_params["number"])
        hidden_run = redactor().hide_in(msgspec.to_builtins(whole))
        headers = {"Content-Disposition": f'attachment; filename="run_{entry.number}.json"'}
        return Response(msgspec.json.encode(hidden_run), media_type="application/json", headers=headers)

    async def _find_run(self, number: str) -> tuple[RunEntry, Trajectory]:
        place = whole_number(number) or 0
        await self._library.refresh(place)
        run = await anyio.to_thread.run_sync(self._library.run, place)
        if run is None:
            raise HTTPException(404)
        return run
