"""Hostile clients of A2A: each gets a clear refusal, and nothing changes."""

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from tests.protocols.asgi import Client, Json
from tests.protocols.subject import AGENT, HOST, journal

from turnwright import Engine
from turnwright_protocols.a2a import Bounds, Gate, a2a_routes

from .client import VERSION, call, message, send

pytestmark = pytest.mark.anyio

#: A message with a number as its data.
DATA = (
    b'{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params":'
    b' {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": %s}]}}}'
)
DEEP = b'{"a":' * 100_000


@pytest.fixture
def client(engine: Engine) -> Client:
    return Client(Starlette(routes=a2a_routes(engine, [AGENT], Gate(lambda _request, _session: True))))


async def refused(engine: Engine, client: Client, method: str, params: object, code: int) -> None:
    """Check that a call is refused with this code, in a stream too, and changes nothing."""
    before = await journal(engine)
    methods = [method, "SendStreamingMessage"] if method == "SendMessage" else [method]
    for name in methods:
        reply = await call(client, name, params)
        assert reply.json()["error"]["code"] == code, reply.text
        assert reply.json()["error"]["message"]
        assert HOST not in reply.text
    assert await journal(engine) == before


@pytest.mark.parametrize(
    "fields",
    [
        {"parts": []},
        {"parts": None},
        {"parts": "hi"},
        {"parts": ["hi"]},
        {"parts": [{}]},
        {"parts": [{"text": 7}]},
        {"parts": [{"text": " "}]},
        {"parts": [{"text": "hi"}] * 1001},
        {"parts": [{"raw": "not base64!", "mediaType": "image/png"}]},
        {"parts": [{"raw": "aGk=", "mediaType": "\n"}]},
        {"parts": [{"url": "file:///etc/passwd", "mediaType": "text/plain"}]},
        {"parts": [{"url": "data:,x", "mediaType": "text/plain"}]},
        {"parts": [{"data": {"answers": {"approval-1": True}}}]},
        {"role": "ROLE_AGENT"},
        {"messageId": ""},
        {"messageId": "x" * 129},
        {"messageId": "a\nb"},
        {"contextId": "x" * 129},
        {"contextId": "a\nb"},
        {"contextId": 7},
    ],
)
async def test_malformed_message_is_refused_and_starts_nothing(engine: Engine, client: Client, fields: Json) -> None:
    await refused(engine, client, "SendMessage", {"message": message("hi", **fields)}, -32602)
    assert await journal(engine) == {}


@pytest.mark.parametrize(
    ("configuration", "code"),
    [
        ({"historyLength": -1}, -32602),
        ({"acceptedOutputModes": ["video/mp4"]}, -32005),
        ({"taskPushNotificationConfig": {"url": "http://127.0.0.1:1"}}, -32003),
    ],
)
async def test_unsupported_configuration_is_refused(
    engine: Engine, client: Client, configuration: Json, code: int
) -> None:
    await refused(engine, client, "SendMessage", {"message": message("hi"), "configuration": configuration}, code)


@pytest.mark.parametrize("task", ["nothing", "../x", "x" * 5000, "a\x00b", "a\nb", "%2e%2e", "x:call00001"])
async def test_forged_task_is_not_found(engine: Engine, client: Client, task: str) -> None:
    await refused(engine, client, "SendMessage", {"message": message("hi", task=task)}, -32001)
    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
        await refused(engine, client, method, {"id": task}, -32001)


async def test_turn_of_a_sub_agent_is_no_task(engine: Engine, client: Client) -> None:
    await send(client, "delegate approve")
    child = next(row.id for row in await engine.turns() if ":" in row.id)
    await refused(engine, client, "SendMessage", {"message": message("yes", task=child)}, -32001)
    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
        await refused(engine, client, method, {"id": child}, -32001)


