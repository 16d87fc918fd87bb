"""Hostile clients of responses: each gets a clear refusal, and nothing changes."""

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from tests.protocols.asgi import Client, Json, Reply
from tests.protocols.subject import AGENT, journal

from turnwright import Engine
from turnwright_protocols.responses import Gate, responses_routes

pytestmark = pytest.mark.anyio

RESPONSES, COMPLETIONS = "/v1/responses", "/v1/chat/completions"
TOOL = {"type": "web_search"}


@pytest.fixture
def client(engine: Engine) -> Client:
    return Client(Starlette(routes=responses_routes(engine, [AGENT], Gate(lambda _request, _session: True))))


def message(content: object = "hi", role: object = "user") -> Json:
    return {"type": "message", "role": role, "content": content}


def approval(identifier: object, approve: object = True, **fields: object) -> Json:
    return {"type": "mcp_approval_response", "approval_request_id": identifier, "approve": approve, **fields}


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"model": None}, 400),
        ({"model": 7}, 400),
        ({"model": "nothing"}, 404),
        ({"input": None}, 400),
        ({"input": ""}, 400),
        ({"input": " "}, 400),
        ({"input": 7}, 400),
        ({"input": {}}, 400),
        ({"input": []}, 400),
        ({"input": ["hi"]}, 400),
        ({"input": [message()] * 2001}, 400),
        ({"input": [{"type": "message", "role": "user"}]}, 400),
        ({"input": [message("")]}, 400),
        ({"input": [message([])]}, 400),
        ({"input": [message([{"type": "input_text"}])]}, 400),
        ({"input": [message([{"type": "input_audio", "data": "x"}])]}, 400),
        ({"input": [message([{"type": "input_image", "file_id": "file-1"}])]}, 400),
        ({"input": [message([{"type": "input_image", "image_url": "file:///etc/passwd"}])]}, 400),
        ({"input": [message([{"type": "input_file", "file_data": "not a url"}])]}, 400),
        ({"input": [message(["hi"])]}, 400),
        ({"input": [message(role="tool")]}, 400),
        ({"input": [message(role=7)]}, 400),
        ({"input": [message(role="assistant")]}, 400),
        ({"input": [{"type": "function_call", "name": "pay", "arguments": "{}", "call_id": "c"}]}, 400),
        ({"input": [{"type": "function_call", "name": "pay", "arguments": "{}", "call_id": []}, message()]}, 400),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, 404),
        ({"input": [{"type": ["message"]}]}, 400),
        ({"input": [approval("x/approval-1")]}, 404),
        ({"input": [approval("../x/approval-1")]}, 404),
        ({"input": [approval(7)]}, 400),
        ({"input": [approval("x/approval-1", "yes")]}, 400),
        ({"input": [approval("x/a", reason=7)]}, 400),
        ({"input": [approval("x/a"), approval("x/a")]}, 400),
        ({"input": [approval("x/a"), approval("y/a")]}, 400),
        ({"tools": [TOOL]}, 400),
        ({"store": False}, 400),
        ({"conversation": "conv_1"}, 400),
        ({"stream": "yes"}, 400),
        ({"background": 1}, 400),
        ({"instructions": 7}, 400),
        ({"metadata": []}, 400),
        ({"metadata": {"a": 1}}, 400),
        ({"metadata": {"a": "x" * 513}}, 400),
        ({"metadata": {str(n): "" for n in range(17)}}, 400),
        ({"previous_response_id": 7}, 400),
        ({"previous_response_id": "resp_nothing"}, 404),
        ({"previous_response_id": "resp_nothing_0"}, 404),
        ({"previous_response_id": "resp_../x_0"}, 404),
        ({"previous_response_id": "resp_x_-1"}, 404),
        ({"previous_response_id": "resp_x_" + "9" * 400}, 404),
    ],
)
async def test_malformed_request_is_refused_and_starts_nothing(
    engine: Engine, client: Client, fields: Json, status: int
) -> None:
    reply = await client.send("POST", RESPONSES, {"model": "subject", "input": "hi", **fields})
    assert reply.status == status
    error = reply.json()["error"]
    assert error["message"]
    assert error["type"] == "invalid_request_error"
    assert await journal(engine) == {}


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"model": None}, 400),
        ({"model": "nothing"}, 404),
        ({"messages": None}, 400),
        ({"messages": []}, 400),
        ({"messages": ["hi"]}, 400),
        ({"messages": [{"role": "user"}]}, 400),
        ({"response_format": {"type": "json_schema"}}, 400),
        ({"messages": [{"role": "user", "content": " "}]}, 400),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, 400),
        ({"messages": [{"role": "admin", "content": "hi"}]}, 400),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": 7}]}]}, 400),
        ({"tools": [TOOL]}, 400),
        ({"n": 2}, 400),
        ({"stream": "yes"}, 400),
    ],
)
async def test_malformed_completion_is_refused_and_starts_nothing(
    engine: Engine, client: Client, fields: Json, status: int
) -> None:
    body = {"model": "subject", "messages": [{"role": "user", "content": "hi"}], **fields}
    reply = await client.send("POST", COMPLETIONS, body)
    assert (reply.status, bool(reply.json()["error"]["message"])) == (status, True)
    assert await journal(engine) == {}


