"""Messages of a server: invalid bytes, messages that are too large, and the cuts that let the turn go on."""

import base64
import codecs
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar, Final

import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, JSONRPCResponse
from pydantic import JsonValue

from turnwright.errors import ConfigError
from turnwright.tools import ToolContext, ToolError
from turnwright.tools.mcp import mcp_tools
from turnwright.tools.mcp.wire import (
    CODEC,
    MAX_ASKED,
    MAX_MESSAGE,
    MOST_ASKED,
    MOST_BLOCKS,
    MOST_VALUES,
    OUTPUT_SCHEMA,
    TooMuchError,
    is_quick,
    lighter,
    refused,
    within_bounds,
)

from .conftest import Context, Stage

pytestmark = pytest.mark.anyio

HERE = ToolContext(turn_id="t1", call_id="c1")
TEXT = {"type": "text", "text": "x"}
#: Answers as its script says: what it writes before anything else, and what the result of a call is, as an expression.
PROGRAM = """
import json, sys
first, result, tools = sys.argv[1:]
sys.stdout.buffer.write(eval(first)); sys.stdout.buffer.flush()
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked: continue
    method = asked["method"]
    if method == "initialize":
        answer = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "large", "version": "1"}}
    elif method == "tools/list":
        answer = {"tools": eval(tools)}
    elif method == "tools/call":
        answer = eval(result)
        if isinstance(answer, bytes):
            sys.stdout.buffer.write(answer); sys.stdout.buffer.flush(); continue
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": answer}), flush=True)
"""
ONE_TOOL = '[{"name": "x", "inputSchema": {"type": "object"}}]'


def server(
    folder: Path, *, first: str = "b''", result: str = '{"content": []}', tools: str = ONE_TOOL
) -> dict[str, JsonValue]:
    program = folder / "large.py"
    program.write_text(PROGRAM)
    words: list[JsonValue] = ["-I", str(program), first, result, tools]
    return {"mcpServers": {"s": {"command": sys.executable, "args": words, "approve": "never"}}}


@pytest.mark.parametrize("first", [r"b'\xff\xfe\x00\x01'", r"b'\xff\n'", r"b'MZ\x90' * 100", r"b'hello\n\xe9t\xe9\n'"])
async def test_server_writing_invalid_utf_8_fails_at_once(tmp_path: Path, first: str) -> None:
    """It would not be waited for: the time for its start never ends."""
    with pytest.raises(ConfigError, match="'s' does not start: it sent bytes that are not UTF-8"):
        async with mcp_tools(server(tmp_path, first=first), startup=100_000):
            pass


@pytest.mark.parametrize("first", [r"b'\0'", r"b'\0' * 100_000", r"b'hello\n\0'"])
async def test_server_writing_nul_bytes_fails_at_once(tmp_path: Path, first: str) -> None:
    """They are UTF-8, and no line of JSON holds them: what sends them may never end a line."""
    with pytest.raises(ConfigError, match="'s' does not start: it sent NUL bytes, so"):
        async with mcp_tools(server(tmp_path, first=first), startup=100_000):
            pass


async def test_lines_of_a_log_before_the_first_message_are_passed_over(tmp_path: Path) -> None:
    async with mcp_tools(server(tmp_path, first="'Läuft ☺\\n'.encode()")) as (tool,):
        assert (await tool.run({}, HERE)).text == "(no output)"


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (r"b'\xff'", "it sent bytes that are not UTF-8"),
        (f"b'x' * {MAX_MESSAGE + 1}", "it sent a message of more than 16,777,216 bytes"),
    ],
)
async def test_call_of_a_server_writing_garbage_fails_and_restarts_the_server(
    tmp_path: Path, result: str, problem: str
) -> None:
    async with mcp_tools(server(tmp_path, result=result), timeout=100_000) as (tool,):
        for _ in range(2):
            with pytest.raises(ToolError, match=f"server s has died: {problem}"):
                await tool.run({}, HERE)


