"""The adapter from an MCP tool to `Tool`."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final, cast
from urllib.parse import urlsplit

import mcp_types as types
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from mcp_types import CallToolResult
from mcp_types import Tool as Listed
from pydantic import JsonValue

from turnwright._base.schema_faults import dangling_refs, invalid_keyword, without_refs
from turnwright._base.words import count, cut_clean
from turnwright.context import NotGiven
from turnwright.message import FilePart
from turnwright.tools.context import ToolContext
from turnwright.tools.errors import ToolError, describe
from turnwright.tools.result import NO_OUTPUT, ToolResult
from turnwright.tools.tool import Tool

from .config import McpHints, Policy, approval_for
from .session import McpSession
from .wire import MOST_BLOCKS, MOST_CHECKED, OUTPUT_SCHEMA, is_quick, measure, warn_left_out

_LOG: Final = logging.getLogger(__name__)
#: The maximum number of characters of an error message.
_SHOWN: Final = 500


class McpTool(Tool):
    """A tool of a server. The server validates the arguments and reports mistakes to the model.

    The server's hints are trusted unless the policy is `always`. A call that by its hints is read-only or idempotent
    runs again after a crash, with the same `turnwright/key`.
    """

    def __init__(
        self,
        session: McpSession,
        listed_tool: Listed,
        *,
        name: str,
        policy: Policy,
        approved: bool,
        timeout: float | NotGiven | None,
    ) -> None:
        hints = McpHints.of(session.name, listed_tool)
        is_trusted = policy != "always"
        super().__init__(
            name=name,
            description=listed_tool.description or listed_tool.title or "",
            parameters=_make_parameters(session.name, listed_tool),
            needs_approval=not approved and approval_for(hints, policy),
            timeout=timeout,
            idempotent=is_trusted and hints.idempotent,
            read_only=listed_tool.annotations.read_only_hint if is_trusted and listed_tool.annotations else None,
        )
        self.hints = hints
        self._session = session
        schema = (listed_tool.meta or {}).get(OUTPUT_SCHEMA)
        # The messages of the caller's own client do not pass through `wire`.
        self._schema = schema if isinstance(schema, dict) and is_quick(schema) else None

    @property
    def watches_waits(self) -> bool:
        """Whether calls may become tasks, at which a worker looks."""
        return self._session.tasks

    async def is_ready(self, data: JsonValue) -> bool:
        """Return whether the task of a waiting call has ended, or asks something."""
        return await self._session.is_ready(data)

    async def give_up(self, data: JsonValue) -> None:
        """Cancel the task of a call that no longer waits."""
        await self._session.cancel_task(data)

    @property
    def may_answer(self) -> bool:
        """Never: a server's result goes to the model."""
        return False

    async def execute(self, values: Mapping[str, object], context: ToolContext) -> ToolResult:
        """Call the server. Raises `NeedsPersonError` if the server needs a person."""
        arguments = cast("Mapping[str, JsonValue]", values)  # `Tool.parse` leaves the JSON values unchanged
        result = await self._session.call(self.hints.tool, arguments, context)
        if self._schema is not None and not result.is_error:
            self._check_data(result, self._schema)
        try:
            return read_result(result)
        except ToolError as error:
            raise ToolError(self._session.hide(str(error))) from None

    def _check_data(self, result: CallToolResult, schema: dict[str, JsonValue]) -> None:
        """Validate the data of a result against the server's schema. Raises `ToolError`."""
        if result.structured_content is None:
            problem = "the result has no data, although the tool has an output schema"
        elif measure(result.structured_content, MOST_CHECKED)[0] > MOST_CHECKED:
            return
        else:
            try:
                wrong = best_match(Draft202012Validator(schema).iter_errors(result.structured_content))
            except (SchemaError, TypeError, ValueError) as error:
                problem = describe(error)
            else:
                if wrong is None:
                    return
                problem = wrong.message
        problem = self._session.hide(cut_clean(problem, _SHOWN))
        raise ToolError(f"server {self._session.name}: its answer violates the protocol: {problem}")


def is_usable(server: str, listed_tool: Listed) -> bool:
    """Whether a tool of a server can be offered. If not, a warning says why: a provider would refuse every request."""
    invalid = invalid_keyword(listed_tool.input_schema)
    fault = "it has no name" if not listed_tool.name else f"inputSchema: {invalid}" if invalid else None
    if fault is not None:
        warn_left_out(server, listed_tool.name, fault)
    return fault is None


def _make_parameters(server: str, listed_tool: Listed) -> Mapping[str, JsonValue]:
    """Return the JSON Schema of a tool's arguments, without references that lead nowhere: providers refuse them."""
    schema: dict[str, JsonValue] = {"type": "object", "properties": {}, **listed_tool.input_schema}
    dangling = dangling_refs(schema)
    for ref in dangling:
        message = "MCP server %r: tool %.80r: inputSchema: %s; until then, the model may give any value there"
        _LOG.warning(message, server, listed_tool.name, ref)
    return cast("Mapping[str, JsonValue]", without_refs(schema, dangling)) if dangling else schema


_UNKNOWN_TYPE: Final = "application/octet-stream"


def read_result(result: types.CallToolResult) -> ToolResult:
    """Return the result of a call. Raises `ToolError` with the result's text if the server reports an error.

    Text blocks are joined. Pictures, sounds and binary resources become files. A text resource becomes text, and a link
    becomes one line. Without any text, the structured content is also the text.
    """
    texts: list[str] = []
    files: list[FilePart] = []
    for block in result.content[:MOST_BLOCKS]:
        _take(block, texts, files)
    if len(result.content) > MOST_BLOCKS:
        texts.append(f"[left out: {len(result.content) - MOST_BLOCKS:,} more blocks of the result]")
    text = "\n".join(texts)
    if result.is_error:
        raise ToolError(text or "the call failed, and the server gave no reason")
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    if not text:
        text = _count_files(files) if files else NO_OUTPUT
    return ToolResult(text, result.structured_content, tuple(files))


def _take(block: types.ContentBlock, texts: list[str], files: list[FilePart]) -> None:
    match block:
        case types.TextContent(text=text):
            texts.append(text)
        case types.ImageContent(data=data, mime_type=kind) | types.AudioContent(data=data, mime_type=kind):
            _attach(data, kind, "", texts, files)
        case types.ResourceLink(uri=uri, name=name, description=about):
            texts.append(f"[resource {name}: {uri}]" + (f" {about}" if about else ""))
        case types.EmbeddedResource(resource=types.BlobResourceContents(uri=uri, blob=data, mime_type=kind)):
            _attach(data, kind or _UNKNOWN_TYPE, _name_of(uri), texts, files)
        case types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, text=text)):
            texts.append(f"[resource {uri}]\n{text}")


def _attach(data: str, kind: str, name: str, texts: list[str], files: list[FilePart]) -> None:
    try:
        files.append(FilePart(media_type=kind, data=data, name=name))
    except ValueError as error:
        texts.append(f"[the server sent a file that is left out: {error}]")


def _name_of(uri: str) -> str:
    try:
        return PurePosixPath(urlsplit(uri).path).name
    except ValueError:  # not an address: the file gets no name
        return ""


def _count_files(files: Sequence[FilePart]) -> str:
    kinds = ", ".join(file.media_type for file in files)
    return f"({count(len(files), 'file')}: {kinds})"