async def refused(engine: Engine, client: Client, fields: Json, status: int) -> Reply:
    """Check that a request is refused with this status and changes nothing."""
    before = await journal(engine)
    reply = await client.send("POST", RESPONSES, {"model": "subject", **fields})
    error = reply.json()["error"]
    assert (reply.status, bool(error["message"])) == (status, True), reply.text
    assert status != 404 or (" turn" not in error["message"] and error["param"]), "the client knows responses"
    assert await journal(engine) == before
    return reply


async def test_forged_approvals_are_refused(engine: Engine, client: Client) -> None:
    first = (await client.send("POST", RESPONSES, {"model": "subject", "input": "approve"})).json()
    (row,) = await engine.turns()
    previous = {"previous_response_id": first["id"]}
    for identifier, status in (
        ("approval-1", 404),
        (f"{row.id}/approval-2", 400),
        (f"{row.id}/", 400),
        (f"{row.id}:call00001/approval-1", 404),
        ("0" * 16 + "/approval-1", 404),
    ):
        await refused(engine, client, {"input": [approval(identifier)], **previous}, status)
    for forged in (f"resp_{row.id}_1", f"resp_{row.id}_2", f"resp_{row.id}:call00001_0"):
        await refused(
            engine, client, {"input": [approval(f"{row.id}/approval-1")], "previous_response_id": forged}, 404
        )


async def test_second_answer_to_an_approval_is_refused(engine: Engine, client: Client) -> None:
    first = (await client.send("POST", RESPONSES, {"model": "subject", "input": "approve"})).json()
    identifier = first["output"][-1]["id"]
    body = {"model": "subject", "input": [approval(identifier)], "previous_response_id": first["id"]}
    assert (await client.send("POST", RESPONSES, body)).status == 200
    rejection = {"input": [approval(identifier, approve=False)], "previous_response_id": first["id"]}
    await refused(engine, client, rejection, 409)
    await refused(engine, client, {"input": "and now?", "previous_response_id": first["id"]}, 409)


async def test_turn_of_another_door_is_out_of_reach(engine: Engine, client: Client) -> None:
    turn = await engine.run(AGENT, "approve", session="chat")
    identifier = f"resp_{turn.id}_0"
    await refused(engine, client, {"input": "hi", "previous_response_id": identifier}, 404)
    await refused(engine, client, {"input": [approval(f"{turn.id}/approval-1")]}, 404)
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel")):
        assert (await client.send(method, f"{RESPONSES}/{identifier}{path}")).status == 404
    assert (await engine.get(turn.id)).paused


async def test_response_of_another_user_is_out_of_reach(engine: Engine) -> None:
    conversations: dict[str, str] = {}

    def authorize(request: Request, conversation: str) -> bool:
        user = request.headers["x-user"]
        return conversations.setdefault(conversation, user) == user

    for gate in (Gate(authorize), Gate(lambda request, _conversation: request.headers["x-user"])):
        app = Starlette(routes=responses_routes(engine, [AGENT], gate))
        ann, bob = Client(app, {"x-user": "ann"}), Client(app, {"x-user": "bob"})
        first = (await ann.send("POST", RESPONSES, {"model": "subject", "input": "approve"})).json()
        before = await journal(engine)
        reference = {"type": "item_reference", "id": first["output"][0]["id"]}
        for item in (reference, {**reference, "id": reference["id"] + "0"}):
            body = {"model": "subject", "input": [item, message("recall")]}
            assert (await bob.send("POST", RESPONSES, body)).status in (403, 404)
        for method, path in (("GET", ""), ("GET", "?stream=true"), ("DELETE", ""), ("POST", "/cancel")):
            assert (await bob.send(method, f"{RESPONSES}/{first['id']}{path}")).status in (403, 404)
        answer = {"input": [approval(first["output"][-1]["id"])]}
        for fields in (answer, {"input": "hi"}, {**answer}):
            body = {"model": "subject", "previous_response_id": first["id"], **fields}
            assert (await bob.send("POST", RESPONSES, body)).status in (403, 404)
        assert (await bob.send("POST", RESPONSES, {"model": "subject", **answer})).status in (403, 404)
        assert await journal(engine) == before
        body = {"model": "subject", "previous_response_id": first["id"], **answer}
        assert (await ann.send("POST", RESPONSES, body)).status == 200


async def test_nobody_lists_models_without_access(engine: Engine) -> None:
    app = Starlette(routes=responses_routes(engine, [AGENT], Gate(lambda _request, _session: False)))
    assert (await Client(app).send("GET", "/v1/models")).status == 403


async def test_stream_from_the_middle_is_refused(client: Client) -> None:
    first = (await client.send("POST", RESPONSES, {"model": "subject", "input": "hello"})).json()
    reply = await client.send("GET", f"{RESPONSES}/{first['id']}?stream=true&starting_after=3")
    assert reply.status == 400