@pytest.mark.slow
async def test_result_of_many_blocks_is_cut_after_the_first_blocks(tmp_path: Path) -> None:
    result = '{"content": [{"type": "text", "text": str(n)} for n in range(300_000)]}'
    async with mcp_tools(server(tmp_path, result=result)) as (tool,):
        lines = (await tool.run({}, HERE)).text.splitlines()
    assert lines[: MOST_BLOCKS - 1] == [str(number) for number in range(MOST_BLOCKS - 1)]
    assert lines[MOST_BLOCKS - 1 :] == ["[left out: 299,001 more blocks of the result]"]


async def test_blocks_of_an_in_process_server_are_bounded(stage: Stage) -> None:
    @stage.tool("x")
    async def x(_context: Context, _params: types.CallToolRequestParams) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(text="x")] * (MOST_BLOCKS + 2))

    async with mcp_tools({"s": stage.server}) as (tool,):
        assert (await tool.run({}, HERE)).text.endswith("x\n[left out: 2 more blocks of the result]")


async def test_oversized_data_is_left_out_and_the_model_told_of_the_call(tmp_path: Path) -> None:
    result = '{"content": [], "structuredContent": {"n": list(range(200_000))}}'
    async with mcp_tools(server(tmp_path, result=result)) as (tool,):
        with pytest.raises(ToolError, match=r"The call was made, but its result is left out: .* Ask for less\."):
            await tool.run({}, HERE)


async def test_list_of_too_many_tools_is_refused(tmp_path: Path) -> None:
    tools = '[{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(1_001)]'
    with pytest.raises(ConfigError, match=r"MCP server 's' does not start: .*offers more than 1,000 tools"):
        async with mcp_tools(server(tmp_path, tools=tools), startup=100_000):
            pass


async def test_tool_unfit_for_models_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    large = '{"name": "large", "inputSchema": {"type": "object"}, "description": "x" * 300_000}'
    huge = '{"name": "huge", "inputSchema": {"type": "object", "enum": list(range(200_000))}}'
    async with mcp_tools(server(tmp_path, tools=f"{ONE_TOOL} + [{large}, {huge}]")) as tools:
        assert [tool.name for tool in tools] == ["s__x"]
    for name in ("large", "huge"):
        assert f"tool '{name}' of an MCP server is left out" in caplog.text


