"""The gate of HTTP doors: half requests, floods, bounds, and clients that do not read."""

import json
import logging
from collections.abc import AsyncGenerator, Callable

import anyio
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Message

from turnwright import Engine
from turnwright.agent import Agent
from turnwright.errors import ConfigError, InvalidAnswerError, StoreError, TurnNotFoundError
from turnwright.model import ScriptedModel
from turnwright_protocols.a2a import a2a_routes
from turnwright_protocols.http import (
    Access,
    Bounds,
    Endpoint,
    EventStream,
    Gate,
    RefusedRequestError,
    owned_session,
    parse_object,
)
from turnwright_protocols.http_doors import door_routes
from turnwright_protocols.mcp import mcp_app
from turnwright_protocols.responses import responses_routes
from turnwright_protocols.ui import ui_routes

from .a2a.client import VERSION, message
from .asgi import Client, Reply
from .subject import AGENT, make_engine

pytestmark = pytest.mark.anyio


def allow(_request: Request, _session: str) -> bool:
    return True


def refuse(refusal: RefusedRequestError) -> Response:
    return PlainTextResponse(refusal.why, refusal.status)


def client_of(bounds: Bounds | None = None) -> Client:
    """Return a client of a door that returns the body it was sent."""
    gate = Gate(allow, bounds or Bounds())

    async def echo(request: Request) -> Response:
        return JSONResponse(await gate.read_json(request))

    return Client(Endpoint(gate, echo, refuse))


async def send(client: Client, content: bytes, **headers: str) -> Reply:
    return await client.send(
        "POST", "/", pieces=[content], headers={k.replace("_", "-"): v for k, v in headers.items()}
    )


async def test_object_is_read_in_pieces() -> None:
    reply = await client_of().send("POST", "/", pieces=[b'{"a"', b": 1}"])
    assert reply.json() == {"a": 1}


@pytest.mark.parametrize(
    "content",
    [
        *(
            b"",
            b"{",
            b"[]",
            b'"text"',
            b"null",
            b"{'a': 1}",
            b'{"a": NaN}',
            b'{"a": Infinity}',
            b"\xff\xfe",
            b'{"a": 1} x',
        ),
        b'{"a": ' * 100_000,
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        rb'{"a": "\ud800"}',
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
    ids=range(14),
)
async def test_body_that_is_no_json_object_is_refused(content: bytes) -> None:
    assert (await send(client_of(), content)).status == 400


async def test_body_may_begin_with_a_byte_order_mark() -> None:
    assert (await send(client_of(), b"\xef\xbb\xbf{}")).status == 200


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"a": {"b": 1, "b": 2}}', "the key 'b' occurs twice"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": "\\ud800"}', "a text has half a surrogate pair"),
        (b'{"a": "\xff"}', "it is not UTF-8"),
        (b'{"a": -1e999}', "a number is too large"),
        (b'{"a": %s}' % (b"9" * 4301), "a number has 4,301 digits; the limit: 4,300"),
        (b"{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ],
)
async def test_refusal_names_the_fault_of_the_json(content: bytes, why: str) -> None:
    assert (await send(client_of(), content)).text == f"the body is not valid JSON: {why}"


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "xjson"]
)
async def test_body_of_another_type_is_refused(kind: str) -> None:
    """A form of another site can send these types without asking the browser's user."""
    assert (await send(client_of(), b"{}", content_type=kind)).status == 415


async def test_type_of_the_body_may_have_parameters() -> None:
    assert (await send(client_of(), b"{}", content_type="Application/JSON; charset=utf-8")).status == 200


async def test_body_above_the_bound_is_refused() -> None:
    client = client_of(Bounds(body_bytes=10))
    assert (await send(client, b"{}" + b" " * 8)).status == 200
    assert (await send(client, b"{}" + b" " * 9)).status == 413
    assert (await send(client, b"{}", content_length="11")).status == 413
    assert (await send(client, b"{}", content_length="many")).status == 400
    endless = await client.send("POST", "/", pieces=[b" " * 6] * 1000, stalls=True)
    assert endless.status == 413


