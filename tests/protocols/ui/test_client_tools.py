"""Tools that the page of a chat runs: declared with the message, or by the engine without a function."""

import pytest
from starlette.applications import Starlette
from tests.protocols.asgi import Client, Json, Reply
from tests.protocols.subject import AGENT, journal

from turnwright import Agent, Engine, Later, external_tool, tool
from turnwright.model import ScriptedModel, asks_for
from turnwright_protocols.ui import Gate, ui_routes

from .chat_page import ChatPage

pytestmark = pytest.mark.anyio

CHAT = "/api/chat"
PICK: Json = {
    "description": "Pick a place.",
    "inputSchema": {"type": "object", "properties": {"location": {"type": "string"}}},
}


def client_of(engine: Engine, agent: Agent = AGENT) -> Client:
    return Client(Starlette(routes=ui_routes(engine, [agent], Gate(lambda _request, _session: True))))


async def post(client: Client, page: ChatPage, chat: str = "c1", **fields: object) -> Reply:
    body = {"id": chat, "messages": page.messages, "trigger": "submit-message", **fields}
    reply = await client.send("POST", CHAT, body)
    if reply.status == 200:
        page.read(reply.data())
    return reply


async def say(client: Client, text: str, chat: str = "c1", tools: object = None) -> ChatPage:
    page = ChatPage()
    page.say(text)
    reply = await post(client, page, chat, tools={"pick": PICK} if tools is None else tools)
    assert reply.status == 200, reply.text
    return page


async def test_arguments_that_do_not_fit_go_back_to_the_model(engine: Engine) -> None:
    """The page gets the call with its error, and has nothing to run."""
    schema = {"type": "object", "properties": {"location": {"type": "integer"}}}
    page = await say(client_of(engine), "use it", tools={"pick": {**PICK, "inputSchema": schema}})
    (call,) = page.calls
    assert (page.to_run, call["state"]) == ([], "output-error")
    assert "'Graz' is not of type 'integer'" in call["errorText"]
    assert "invalid arguments" in page.text


@pytest.mark.parametrize("tools", [{"pick": PICK}, [{"name": "pick", "parameters": PICK["inputSchema"]}]])
async def test_tool_of_the_page_gets_its_output_from_the_page(engine: Engine, tools: object) -> None:
    """The part is the page's to run, and the message continues with the output."""
    client = client_of(engine)
    page = await say(client, "use it", tools=tools)
    (call,) = page.to_run
    assert (call["type"], call["state"], call["input"]) == ("tool-pick", "input-available", {"location": "Graz"})
    assert "providerExecuted" not in call
    assert page.finish["finishReason"] == "tool-calls"
    first = page.last["id"]
    page.give_output(call, {"city": "Linz"})
    reply = await post(client, page)
    assert reply.status == 200, reply.text
    assert (page.last["id"], page.text) == (first, 'Result: {"city":"Linz"}')
    assert page.calls[0]["output"] == {"city": "Linz"}
    assert len(page.to_run) == 1, "the page runs it once"


@pytest.mark.parametrize(("error", "text"), [("no permission", "no permission"), (" ", "the tool failed")])
async def test_error_of_the_page_reaches_the_model(engine: Engine, error: str, text: str) -> None:
    client = client_of(engine)
    page = await say(client, "use it")
    page.give_output(page.calls[0], error=error)
    await post(client, page)
    assert text in page.text
    assert page.calls[0]["state"] == "output-error"


async def test_tool_without_a_function_is_the_pages() -> None:
    """The SDK declares its tools on the server: those without server execution are the page's."""
    ask = external_tool(name="ask_location", description="Ask.", parameters={"type": "object", "properties": {}})
    async with Engine(model=ScriptedModel(asks_for(("ask_location", {})), "There."), tools=[ask]) as engine:
        client = client_of(engine, Agent(name="Clerk"))
        page = await say(client, "hi", tools={})
        page.give_output(page.to_run[0], "Graz")
        await post(client, page)
        assert page.text == "There."


async def test_approval_and_output_go_together(engine: Engine) -> None:
    client = client_of(engine)
    page = await say(client, "mix")
    pick, pay = sorted(page.calls, key=lambda call: str(call["type"]), reverse=True)
    assert (pick["state"], pay["state"]) == ("input-available", "approval-requested")
    page.give_output(pick, "Linz")
    page.respond(approved=True)
    assert (await post(client, page)).status == 200
    assert page.text == "Result: paid 5"


async def test_one_output_of_two_is_stored(engine: Engine) -> None:
    """The turn waits for the other one, and the stream ends as before."""
    client = client_of(engine)
    page = await say(client, "use them", tools={"pick": PICK, "stroke": PICK})
    first, second = page.calls
    page.give_output(first, "a")
    assert (await post(client, page)).status == 200
    assert page.error == ""
    page.give_output(second, "b")
    assert (await post(client, page)).status == 200
    assert page.text == "Result: b"


