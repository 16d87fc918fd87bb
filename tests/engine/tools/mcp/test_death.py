"""Servers that die, hang or do not start: the model gets their last output, and they are restarted.

The server is a program of our own, which speaks the protocol as far as these tests need it.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import anyio
import mcp_types as types
import pytest
from mcp import MCPError
from pydantic import JsonValue

from turnwright import Agent, Engine
from turnwright.errors import ConfigError
from turnwright.message import ToolResultPart
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.tools import Tool, ToolContext, ToolError, ToolResult, ToolTimeoutError
from turnwright.tools.mcp import McpServer, mcp_servers, mcp_tools
from turnwright.tools.mcp.session import McpSession
from turnwright.tools.mcp.tool import McpTool
from turnwright_states import CallStatus

from .conftest import Context, Stage

pytestmark = pytest.mark.anyio

Entry = dict[str, JsonValue]
HERE = ToolContext(turn_id="t1", call_id="c1")
SECRET = "hunter2-0123456789"  # noqa: S105 (nobody's)
#: It counts its lives in a file, and says which one it is in.
PROGRAM = """
import json, os, signal, sys, time
lives = open(sys.argv[1], "a+"); lives.write("x"); lives.flush(); lives.seek(0); life = len(lives.read())
if len(sys.argv) > 2 and life >= int(sys.argv[2]):
    print("no more lives; the key is", os.environ["KEY"], file=sys.stderr); sys.exit(3)
names = ["which", "die", "hang", "read_a", "read_b"] + sys.argv[3:]
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked: continue
    method, answer = asked["method"], {}
    if method == "initialize":
        answer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "mortal", "version": "1"}}
    elif method == "tools/list":
        answer = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
    elif method == "tools/call":
        if asked["params"]["name"] == "die":
            print("I am dying, with", os.environ["KEY"], file=sys.stderr, flush=True); os._exit(1)
        if asked["params"]["name"] == "hang": continue
        if asked["params"]["name"] == "go_deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN); os.close(1)
            while True: time.sleep(1)
        answer = {"content": [{"type": "text", "text": f"life {life}, process {os.getpid()}"}]}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
