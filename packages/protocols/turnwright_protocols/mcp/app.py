"""Agents as MCP tools over HTTP, behind the gate of all HTTP doors."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from turnwright.agent import Agent
from turnwright.context import DepsT
from turnwright.runtime.engine import Engine
from turnwright_protocols.http import Endpoint, Gate, RefusedRequestError, refuse_call, replay

from .server import mcp_server

#: The conversation that the gate is asked for before a request is read. Calls ask for their own.
_CONVERSATION: Final = "mcp"
#: The most sessions of clients of earlier protocols, which take some memory until they are idle for half an hour.
_MOST_SESSIONS: Final = 1000


def mcp_app(
    engine: Engine[DepsT], agents: Sequence[Agent[DepsT, object]], gate: Gate, *, path: str = "/mcp"
) -> Starlette:
    """Return an application that serves agents as MCP tools over HTTP at `path`.

    The gate authorizes each request for the conversation `mcp`, and each call for the session that it names, or a new
    one. The application needs its lifespan: one that mounts it must run it too.
    """
    # No request gives dependencies: the engine makes them, or refuses the turn.
    server = mcp_server(cast("Engine", engine), cast("Sequence[Agent]", agents), gate)

    async def handle(request: Request) -> Response:
        user = await gate.identify(request, _CONVERSATION)
        content = None
        if request.method == "POST":
            content = await gate.read_body(request, ("application/json",))
            _need_id(content)
        return _Exchange(manager, gate, user, content)

    route = Route(path, Endpoint(gate, handle, refuse_call), methods=["GET", "POST", "DELETE"])
    manager = StreamableHTTPSessionManager(
        server, max_sessions=_MOST_SESSIONS, max_request_body_size=gate.bounds.body_bytes
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    return Starlette(routes=[route], lifespan=lifespan)


def _need_id(content: bytes) -> None:
    """Raise `RefusedRequestError` for a request whose id is none: the library would answer it as a notification."""
    try:
        message = json.loads(content)
    except (ValueError, RecursionError):
        return  # the library answers in the words of the protocol
    identifier = message.get("id", "") if isinstance(message, dict) and "method" in message else ""
    if not isinstance(identifier, str | int) or isinstance(identifier, bool):
        raise RefusedRequestError(400, "id: must be a text or an integer")


class _Exchange(Response):
    """The answer of the library to a request whose body was read, within the bounds of the gate."""

    def __init__(self, manager: StreamableHTTPSessionManager, gate: Gate, user: str, content: bytes | None) -> None:
        super().__init__()
        self._manager = manager
        self._bounds = gate.bounds
        self._user = user
        self._content = content

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request."""
        headers = [(name, value.strip()) for name, value in scope["headers"]]  # uvicorn leaves spaces at the end
        inner = {**scope, "headers": headers}
        if self._user:  # a session of the library belongs to the user who opened it
            inner["user"] = AuthenticatedUser(AccessToken(token="", client_id=self._user, scopes=[]))
        with anyio.move_on_after(self._bounds.stream_seconds):
            again = receive if self._content is None else replay(self._content, receive)
            await self._manager.handle_request(inner, again, self._send_within(send))

    def _send_within(self, send: Send) -> Send:
        async def write(message: Message) -> None:
            with anyio.fail_after(self._bounds.send_seconds):
                await send(message)

        return write
