"""Size limits for the messages of a server, applied before the SDK parses them.

The SDK reads lines of any length, and validates results, lists and questions on the event loop. Without limits, a
server could fill the memory or block all turns of the process.
"""

import codecs
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

import httpx2
import msgspec
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from mcp_types.methods import parse_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pydantic import JsonValue, ValidationError

from turnwright._base.frozen import deeper_than
from turnwright._base.schema_faults import invalid_keyword

#: The maximum size of a message in bytes. The files of one result fit, in base64.
MAX_MESSAGE: Final = 16 * 1024 * 1024
#: The maximum number of values in a message: texts, numbers, lists and objects.
MOST_VALUES: Final = 100_000
#: The maximum number of blocks in a result. The first ones are kept.
MOST_BLOCKS: Final = 1_000
#: The maximum number of tools of a server.
MOST_TOOLS: Final = 1_000
#: The maximum number of values, and of characters, in a tool's entry, which every request to the model repeats.
MOST_OF_A_TOOL: Final = 10_000
MAX_TOOL: Final = 256 * 1024
TOO_MANY_TOOLS: Final = f"it offers more than {MOST_TOOLS:,} tools, which no model takes"
#: The maximum number of values, and of characters, in a question to a person.
MOST_ASKED: Final = 2_000
MAX_ASKED: Final = 64 * 1024
#: The maximum depth of nested lists and objects.
MAX_DEPTH: Final = 100
_TOO_MUCH: Final = f"more than {MOST_VALUES:,} values, or nested more than {MAX_DEPTH} deep"
#: The maximum number of values in an output schema. Results are not validated against a larger one.
MOST_OF_A_SCHEMA: Final = 1_000
#: The maximum number of values in a validated result, because validation is slow.
MOST_CHECKED: Final = 5_000
#: The key of a tool's output schema in its `_meta`.
OUTPUT_SCHEMA: Final = "turnwright/output_schema"

