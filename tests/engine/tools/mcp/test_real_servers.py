"""Servers that others wrote: the protocol's reference servers, over stdio and over streamable HTTP.

`make test-all` puts them into the environment, where npm is there; `TURNWRIGHT_MCP_SERVERS` names another folder.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio
import pytest
from pydantic import JsonValue

from turnwright import Agent, Engine, TurnResult
from turnwright.message import ToolResultPart
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright.tools import Tool, ToolContext, ToolError, ToolTimeoutError
from turnwright.tools.mcp import McpServer, mcp_tools
from turnwright.transcript.events import FactEvent, ToolProgressEvent, TurnEvent
from turnwright_states import CallStatus, InterruptKind, Outcome
from turnwright_states import facts as f

FOLDER: Final = Path(os.environ.get("TURNWRIGHT_MCP_SERVERS", Path(sys.prefix) / "mcp-servers")) / "node_modules"
EVERYTHING: Final = FOLDER / "@modelcontextprotocol/server-everything/dist/index.js"
FILESYSTEM: Final = FOLDER / "@modelcontextprotocol/server-filesystem/dist/index.js"
NODE: Final = shutil.which("node")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        NODE is None or not EVERYTHING.is_file() or not FILESYSTEM.is_file(),
        reason="the reference servers are not there: install npm, then `make test-all` fetches them",
    ),
]

AGENT = Agent(name="A")
HERE = ToolContext(turn_id="t1", call_id="c1")
LONG: tuple[str, dict[str, JsonValue]] = ("e__trigger-long-running-operation", {"duration": 30, "steps": 300})
SHORT: tuple[str, dict[str, JsonValue]] = ("e__trigger-long-running-operation", {"duration": 0.5, "steps": 4})


class Http:
    """`server-everything` over HTTP, which can be killed and started again at the same address."""

    def __init__(self, mode: str = "streamableHttp") -> None:
        self._mode = mode
        with socket.socket() as free_socket:
            free_socket.bind(("127.0.0.1", 0))
            self.port: int = free_socket.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._process = subprocess.Popen(
            [str(NODE), str(EVERYTHING), self._mode],
            env=os.environ | {"PORT": str(self.port)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if b"listening" in line or b"is running" in line:
                return
        pytest.fail("server-everything does not listen")

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@pytest.fixture
def http() -> Iterator[Http]:
    server = Http()
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=["stdio", "http"])
def everything(request: pytest.FixtureRequest) -> McpServer:
    """The way to `server-everything`, over either transport."""
    if request.param == "http":
        return McpServer(type="http", url=request.getfixturevalue("http").url)
    return McpServer(command=str(NODE), args=(str(EVERYTHING), "stdio"))


def by_name(tools: list[Tool]) -> dict[str, Tool]:
    return {tool.name: tool for tool in tools}


def results(turn: TurnResult) -> list[tuple[CallStatus, str]]:
    parts = (part for message in turn.messages for part in message.parts)
    return [(part.status, part.text) for part in parts if isinstance(part, ToolResultPart)]


async def test_tools_of_a_real_server_are_listed_and_called(everything: McpServer) -> None:
    async with mcp_tools({"e": everything}) as tools:
        offered = by_name(tools)
        assert {"e__echo", "e__get-sum", "e__get-tiny-image", "e__trigger-elicitation-request"} <= offered.keys()
        assert "e__simulate-research-query" not in offered, "it can only be called as a task"
        assert "e__trigger-sampling-request" not in offered, "we do not sample for servers"
        assert (await offered["e__get-sum"].run({"a": 2, "b": 40}, HERE)).text == "The sum of 2 and 40 is 42."
        weather = await offered["e__get-structured-content"].run({"location": "Chicago"}, HERE)
        assert isinstance(weather.structured, dict)
        assert set(weather.structured) == {"temperature", "conditions", "humidity"}
        (picture,) = (await offered["e__get-tiny-image"].run({}, HERE)).files
        assert picture.media_type == "image/png"
        links = await offered["e__get-resource-links"].run({"count": 2}, HERE)
        assert links.text.count("[resource ") == 2
        with pytest.raises(ToolError, match="message"):
            await offered["e__echo"].run({"massage": "x"}, HERE)


async def test_deprecated_sse_transport_is_supported() -> None:
    server = Http("sse")
    server.start()
    try:
        async with mcp_tools({"e": McpServer(type="sse", url=server.url.replace("/mcp", "/sse"))}) as tools:
            assert (await by_name(tools)["e__echo"].run({"message": "hi"}, HERE)).text == "Echo: hi"
    finally:
        server.kill()


async def test_long_operation_reports_progress(everything: McpServer) -> None:
    progress: list[tuple[float, float | None]] = []

    def hear(event: TurnEvent) -> None:
        if isinstance(event, ToolProgressEvent):
            progress.append((event.progress, event.total))

    model = ScriptedModel(asks_for(SHORT), "Done.")
    async with mcp_tools({"e": everything}) as tools, Engine(model=model, tools=tools, on_event=[hear]) as engine:
        turn = await engine.run(AGENT, "hi")
    ((status, text),) = results(turn)
    assert (status, text.startswith("Long running operation completed")) == (CallStatus.OK, True)
    assert progress[:3] == [(1.0, 4.0), (2.0, 4.0), (3.0, 4.0)], "the last may come after the result"


async def test_abort_of_the_turn_leaves_the_server_running(everything: McpServer) -> None:
    async with mcp_tools({"e": everything}) as tools:
        engine = Engine(model=ScriptedModel(asks_for(LONG)), tools=tools, cancel_grace=0.01)
        async with engine, engine.stream(AGENT, "hi") as events:
            async for event in events:
                if isinstance(event, FactEvent) and isinstance(event.fact, f.CallStarted):
                    await engine.abort(event.turn)
                if isinstance(event, FactEvent) and isinstance(event.fact, f.TurnEnded):
                    assert event.fact.outcome is Outcome.ABORTED
        assert (await by_name(tools)["e__echo"].run({"message": "still here"}, HERE)).text == "Echo: still here"


async def test_slow_call_times_out(everything: McpServer) -> None:
    async with mcp_tools({"e": everything}, timeout=0.3) as tools:
        with pytest.raises(ToolTimeoutError):
            await by_name(tools)[LONG[0]].run(LONG[1], HERE)


async def test_question_of_a_real_server_pauses_the_turn(everything: McpServer) -> None:
    """And the answer is read as its form wants it, by a server that has just been started."""
    store, model = MemoryStore(), ScriptedModel(asks_for(("e__trigger-elicitation-request", {})), "Done.")
    async with mcp_tools({"e": everything}, approve="never") as tools:
        paused = await Engine(model=model, tools=tools, store=store).run(AGENT, "hi")
    (open_,) = paused.interrupts
    assert open_.kind is InterruptKind.QUESTION
    assert "- integer (integer; at least 1; at most 100; default 42)" in open_.question
    async with mcp_tools({"e": everything}, approve="never") as tools:
        engine = Engine(model=model, tools=tools, store=store)
        again = await engine.resume(paused.id, {open_.id: "name=Ada\ninteger=700"})
        assert "integer: 700 is greater than the maximum of 100" in again.interrupts[0].question
        done = await engine.resume(paused.id, {again.interrupts[0].id: '{"name": "Ada", "integer": 7, "check": true}'})
    ((status, text),) = results(done)
    assert status is CallStatus.OK
    assert all(line in text for line in ("- Name: Ada", "- Agreed to terms: true", "- Favorite Integer: 7"))


async def test_address_to_visit_is_a_question(everything: McpServer) -> None:
    """First for its error, and then, in a new session, for its request."""
    store = MemoryStore()
    arguments: dict[str, JsonValue] = {"url": "https://example.com/pay", "errorPath": True}
    model = ScriptedModel(asks_for(("e__trigger-url-elicitation", arguments)), "Done.")
    questions: list[str] = []
    async with mcp_tools({"e": everything}, approve="never") as tools:
        turn: TurnResult = await Engine(model=model, tools=tools, store=store).run(AGENT, "hi")
    while turn.paused:
        (open_,) = turn.interrupts
        questions.append(open_.question)
        async with mcp_tools({"e": everything}, approve="never") as tools:
            turn = await Engine(model=model, tools=tools, store=store).resume(turn.id, {open_.id: "done"})
    assert ["pay" in question for question in questions] == [False, True]
    assert "User completed the URL elicitation flow" in results(turn)[0][1]


async def test_a_process_killed_in_a_call_is_started_again(tmp_path: Path) -> None:
    script = f'echo $$ > {tmp_path}/pid; exec "{NODE}" "{EVERYTHING}" stdio'
    server = McpServer(command="sh", args=("-c", script))
    progressed = anyio.Event()
    model = ScriptedModel(asks_for(LONG), asks_for(("e__echo", {"message": "back"})), "Done.")

    def hear(event: TurnEvent) -> None:
        if isinstance(event, ToolProgressEvent) and not progressed.is_set():
            progressed.set()
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    async with mcp_tools({"e": server}) as tools, Engine(model=model, tools=tools, on_event=[hear]) as engine:
        turn = await engine.run(AGENT, "hi")
    (died, echo) = results(turn)
    assert died[0] is CallStatus.ERROR
    assert died[1].startswith("server e has died")
    assert (echo, turn.text) == ((CallStatus.OK, "Echo: back"), "Done.")


async def test_server_gone_from_the_address_is_reached_again_later(http: Http) -> None:
    model = ScriptedModel(
        asks_for(LONG), asks_for(("e__echo", {"message": "1"})), asks_for(("e__echo", {"message": "2"})), "Done."
    )
    calls: list[str] = []

    def hear(event: TurnEvent) -> None:
        if isinstance(event, ToolProgressEvent) and not calls:
            calls.append("killed")
            http.kill()
        if isinstance(event, FactEvent) and isinstance(event.fact, f.CallSettled):
            calls.append(event.fact.call)
            if len(calls) == 3:
                http.start()

    server = McpServer(type="http", url=http.url)
    async with mcp_tools({"e": server}) as tools, Engine(model=model, tools=tools, on_event=[hear]) as engine:
        turn = await engine.run(AGENT, "hi")
    died, missing, echo = results(turn)
    assert died[1].startswith("server e has died")
    assert "server e is down and could not be restarted: ConnectError" in missing[1]
    assert echo == (CallStatus.OK, "Echo: 2")


async def test_server_without_our_session_is_initialized_again(http: Http) -> None:
    """It was started anew between two calls: it refuses the first of them, and nothing is lost."""
    async with mcp_tools({"e": McpServer(type="http", url=http.url)}) as tools:
        echo = by_name(tools)["e__echo"]
        assert (await echo.run({"message": "1"}, HERE)).text == "Echo: 1"
        http.kill()
        http.start()
        assert (await echo.run({"message": "2"}, HERE)).text == "Echo: 2"


async def test_calls_over_http_ask_side_by_side(http: Http) -> None:
    """There the stream identifies the call: none is repeated before a person has answered."""
    url: dict[str, JsonValue] = {"url": "https://example.com/pay"}
    model = ScriptedModel(
        asks_for(("e__trigger-elicitation-request", {}), ("e__trigger-url-elicitation", url)), "Done."
    )
    server = McpServer(type="http", url=http.url)
    async with (
        mcp_tools({"e": server}, approve="never") as tools,
        Engine(model=model, tools=tools) as engine,
    ):
        paused = await engine.run(AGENT, "hi")
        assert {open_.tool: "pay" in open_.question for open_ in paused.interrupts} == {
            "e__trigger-elicitation-request": False,
            "e__trigger-url-elicitation": True,
        }
        answers = {open_.id: "done" if "pay" in open_.question else "name=Ada" for open_ in paused.interrupts}
        done = await engine.resume(paused.id, answers)
    (form, visit) = results(done)
    assert "- Name: Ada" in form[1]
    assert "User completed the URL elicitation flow" in visit[1]


async def test_files_are_read_at_once_and_written_when_a_person_agrees(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    server = McpServer(command=str(NODE), args=(str(FILESYSTEM), str(tmp_path)))
    model = ScriptedModel(
        asks_for(("fs__read_text_file", {"path": str(tmp_path / "a.txt")})),
        asks_for(("fs__write_file", {"path": str(tmp_path / "b.txt"), "content": "beta"})),
        "Done.",
    )
    async with mcp_tools({"fs": server}) as tools, Engine(model=model, tools=tools) as engine:
        paused = await engine.run(AGENT, "hi")
        assert results(paused) == [(CallStatus.OK, "alpha")]
        assert [(open_.kind, open_.tool) for open_ in paused.interrupts] == [(InterruptKind.APPROVAL, "fs__write_file")]
        assert not (tmp_path / "b.txt").exists()
        done = await engine.resume(paused.id, {paused.interrupts[0].id: True})
        with pytest.raises(ToolError, match="outside allowed directories"):
            await by_name(tools)["fs__read_text_file"].run({"path": "/etc/hostname"}, HERE)
    assert done.text == "Done."
    assert (tmp_path / "b.txt").read_text() == "beta"