async def test_turn_without_a_session_is_no_task(engine: Engine, client: Client) -> None:
    turn = await engine.run(AGENT, "hello")
    await refused(engine, client, "GetTask", {"id": turn.id}, -32001)
    assert (await call(client, "ListTasks", {})).json()["result"]["tasks"] == []


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"approval-2": True},
        {"approval-1": True, "approval-2": True},
        {"approval-1": 1},
        {"approval-1": None},
        {"approval-1": "perhaps"},
        {"approval-1": {"approved": "yes", "reason": ""}},
        {"approval-1": {"result": "paid 5"}},
        {"approval-1": {"approved": True, "reason": "", "arguments": {"amount": 5000}}},
    ],
)
async def test_answer_that_does_not_fit_is_refused(engine: Engine, client: Client, answers: Json) -> None:
    task = await send(client, "approve", context="c1")
    body = {"message": message({"data": {"answers": answers}}, task=task["id"])}
    await refused(engine, client, "SendMessage", body, -32602)


async def test_text_answers_an_approval_with_yes_or_no_only(engine: Engine, client: Client) -> None:
    task = await send(client, "approve", context="c1")
    for text in ("maybe", "", "yes please", '{"amount": 5000}'):
        await refused(engine, client, "SendMessage", {"message": message(text, task=task["id"])}, -32602)
    unfit = await call(client, "SendMessage", {"message": message("maybe", task=task["id"])})
    assert "an approval takes yes or no, always" in unfit.json()["error"]["message"]
    several = await send(client, "both", context="c2")
    await refused(engine, client, "SendMessage", {"message": message("yes", task=several["id"])}, -32602)


async def test_message_to_a_context_with_an_open_task_is_refused(engine: Engine, client: Client) -> None:
    """It would replace the paused turn, and stop the running one, of which its sender may know nothing."""
    await send(client, "approve", context="c1")
    await refused(engine, client, "SendMessage", {"message": message("hello", context="c1")}, -32004)


async def test_ended_task_takes_no_message(engine: Engine, client: Client) -> None:
    task = await send(client, "hello", context="c1")
    await refused(engine, client, "SendMessage", {"message": message("more", task=task["id"])}, -32004)
    await refused(engine, client, "SubscribeToTask", {"id": task["id"]}, -32004)
    await refused(engine, client, "CancelTask", {"id": task["id"]}, -32002)


@pytest.mark.parametrize("part", ["", " ", {"raw": "AA=="}])
async def test_message_to_a_working_task_is_text(engine: Engine, client: Client, part: str | Json) -> None:
    task = await send(client, "slow", returnImmediately=True)
    code = -32602 if isinstance(part, str) else -32004
    answer = (await call(client, "SendMessage", {"message": message(part, task=task["id"])})).json()
    assert answer["error"]["code"] == code
    assert not await engine.store.inbox(task["id"])
    await call(client, "CancelTask", {"id": task["id"]})


async def test_task_in_another_context_is_refused(engine: Engine, client: Client) -> None:
    task = await send(client, "approve", context="c1")
    await refused(engine, client, "SendMessage", {"message": message("yes", task=task["id"], context="c2")}, -32602)


async def test_task_of_another_user_is_out_of_reach(engine: Engine) -> None:
    contexts: dict[str, str] = {}

    def authorize(request: Request, context: str) -> bool:
        user = request.headers["x-user"]
        return contexts.setdefault(context, user) == user

    for gate in (Gate(authorize), Gate(lambda request, _context: request.headers["x-user"])):
        app = Starlette(routes=a2a_routes(engine, [AGENT], gate))
        ann, bob = Client(app, {"x-user": "ann"}), Client(app, {"x-user": "bob"})
        task = await send(ann, "approve")
        before = await journal(engine)
        for method in ("GetTask", "CancelTask", "SubscribeToTask"):
            reply = await call(bob, method, {"id": task["id"]})
            assert reply.status == 403 or reply.json()["error"]["code"] == -32001
        for context in ("", task["contextId"]):
            body = {"message": message("yes", task=task["id"], context=context)}
            reply = await call(bob, "SendMessage", body)
            assert reply.status == 403 or reply.json()["error"]["code"] == -32001
        listed = (await call(bob, "ListTasks", {})).json()["result"]["tasks"]
        assert task["id"] not in [entry["id"] for entry in listed]
        for path in ("", ":subscribe"):
            assert (await bob.send("GET", f"/tasks/{task['id']}{path}", headers=VERSION)).status in (403, 404)
        assert await journal(engine) == before
        assert (await call(ann, "GetTask", {"id": task["id"]})).status == 200


