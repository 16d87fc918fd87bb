"""The inspector as an ASGI application."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from turnwright.agent import Agent
from turnwright.context import DepsT
from turnwright.errors import TurnNotFoundError, need_kind
from turnwright.runtime.engine import Engine
from turnwright.store.outbox import NoticeCounts
from turnwright.store.protocol import is_read_only
from turnwright.web import answer_app

from .background_turns import BackgroundTurns
from .http.access import Access, AccessGuard, Token, entry
from .http.refusals import UNREADABLE, failure
from .pages.actions import TurnActions
from .pages.agents import AgentsPage
from .pages.approvals import ApprovalsPage
from .pages.compare import ComparePages
from .pages.edit import EditPages
from .pages.live import Live
from .pages.needs_you import NeedsYouPage
from .pages.new_turn import NewTurnPages
from .pages.outbox import OutboxPage
from .pages.sessions import SessionPages
from .pages.turn_files import TurnExport, TurnFiles
from .pages.turn_list import Lists
from .pages.turn_page import Pages, page
from .views.needs_you import NeedsYou
from .views.summaries import Summaries

if TYPE_CHECKING:
    from .views.run_library import RunLibrary

#: Seconds until turns are summarized that no page needs: the first pages come before.
_LATER: Final = 1.0
_STATIC: Final = Path(__file__).parent / "static"


#: The addresses of one recorded run, whose page looks at its file alone.
_ONE_RUN: Final = re.compile(r"/runs/[0-9]+(/|$)")


class _Counting:
    """Middleware that counts the turns that need somebody, which pages say, and looks for new files of recorded runs.

    If the store cannot be read, the answer is that, and nothing is done: a page would ask again, and wait each time.
    """

    def __init__(self, app: ASGIApp, needs: NeedsYou, runs: "RunLibrary | None") -> None:
        self._app = app
        self._needs = needs
        self._runs = runs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] in ("GET", "POST") and "/static/" not in scope["path"]:
            if self._runs is not None and not _ONE_RUN.search(scope["path"]):
                await self._runs.refresh()
            try:
                await self._needs.refresh()
            except UNREADABLE as error:
                request = Request(scope)
                if "text/event-stream" not in request.headers.get("accept", ""):  # which sends the error, and continues
                    await (await _trouble(request, error))(scope, receive, send)
                    return
        await self._app(scope, receive, send)


class Inspector(Starlette):
    """The inspector of an engine's store: an application to serve, or to mount in your own. See `inspector_app`."""

    def __init__(
        self,
        engine: Engine,
        *,
        access: Access,
        store: str,
        drives: bool,
        agents: Sequence[Agent] = (),
        search: bool = True,
        runs: "RunLibrary | None" = None,
    ) -> None:
        self._background = BackgroundTurns(engine, drives=drives)
        self._summaries = Summaries(engine.store, search=search)
        self._access = access
        #: The runs that were recorded elsewhere, if pages show some.
        self.runs = runs
        self._guard = AccessGuard(super().__call__, access)
        #: Serves the links and callbacks of the engine, whose tokens are all the access that they need.
        self._links_path = "" if engine.setup.links is None else engine.setup.links.path
        self._links = cast("ASGIApp", answer_app(engine)) if self._links_path else None
        self._needs = NeedsYou(engine, self._background, self._summaries, store=store)
        needs = NeedsYouPage(engine, self._background, self._needs)
        pages = Pages(engine, self._background, self._summaries, store=store)
        self._new = NewTurnPages(engine, self._background, agents)
        static = Mount("/static", StaticFiles(directory=_STATIC), name="static")
        super().__init__(
            routes=[
                *(() if runs is None else _run_routes(runs)),
                *Lists(engine, self._summaries).routes,
                *pages.routes,
                *TurnFiles(pages.turns).routes,
                *SessionPages(engine, self._summaries).routes,
                *TurnExport(engine).routes,
                *AgentsPage(self._summaries).routes,
                *needs.routes,
                *ApprovalsPage(engine).routes,
                *OutboxPage(engine).routes,
                *TurnActions(engine, self._background, pages, needs).routes,
                *EditPages(engine, self._background, pages.turns).routes,
                *self._new.routes,
                *ComparePages(engine, pages.turns, self._summaries).routes,
                *Live(engine, pages.rest).routes,
                static,
            ],
            exception_handlers={
                TurnNotFoundError: _missing,
                **dict.fromkeys(UNREADABLE, _trouble),
                HTTPException: _answer_refusal,
                Exception: _answer_failure,
            },
            middleware=[Middleware(_Counting, self._needs, runs)],
            lifespan=_lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if self._links is not None and scope["type"] == "http" and path.startswith(f"{self._links_path}/"):
            await self._links(scope, receive, send)
            return
        await self._guard(scope, receive, send)

    @property
    def needs_count(self) -> int:
        """The number of turns that need somebody."""
        return self._needs.count

    @property
    def notice_counts(self) -> NoticeCounts:
        """The number of notices that wait for their subscribers, and of those that failed."""
        return self._needs.notices

    @property
    def starts(self) -> bool:
        """Whether a page can start turns."""
        return bool(self._new.agents) and not self.read_only

    @property
    def read_only(self) -> bool:
        """Whether nothing can be written to the store. Then pages have no forms that change something."""
        return is_read_only(self._summaries.store)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run turns during the block, if the inspector runs any: for the lifespan of an application that mounts it.

        Turns without summaries are summarized meanwhile. The inspector's own lifespan does the same.
        """
        async with self._background.at_work(), anyio.create_task_group() as group:
            group.start_soon(self._summarize)
            try:
                yield
            finally:
                group.cancel_scope.cancel()

    async def _summarize(self) -> None:
        await anyio.sleep(_LATER)
        await self._summaries.catch_up()

    def entry(self, address: str) -> str:
        """Return the address with the token. `address` is that of the first page, such as `http://127.0.0.1:8321`."""
        return entry(address, self._access)


def inspector_app(
    engine: Engine[DepsT],
    *,
    access: Access | None = None,
    store: str = "",
    drives: bool = False,
    agents: Sequence[Agent[DepsT, object]] = (),
    search: bool = True,
    runs: "RunLibrary | None" = None,
) -> Inspector:
    """Make the inspector of an engine's store.

    `access` is by default a random token (`Token()`); `Inspector.entry` returns the address with it. With `Open()` the
    server that mounts the inspector authorizes users.

    `store` is the store's address without a password, as the commands that the pages show take it. `drives`: turns
    that are answered, forked or resumed on a page run in this process, by the engine; otherwise workers run them. A
    mounted inspector runs turns while `Inspector.running` is entered. Then a page starts turns of the engine's agents,
    and of `agents`. `runs` were recorded elsewhere, and have pages of their own.

    If the engine has `links`, the inspector serves them at their path (`turnwright.web.answer_app`), without a token of
    its own.

    The inspector writes a row of totals for each turn that rests, and an index of its texts, without secrets, for
    searches. Without `search` it writes no texts, and only names and ids are found.

    The engine stays the caller's, who closes it. Raises `ConfigError` for a token that is too short, and without an
    engine.
    """
    need_kind("the first argument", engine, Engine, "an engine, as in inspector_app(Engine(store=...))")
    access = Token() if access is None else access
    # The pages give no dependencies: the engine makes them, or refuses the turn.
    return Inspector(
        cast("Engine", engine),
        access=access,
        store=store,
        drives=drives,
        agents=cast("Sequence[Agent]", agents),
        search=search,
        runs=runs,
    )


def _run_routes(runs: "RunLibrary") -> Sequence[Route]:
    # The readers of all formats are a third of what an inspector loads, and few have recorded runs.
    from .pages.recorded_runs import RunPages  # noqa: PLC0415

    return RunPages(runs).routes


@asynccontextmanager
async def _lifespan(app: Inspector) -> AsyncIterator[None]:
    async with app.running():
        yield


async def _missing(request: Request, error: Exception) -> Response:
    # The error's advice is for callers of the library; the page has its own.
    turn = error.turn if isinstance(error, TurnNotFoundError) else ""
    message = f"This store has no turn {turn!r}. It may have been deleted, or be in another store."
    return page(request, "missing.html", {"title": "Turn not found", "message": message}, 404)


async def _trouble(request: Request, error: Exception) -> Response:
    values = {"title": "The store cannot be read", "message": str(error), "again": request.method == "GET"}
    return page(request, "actions/trouble.html", values, 503)


async def _answer_refusal(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 404:  # noqa: PLR2004 (as everybody knows it)
        message = "The inspector has no page at this address."
        return page(request, "missing.html", {"title": "Page not found", "message": message}, status)
    headers = error.headers if isinstance(error, HTTPException) else None
    response = page(request, "actions/trouble.html", {"title": "Not possible", "message": str(error)}, status)
    response.headers.update(headers or {})
    return response


async def _answer_failure(request: Request, error: Exception) -> Response:  # noqa: ARG001 (a handler takes both)
    return failure()
