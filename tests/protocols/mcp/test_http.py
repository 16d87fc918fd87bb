"""Agents as MCP tools over HTTP: the gate, users, hostile clients."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette
from starlette.requests import Request
from tests.protocols import asgi
from tests.protocols.subject import AGENT

from turnwright import Engine
from turnwright_protocols.mcp import Bounds, Gate, mcp_app

pytestmark = pytest.mark.anyio

MODERN = "2026-07-28"
HEADERS = {"accept": "application/json, text/event-stream"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}


NO_IDS: tuple[Any, ...] = (None, True, 1.5, [])


def authorize(request: Request, _conversation: str) -> str:
    return request.headers.get("x-user", "")


@asynccontextmanager
async def serving(engine: Engine, bounds: Bounds | None = None) -> AsyncIterator[Starlette]:
    """Run an application with its lifespan."""
    app = mcp_app(engine, [AGENT], Gate(authorize, bounds or Bounds()))
    async with app.router.lifespan_context(app):
        yield app


@asynccontextmanager
async def client_of(app: Starlette, user: str, mode: Any = MODERN) -> AsyncIterator[Client]:  # noqa: ANN401 (a literal)
    """A client of the SDK, whose person approves all."""

    async def approve(_: object, __: object) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"answer": True})

    transport = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), headers={"x-user": user})
    async with (
        transport,
        Client(
            streamable_http_client("http://test/mcp", http_client=transport),
            mode=mode,
            elicitation_callback=cast("Any", approve),
        ) as client,
    ):
        yield client


def text_of(result: object) -> str:
    assert isinstance(result, types.CallToolResult)
    return "".join(part.text for part in result.content if isinstance(part, types.TextContent))


async def test_users_have_sessions_of_their_own(engine: Engine) -> None:
    async with serving(engine) as app:
        for user in ("ann", "bob"):
            async with client_of(app, user) as client:
                assert text_of(await client.call_tool("subject", {"prompt": "recall", "session": "s"})) == "You said: "
                assert text_of(await client.call_tool("subject", {"prompt": "approve"})) == "Result: paid 5"
    assert {row.session for row in await engine.turns()} == {"~ann/mcp/s", "~bob/mcp/s", None}


async def test_paused_call_of_another_user_is_out_of_reach(engine: Engine) -> None:
    async with serving(engine) as app:
        async with client_of(app, "ann") as client:
            await client.list_tools()
            question = await client.session.call_tool("subject", {"prompt": "approve"}, allow_input_required=True)
        assert isinstance(question, types.InputRequiredResult)
        answers: Any = {"approval-1": types.ElicitResult(action="accept", content={"answer": True})}
        async with client_of(app, "bob") as client:
            await client.list_tools()
            with pytest.raises(MCPError, match="not one of this server"):
                await client.session.call_tool(
                    "subject", {"prompt": "x"}, input_responses=answers, request_state=question.request_state
                )
    assert (await engine.turns())[0].status.outcome is None


async def test_session_of_the_protocol_belongs_to_its_user(engine: Engine) -> None:
    async with serving(engine) as app:
        ann, bob = asgi.Client(app, {**HEADERS, "x-user": "ann"}), asgi.Client(app, {**HEADERS, "x-user": "bob"})
        opened = await ann.send("POST", "/mcp", INITIALIZE)
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        call = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert (await bob.send("POST", "/mcp", call, headers=session)).status == 404
        assert (await bob.send("DELETE", "/mcp", headers=session)).status == 404
        assert "subject" in (await ann.send("POST", "/mcp", call, headers=session)).text


async def test_hostile_request_is_refused_and_starts_nothing(engine: Engine) -> None:
    async with serving(engine, Bounds(body_bytes=300, body_seconds=0.05)) as app:
        ann, stranger = asgi.Client(app, {**HEADERS, "x-user": "ann"}), asgi.Client(app, HEADERS)
        replies = [
            await stranger.send("POST", "/mcp", INITIALIZE),
            await stranger.send("GET", "/mcp"),
            await ann.send("POST", "/mcp", {**INITIALIZE, "padding": "x" * 300}),
            await ann.send("POST", "/mcp", INITIALIZE, headers={"content-type": "text/plain"}),
            await ann.send("POST", "/mcp", pieces=[b"{"], stalls=True),
            await ann.send("POST", "/mcp", pieces=[b"{}"]),
            await ann.send("POST", "/mcp", INITIALIZE, headers={"mcp-session-id": "forged"}),
            await ann.send("PUT", "/mcp", INITIALIZE),
            *[await ann.send("POST", "/mcp", {**INITIALIZE, "id": name}) for name in NO_IDS],
        ]
    assert [reply.status for reply in replies] == [403, 403, 413, 415, 408, 400, 404, 405, *[400] * 4]
    assert await engine.turns() == []


async def test_requests_above_the_bound_are_refused(engine: Engine) -> None:
    async with serving(engine, Bounds(requests=0)) as app:
        reply = await asgi.Client(app, {**HEADERS, "x-user": "ann"}).send("POST", "/mcp", INITIALIZE)
    assert (reply.status, reply.json()["error"]["code"]) == (503, -32603)
