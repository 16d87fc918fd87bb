"""A server's tools as tools of ours: which are offered, who approves of them, what calls give and send."""

import base64
import logging
from pathlib import Path

import anyio
import mcp_types as types
import pytest
from mcp import MCPError
from mcp.client import Client

from turnwright import Agent, Engine
from turnwright.errors import ConfigError
from turnwright.message import FilePart
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.tools import Tool, ToolContext, ToolError, ToolResult, ToolTimeoutError
from turnwright.tools.mcp import McpHints, McpServer, Policy, mcp_tools
from turnwright.transcript.events import FactEvent, ToolProgressEvent, TurnEvent
from turnwright_states import InterruptKind
from turnwright_states import facts as f

from .conftest import Context, Stage, Target

pytestmark = pytest.mark.anyio

HERE = ToolContext(turn_id="t1", call_id="c1", attempt=2)
PIXEL = base64.b64encode(b"\x89PNG...").decode()


def by_name(tools: list[Tool]) -> dict[str, Tool]:
    return {tool.name: tool for tool in tools}


async def test_tool_is_offered_as_described_by_the_server(stage: Stage, target: Target) -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    stage.says("read", description="Read a file.", input_schema=schema)
    stage.says("bare", title="Only a title")
    async with mcp_tools({"files": target}) as tools:
        assert [tool.name for tool in tools] == ["files__read", "files__bare"]
        assert [tool.description for tool in tools] == ["Read a file.", "Only a title"]
        assert [tool.parameters for tool in tools] == [schema | {}, {"type": "object", "properties": {}}]
        assert tools[0].timeout == 300


async def test_dangling_reference_is_a_warning_and_accepts_any_value(
    stage: Stage, target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}, "b": {"$ref": "#/$defs/b"}}}
    stage.says("read", input_schema=schema | {"$defs": {"b": {"type": "string"}}})
    async with mcp_tools({"files": target}) as tools:
        assert tools[0].parameters["properties"] == {"a": {}, "b": {"$ref": "#/$defs/b"}}
    (warning,) = [message for message in caplog.messages if "inputSchema" in message]
    assert warning.startswith(
        "MCP server 'files': tool 'read': inputSchema: properties.a.$ref: 'https://example.com/a.json'"
    )


async def test_all_pages_of_the_list_are_read(stage: Stage, target: Target) -> None:
    for number in range(5):
        stage.says(f"tool{number}")
    stage.page = 2
    async with mcp_tools({"s": target}) as tools:
        assert [tool.name for tool in tools] == [f"s__tool{number}" for number in range(5)]


async def test_tools_of_two_servers_have_names_of_their_own(stage: Stage) -> None:
    stage.says("b__c")
    stage.says("c")
    async with mcp_tools({"a": stage.server, "a__b": stage.server}) as tools:
        names = [tool.name for tool in tools]
        assert len(set(names)) == 4
        assert await by_name(tools)["a__c"].run({}, HERE) == ToolResult("done")


async def test_two_servers_with_the_same_name_are_refused(stage: Stage) -> None:
    with pytest.raises(ConfigError, match="two MCP servers with the name 'a'"):
        async with mcp_tools({"a": stage.server}, {"a": stage.old}):
            pass


async def test_wrong_server_object_is_refused() -> None:
    with pytest.raises(ConfigError, match="MCP server 'a': give an McpServer"):
        async with mcp_tools({"a": 7}):
            pass


async def test_a_client_of_the_callers_own_stays_open(stage: Stage) -> None:
    stage.says("hello", "hi")
    async with Client(stage.server) as client:
        async with mcp_tools({"s": client}) as tools:
            assert await tools[0].run({}, HERE) == ToolResult("hi")
        assert (await client.list_tools()).tools


@pytest.mark.parametrize(
    ("hints", "asks", "read_only", "idempotent"),
    [
        (None, True, None, False),
        ({}, True, None, False),
        ({"read_only_hint": True}, False, True, True),
        ({"read_only_hint": False}, True, False, False),
        ({"destructive_hint": False}, True, None, False),
        ({"open_world_hint": False}, True, None, False),
        ({"destructive_hint": False, "open_world_hint": False}, False, None, False),
        ({"idempotent_hint": True}, True, None, True),
    ],
)
async def test_hints_decide_about_approval(
    stage: Stage, hints: dict[str, bool] | None, *, asks: bool, read_only: bool | None, idempotent: bool
) -> None:
    """With the protocol's defaults: what a server does not say may destroy, and reaches the world."""
    stage.says("x", annotations=None if hints is None else types.ToolAnnotations.model_validate(hints))
    async with mcp_tools({"s": stage.server}) as (tool,):
        assert (tool.asks({}, HERE) is not None) is asks
        assert (tool.read_only, tool.idempotent) == (read_only, idempotent)
        assert tool.on_crash == ("rerun" if idempotent else "unknown")


