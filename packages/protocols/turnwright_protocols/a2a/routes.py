"""The HTTP routes of A2A: the agent card, JSON-RPC and REST, by the dispatchers of the official library."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, Final, cast

from a2a.server.context import ServerCallContext
from a2a.server.routes import (
    ServerCallContextBuilder,
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.utils.constants import A2A_JSON_MEDIA_TYPE, AGENT_CARD_WELL_KNOWN_PATH, PROTOCOL_VERSION_1_0
from sse_starlette.event import ensure_bytes
from sse_starlette.sse import EventSourceResponse
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from turnwright._base.frozen import strict_json
from turnwright.agent import Agent
from turnwright.context import DepsT
from turnwright.runtime.engine import Engine
from turnwright_protocols.conversations import agents_by_slug
from turnwright_protocols.http import Endpoint, EventStream, Gate, RefusedRequestError, refuse_call, replay

from .card import agent_card
from .request_handler import TaskHandler

_MEDIA_TYPES: Final = ("application/json", A2A_JSON_MEDIA_TYPE)
_CACHE: Final = "private, max-age=300"

Handle = Callable[[Request], Awaitable[Response]]


def a2a_routes(
    engine: Engine[DepsT],
    agents: Sequence[Agent[DepsT, object]],
    gate: Gate,
    *,
    path: str = "",
    address: str = "",
    bearer: bool = False,
) -> list[Route]:
    """Return the routes of A2A 1.0 for these agents, for an application of Starlette or FastAPI.

    The first agent answers at `path`, each of them at `path/a2a/{name}`: JSON-RPC, REST, and the card in
    `.well-known/agent-card.json`. Cards are public, and have `address`, by default that of the request; with `bearer`
    they say that requests need a bearer token. The context of a task is a session, which the gate authorizes. Raises
    `ConfigError` without agents, and for two agents of one address.
    """
    # No request gives dependencies: the engine makes them, or refuses the turn.
    plain, by_name = cast("Engine", engine), agents_by_slug(cast("Sequence[Agent]", agents), "address")
    named_places = [(f"{path}/a2a/{name}", agent) for name, agent in by_name.items()]
    first = next(iter(by_name.values()))
    routes: list[Route] = []
    for place, agent in [(path, first), *named_places]:
        handler = TaskHandler(plain, agent, gate)
        bindings = (
            (create_jsonrpc_routes(handler, place or "/", _Contexts(), enable_v0_3_compat=True), refuse_call),
            (create_rest_routes(handler, _Contexts(), path_prefix=place), _refuse),
        )
        card = Endpoint(gate, _card(agent, place, address, bearer=bearer), _refuse)
        routes.append(Route(f"{place}{AGENT_CARD_WELL_KNOWN_PATH}", card, methods=["GET"]))
        routes += [
            Route(route.path, Endpoint(gate, _within(gate, route.endpoint), refuse), methods=[*(route.methods or ())])
            for library_routes, refuse in bindings
            for route in library_routes
            if isinstance(route, Route)  # without those of tenants, which match every path
        ]
    return routes


class _Contexts(ServerCallContextBuilder):
    """Gives the handler the HTTP request."""

    def build(self, request: Request) -> ServerCallContext:
        """Return the context of a call."""
        return ServerCallContext(state={"headers": dict(request.headers), "request": request})


def _card(agent: Agent, place: str, address: str, *, bearer: bool) -> Handle:
    async def handle(request: Request) -> Response:
        base = address or str(request.base_url)
        card = agent_card(agent, f"{base.rstrip('/')}{place}", bearer=bearer)
        (route,) = create_agent_card_routes(card, cache_control=_CACHE)
        response: Response = await route.endpoint(request)
        return response if response.status_code == HTTPStatus.NOT_MODIFIED else _hide_old_interfaces(response)

    return handle


def _hide_old_interfaces(response: Response) -> Response:
    """Return a card without interfaces of 0.3: its clients read only `url`, which the library adds for them."""
    card = json.loads(bytes(response.body))
    interfaces = card["supportedInterfaces"]
    card["supportedInterfaces"] = [place for place in interfaces if place["protocolVersion"] == PROTOCOL_VERSION_1_0]
    return JSONResponse(card, headers={name: response.headers[name] for name in ("etag", "cache-control")})


def _within(gate: Gate, endpoint: Callable[..., Awaitable[Any]]) -> Handle:
    """Return a handler of the library that reads and streams within the bounds of the gate."""

    async def handle(request: Request) -> Response:
        is_empty = request.method != "POST" or request.headers.get("content-length") == "0"
        content = b"" if is_empty else await gate.read_body(request, _MEDIA_TYPES)
        _need_readable(content)
        inner = Request(request.scope, replay(content, request.receive))
        response: Response = await endpoint(inner)
        refusal = getattr(inner.state, "refusal", None)
        if isinstance(refusal, RefusedRequestError):
            raise refusal
        if isinstance(response, EventSourceResponse):
            return EventStream(_lines(response), gate.bounds)
        return response

    return handle


def _need_readable(content: bytes) -> None:
    """Raise `RefusedRequestError` for content that the library would take for a fault of the server."""
    try:
        strict_json(content or b"{}")
    except json.JSONDecodeError:
        pass  # the library answers in the words of the protocol
    except (RecursionError, ValueError):
        raise RefusedRequestError(400, "the body is not valid JSON") from None


async def _lines(response: EventSourceResponse) -> AsyncGenerator[str, None]:
    async with aclosing(cast("AsyncGenerator[object, None]", response.body_iterator)) as events:
        async for event in events:
            yield ensure_bytes(event, "\n").decode()


def _refuse(refusal: RefusedRequestError) -> Response:
    return JSONResponse({"error": {"code": refusal.status, "message": refusal.why}}, refusal.status)