"""


@pytest.fixture
def mortal(tmp_path: Path) -> Entry:
    """The entry of that program in a configuration."""
    program = tmp_path / "mortal.py"
    program.write_text(PROGRAM)
    words: list[JsonValue] = ["-I", str(program), str(tmp_path / "lives")]
    return {"command": sys.executable, "args": words, "env": {"KEY": SECRET}, "approve": "never"}


def arguments(entry: Entry) -> list[JsonValue]:
    words = entry["args"]
    assert isinstance(words, list)
    return words


def configured(entry: Entry, **fields: JsonValue) -> dict[str, McpServer]:
    return mcp_servers({"mcpServers": {"m": entry | fields}})


async def test_server_dying_in_a_call_is_restarted_for_the_next_call(mortal: Entry) -> None:
    model = ScriptedModel(asks_for(("m__die", {})), asks_for(("m__which", {})), "Done.")
    async with mcp_tools(configured(mortal)) as tools, Engine(model=model, tools=tools) as engine:
        turn = await engine.run(Agent(name="A"), "hi")
    assert turn.text == "Done."
    results = [part for message in turn.messages for part in message.parts if isinstance(part, ToolResultPart)]
    assert [part.status for part in results] == [CallStatus.ERROR, CallStatus.OK]
    assert results[0].text == (
        "server m has died; it wrote: I am dying, with ***: part of the call's work may be done; the next call"
        " restarts the server"
    )
    assert results[1].text.startswith("life 2,")


@pytest.mark.slow
async def test_server_refusing_to_end_keeps_no_call_waiting(mortal: Entry) -> None:
    """It neither answers nor ends: the call fails, and the next one has a new server while the old one still lives."""
    mortal["args"] = [*arguments(mortal), "99", "go_deaf"]
    async with mcp_tools(configured(mortal)) as (which_life, *_, go_deaf):
        process = int((await which_life.run({}, HERE)).text.rsplit(" ", 1)[1])
        with pytest.raises(ToolError, match="server m has died"):
            await go_deaf.run({}, HERE)
        os.kill(process, 0)
        assert (await which_life.run({}, HERE)).text.startswith("life 2,")
        os.kill(process, signal.SIGKILL)


async def test_server_killed_between_calls_is_restarted(mortal: Entry) -> None:
    """At once if its end was noticed. A call that was sent already fails."""
    async with mcp_tools(configured(mortal)) as (which_life, *_):
        first = await which_life.run({}, HERE)
        os.kill(int(first.text.rsplit(" ", 1)[1]), signal.SIGKILL)
        try:
            again = await which_life.run({}, HERE)
        except ToolError as error:
            assert str(error).startswith("server m has died")  # noqa: PT017 (either of the two may be)
            again = await which_life.run({}, HERE)
    assert again.text.startswith("life 2,")


async def test_failed_restart_is_an_error_of_each_call(mortal: Entry) -> None:
    mortal["args"] = [*arguments(mortal), "2"]
    async with mcp_tools(configured(mortal)) as (which_life, die, *_):
        with pytest.raises(ToolError, match="server m has died"):
            await die.run({}, HERE)
        for _ in range(2):
            with pytest.raises(ToolError) as caught:
                await which_life.run({}, HERE)
            assert str(caught.value) == (
                "server m is down and could not be restarted: it ended before it was ready; it wrote: no"
                " more lives; the key is ***"
            )


async def test_death_of_a_server_fails_all_parallel_calls(mortal: Entry) -> None:
    errors: list[str] = []

    async def fail(tool: Tool) -> None:
        with pytest.raises(ToolError) as caught:
            await tool.run({}, HERE)
        errors.append(str(caught.value))

    async with mcp_tools(configured(mortal)) as (which_life, die, hang, *_):
        async with anyio.create_task_group() as group:
            group.start_soon(fail, hang)
            group.start_soon(fail, hang)
            group.start_soon(fail, die)
        assert (await which_life.run({}, HERE)).text.startswith("life 2,"), "it was started once"
    assert len(errors) == 3
    assert all(error.startswith("server m has died") for error in errors)


@pytest.mark.slow
async def test_hanging_server_ends_the_call_and_stays(mortal: Entry) -> None:
    async with mcp_tools(configured(mortal, timeout=2)) as (which_life, _die, hang, *_):
        with pytest.raises(ToolTimeoutError):
            await hang.run({}, HERE)
        assert (await which_life.run({}, HERE)).text.startswith("life 1,")


async def test_server_dying_at_the_start_is_reported_with_the_last_output(mortal: Entry) -> None:
    mortal["args"] = [*arguments(mortal), "1"]
    with pytest.raises(ConfigError) as caught:
        async with mcp_tools(configured(mortal)):
            pass
    assert str(caught.value) == (
        "MCP server 'm' does not start: it ended before it was ready; it wrote: no more lives; the key is ***"
    )


async def test_server_without_a_ready_signal_is_given_up(tmp_path: Path) -> None:
    """And so are those that did start."""
    entry: Entry = {
        "command": sys.executable,
        "args": ["-Ic", "import sys; sys.stdin.read()"],
        "startup_timeout_sec": 0.5,
    }
    with pytest.raises(ConfigError, match=r"MCP server 'm' does not start: it was not ready within 0\.5 s"):
        async with mcp_tools(configured(entry, cwd=str(tmp_path))):
            pass


async def test_server_that_writes_logs_as_messages_is_reported(tmp_path: Path) -> None:
    entry: Entry = {
        "command": sys.executable,
        "args": ["-Ic", f"import sys; print('Ready at {SECRET}', flush=True); sys.stdin.read()"],
        "env": {"KEY": SECRET},
        "startup_timeout_sec": 1,
    }
    with pytest.raises(ConfigError) as caught:
        async with mcp_tools(configured(entry, cwd=str(tmp_path))):
            pass
    assert str(caught.value) == (
        "MCP server 'm' does not start: it was not ready within 1 s; it wrote: in place of a message: Ready at ***"
    )


async def test_unreachable_server_is_reported() -> None:
    server = McpServer(type="http", url="http://127.0.0.1:9/mcp", headers={"Authorization": f"Bearer {SECRET}"})
    with pytest.raises(ConfigError, match="MCP server 'm' does not start: ConnectError: ") as caught:
        async with mcp_tools({"m": server}):
            pass
    assert SECRET not in str(caught.value)


@pytest.fixture
def refusing() -> Iterator[str]:
    """The address of an HTTP server that lets nobody in."""

    class Refuse(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(401)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 (its name there)

    with ThreadingHTTPServer(("127.0.0.1", 0), Refuse) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("path", [f"/mcp?api_key={SECRET}", f"/{SECRET}/mcp"])
@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_the_key_in_an_address_is_in_no_error_and_in_no_log(
    refusing: str, kind: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor in what the libraries log that talk for us."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ConfigError) as caught:
        async with mcp_tools({"m": McpServer.model_validate({"type": kind, "url": refusing + path})}):
            pass
    assert "HTTP Request" in caplog.text
    assert SECRET not in str(caught.value) + caplog.text


@pytest.mark.parametrize("answer", ["visit", "fail", "refuse"])
async def test_an_error_of_a_server_shows_no_secret(stage: Stage, answer: str) -> None:
    """Be it an error of the protocol, one that should name an address, or a result that says that it is one."""

    @stage.tool("act")
    async def act(_context: Context, _params: object) -> types.CallToolResult:
        text = f"{SECRET} may not"
        if answer == "refuse":
            return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
        code = types.URL_ELICITATION_REQUIRED if answer == "visit" else types.INVALID_PARAMS
        raise MCPError(code, text, {"elicitations": []})

    async with anyio.create_task_group() as group:
        session = McpSession("s", stage.server, group, startup=5, secrets=frozenset({SECRET}))
        (listed,) = await session.start()
        act_tool = McpTool(session, listed, name="s__act", policy="never", approved=True, timeout=5)
        with pytest.raises(ToolError, match=r"\*\*\* may not$"):
            await act_tool.run({}, HERE)
        await session.close()


async def test_server_output_goes_to_a_log_and_not_to_the_terminal(
    mortal: Entry, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, logger="turnwright.tools.mcp.connect")
    async with mcp_tools(configured(mortal)) as (_which_life, die, *_):
        with pytest.raises(ToolError):
            await die.run({}, HERE)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("turnwright")] == [
        "m: I am dying, with ***"
    ]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("fields", "offered"),
    [
        ({"includeTools": ["read_*"]}, ["read_a", "read_b"]),
        ({"disabledTools": ["die", "hang", "read_?"]}, ["which"]),
        ({"enabledTools": ["which", "die"], "disabledTools": ["die"]}, ["which"]),
        ({"tools": []}, []),
    ],
)
async def test_a_configuration_chooses_among_the_tools(mortal: Entry, fields: Entry, offered: list[str]) -> None:
    async with mcp_tools(configured(mortal, **fields)) as tools:
        assert [tool.name for tool in tools] == [f"m__{name}" for name in offered]


async def test_configuration_names_calls_without_need_for_approval(mortal: Entry) -> None:
    """Of each tool, or of each that the policy asks about."""

    async def asked(**fields: JsonValue) -> list[str]:
        async with mcp_tools(configured(mortal, **fields)) as tools:
            return [tool.name for tool in tools if tool.asks({}, HERE) is not None]

    assert await asked(approve="annotated", autoApprove=["read_*", "which"]) == ["m__die", "m__hang"]
    assert await asked(approve="always", alwaysAllow="*") == []


async def test_ended_connection_counts_as_a_death(stage: Stage) -> None:
    """With any transport that can be opened again."""

    @stage.tool("die")
    async def die(_context: Context, _params: object) -> str:
        await stage.dies()
        return "this is never read"

    stage.says("hello", "hi")
    async with mcp_tools({"s": stage.old}) as tools:
        with pytest.raises(ToolError, match="server s has died"):
            await tools[0].run({}, HERE)
        assert await tools[1].run({}, HERE) == ToolResult("hi")
    assert stage.lives == 2
