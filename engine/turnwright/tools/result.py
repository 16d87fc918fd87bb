"""The result of a call: text for the model, data for programs, and files.

The journal stores all three, and each later request contains the files. So each has a maximum size.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from turnwright._base.frozen import deeper_than
from turnwright._base.words import clean, cut_clean, escape_unprintable
from turnwright.message import FilePart

from .text import RESULT_LIMIT, NotJsonError, cap, to_text

#: The maximum size of the data of one result, in bytes of JSON.
STRUCTURED_LIMIT: Final = 256 * 1024
#: The maximum total size of the files of one result, in bytes.
FILES_LIMIT: Final = 8 * 1024 * 1024
#: The maximum number of files of one result.
MOST_FILES: Final = 32
#: The maximum depth of nested lists and objects. JSON parsers have different limits.
_DEEPEST: Final = 100
_NAME_LIMIT: Final = 80


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call: `text` for the model, the same as JSON data for programs (`structured`), and `files`.

    A tool may return one. With `final` its text is the turn's answer, and no model call follows
    (docs/rules.md#direct-results). The model receives the text, and the files if its provider supports them. The data
    is stored with the call. Text is cut after 64 KiB. Data of more than `STRUCTURED_LIMIT` bytes and files of more than
    `FILES_LIMIT` bytes in total are left out, with a notice in the text. Raises `TypeError` if the text is not a `str`
    or a file is not a `FilePart`. Data that is not JSON fails the call. See docs/rules.md#tool-results.
    """

    text: str
    structured: JsonValue = None
    files: tuple[FilePart, ...] = ()
    final: bool = False

    def __post_init__(self) -> None:
        if type(self.text) is not str and not isinstance(self.text, str):
            raise TypeError(f"text must be a str, not {type(self.text).__name__}")
        if type(self.final) is not bool:
            raise TypeError(f"final must be True or False, not {self.final!r:.80}")
        if self.files == ():
            return
        files = (self.files,) if isinstance(self.files, FilePart) else tuple(self.files)
        for file in files:
            if not isinstance(file, FilePart):
                raise TypeError(f"files must be FilePart, not {type(file).__name__}: write FilePart.of(content, type)")
        object.__setattr__(self, "files", files)


def to_result(value: object) -> ToolResult:
    """Return the result for a tool's return value.

    A `ToolResult` is used as it is. A `FilePart` becomes a result whose text names the file. A list or tuple with files
    becomes a result with one line of text for each element. Any other value becomes text (`to_text`). Raises
    `NotJsonError`.
    """
    if type(value) is str or isinstance(value, str):
        return ToolResult(value if type(value) is str and value.isascii() else clean(value))
    if isinstance(value, ToolResult):
        text = to_text(value.text) or _name_files(value.files)
        return ToolResult(text, None if value.structured is None else plain(value.structured), value.files, value.final)
    if isinstance(value, FilePart):
        return ToolResult(_name_files((value,)), None, (value,))
    if isinstance(value, list | tuple):
        files = tuple(item for item in value if isinstance(item, FilePart))
        if files:
            return ToolResult("\n".join(map(_to_line, value)), None, files)
    return ToolResult(to_text(value))


def bounded(result: ToolResult) -> ToolResult:
    """Return the result within the limits. Notices come first in its text, where a cut cannot remove them."""
    if result.structured is None and not result.files:
        text = result.text
        if type(text) is str and not text[RESULT_LIMIT:] and text.isascii():
            return result
        text = cap(text)
        return result if text is result.text else ToolResult(text, final=result.final)
    notices: list[str] = []
    structured = result.structured
    if structured is not None:
        size = len(_dumped(structured))
        if size > STRUCTURED_LIMIT:
            structured = None
            notices.append(
                f"[left out: the data of this result: {size:,} bytes of JSON; the limit: {STRUCTURED_LIMIT:,}]"
            )
    files, left_out = _select_files(result.files)
    notices += left_out
    return ToolResult(cap("\n".join([*notices, result.text])), structured, files, result.final)


def _select_files(files: Sequence[FilePart]) -> tuple[tuple[FilePart, ...], list[str]]:
    fitting: list[FilePart] = []
    notices: list[str] = []
    bytes_left = FILES_LIMIT
    for file in files:
        size = _size(file)
        if size <= bytes_left and len(fitting) < MOST_FILES:
            fitting.append(file)
            bytes_left -= size
        elif len(notices) < MOST_FILES:
            notices.append(
                f"[left out: {_label(file)}: {size:,} bytes; the limit: {MOST_FILES} files,"
                f" {FILES_LIMIT:,} bytes in total]"
            )
    unsaid = len(files) - len(fitting) - len(notices)
    return tuple(fitting), [*notices, *([f"[left out: {unsaid:,} more files]"] if unsaid else [])]


def plain(value: object) -> JsonValue:
    """Return a copy of the value as plain JSON data, so that later changes to the value have no effect."""
    try:
        plain: JsonValue = json.loads(_dumped(value))
    except RecursionError:
        raise NotJsonError(_too_deep()) from None
    except (TypeError, ValueError) as error:
        raise NotJsonError(f"the data of its result is not JSON: {cut_clean(str(error), 200)}") from None
    if deeper_than(plain, _DEEPEST):
        raise NotJsonError(_too_deep())
    return plain


def json_size(value: object) -> int:
    """Return the bytes of a value as compact JSON."""
    return len(_dumped(value))


def _dumped(value: object) -> bytes:
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def _too_deep() -> str:
    return f"the data of its result is nested deeper than {_DEEPEST} lists and objects"


def _to_line(value: object) -> str:
    return _name_files((value,)) if isinstance(value, FilePart) else to_text(value)


def _name_files(files: Iterable[FilePart]) -> str:
    return "\n".join(f"[file: {_label(file)}]" for file in files)


def _size(file: FilePart) -> int:
    """Return the bytes of the file's content, or of its address."""
    return len(file.url.encode(errors="replace")) + len(file.data) * 3 // 4 - file.data[-2:].count("=")


def _label(file: FilePart) -> str:
    name = escape_unprintable(cut_clean(file.name, _NAME_LIMIT))
    return f"{name}, {file.media_type}" if name else file.media_type
