"""What a server's result is to us: text for the model, data for programs, files."""

import json
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import urlsplit

import mcp_types as types

from turnwright.message import FilePart
from turnwright.tools.errors import ToolError
from turnwright.tools.result import ToolResult
from turnwright.tools.text import NO_OUTPUT

from .wire import MOST_BLOCKS

_UNKNOWN_TYPE: Final = "application/octet-stream"


def read_result(result: types.CallToolResult) -> ToolResult:
    """Give the result of a call. Raises `ToolError` with its text where the server says that it is an error.

    Text stays text, one block after the other. Pictures, sounds and resources of bytes become files; a resource of
    text becomes text, and a link the line that names it. Without any text, structured content is the text too.
    """
    said: list[str] = []
    files: list[FilePart] = []
    for block in result.content[:MOST_BLOCKS]:
        _take(block, said, files)
    if len(result.content) > MOST_BLOCKS:
        said.append(f"[left out: {len(result.content) - MOST_BLOCKS:,} more blocks of the result]")
    text = "\n".join(said)
    if result.is_error:
        raise ToolError(text or "the server says that the call failed, and not why")
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    if not text:
        text = _counted(files) if files else NO_OUTPUT
    return ToolResult(text, result.structured_content, tuple(files))


def _take(block: types.ContentBlock, said: list[str], files: list[FilePart]) -> None:
    match block:
        case types.TextContent(text=text):
            said.append(text)
        case types.ImageContent(data=data, mime_type=kind) | types.AudioContent(data=data, mime_type=kind):
            _attach(data, kind, "", said, files)
        case types.ResourceLink(uri=uri, name=name, description=about):
            said.append(f"[resource {name}: {uri}]" + (f" {about}" if about else ""))
        case types.EmbeddedResource(resource=types.BlobResourceContents(uri=uri, blob=data, mime_type=kind)):
            _attach(data, kind or _UNKNOWN_TYPE, _name_of(uri), said, files)
        case types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, text=text)):
            said.append(f"[resource {uri}]\n{text}")


def _attach(data: str, kind: str, name: str, said: list[str], files: list[FilePart]) -> None:
    try:
        files.append(FilePart(media_type=kind, data=data, name=name))
    except ValueError as error:
        said.append(f"[the server sent a file that is left out: {error}]")


def _name_of(uri: str) -> str:
    try:
        return PurePosixPath(urlsplit(uri).path).name
    except ValueError:  # no address at all; the file can do without a name
        return ""


def _counted(files: Sequence[FilePart]) -> str:
    kinds = ", ".join(file.media_type for file in files)
    return f"({len(files)} file{'s' if len(files) > 1 else ''}: {kinds})"