async def test_a_policy_decides_instead_of_the_hints(stage: Stage) -> None:
    """Under `always` the hints are not believed at all."""
    stage.says("reads", annotations=types.ToolAnnotations(read_only_hint=True))
    stage.says("writes")

    async def asked(policy: Policy = "annotated") -> list[bool]:
        async with mcp_tools({"s": stage.server}, approve=policy) as tools:
            return [tool.asks({}, HERE) is not None for tool in tools]

    def hers(hints: McpHints) -> bool:
        return hints.tool == "reads"

    assert await asked() == [False, True]
    assert await asked("never") == [False, False]
    assert await asked("always") == [True, True]
    assert await asked(hers) == [True, False]
    async with mcp_tools({"s": stage.server}, approve="always") as tools:
        assert [(tool.read_only, tool.idempotent) for tool in tools] == [(None, False), (None, False)]


async def test_call_needing_approval_pauses_the_turn(stage: Stage) -> None:
    stage.says("erase", "erased")
    model = ScriptedModel(asks_for(("s__erase", {"path": "x"})), "Done.")
    async with mcp_tools({"s": stage.server}) as tools, Engine(model=model, tools=tools) as engine:
        paused = await engine.run(Agent(name="A"), "hi")
        assert [(open_.kind, open_.tool) for open_ in paused.interrupts] == [(InterruptKind.APPROVAL, "s__erase")]
        assert stage.calls == []
        turn = await engine.resume(paused.id, {paused.interrupts[0].id: True})
    assert turn.text == "Done."
    assert [call.arguments for call in stage.calls] == [{"path": "x"}]


async def test_a_result_is_text_data_and_files(stage: Stage, target: Target) -> None:
    blocks: list[types.ContentBlock] = [
        types.TextContent(text="Look:"),
        types.ImageContent(data=PIXEL, mime_type="image/png"),
        types.AudioContent(data=PIXEL, mime_type="audio/wav"),
        types.ResourceLink(uri="file:///a.txt", name="a.txt", description="The notes"),
        types.EmbeddedResource(resource=types.TextResourceContents(uri="file:///b.txt", text="beta")),
        types.EmbeddedResource(resource=types.BlobResourceContents(uri="file:///d/c.gz", blob=PIXEL)),
        types.ImageContent(data="no base64!", mime_type="image/png"),
    ]

    @stage.tool("show", output_schema={"type": "object"})
    async def show(_context: Context, _params: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=blocks, structured_content={"n": 1})

    async with mcp_tools({"s": target}) as (tool,):
        result = await tool.run({}, HERE)
    assert result.text.splitlines() == [
        "Look:",
        "[resource a.txt: file:///a.txt] The notes",
        "[resource file:///b.txt]",
        "beta",
        "[the server sent a file that is left out: data must be base64]",
    ]
    assert result.structured == {"n": 1}
    assert result.files == (
        FilePart(media_type="image/png", data=PIXEL),
        FilePart(media_type="audio/wav", data=PIXEL),
        FilePart(media_type="application/octet-stream", data=PIXEL, name="c.gz"),
    )


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (types.CallToolResult(content=[], structured_content={"a": "ü"}), '{"a": "ü"}'),
        (types.CallToolResult(content=[types.ImageContent(data=PIXEL, mime_type="image/png")]), "(1 file: image/png)"),
        (types.CallToolResult(content=[]), "(no output)"),
    ],
)
async def test_a_result_always_has_a_text(stage: Stage, result: types.CallToolResult, text: str) -> None:
    @stage.tool("x")
    async def x(_context: Context, _params: types.CallToolRequestParams) -> types.CallToolResult:
        return result

    async with mcp_tools({"s": stage.server}) as (tool,):
        assert (await tool.run({}, HERE)).text == text


async def test_error_of_the_tool_or_the_protocol_fails_the_call(stage: Stage, target: Target) -> None:
    @stage.tool("fails")
    async def fails(_context: Context, _params: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(text="no such city")], is_error=True)

    @stage.tool("lies", output_schema={"type": "object", "required": ["n"]})
    async def lies(_context: Context, _params: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=[], structured_content={"m": 1})

    async with mcp_tools({"s": target}) as tools:
        with pytest.raises(ToolError, match=r"^no such city$"):
            await tools[0].run({}, HERE)
        with pytest.raises(ToolError, match="its answer violates the protocol"):
            await tools[1].run({}, HERE)


async def test_missing_tool_at_the_server_fails_the_call(stage: Stage, target: Target) -> None:
    stage.says("old")
    async with mcp_tools({"s": target}) as (tool,):

        @stage.tool("old")
        async def gone(_context: Context, _params: types.CallToolRequestParams) -> str:
            raise MCPError(types.INVALID_PARAMS, "there is no tool 'old' any more")

        with pytest.raises(ToolError, match=r"^server s: there is no tool 'old' any more$"):
            await tool.run({}, HERE)


