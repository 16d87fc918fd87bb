"""Several doors of one server: one gate, beside the pages of the inspector."""

from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from tests.protocols.a2a.client import VERSION, message
from tests.protocols.asgi import Client, Json
from tests.protocols.subject import AGENT, make_engine
from tests.protocols.ui.chat_page import ChatPage
from tests.servers.forked_python import Python

from turnwright import Engine, tool
from turnwright.errors import ConfigError
from turnwright.model import ScriptedModel, asks_for
from turnwright_protocols.http import Bounds, Gate
from turnwright_protocols.http_doors import BesidePages, door_routes, open_doors, token_gate

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli

pytestmark = pytest.mark.anyio

TOKEN = "a-token-of-sixteen-characters"  # noqa: S105 (of this test)
#: Runs the command line where the libraries of some protocols cannot be found.
NO_LIBRARIES = """
import sys
from turnwright.cli import main
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("a2a", "acp", "mcp"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
main()
"""
HELLO = {"id": "c1", "messages": [{"role": "user", "parts": [{"type": "text", "text": "hello"}]}]}


async def test_doors_share_a_token_and_leave_other_paths_to_the_pages() -> None:
    async with make_engine() as engine:
        routes = door_routes(engine, [AGENT], token_gate(TOKEN), ["responses", "ui"])
        app = BesidePages(routes, PlainTextResponse("page"))
        program, stranger = (
            Client(app, {"authorization": f"Bearer {TOKEN}"}),
            Client(app, {"authorization": "Bearer x"}),
        )
        assert (await stranger.send("GET", "/turns")).text == "page"
        for path, body in (("/v1/responses", {"model": "subject", "input": "hello"}), ("/api/chat", HELLO)):
            refusal = await stranger.send("POST", path, body)
            assert (refusal.status, "the token is wrong" in refusal.text) == (401, True)
            assert "You said: hello" in (await program.send("POST", path, body)).text.replace('"}', "")
        refusal = await Client(app).send("GET", "/v1/models")
        assert (refusal.status, refusal.headers["www-authenticate"]) == (401, "Bearer")
        assert "the token is missing: send the server's, Authorization: Bearer TOKEN" in refusal.text
        assert (await program.send("GET", "/v1/models")).json()["data"][0]["id"] == "subject"


async def test_doors_share_the_bounds() -> None:
    async with make_engine() as engine:
        routes = door_routes(engine, [AGENT], token_gate(TOKEN, Bounds(requests=0)), ["responses", "ui"])
        program = Client(BesidePages(routes, PlainTextResponse("page")), {"authorization": f"Bearer {TOKEN}"})
        assert (await program.send("POST", "/api/chat", HELLO)).status == 503
        assert (await program.send("GET", "/v1/models")).status == 503


async def test_program_gets_no_page_instead_of_a_route() -> None:
    async with make_engine() as engine:
        app = BesidePages(door_routes(engine, [AGENT], token_gate(TOKEN), ["responses"]), PlainTextResponse("page"))
        program = Client(app, {"authorization": f"Bearer {TOKEN}"})
        replies = [await program.send("POST", path, {}) for path in ("/v1/embeddings", "/v1/responses/compact")]
        assert [(reply.status, "page" in reply.text) for reply in replies] == [(404, False), (404, False)]
        assert (await program.send("GET", "/v10")).text == "page"


async def test_mcp_is_served_beside_the_others() -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    async with (
        make_engine() as engine,
        open_doors(engine, [AGENT], token_gate(TOKEN), ["mcp", "responses"]) as routes,
    ):
        app = BesidePages(routes, PlainTextResponse("page"))
        program = Client(app, {"authorization": f"Bearer {TOKEN}", "accept": "application/json, text/event-stream"})
        assert (await Client(app).send("POST", "/mcp", call)).status == 401
        assert "jsonrpc" in (await program.send("POST", "/mcp", call)).text
        assert (await program.send("GET", "/v1/models")).status == 200


async def test_door_at_the_root_leaves_its_pages_alone() -> None:
    async with make_engine() as engine:
        app = BesidePages(door_routes(engine, [AGENT], token_gate(TOKEN), ["a2a"]), PlainTextResponse("page"))
        program = Client(app, {"authorization": f"Bearer {TOKEN}", "a2a-version": "1.0"})
        assert (await program.send("GET", "/")).text == "page"
        call = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
        assert (await program.send("POST", "/", call)).json()["result"]["tasks"] == []
        assert "bearer" in (await Client(app).send("GET", "/.well-known/agent-card.json")).json()["securitySchemes"]