async def test_stranger_is_refused_by_status(engine: Engine) -> None:
    client = Client(Starlette(routes=a2a_routes(engine, [AGENT], Gate(lambda _request, _session: False))))
    body = {"message": message("hi")}
    assert (await call(client, "SendMessage", body)).status == 403
    assert (await call(client, "SendStreamingMessage", body)).status == 403
    assert (await client.send("POST", "/message:send", body, headers=VERSION)).status == 403
    assert (await call(client, "ListTasks", {"contextId": "c1"})).status == 403
    assert (await call(client, "ListTasks", {})).json()["result"]["tasks"] == []
    assert await journal(engine) == {}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"[]", -32600),
        (b"7", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"GetTask"}', -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"Nothing"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[]}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":NaN}}', -32600),
        (b'\xff{"a":1}', -32600),
        (DEEP, -32600),
        (b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "GetTask", "params": {"id": "x"}}', -32600),
        (b'{"jsonrpc": "2.0", "id": %s, "method": "GetTask", "params": {"id": "x"}}' % (b"9" * 5000), -32600),
        *((DATA % number, -32600) for number in (b"NaN", b"-Infinity", b"1e999", b'"\\ud800"')),
    ],
)
async def test_malformed_call_is_refused(engine: Engine, client: Client, content: bytes, code: int) -> None:
    reply = await client.send("POST", "/", pieces=[content], headers=VERSION)
    assert reply.json()["error"]["code"] == code, reply.text
    assert await journal(engine) == {}


@pytest.mark.parametrize("content", [b"{", b"[]", b"7", b'\xff{"a":1}', DEEP, b'{"message": 7}', b"{}"])
async def test_malformed_request_of_rest_is_refused(engine: Engine, client: Client, content: bytes) -> None:
    for path in ("/message:send", "/message:stream"):
        reply = await client.send("POST", path, pieces=[content], headers=VERSION)
        assert reply.status == 400, reply.text
    assert await journal(engine) == {}


@pytest.mark.parametrize(
    "query", ["pageSize=0", "pageSize=101", "pageSize=x", "pageToken=x", "pageToken=1.-1", "pageToken=" + "9" * 60]
)
async def test_malformed_list_is_refused(client: Client, query: str) -> None:
    assert (await client.send("GET", f"/tasks?{query}", headers=VERSION)).status == 400


async def test_bounds_of_the_gate_hold(engine: Engine) -> None:
    def make(bounds: Bounds) -> Client:
        gate = Gate(lambda _request, _session: True, bounds)
        return Client(Starlette(routes=a2a_routes(engine, [AGENT], gate)))

    body = {"message": message("hi")}
    assert (await call(make(Bounds(requests=0)), "SendMessage", body)).status == 503
    assert (await call(make(Bounds(body_bytes=10)), "SendMessage", body)).status == 413
    slow = make(Bounds(body_seconds=0.01))
    assert (await slow.send("POST", "/", pieces=[b"{"], stalls=True, headers=VERSION)).status == 408
    text = {"content-type": "text/plain"}
    assert (await make(Bounds()).send("POST", "/", body, headers={**VERSION, **text})).status == 415
    assert await journal(engine) == {}


async def test_other_version_is_refused(client: Client) -> None:
    reply = await client.send("POST", "/message:send", {"message": message("hi")}, headers={"a2a-version": "0.3"})
    assert reply.status == 400
    reply = await client.send("POST", "/message:send", {"message": message("hi")})
    assert reply.status == 400


async def test_push_notifications_and_extended_card_are_refused(engine: Engine, client: Client) -> None:
    names = {"taskId": "x", "id": "y", "url": "http://127.0.0.1:1"}
    for method in ("Create", "Get", "Delete"):
        await refused(engine, client, f"{method}TaskPushNotificationConfig", names, -32003)
    await refused(engine, client, "ListTaskPushNotificationConfigs", names, -32003)
    await refused(engine, client, "GetExtendedAgentCard", {}, -32004)


async def test_flood_of_the_same_answer_is_stored_once(engine: Engine, client: Client) -> None:
    task = await send(client, "approve")
    answers = {"data": {"answers": {"approval-1": True}}}
    for _ in range(20):
        await send(client, answers, task=task["id"])
    facts = await engine.store.facts(task["id"])
    assert sum(fact.kind == "answered" for _, fact in facts) == 1