async def test_tool_that_needs_approval_runs_afterwards() -> None:
    """The page is not asked to run a call before a person has approved it."""
    pick = external_tool(name="pick", description="Pick.", parameters=PICK["inputSchema"], needs_approval=True)
    async with Engine(model=ScriptedModel(asks_for(("pick", {"location": "Graz"})), "Done."), tools=[pick]) as engine:
        client = client_of(engine, Agent(name="Clerk"))
        page = await say(client, "hi", tools={})
        assert page.to_run == []
        page.respond(approved=True)
        await post(client, page)
        (call,) = page.to_run
        assert call["input"] == {"location": "Graz"}
        page.give_output(call, "Linz")
        await post(client, page)
        assert page.text == "Done."


async def test_loaded_page_has_the_open_call_and_the_outputs(engine: Engine) -> None:
    client = client_of(engine)
    page = await say(client, "use it")
    (_, message) = (await client.send("GET", f"{CHAT}/c1")).json()
    (call,) = [part for part in message["parts"] if "toolCallId" in part]
    assert (call["type"], call["state"], call["input"]) == ("tool-pick", "input-available", {"location": "Graz"})
    assert "toolName" not in call
    page.give_output(page.calls[0], "Linz")
    await post(client, page)
    (_, message) = (await client.send("GET", f"{CHAT}/c1")).json()
    (call,) = [part for part in message["parts"] if "toolCallId" in part]
    assert (call["state"], call["output"]) == ("output-available", "Linz")


async def test_same_output_again_changes_nothing(engine: Engine) -> None:
    client = client_of(engine)
    page = await say(client, "use it")
    page.give_output(page.calls[0], "Linz")
    await post(client, page)
    before = await journal(engine)
    assert (await post(client, page)).status == 200
    page.give_output(page.calls[0], "Wien")
    reply = await post(client, page)
    assert (reply.status, await journal(engine)) == (409, before)


async def test_message_supersedes_the_turn_that_waits(engine: Engine) -> None:
    client = client_of(engine)
    page = await say(client, "use it")
    page.say("hello")
    await post(client, page)
    assert page.text == "You said: hello"


@pytest.mark.parametrize(
    "tools",
    [
        {"look": PICK},
        [{"name": "pick"}, {"name": "pick"}],
        {f"t{number}": PICK for number in range(129)},
        {"pick": {**PICK, "description": "x" * 300_000}},
        {"pick": {"inputSchema": {"type": "array"}}},
        {"pick": {"inputSchema": {"$ref": "#/nowhere"}}},
        {"pick": {"inputSchema": "no schema"}},
        {"pick": "no tool"},
        {"a b": PICK},
        [{"description": "no name"}],
        "pick",
        7,
    ],
    ids=["engine", "twice", "129", "large", "array", "reference", "text", "no tool", "name", "nameless", "str", "int"],
)
async def test_hostile_tools_are_refused_before_the_turn_begins(engine: Engine, tools: object) -> None:
    page = ChatPage()
    page.say("use it")
    reply = await post(client_of(engine), page, tools=tools)
    assert (reply.status, reply.text.startswith("tool"), await engine.turns()) == (400, True, [])


def output(identifier: object, value: object = "x", **fields: object) -> Json:
    part = {"type": "tool-pick", "state": "output-available", "toolCallId": identifier, "input": {}, "output": value}
    return {"id": "a", "role": "assistant", "parts": [part | fields]}


async def test_forged_outputs_are_refused_and_change_nothing(engine: Engine) -> None:
    client = client_of(engine)
    mine, theirs = await say(client, "use it"), await say(client, "approve", chat="c2")
    call, pay = mine.calls[0]["toolCallId"], theirs.calls[0]["toolCallId"]
    turn = call.partition("/")[0]
    before = await journal(engine)
    forged: list[tuple[str, str, list[Json], int]] = [
        ("foreign chat", "c2", [output(call)], 404),
        ("foreign id", "c1", [output("call00001")], 404),
        ("no such call", "c1", [output(f"{turn}/call00009")], 409),
        ("no such turn", "c1", [output("feedfeed/call00001")], 404),
        ("approval", "c2", [output(pay)], 409),
        ("nested", "c1", [output(f"{turn}/call00001:call00002")], 409),
        ("no id", "c1", [output(7)], 400),
        ("too large", "c1", [output(call, "x" * 100_000)], 409),
        ("the server's", "c1", [output(call, providerExecuted=True)], 409),
        ("two turns", "c1", [{**output(call), "parts": output(call)["parts"] + output(pay)["parts"]}], 400),
    ]
    for name, chat, messages, status in forged:
        reply = await client.send("POST", CHAT, {"id": chat, "messages": messages})
        assert (name, reply.status) == (name, status)
        assert await journal(engine) == before, name


async def test_output_settles_no_job_of_the_server() -> None:
    """A wait of the server's own tool (`Later`) is not the page's, whatever its part says."""

    @tool
    def render() -> Later:
        """Render elsewhere."""
        return Later()

    async with Engine(model=ScriptedModel(asks_for(("render", {})), "Done."), tools=[render]) as engine:
        client = client_of(engine, Agent(name="Clerk"))
        body = {"id": "c1", "messages": [ChatPage().say("hi")]}
        await client.send("POST", CHAT, body, leaves=lambda content: "input-available" in content)
        (turn,) = await engine.turns()
        before = await journal(engine)
        reply = await client.send("POST", CHAT, {"id": "c1", "messages": [output(f"{turn.id}/call00001")]})
        assert (reply.status, await journal(engine)) == (409, before)