@pytest.mark.parametrize("depth", [45, 200])
async def test_tool_with_a_deep_schema_is_left_out(
    depth: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each level of the schema is two levels of its text, so 45 are just few enough."""
    levels = """'{"type": "object", "properties": {"a": ' * DEPTH + "{}" + "}}" * DEPTH""".replace("DEPTH", str(depth))
    listed = f'{ONE_TOOL} + [{{"name": "deep", "inputSchema": json.loads({levels})}}]'
    async with mcp_tools(server(tmp_path, tools=listed)) as tools:
        assert [tool.name for tool in tools] == (["s__x", "s__deep"] if depth < 50 else ["s__x"])
    assert ("tool 'deep' of an MCP server is left out: its schema is nested too deeply" in caplog.text) is (depth > 50)


OBJECT = '{"type": "object"}'


#: Entries of a list of tools that are left out, as expressions, and the beginnings of the warnings about them.
BAD_TOOLS: Final = [
    ('{"name": "bad", "inputSchema": {}}', "inputSchema.type: Field required"),
    ('{"name": "bad"}', "inputSchema: Field required"),
    ('{"name": "bad", "inputSchema": None}', "inputSchema: Input should be"),
    ('{"name": "bad", "inputSchema": []}', "inputSchema: Input should be"),
    ('{"name": "bad", "inputSchema": "object"}', "inputSchema: Input should be"),
    ('{"name": "bad", "inputSchema": {"type": "string"}}', "inputSchema.type: Input should be 'object'"),
    ('{"name": "bad", "inputSchema": {"type": ["object"]}}', "inputSchema.type: Input should be 'object'"),
    ('{"name": "bad", "inputSchema": {"type": "object", "required": "a"}}', "inputSchema.required: Input should"),
    (
        '{"name": "bad", "inputSchema": {"type": "object", "required": None}}',
        "inputSchema: required: None is not a",
    ),
    ('{"name": "bad", "inputSchema": {"type": "object", "properties": [1]}}', "inputSchema.properties: Input"),
    (
        '{"name": "bad", "inputSchema": {"type": "object", "properties": {"a": {"type": "str"}}}}',
        "inputSchema: properties.a.type: 'str' is not a type",
    ),
    (f'{{"name": "bad", "description": 5, "inputSchema": {OBJECT}}}', "description: Input should be"),
    (f'{{"name": "bad", "annotations": {{"readOnlyHint": "perhaps"}}, "inputSchema": {OBJECT}}}', "annotations."),
    (f'{{"name": "bad", "_meta": 5, "inputSchema": {OBJECT}}}', "_meta: Input should be"),
    (f'{{"name": "", "inputSchema": {OBJECT}}}', "tool '' is left out: it has no name"),
    (f'{{"name": None, "inputSchema": {OBJECT}}}', "tool None is left out: name: Input should be"),
    (f'{{"name": 7, "inputSchema": {OBJECT}}}', "tool 7 is left out: name: Input should be"),
    (f'{{"inputSchema": {OBJECT}}}', "name: Field required"),
    (f'{{"name": "x", "title": "again", "inputSchema": {OBJECT}}}', "tool 'x' is left out: the server has listed"),
    ('"bad"', "tool 'bad' is left out: its entry: Input should be"),
    ("None", "tool None is left out: its entry: Input should be"),
]


async def test_bad_tools_are_left_out_and_their_server_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bad = ", ".join(tool for tool, _ in BAD_TOOLS)
    listed = f'{ONE_TOOL} + [{bad}, {{"name": "y", "inputSchema": {OBJECT}}}]'
    async with mcp_tools(server(tmp_path, tools=listed)) as tools:
        assert [tool.name for tool in tools] == ["s__x", "s__y"]
        assert (await tools[0].run({}, HERE)).text == "(no output)"
    warnings = [text for text in caplog.messages if "left out" in text]
    assert len(warnings) == len(BAD_TOOLS)
    assert all(warning.startswith("MCP server 's': tool ") for warning in warnings)
    assert [why for _, why in BAD_TOOLS if not any(why in warning for warning in warnings)] == []


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("5", "5 is not an object"),
        ('["object"]', "is not an object"),
        ('{"type": "banana"}', "type: 'banana' is not a type, or a list of types"),
        ('{"type": "object", "properties": {"a": 1}}', "properties: {'a': 1} is not an object of schemas"),
    ],
)
async def test_tool_with_bad_output_schema_is_offered_and_not_validated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, schema: str, why: str
) -> None:
    listed = f'[{{"name": "x", "inputSchema": {OBJECT}, "outputSchema": {schema}}}]'
    async with mcp_tools(server(tmp_path, tools=listed)) as (tool,):
        assert (await tool.run({}, HERE)).text == "(no output)"
    (warning,) = [text for text in caplog.messages if "outputSchema" in text]
    assert why in warning
    assert "results are not validated" in warning


def response(**result: object) -> SessionMessage:
    return SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=1, result=result))


@pytest.mark.parametrize(
    "deep", ["[" * 100_000, '{"jsonrpc":"2.0","id":1,"result":' + '{"a":' * 9_000 + "1" + "}" * 9_001]
)
def test_deeply_nested_message_is_refused(deep: str) -> None:
    with pytest.raises(TooMuchError, match="nested more than 100 deep"):
        lighter(deep.encode())


def test_deeply_nested_result_is_left_out() -> None:
    deep = {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"content": [], "structuredContent": json.loads("[" * 150 + "]" * 150)},
    }
    assert b"its result is left out" in lighter(json.dumps(deep).encode())


@pytest.mark.parametrize(
    "line", [b"{" * 60 + b"}" * 60, b"1, " * 70_000, b'{"a": "\xff"}' * 10_000, b'{"a": [1]}' + b" " * 70_000]
)
def test_ordinary_message_stays_unchanged(line: bytes) -> None:
    assert lighter(line) == line


MANY: list[JsonValue] = [[1]] * MOST_VALUES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "remaining"),
    [
        (
            {"id": 1, "error": {"code": 1, "message": "x", "data": MANY}},
            {"id": 1, "error": {"code": 1, "message": "x"}},
        ),
        (
            {"method": "notifications/message", "params": {"level": "info", "data": MANY}},
            {"method": "notifications/message"},
        ),
    ],
    ids=["error", "notification"],
)
def test_error_or_notification_loses_oversized_parts(
    message: dict[str, JsonValue], remaining: dict[str, JsonValue]
) -> None:
    """Whichever way it came, the SDK looks at no more of it than is left."""
    head: dict[str, JsonValue] = {"jsonrpc": "2.0"}
    assert json.loads(lighter(json.dumps(head | message).encode())) == head | remaining
    session_message = SessionMessage(types.jsonrpc_message_adapter.validate_python(head | message))
    assert within_bounds(session_message) == SessionMessage(
        types.jsonrpc_message_adapter.validate_python(head | remaining)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "message",
    [
        MANY,
        {"id": 1, "error": {"code": 1, "message": MANY}},
        {"id": 1, "method": "elicitation/create", "params": {"message": MANY}},
        {"id": 1, "result": {}, "more": MANY},
    ],
    ids=["list", "error", "question", "field"],
)
def test_other_oversized_message_is_refused_before_the_sdk_reads(message: JsonValue) -> None:
    with pytest.raises(TooMuchError, match="it sent a message with more than 100,000 values"):
        lighter(json.dumps(message).encode())


@pytest.mark.slow
async def test_error_with_oversized_data_is_the_error_of_the_call(tmp_path: Path) -> None:
    error = '{"code": 1, "message": "no paint", "data": [[1]] * 200_000}'
    result = f'(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "error": {error}}}) + "\\n").encode()'
    async with mcp_tools(server(tmp_path, result=result), timeout=100_000) as (tool,):
        with pytest.raises(ToolError, match="no paint"):
            await tool.run({}, HERE)


def request(**params: object) -> SessionMessage:
    return SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="elicitation/create", params=params))


def test_message_within_the_bounds_stays_unchanged() -> None:
    result = {"content": [dict(TEXT) for _ in range(MOST_BLOCKS)], "structuredContent": {"n": [1] * 90_000}}
    assert within_bounds(response(**json.loads(json.dumps(result)))) == response(**result)
    parameters = {"message": "m" * 1000, "requestedSchema": {"type": "object", "properties": {"a": {"type": "string"}}}}
    assert within_bounds(request(**parameters)) == request(**parameters)


@pytest.mark.parametrize(
    "message",
    [
        request(message="m" * (MAX_ASKED + 1)),
        request(**{"m" * (MAX_ASKED + 1): 1}),
        request(requestedSchema={"enum": ["a"] * MOST_ASKED}),
        response(resources=[1] * (MOST_VALUES + 1)),
    ],
)
def test_oversized_question_or_list_is_not_read(message: SessionMessage) -> None:
    with pytest.raises(TooMuchError):
        within_bounds(message)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"pattern": "(a+)+b"}}},
        {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}] * 2}}},
        {"uniqueItems": True},
        {"enum": list(range(2_000))},
    ],
)
def test_slow_output_schema_is_not_validated(schema: dict[str, JsonValue]) -> None:
    assert not is_quick(schema)
    message = response(tools=[{"name": "x", "inputSchema": {}, "outputSchema": schema, "_meta": {OUTPUT_SCHEMA: 1}}])
    assert within_bounds(message) == response(tools=[{"name": "x", "inputSchema": {}, "_meta": {}}])


@pytest.mark.parametrize("schema", [{"required": ["n"]}, {"properties": {"n": {"type": "integer"}}, "type": "object"}])
async def test_fast_output_schema_is_validated(tmp_path: Path, schema: dict[str, JsonValue]) -> None:
    # The list is one of the messages that are parsed before the SDK does.
    about = "x" * 70_000
    tools = json.dumps([{"name": "x", "description": about, "inputSchema": {"type": "object"}, "outputSchema": schema}])
    right, wrong = (f'{{"content": [], "structuredContent": {{"n": {n}}}}}' for n in ("1", "'a'"))
    async with mcp_tools(server(tmp_path, tools=tools, result=right)) as (tool,):
        assert (await tool.run({}, HERE)).structured == {"n": 1}
    missing = '{"content": []}' if "required" in schema else wrong
    async with mcp_tools(server(tmp_path, tools=tools, result=missing)) as (tool,):
        with pytest.raises(ToolError, match="its answer violates the protocol"):
            await tool.run({}, HERE)


@pytest.mark.parametrize("cut", [1, 3, 1000])
def test_line_length_is_measured_across_chunks(cut: int) -> None:
    refusals: list[str] = []
    token = refused.set(refusals.append)
    try:
        decoder = codecs.getincrementaldecoder(CODEC)()
    finally:
        refused.reset(token)
    data = "ä\nöü\n".encode() * 20
    assert "".join(decoder.decode(data[at : at + cut]) for at in range(0, len(data), cut)) == data.decode()
    line = b"x" * (MAX_MESSAGE // 2)
    assert decoder.decode(line + b"\n" + line) == (line + b"\n").decode()
    assert (decoder.decode(line), refusals) == ("", [])
    assert decoder.decode(b"xx\n") == ""
    assert refusals == ["it sent a message of more than 16,777,216 bytes"]
    assert (decoder.decode(b"{}\n"), len(refusals)) == ("", 1)


class Answers(BaseHTTPRequestHandler):
    """Answers each request over HTTP with the same."""

    head: ClassVar[dict[str, str]] = {}

    @staticmethod
    def body() -> bytes:
        """The answer."""
        return b""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        for name, value in {"content-type": "application/json", "connection": "close", **self.head}.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(self.body())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base's)
        del format, args


@contextmanager
def answering(head: dict[str, str], body: Callable[[], bytes]) -> Iterator[str]:
    """A server over HTTP that answers so, in a thread of its own: its address."""
    handler = type("Handler", (Answers,), {"head": head, "body": staticmethod(body)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}/mcp"
        finally:
            http.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("head", "body", "problem"),
    [
        ({}, lambda: b" " * (MAX_MESSAGE + 1), "longer than 16,777,216 bytes"),
        ({"content-encoding": "gzip"}, lambda: b"", "compressed, although the request forbids it"),
    ],
)
async def test_answer_over_http_is_bounded(head: dict[str, str], body: Callable[[], bytes], problem: str) -> None:
    with answering(head, body) as address, pytest.raises(ConfigError, match=problem):
        async with mcp_tools({"mcpServers": {"s": {"url": address}}}):
            pass


async def test_key_echoed_in_a_header_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """`httpcore2` logs the headers of each answer at level DEBUG."""
    key = "key-0123456789abcdef"
    basic = base64.b64encode(f"user:{key}".encode()).decode()
    head = {"x-echo": f"{key} {key[3:]} {basic}", "set-cookie": f"key={key}"}
    caplog.set_level(logging.DEBUG)
    with answering(head, lambda: b"{}") as address:
        servers: JsonValue = {"s": {"url": address, "headers": {"Authorization": f"Bearer {key}"}}}
        with pytest.raises(ConfigError):
            async with mcp_tools({"mcpServers": servers}):
                pass
    messages = [record.getMessage() for record in caplog.records]
    assert any("x-echo" in message and "***" in message for message in messages)
    assert not [message for message in messages if key[3:] in message or basic[8:] in message]