async def test_body_above_the_bound_is_read_before_its_refusal() -> None:
    """Otherwise a client that sends first and reads later gets a reset."""
    rest: list[Message] = [
        {"type": "http.request", "body": b" " * 6, "more_body": more} for more in (True,) * 4 + (False,)
    ]
    responses: list[Message] = []

    async def receive() -> Message:
        return rest.pop(0)

    async def note(message: Message) -> None:
        assert rest == []
        responses.append(message)

    headers = [(b"content-type", b"application/json"), (b"content-length", b"30")]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
    await client_of(Bounds(body_bytes=10)).app(scope, receive, note)
    assert responses[0]["status"] == 413


async def test_half_request_is_refused() -> None:
    client = client_of(Bounds(body_seconds=0.05))
    slow = await client.send("POST", "/", pieces=[b'{"a": '], stalls=True)
    assert (slow.status, slow.text) == (408, "the body did not arrive within 0.05 s")

    async def leave(_: Request) -> Response:
        raise AssertionError

    messages: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    responses: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0)

    async def note(message: Message) -> None:
        responses.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-type", b"application/json")]}
    await client.app(scope, receive, note)
    assert responses[0]["status"] == 400


async def test_requests_above_the_bound_are_refused_until_one_ends() -> None:
    gate, released = Gate(allow, Bounds(requests=2)), anyio.Event()

    async def wait(_: Request) -> Response:
        await released.wait()
        return PlainTextResponse("served")

    client = Client(Endpoint(gate, wait, refuse))
    replies: list[Reply] = []

    async def ask() -> None:
        replies.append(await client.send("GET", "/"))

    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        assert (await client.send("GET", "/")).status == 503
        released.set()
    assert [reply.status for reply in replies] == [200, 200]
    assert (await client.send("GET", "/")).status == 200


@pytest.mark.parametrize(("access", "user"), [(True, ""), ("ann", "ann"), (False, None), (None, None), ("", None)])
async def test_access_is_a_truth_or_a_name(access: Access, user: str | None) -> None:
    async def authorize(_request: Request, _session: str) -> Access:
        return access

    for gate in (Gate(authorize), Gate(lambda _request, _session: access)):
        request = Request({"type": "http", "headers": []})
        if user is None:
            with pytest.raises(RefusedRequestError, match="no access"):
                await gate.identify(request, "s1")
        else:
            assert await gate.identify(request, "s1") == user


@pytest.mark.parametrize("session", ["", "x" * 129, "a\nb", "a\u202eb", "\x00"])
async def test_session_without_a_plain_name_is_refused(session: str) -> None:
    with pytest.raises(RefusedRequestError, match="visible characters"):
        await Gate(allow).identify(Request({"type": "http", "headers": []}), session)


def test_sessions_of_users_differ() -> None:
    names = [owned_session(user, chat) for user, chat in (("", "c"), ("a", "c"), ("a", "b/c"), ("a/b", "c"))]
    assert len({*names}) == 4


async def test_session_of_a_named_user_is_out_of_reach_without_the_name() -> None:
    with pytest.raises(RefusedRequestError, match="no access"):
        await Gate(allow).identify(Request({"type": "http", "headers": []}), owned_session("ann", "c"))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RefusedRequestError(418, "tea"), 418),
        (HTTPException(401, "who are you"), 401),
        (HTTPException(401, {"why": "FastAPI's details are any JSON"}), 401),  # type: ignore[arg-type]
        (TurnNotFoundError("t"), 404),
        (InvalidAnswerError("approval-1", "it was answered before", []), 409),
        (InvalidAnswerError("approval-1", "not at secret-host.internal", [], is_refused=True), 403),
        (StoreError("postgres at secret-host.internal"), 500),
        (ConfigError("no model at secret-host.internal"), 500),
        (RuntimeError("secret-host.internal"), 500),
    ],
)
async def test_error_becomes_a_refusal_without_hosts(
    error: Exception, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: Request) -> Response:
        raise error

    with caplog.at_level(logging.ERROR):
        reply = await Client(Endpoint(Gate(allow), fail, refuse)).send("GET", "/")
    assert (reply.status, "secret-host" in reply.text) == (status, False)
    assert ("secret-host" in caplog.text) == (status == 500)


async def test_stream_ends_when_its_client_leaves() -> None:
    closed = anyio.Event()

    async def lines() -> AsyncGenerator[str, None]:
        try:
            yield "data: 1\n\n"
            await anyio.sleep_forever()
        finally:
            closed.set()

    stream = EventStream(lines(), Bounds())
    with anyio.fail_after(5):
        reply = await Client(stream).send("GET", "/", leaves=lambda text: "data: 1" in text)
    assert reply.text == "data: 1\n\n"
    assert closed.is_set()