async def test_server_is_told_the_id_of_the_call(stage: Stage, target: Target) -> None:
    """So that it can see that it has done this before; and that nobody samples for it or shows it roots."""
    stage.says("x")
    async with mcp_tools({"s": target}) as (tool,):
        await tool.run({"a": 1}, HERE)
    (call,) = stage.calls
    assert call.arguments == {"a": 1}
    assert call.meta is not None
    turn_meta = {key: value for key, value in call.meta.items() if key.startswith("turnwright/")}
    assert turn_meta == {
        "turnwright/key": "t1:c1", "turnwright/turn": "t1", "turnwright/call": "c1", "turnwright/attempt": 2
    }  # fmt: skip
    assert stage.capabilities is not None
    assert stage.capabilities.elicitation is not None
    assert (stage.capabilities.sampling, stage.capabilities.roots) == (None, None)


async def test_progress_is_heard_as_the_turns(stage: Stage, target: Target) -> None:
    heard = anyio.Event()

    @stage.tool("slow", types.ToolAnnotations(read_only_hint=True))
    async def slow(context: Context, _params: types.CallToolRequestParams) -> str:
        await context.session.report_progress(1, 3, "began")
        await heard.wait()
        return "done"

    progress: list[tuple[float, float | None, str]] = []

    def hear(event: TurnEvent) -> None:
        if isinstance(event, ToolProgressEvent):
            progress.append((event.progress, event.total, event.message))
            heard.set()

    model = ScriptedModel(asks_for(("s__slow", {})), "Done.")
    async with mcp_tools({"s": target}) as tools, Engine(model=model, tools=tools, on_event=[hear]) as engine:
        turn = await engine.run(Agent(name="A"), "hi")
    assert (turn.text, progress) == ("Done.", [(1.0, 3.0, "began")])


async def test_cancelled_call_is_cancelled_at_the_server(stage: Stage, target: Target) -> None:
    runs, stopped = anyio.Event(), anyio.Event()

    @stage.tool("hangs")
    async def hangs(_context: Context, _params: types.CallToolRequestParams) -> str:
        runs.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()
        return "never"

    async with mcp_tools({"s": target}) as (tool,), anyio.create_task_group() as group:
        group.start_soon(tool.run, {}, HERE)
        await runs.wait()
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await stopped.wait()


async def test_aborting_the_turn_stops_the_servers_work(stage: Stage, target: Target) -> None:
    runs, stopped = anyio.Event(), anyio.Event()

    @stage.tool("hangs", types.ToolAnnotations(read_only_hint=True))
    async def hangs(_context: Context, _params: types.CallToolRequestParams) -> str:
        runs.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()
        return "never"

    async with mcp_tools({"s": target}) as tools:
        engine = Engine(model=ScriptedModel(asks_for(("s__hangs", {}))), tools=tools, cancel_grace=0.01)
        async with engine, engine.stream(Agent(name="A"), "hi") as events:
            async for event in events:
                if isinstance(event, FactEvent) and isinstance(event.fact, f.CallStarted):
                    await runs.wait()
                    await engine.abort(event.turn)
        await stopped.wait()


@pytest.mark.slow
async def test_slow_call_times_out_and_the_server_continues(stage: Stage, target: Target) -> None:
    @stage.tool("hangs")
    async def hangs(_context: Context, _params: types.CallToolRequestParams) -> str:
        await anyio.sleep_forever()
        return "never"

    stage.says("quick")
    async with mcp_tools({"s": target}, timeout=2) as tools:
        with pytest.raises(ToolTimeoutError, match=r"s__hangs did not finish within 2 s"):
            await tools[0].run({}, HERE)
        assert (await tools[1].run({}, HERE)).text == "done", "the server continues"


async def test_changed_list_is_noted_and_offered_next_time(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    @stage.tool("grow")
    async def grow(context: Context, _params: types.CallToolRequestParams) -> str:
        stage.says("more")
        await context.session.send_tool_list_changed()
        return "grown"

    caplog.set_level(logging.INFO, logger="turnwright.tools.mcp.session")
    async with mcp_tools({"s": stage.old}) as tools:
        assert (await tools[0].run({}, HERE)).text == "grown"
        assert [tool.name for tool in tools] == ["s__grow"]
    assert "server s has changed its tools" in caplog.text
    async with mcp_tools({"s": stage.old}) as tools:
        assert [tool.name for tool in tools] == ["s__grow", "s__more"]


async def test_task_only_tool_is_left_out(stage: Stage) -> None:
    stage.says("long", execution=types.ToolExecution(task_support="required"))
    stage.says("short", execution=types.ToolExecution(task_support="optional"))
    async with mcp_tools({"s": stage.old}) as tools:
        assert [tool.name for tool in tools] == ["s__short"]


async def test_exception_of_the_block_is_raised_unchanged(stage: Stage) -> None:
    with pytest.raises(LookupError, match=r"^mine$"):
        async with mcp_tools({"s": stage.old}):
            raise LookupError("mine")


async def test_missing_program_is_named(tmp_path: Path) -> None:
    """With every other server that does not start."""
    missing = McpServer(command=str(tmp_path / "no-such-program"))
    with pytest.raises(ConfigError) as caught:
        async with mcp_tools({"one": missing, "two": missing}):
            pass
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "MCP server 'one' does not start",
        "MCP server 'two' does not start",
    ]
    assert "no-such-program" in str(caught.value)
