"""The page of a turn."""

from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from turnwright.runtime.engine import Engine
from turnwright_inspector.background_turns import BackgroundTurns
from turnwright_inspector.http.render import render
from turnwright_inspector.http.urls import address
from turnwright_inspector.tabs import TABS, Tab
from turnwright_inspector.views.available_actions import PostedItem, advice_of, available_actions
from turnwright_inspector.views.needs_you import NO_NOTICES
from turnwright_inspector.views.steps import step_summaries, sub_agents
from turnwright_inspector.views.stop_reason import kind_of_question, stop_of
from turnwright_inspector.views.summaries import Summaries
from turnwright_inspector.views.turn_query import whole_number
from turnwright_inspector.views.turn_record import TabContext, Turns, history_of

_FIRST_TAB: Final = "transcript"
#: The most characters of a part of the time, and digits of a place in a journal.
_LONGEST_ZOOM: Final = 50
#: The most pages that are rendered at once, because tools need threads too.
_AT_ONCE: Final = 8
#: How much longer than it took to make a page the next one is waited for, at most so many seconds; and of how many
#: turns that is known.
_SHARE: Final = 3.0
_LONGEST_REST: Final = 10.0
_REMEMBERED: Final = 500


class Pages:
    """The handlers of a turn's page. `store` is the store's address for commands, without a password."""

    def __init__(self, engine: Engine, background: BackgroundTurns, summaries: Summaries, *, store: str) -> None:
        self._engine = engine
        self._background = background
        self._summaries = summaries
        self._store = store
        #: The turns that were read last.
        self.turns = Turns(engine.store)
        #: The last few turns' times to render a page.
        self._took: OrderedDict[str, float] = OrderedDict()
        self._making = anyio.CapacityLimiter(_AT_ONCE)

    @property
    def routes(self) -> list[Route]:
        return [Route("/turns/{turn}", self.turn, name="turn")]

    def rest(self, turn: str) -> float:
        """Return the least seconds between two pages of a running turn, which limits their share of time."""
        return min(self._took.get(turn, 0.0) * _SHARE, _LONGEST_REST)

    async def turn(self, request: Request) -> Response:
        return await self.show(request, request.path_params["turn"])

    async def show(
        self, request: Request, name: str, *, posted_item: PostedItem | None = None, status: int = 200
    ) -> Response:
        """Return the page of a turn, with the error of a failed action, if any.

        Raises `TurnNotFoundError` and `StoreError`.
        """
        start = anyio.current_time()
        fields, path = _read_question(request, name)
        at, until = whole_number(fields.get("at", "")), whole_number(fields.get("until", ""))
        turn = await self.turns.read(name, at)
        raw, call = fields.get("raw") == "1", fields.get("call", "")
        step = turn.step(fields.get("step")) or turn.step_of(call)
        tab = TABS.get(fields.get("tab", ""), TABS[_FIRST_TAB])
        history = await history_of(self._engine.store, turn) if tab.history else ()
        full, state = fields.get("chart") == "full", fields.get("state", "")
        below = await sub_agents(self._engine.store, turn.children) if tab.below else {}
        zoom = fields.get("zoom", "")
        tab_context = TabContext(self._engine, turn, step, self._store, history, until, full, state, zoom, below)
        upto = turn.at if step is None else step.last
        values = {
            "turn": turn,
            "step": step,
            "tab": tab,
            "tabs": [tab for tab in TABS.values() if tab.applies(turn)],
            "asks": kind_of_question,
            "link": _Links(
                path,
                step=getattr(step, "key", None),
                tab=tab.name,
                at=turn.at if turn.cut else None,
                chart="full" if tab_context.full_chart else None,
                raw=1 if raw else None,
                zoom=zoom[:_LONGEST_ZOOM] or None,
            ),
            "inner": partial(_inner, request),
            "offer": await available_actions(self._engine, self._background, turn, upto, store=self._store),
            # A turn that runs is shown again and again.
            "forks": () if turn.driven else await self._summaries.forks_of(name),
            "advice": advice_of(turn, self._store),
            "said": posted_item,
            "raw": raw,
            "opened": call,
            "files": f"{path}/files" if path else "",
        }
        response = await anyio.to_thread.run_sync(
            partial(_make_page, request, tab, tab_context, values, status), limiter=self._making
        )
        self._took[name] = anyio.current_time() - start
        self._took.move_to_end(name)
        while len(self._took) > _REMEMBERED:
            self._took.popitem(last=False)
        return response


def _make_page(
    request: Request, tab: Tab, tab_context: TabContext, values: Mapping[str, object], status: int
) -> Response:
    """The page of a turn, in a thread of its own: a long journal takes seconds, and turns are driven meanwhile."""
    own_values = {
        "view": tab.view(tab_context),
        "stop": stop_of(tab_context),
        "step_summaries": step_summaries(tab_context.turn.steps),
    }
    return page(request, "turn.html", {**values, **own_values}, status)


def _inner(request: Request, turn: str, **query: str) -> str:
    """Return the address of a sub-agent's turn; empty where no address can have its id."""
    page = address(request, "turn", turn=turn)
    return f"{page}?{urlencode(query)}" if page and query else page


def _read_question(request: Request, name: str) -> tuple[Mapping[str, str], str]:
    """Return the query of a turn's page, and its path. A form on that page keeps the query."""
    path = address(request, "turn", turn=name)
    if request.method != "POST":
        return request.query_params, path
    return dict(parse_qsl(query_before(request, path))), path


def query_before(request: Request, path: str) -> str:
    """Return the query of a form's page, if that page has this path; else empty."""
    try:
        before = urlsplit(request.headers.get("hx-current-url") or request.headers.get("referer") or "")
    except ValueError:  # no browser sends such an address
        return ""
    return before.query if before.path == path else ""


class _Links:
    """The addresses of this page with another step, tab or place, and with other views of the chart and of texts."""

    def __init__(self, path: str, **now: str | int | None) -> None:
        self._path = path
        self._now: dict[str, object] = dict(now)

    def __call__(self, **changes: object) -> str:
        query = {name: value for name, value in (self._now | changes).items() if value is not None}
        return f"{self._path}?{urlencode(query)}" if query else self._path


def page(request: Request, template: str, values: Mapping[str, object], status: int = 200) -> HTMLResponse:
    """Return a page: the template with `values` and the values of every page."""
    common = {
        "url": partial(address, request),
        "csrf": "",
        "starts": getattr(request.app, "starts", False),
        "runs": getattr(request.app, "runs", None) is not None,
    }
    common["read_only"] = getattr(request.app, "read_only", False)
    common["outbox"] = getattr(request.app, "notice_counts", NO_NOTICES)
    common["needs"] = getattr(request.app, "needs_count", 0)
    with suppress(KeyError):
        common["csrf"] = request.scope["state"]["csrf"]
    return HTMLResponse(render(template, common | dict(values)), status)