async def test_head_of_a_stream_has_no_body() -> None:
    async def lines() -> AsyncGenerator[str, None]:
        yield "data: 1\n\n"
        await anyio.sleep_forever()

    with anyio.fail_after(5):
        reply = await Client(EventStream(lines(), Bounds())).send("HEAD", "/")
    assert (reply.status, reply.text) == (200, "")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"model": "subject", "input": "job"}),
        ("/v1/chat/completions", {"model": "subject", "messages": [{"role": "user", "content": "job"}]}),
        ("/message:send", {"message": message("job")}),
        ("/api/chat", {"id": "c1", "messages": [{"role": "user", "parts": [{"type": "text", "text": "job"}]}]}),
    ],
)
async def test_client_that_left_holds_no_place(path: str, body: object) -> None:
    """Its turn continues, and the gate admits the next client."""
    async with make_engine() as engine:
        gate = Gate(allow, Bounds(requests=1))
        client = Client(Starlette(routes=door_routes(engine, [AGENT], gate, ["a2a", "responses", "ui"])))
        with anyio.fail_after(5):
            await client.send("POST", path, body, headers=VERSION, leaves=lambda _: True)
        assert (await client.send("GET", "/v1/models")).status == 200
        assert [row.status.outcome for row in await engine.turns()] == [None]


@pytest.mark.no_waiting
async def test_silent_stream_is_kept_alive_and_bounded() -> None:
    async def lines() -> AsyncGenerator[str, None]:
        yield "data: 1\n\n"
        await anyio.sleep_forever()

    reply = await Client(EventStream(lines(), Bounds(keep_alive=10, stream_seconds=25))).send("GET", "/")
    assert reply.text == "data: 1\n\n" + ": keep-alive\n\n" * 2


@pytest.mark.no_waiting
async def test_client_that_does_not_read_loses_its_stream() -> None:
    async def lines() -> AsyncGenerator[str, None]:
        for number in range(1000):
            yield f"data: {number}\n\n"

    async def never() -> Message:
        await anyio.sleep_forever()
        raise AssertionError

    async def block(message: Message) -> None:
        if message["type"] == "http.response.body":
            await anyio.sleep_forever()

    with anyio.fail_after(60):
        await EventStream(lines(), Bounds(send_seconds=20))({"type": "http"}, never, block)


@pytest.mark.parametrize("door", [a2a_routes, mcp_app, responses_routes, ui_routes])
def test_door_needs_agents_with_different_names_and_a_gate(door: Callable[..., object]) -> None:
    engine, agent, gate = Engine(model=ScriptedModel("Done.")), Agent(name="A"), Gate(allow)
    for agents, why in (
        ([], "at least one agent"),
        (agent, r"agents must be a list: write agents=\[A\]"),
        (["A"], r"agents must be a list of Agent\(name=\.\.\.\), not 'A'"),
        ([agent, Agent(name="a")], "two have the name 'a'"),
    ):
        with pytest.raises(ConfigError, match=why):
            door(engine, agents, gate)
    with pytest.raises(ConfigError, match=r"the gate must be Gate\(authorize\), not None"):
        door(engine, [agent], None)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Gate(None), "authorize must be a function, not None"),  # type: ignore[arg-type]
        (lambda: Gate(allow, 5), r"bounds must be Bounds\(\.\.\.\), not 5"),  # type: ignore[arg-type]
        (lambda: Bounds(body_bytes="x"), "bounds: body_bytes must be a number of at least 0, not 'x'"),  # type: ignore[arg-type]
        (lambda: Bounds(send_seconds=-1), "bounds: send_seconds must be a number of at least 0, not -1"),
        (lambda: Bounds(keep_alive=float("nan")), "bounds: keep_alive must be a number of at least 0, not nan"),
    ],
)
def test_gate_needs_a_function_and_numbers(make: Callable[[], object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make()


def test_function_in_place_of_a_gate_is_refused_before_the_first_request() -> None:
    async def answer(_request: Request) -> Response:
        return PlainTextResponse("answered")

    with pytest.raises(ConfigError, match=r"the gate must be Gate\(authorize\)"):
        Endpoint(allow, answer, refuse)  # type: ignore[arg-type]


def test_numbers_keep_their_value() -> None:
    assert parse_object(json.dumps({"a": 1.5, "b": -3}).encode()) == {"a": 1.5, "b": -3}
