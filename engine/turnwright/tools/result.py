"""What a tool gives back: the text that the model reads, the same as data for programs, pictures and documents.

A journal holds all of it and every later request carries the files, so each of the three is bounded here.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from turnwright._base.frozen import deeper_than
from turnwright.message import FilePart

from .text import cap, clean, one_line, shorten, to_text

#: The most that the data of one result may hold, in bytes of its JSON.
STRUCTURED_LIMIT: Final = 256 * 1024
#: The most that the files of one result may hold together, in bytes of their content.
FILES_LIMIT: Final = 8 * 1024 * 1024
#: The most files that one result may have.
MOST_FILES: Final = 32
#: Lists and objects inside each other. Readers of JSON give up at some depth, each at its own.
_DEEPEST: Final = 100
_NAME_LIMIT: Final = 80


class NotJsonError(ValueError):
    """The data of a result cannot be written as JSON. The message says why."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of a call: `text` for the model, the same as JSON data for programs (`structured`), and `files`.

    A tool may return one. The model is given the text, and the files where its provider takes them; the data is kept
    with the call. Text is cut after 64 KiB; data of more than `STRUCTURED_LIMIT` bytes and files of more than
    `FILES_LIMIT` bytes together are left out, and the text then says so. Raises `TypeError` for a text that is none
    and for files that are no `FilePart`; data that is not JSON fails the call.
    """

    text: str
    structured: JsonValue = None
    files: tuple[FilePart, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise TypeError(f"text is what the model reads, a str, and not {type(self.text).__name__}")
        if self.files == ():
            return
        files = (self.files,) if isinstance(self.files, FilePart) else tuple(self.files)
        for file in files:
            if not isinstance(file, FilePart):
                raise TypeError(f"files are of FilePart, not {type(file).__name__}: write FilePart.of(content, type)")
        object.__setattr__(self, "files", files)


def to_result(value: object) -> ToolResult:
    """Give the result for a tool's return value.

    A `ToolResult` is one. A `FilePart` is one whose text names the file, and a list or tuple with files in it is one
    with the text of each of its elements, a line each. Everything else becomes text, see `to_text`. Raises
    `NotJsonError`.
    """
    if isinstance(value, str):
        return ToolResult(clean(value))
    if isinstance(value, ToolResult):
        text = to_text(value.text) or _named(value.files)
        return ToolResult(text, None if value.structured is None else _plain(value.structured), value.files)
    if isinstance(value, FilePart):
        return ToolResult(_named((value,)), None, (value,))
    if isinstance(value, list | tuple):
        files = tuple(one for one in value if isinstance(one, FilePart))
        if files:
            return ToolResult("\n".join(map(_said, value)), None, files)
    return ToolResult(to_text(value))


def bounded(result: ToolResult) -> ToolResult:
    """The result within its bounds. What is left out is said first in its text, where no cut can take it away."""
    if result.structured is None and not result.files:
        text = cap(result.text)
        return result if text is result.text else ToolResult(text)
    notices: list[str] = []
    structured = result.structured
    if structured is not None:
        size = len(_dumped(structured))
        if size > STRUCTURED_LIMIT:
            structured = None
            notices.append(f"[left out: the data of this result: {size:,} bytes of JSON, and {STRUCTURED_LIMIT:,} fit]")
    files, left_out = _fitting(result.files)
    notices += left_out
    return ToolResult(cap("\n".join([*notices, result.text])), structured, files)


def _fitting(files: Sequence[FilePart]) -> tuple[tuple[FilePart, ...], list[str]]:
    fitting: list[FilePart] = []
    notices: list[str] = []
    left = FILES_LIMIT
    for file in files:
        size = _size(file)
        if size <= left and len(fitting) < MOST_FILES:
            fitting.append(file)
            left -= size
        elif len(notices) < MOST_FILES:
            notices.append(
                f"[left out: {_label(file)}: {size:,} bytes; the files of a result are at most {MOST_FILES},"
                f" of {FILES_LIMIT:,} bytes together]"
            )
    unsaid = len(files) - len(fitting) - len(notices)
    return tuple(fitting), [*notices, *([f"[left out: {unsaid:,} more files]"] if unsaid else [])]


def _plain(value: object) -> JsonValue:
    """A copy of the value, as it will be read back: nobody changes it any more, and it holds only what JSON knows."""
    try:
        plain: JsonValue = json.loads(_dumped(value))
    except RecursionError:
        raise NotJsonError(_too_deep()) from None
    except (TypeError, ValueError) as error:
        raise NotJsonError(f"the data of its result is not JSON: {shorten(str(error), 200)}") from None
    if deeper_than(plain, _DEEPEST):
        raise NotJsonError(_too_deep())
    return plain


def _dumped(value: object) -> bytes:
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def _too_deep() -> str:
    return f"the data of its result is nested deeper than {_DEEPEST} lists and objects"


def _said(value: object) -> str:
    return _named((value,)) if isinstance(value, FilePart) else to_text(value)


def _named(files: Iterable[FilePart]) -> str:
    return "\n".join(f"[file: {_label(file)}]" for file in files)


def _size(file: FilePart) -> int:
    """What it takes in a journal: the bytes of its content, or of its address."""
    return len(file.url.encode(errors="replace")) + len(file.data) * 3 // 4 - file.data[-2:].count("=")


def _label(file: FilePart) -> str:
    name = one_line(shorten(file.name, _NAME_LIMIT))
    return f"{name}, {file.media_type}" if name else file.media_type