#: Smaller messages, in bytes, go to the SDK unchecked.
_LARGE: Final = 64 * 1024
#: The name of the codec that limits the output of a process.
CODEC: Final = "turnwright_mcp"
#: Keywords with which validation can take for ever: patterns, references, and comparisons of all items.
_SLOW: Final = frozenset(
    {"$dynamicRef", "$recursiveRef", "$ref", "pattern", "patternProperties", "uniqueItems"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)


class _Listing(NamedTuple):
    """A protocol version, and the other fields that it requires in a list of tools."""

    version: str
    fields: Mapping[str, JsonValue]


_HANDSHAKE: Final = _Listing(LATEST_HANDSHAKE_VERSION, {})
_MODERN: Final = _Listing(LATEST_MODERN_VERSION, {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"})
_CODEC_NAME: Final = re.compile(rf"{CODEC}\Z")


_LOG: Final = logging.getLogger(__name__)


class TooMuchError(ValueError):
    """A message exceeds a limit. The text names the limit."""


#: Receives the reason why the output of a process is not read any further.
refused: Final[ContextVar[Callable[[str], None] | None]] = ContextVar("turnwright_mcp_refused", default=None)


class LineDecoder(codecs.IncrementalDecoder):
    """Decodes lines of UTF-8. After invalid bytes, a NUL or a line that is too long, it drops all further input.

    The SDK would wait for the end of a process whose output it cannot decode. This calls the function in `refused`
    instead. It returns complete lines only, because the SDK scans the unfinished line again for every piece.
    """

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._on_refusal = refused.get()
        self._line = bytearray()
        self._over = False

    def decode(self, input: Any, final: bool = False) -> str:  # noqa: A002, ANN401 (the base's)
        """Return the complete lines in the input so far."""
        if self._over:
            return ""
        data = bytes(input)
        try:
            # Decoded at once, because invalid input may never contain a line break.
            self._utf8.decode(data, final)
            if b"\0" in data:
                return self._stop("it sent NUL bytes, so it does not speak MCP on its standard output")
            return "".join(f"{lighter(line).decode()}\n" for line in self._lines(data))
        except UnicodeDecodeError:
            return self._stop("it sent bytes that are not UTF-8, so it does not speak MCP on its standard output")
        except TooMuchError as error:
            return self._stop(str(error))

    def _lines(self, data: bytes) -> list[bytes]:
        *lines, tail = data.split(b"\n")
        if lines:
            lines[0] = bytes(self._line) + lines[0]
            self._line.clear()
        self._line += tail
        if max(map(len, (*lines, self._line))) > MAX_MESSAGE:
            raise TooMuchError(f"it sent a message of more than {MAX_MESSAGE:,} bytes")
        return lines

    def _stop(self, why: str) -> str:
        self._over = True
        if self._on_refusal is not None:
            self._on_refusal(why)
        return ""


def _find_codec(name: str) -> codecs.CodecInfo | None:
    if _CODEC_NAME.match(name) is None:
        return None
    return codecs.CodecInfo(codecs.utf_8_encode, codecs.utf_8_decode, incrementaldecoder=LineDecoder, name=CODEC)


codecs.register(_find_codec)


def lighter(line: bytes) -> bytes:
    """Cut a large message, as JSON. Parsing it as the SDK does would take ten times as long.

    The first blocks of a result are kept. An error loses its `data`, and a notification its `params`, if the message is
    too large with them. Invalid JSON stays as it is. Raises `TooMuchError` for a message that is nested too deeply, or
    is still too large.
    """
    if len(line) < _LARGE and line.count(b"[") + line.count(b"{") <= MAX_DEPTH:
        return line
    try:
        message = msgspec.json.decode(line)
    except RecursionError:
        raise TooMuchError(f"it sent a message that is nested more than {MAX_DEPTH} deep") from None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return line
    if not isinstance(message, dict):
        if _is_too_much(message):
            raise TooMuchError(f"it sent a message with {_TOO_MUCH}")
        return line
    result = message.get("result")
    is_cut = isinstance(result, dict) and _cut_result(result)
    other_fields = {
        name: value for name, value in message.items() if value is not result or not isinstance(result, dict)
    }
    if _is_too_much(other_fields):
        error = other_fields.get("error")
        container, left_out = (error, "data") if isinstance(error, dict) else (message, "params")
        if container is error or "id" not in message:
            container.pop(left_out, None)
            other_fields.pop(left_out, None)
        if _is_too_much(other_fields):
            raise TooMuchError(f"it sent a message with {_TOO_MUCH}")
        is_cut = True
    return msgspec.json.encode(message) if is_cut else line


class BoundedBody(httpx2.AsyncByteStream):
    """The body of an HTTP response with one message, limited to `MAX_MESSAGE` bytes and cut by `lighter`."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body in one piece. Raises `StreamError` if it is too long."""
        body = bytearray()
        async for piece in self._body:
            body += piece
            if len(body) > MAX_MESSAGE:
                raise httpx2.StreamError(f"the answer is longer than {MAX_MESSAGE:,} bytes")
        try:
            yield lighter(bytes(body))
        except TooMuchError as error:
            raise httpx2.StreamError(str(error)) from None

    async def aclose(self) -> None:
        """Close the body."""
        await self._body.aclose()


def within_bounds(message: SessionMessage) -> SessionMessage:
    """Cut a message to the limits.

    A result with more than `MOST_BLOCKS` blocks keeps the first ones, with a notice. A result that is still too large
    is replaced by an error result that says so. An error loses its data, and a notification its parameters, if they are
    too large. An output schema moves to `OUTPUT_SCHEMA`, where the SDK does not use it, or is removed if it is invalid
    or validation could take long.

    Raises `TooMuchError` for any other message that is too large.
    """
    inner = message.message
    if isinstance(inner, JSONRPCResponse):
        _cut_result(inner.result)
        tools = inner.result.get("tools")
        if isinstance(tools, list):
            _move_output_schemas(tools)
    elif isinstance(inner, JSONRPCError):
        if _is_too_much(inner.error.data):
            inner.error.data = None
    elif isinstance(inner, JSONRPCNotification):
        if _is_too_much(inner.params):
            inner.params = None
    elif isinstance(inner, JSONRPCRequest):
        params: object = inner.params or {}
        values, characters = measure(params, MOST_ASKED)
        if values > MOST_ASKED or characters > MAX_ASKED:
            raise TooMuchError(
                f"it asked for more than {MOST_ASKED:,} values or {MAX_ASKED:,} characters at once ({inner.method})"
            )
    return message


def without_bad_tools(message: SessionMessage, server: str) -> SessionMessage:
    """Leave the tools out of a list that are invalid by the protocol, each with a warning.

    The SDK would refuse the whole list. Apply `within_bounds` first: it treats invalid output schemas.
    """
    inner = message.message
    tools = inner.result.get("tools") if isinstance(inner, JSONRPCResponse) else None
    if not isinstance(inner, JSONRPCResponse) or not isinstance(tools, list):
        return message
    listing = _MODERN if "resultType" in inner.result else _HANDSHAKE
    usable: list[Any] = []
    for tool in tools:
        if fault := _find_tool_fault(tool, listing):
            warn_left_out(server, tool.get("name") if isinstance(tool, dict) else tool, fault)
        else:
            usable.append(tool)
    inner.result["tools"] = usable
    return message


def warn_left_out(server: str, tool: object, why: str) -> None:
    """Log that a tool of a server is not offered."""
    _LOG.warning("MCP server %r: tool %.80r is left out: %s", server, tool, why)


def _find_tool_fault(tool: object, listing: _Listing) -> str | None:
    """Return why the SDK would refuse a list with this tool, or None."""
    try:
        parse_server_result("tools/list", listing.version, {**listing.fields, "tools": [tool]})
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False, include_context=False)[0]
        _tools, _index, *place = problem["loc"]
        return f"{'.'.join(map(str, place)) or 'its entry'}: {problem['msg']}"
    return None


def measure(value: object, most: int) -> tuple[int, int]:
    """Count the values in `value`, and the characters of its texts. It stops after `most` values."""
    count, characters, level = 0, 0, [value]
    while level and count <= most:
        inner: list[object] = []
        for item in level:
            count += 1
            if isinstance(item, str):
                characters += len(item)
            elif isinstance(item, Mapping):
                characters += sum(map(len, item))
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
            if count > most:
                break
        level = inner
    return count, characters


def is_quick(schema: Mapping[str, object]) -> bool:
    """Whether validation against a schema takes no longer than reading the value."""
    level: list[object] = [schema]
    count = 0
    while level:
        count += len(level)
        if count > MOST_OF_A_SCHEMA or any(isinstance(item, Mapping) and item.keys() & _SLOW for item in level):
            return False
        level = [
            inner
            for item in level
            if isinstance(item, Mapping | list)
            for inner in (item.values() if isinstance(item, Mapping) else item)
        ]
    return True


def _is_too_much(value: object) -> bool:
    return measure(value, MOST_VALUES)[0] > MOST_VALUES or deeper_than(value, MAX_DEPTH)


def _cut_result(result: dict[str, Any]) -> bool:
    """Cut a result to the limits. Return whether it changed."""
    blocks = result.get("content")
    is_cut = isinstance(blocks, list) and len(blocks) > MOST_BLOCKS
    if isinstance(blocks, list) and is_cut:
        notice = f"[left out: {len(blocks) - MOST_BLOCKS + 1:,} more blocks of the result]"
        blocks[MOST_BLOCKS - 1 :] = [{"type": "text", "text": notice}]
    is_cut |= _drop_unfit_tools(result)
    if _is_too_much(result):
        if not isinstance(blocks, list):
            raise TooMuchError(f"it sent a message with {_TOO_MUCH}")
        text = f"The call was made, but its result is left out: it has {_TOO_MUCH}. Ask for less."
        result.clear()
        result |= {"content": [{"type": "text", "text": text}], "isError": True}
        return True
    return is_cut


def _drop_unfit_tools(result: dict[str, Any]) -> bool:
    """Leave out tools that are too large or nested too deeply, each with a warning. Return whether there are any."""
    tools = result.get("tools")
    if not isinstance(tools, list):
        return False
    kept_tools: list[Any] = []
    for tool in tools:
        values, characters = measure(tool, MOST_OF_A_TOOL)
        if values > MOST_OF_A_TOOL or characters > MAX_TOOL:
            fault = "its description and schema are too large"
        elif deeper_than(tool, MAX_DEPTH - 2):  # the result and its list are two levels
            fault = "its schema is nested too deeply"
        else:
            kept_tools.append(tool)
            continue
        name = tool.get("name") if isinstance(tool, dict) else None
        _LOG.warning("tool %.80r of an MCP server is left out: %s", name, fault)
    result["tools"] = kept_tools
    return len(kept_tools) < len(tools)


def _move_output_schemas(tools: list[Any]) -> None:
    """Move the output schemas of tools to `OUTPUT_SCHEMA`."""
    if len(tools) > MOST_TOOLS:
        raise TooMuchError(TOO_MANY_TOOLS)
    for tool in tools:
        if isinstance(tool, dict) and isinstance(tool.get("_meta"), dict | None):
            schema, meta = tool.pop("outputSchema", None), tool.get("_meta")
            other_meta = (
                {key: value for key, value in meta.items() if key != OUTPUT_SCHEMA} if isinstance(meta, dict) else {}
            )
            if fault := _find_output_schema_fault(schema):
                message = "tool %.80r of an MCP server: outputSchema: %s: results are not validated against it"
                _LOG.warning(message, tool.get("name"), fault)
            elif isinstance(schema, dict) and is_quick(schema):
                other_meta[OUTPUT_SCHEMA] = schema
            if other_meta or meta is not None:
                tool["_meta"] = other_meta


def _find_output_schema_fault(schema: object) -> str | None:
    if schema is None:
        return None
    return invalid_keyword(schema) if isinstance(schema, dict) else f"{schema!r:.80} is not an object"
