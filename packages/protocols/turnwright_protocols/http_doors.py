"""Several HTTP doors of one server, behind one gate."""

import hmac
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from turnwright.agent import Agent
from turnwright.errors import ConfigError
from turnwright.runtime.engine import Engine

from .http import Bounds, Gate, RefusedRequestError

#: The names of the doors, as a command takes them.
DOORS: Final = ("a2a", "mcp", "responses", "ui")


@contextmanager
def _required_libraries() -> Iterator[None]:
    """Raise `ConfigError`, with the remedy, if the library of a door is not installed."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise ConfigError(f"--http: {missing}") from None


def need_doors(names: Sequence[str]) -> None:
    """Raise `ConfigError` for a name that no door has."""
    for name in names:
        if name not in DOORS:
            raise ConfigError(
                f"--http: there is no protocol {name!r}: use {', '.join(DOORS)}, with commas between them"
            )


@_required_libraries()
def door_routes(engine: Engine, agents: Sequence[Agent], gate: Gate, doors: Sequence[str]) -> list[Route]:
    """Return the routes of the named doors, except `mcp`.

    Raises `ConfigError` for another name, or a library that is not installed.
    """
    need_doors(doors)
    routes: list[Route] = []
    for door in doors:
        if door == "a2a":
            from .a2a import a2a_routes  # noqa: PLC0415 (only the doors that are served)

            routes += a2a_routes(engine, agents, gate, bearer=True)
        elif door == "responses":
            from .responses import responses_routes  # noqa: PLC0415 (as above)

            routes += responses_routes(engine, agents, gate)
        elif door == "ui":
            from .ui import ui_routes  # noqa: PLC0415 (as above)

            routes += ui_routes(engine, agents, gate)
    return routes


@asynccontextmanager
async def open_doors(
    engine: Engine, agents: Sequence[Agent], gate: Gate, doors: Sequence[str]
) -> AsyncIterator[list[BaseRoute]]:
    """Yield the routes of the named doors, which work during the block. Raises what `door_routes` raises."""
    routes: list[BaseRoute] = [*door_routes(engine, agents, gate, [door for door in doors if door != "mcp"])]
    if "mcp" not in doors:
        yield routes
        return
    with _required_libraries():
        from .mcp import mcp_app  # noqa: PLC0415 (only the doors that are served)

    app = mcp_app(engine, agents, gate)
    async with app.router.lifespan_context(app):
        yield [*routes, *app.routes]


def token_gate(token: str, bounds: Bounds | None = None) -> Gate:
    """Return a gate for programs that send the token: `Authorization: Bearer TOKEN`. It refuses others with 401."""

    def authorize(request: Request, _session: str) -> bool:
        scheme, _, sent_token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(sent_token.strip().encode(), token.encode()):
            state = "wrong" if sent_token else "missing"
            why = f"the token is {state}: send the server's, Authorization: Bearer TOKEN"
            raise RefusedRequestError(401, why, headers={"www-authenticate": "Bearer"})
        return True

    return Gate(authorize, bounds or Bounds())


class BesidePages:
    """An application that serves doors, and hands every other request to another application.

    The first part of each door's path belongs to the doors: a program that asks for another route there is refused, and
    gets no page. At the root there are pages too.
    """

    def __init__(self, routes: Sequence[BaseRoute], pages: ASGIApp) -> None:
        self._routes = routes
        self._doors = Router(routes, redirect_slashes=False, default=_refuse_route)
        self._pages = pages
        self._places = {_place(route.path) for route in routes if isinstance(route, Route)} - {""}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        await (self._doors if self._is_door(scope) else self._pages)(scope, receive, send)

    def _is_door(self, scope: Scope) -> bool:
        if scope["type"] != "http":
            return False
        is_route = any(route.matches(scope)[0] is Match.FULL for route in self._routes)
        return is_route or _place(scope["path"].removeprefix(scope.get("root_path", ""))) in self._places


def _place(path: str) -> str:
    """Return the first part of a path."""
    return path.lstrip("/").partition("/")[0]


async def _refuse_route(scope: Scope, receive: Receive, send: Send) -> None:
    error = {"message": "there is no such route on this server", "type": "invalid_request_error"}
    await JSONResponse({"error": error}, 404)(scope, receive, send)