@pytest.mark.parametrize("door", ["a2a", "responses", "ui"])
async def test_client_is_asked_for_its_own_approval_and_waits_for_others(door: str) -> None:
    """Of two people who must approve, the client's is one. It follows the turn until the other has approved."""

    @tool(needs_approval=True, approvers=2)
    async def pay() -> str:
        """Pay."""
        return "paid"

    async def approve_later(engine: Engine) -> None:
        (row,) = await engine.turns()
        with anyio.fail_after(10):
            while not (await engine.get(row.id)).interrupts[0].approved_by:
                await anyio.lowlevel.checkpoint()
        for _ in range(1000):  # more than another question would take
            await anyio.lowlevel.checkpoint()
        await engine.answer(row.id, {"approval-1": True}, by="bob")

    async with Engine(model=ScriptedModel(asks_for(("pay", {})), "Done."), tools=[pay], poll_interval=0.02) as engine:
        client = Client(Starlette(routes=door_routes(engine, [AGENT], Gate(lambda *_: "ann"), [door])), VERSION)
        if door == "a2a":
            path = "/message:send"
            task = (await client.send("POST", path, {"message": message("Pay.")})).json()["task"]
            body: Json = {"message": message("yes", task=task["id"])}
        elif door == "responses":
            path = "/v1/responses"
            response = (await client.send("POST", path, {"model": "subject", "input": "Pay."})).json()
            name = next(item["id"] for item in response["output"] if item["type"] == "mcp_approval_request")
            answer = {"type": "mcp_approval_response", "approval_request_id": name, "approve": True}
            body = {"model": "subject", "input": [answer], "previous_response_id": response["id"]}
        else:
            path, page = "/api/chat", ChatPage()
            body = {"id": "c1", "messages": [page.say("Pay.")]}
            page.read((await client.send("POST", path, body)).data())
            body["messages"] = [page.respond(approved=True)]
        async with anyio.create_task_group() as group:
            group.start_soon(approve_later, engine)
            reply = await client.send("POST", path, body)
            assert "Done." in reply.text
            assert ("may pay run?" in reply.text) == (door == "a2a"), "only the history of a task has the question"


async def test_unknown_door_is_refused() -> None:
    async with make_engine() as engine:
        with pytest.raises(ConfigError, match="no protocol 'smtp': use a2a, mcp, responses, ui"):
            door_routes(engine, [AGENT], token_gate(TOKEN), ["smtp"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--http", "ui"], "--http: needs --drive"),
        (["--drive", "--http", "smtp", "--port", "0", "--model", "openai/gpt-5-mini"], "no protocol 'smtp'"),
        (["--drive", "--http", "mpc"], "no protocol 'mpc'"),
        (["--drive", "--http", "ui", "--agents", "none.md"], "none.md"),
        (["--http", "mpc", "--port", "-7"], "no protocol 'mpc'"),
    ],
)
def test_command_refuses_other_doors(cli: "Cli", options: list[str], words: str) -> None:
    answer = cli.run("serve", *options)
    assert answer.code == 2
    assert words in answer.err
    assert not list(cli.folder.glob("*.db*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["serve", "--drive", "--http", "a2a", "--port", "0"], "pip install 'turnwright-protocols[a2a]'"),
        (["serve", "--drive", "--http", "mcp", "--port", "0"], "pip install 'turnwright-protocols[mcp]'"),
        (["mcp", "serve"], "pip install 'turnwright-protocols[mcp]'"),
        (["acp"], "pip install 'turnwright-protocols[acp]' (Python below 3.15)"),
    ],
)
def test_command_names_the_extra_of_a_missing_library(cli: "Cli", arguments: list[str], remedy: str) -> None:
    options = [*arguments, "--model", "openai/gpt-5-mini"]
    answer = Python(None).run("-c", NO_LIBRARIES, *options, folder=cli.folder, env=cli.env)
    assert (answer.returncode, answer.stderr.endswith(f"{remedy}\n"), "bug" in answer.stderr) == (2, True, False)


@pytest.mark.slow
def test_command_serves_mcp_and_logs_no_fault_of_a_client(cli: "Cli") -> None:
    options = ["--drive", "--http", "a2a,mcp", "--port", "0", "--model", "openai/gpt-5-mini", "--token", TOKEN]
    server = cli.start("serve", *options)
    headers = {"authorization": f"Bearer {TOKEN}", "a2a-version": "1.0"}
    with httpx.Client(headers=headers, timeout=60) as program:
        address = server.shows("http").partition("/?")[0]
        for method, params in (("Nothing", {}), ("SendMessage", {"message": 7}), ("message/send", {"message": 7})):
            call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            assert "error" in program.post(address, json=call).json()
        call = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
        accept = {"accept": "application/json, text/event-stream"}
        assert "jsonrpc" in program.post(f"{address}/mcp", json=call, headers=accept).text
    assert server.terminate().done().err == ""
