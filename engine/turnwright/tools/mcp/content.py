"""Conversion of a server's result into a `ToolResult`: text for the model, data for programs, files."""

import json
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import urlsplit

import mcp_types as types

from turnwright._base.words import count
from turnwright.message import FilePart
from turnwright.tools.errors import ToolError
from turnwright.tools.result import ToolResult
from turnwright.tools.text import NO_OUTPUT

from .wire import MOST_BLOCKS

_UNKNOWN_TYPE: Final = "application/octet-stream"


def read_result(result: types.CallToolResult) -> ToolResult:
    """Return the result of a call. Raises `ToolError` with the result's text if the server reports an error.

    Text blocks are joined. Pictures, sounds and binary resources become files. A text resource becomes text, and a link
    becomes one line. Without any text, the structured content is also the text.
    """
    said: list[str] = []
    files: list[FilePart] = []
    for block in result.content[:MOST_BLOCKS]:
        _take(block, said, files)
    if len(result.content) > MOST_BLOCKS:
        said.append(f"[left out: {len(result.content) - MOST_BLOCKS:,} more blocks of the result]")
    text = "\n".join(said)
    if result.is_error:
        raise ToolError(text or "the call failed, and the server gave no reason")
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
    except ValueError:  # not an address: the file gets no name
        return ""


def _counted(files: Sequence[FilePart]) -> str:
    kinds = ", ".join(file.media_type for file in files)
    return f"({count(len(files), 'file')}: {kinds})"
