"""The result of a call: text for the model, data for programs, and files.

The journal stores all three, and each later request contains the files. So each has a maximum size.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, is_dataclass
from datetime import date, time, timedelta
from enum import Enum
from typing import Final

from msgspec import Struct, structs
from pydantic import BaseModel, JsonValue
from pydantic_core import to_json, to_jsonable_python

from turnwright._base.frozen import Value, deeper_than
from turnwright._base.words import clean, cut_clean, cut_utf8, escape_unprintable
from turnwright.message import FilePart

#: The maximum size of a result's text, in bytes of UTF-8 (docs/rules.md#tool-results).
RESULT_LIMIT: Final = 64 * 1024
#: The text of an empty result, because some models read an empty text as a failure.
NO_OUTPUT: Final = "(no output)"


#: The address of an object, as the default `repr` ends.
_ADDRESS: Final = re.compile(r" at 0x[0-9A-Fa-f]+>")
_DATA: Final = BaseModel | Struct | Mapping | list | tuple | AbstractSet | ValuesView | int | float
_SURROGATES: Final = "surrogates not allowed"
_NO_JSON: Final = "Error serializing to JSON: "


class NotJsonError(ValueError):
    """A result, or its data, is not JSON. The message says why."""


def to_text(value: object) -> str:
    """Return the text for a tool's return value.

    A string stays as it is. None becomes `(no output)`. Bytes are decoded if they are UTF-8, else described by their
    number. Pydantic models, dataclasses, msgspec structs, attrs classes, mappings, sequences, sets, numbers and
    booleans become compact JSON, with dates in ISO 8601. An enum becomes its value. Anything else becomes
    `str(value)`, also inside of the others. UTF-8 can always encode the text.

    Raises `NotJsonError` if that text is the default one, with an address in memory, and for data that contains itself.
    """
    if isinstance(value, Enum):
        value = value.value
    if value is None:
        return NO_OUTPUT
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _decode(bytes(value))
    if isinstance(value, _DATA) or (is_dataclass(value) and not isinstance(value, type)) or _is_attrs(value):
        return _write_json(value)
    return _write_json(value)[1:-1] if isinstance(value, date | time | timedelta) else _print(value)


def cap(text: str, limit: int = RESULT_LIMIT) -> str:
    """Cut `text` after `limit` bytes of UTF-8, never inside a character, and append a notice.

    A shorter text is returned unchanged, as a plain `str`. The notice is not counted, so cap a text only once.
    """
    if type(text) is str and len(text) <= limit and text.isascii():
        return text
    data = str.encode(text, errors="replace")
    if len(data) <= limit:
        return data.decode()
    head = cut_utf8(data, limit)
    return f"{head}\n[cut: the first {len(head.encode())} of {len(data)} bytes; ask for less]"


def _decode(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"<{len(data)} bytes of binary data>"


def _is_attrs(value: object) -> bool:
    return hasattr(type(value), "__attrs_attrs__")


def _fields_or_text(value: object) -> object:
    if isinstance(value, Value):
        return value.to_json()
    if isinstance(value, Struct):
        return structs.asdict(value)
    if _is_attrs(value):
        return {field.name: getattr(value, field.name) for field in type(value).__attrs_attrs__}  # type: ignore[attr-defined]
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, memoryview):
        return bytes(value)
    return list(value) if isinstance(value, AbstractSet | ValuesView) else _print(value)


def _print(value: object) -> str:
    text = clean(str(value))
    if _ADDRESS.search(text):
        raise NotJsonError(
            f"its result has a {type(value).__name__}, which is not JSON: return text, JSON data, a dataclass or a"
            " pydantic model, or give the class a __str__"
        )
    return text


def clean_data(value: object) -> object:
    """Return a JSON value without lone surrogates, which the name of a file has that is not UTF-8."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean_data(name): clean_data(item) for name, item in value.items()}
    return [clean_data(item) for item in value] if isinstance(value, list | tuple) else value


def _write_json(value: object) -> str:
    refusals: list[NotJsonError] = []

    def fallback(item: object) -> object:
        try:
            return _fields_or_text(item)
        except NotJsonError as error:
            refusals.append(error)
            raise

    why = ""
    # If bytes inside are not UTF-8, all are base64.
    for bytes_mode in ("utf8", "base64"):
        try:
            return to_json(value, fallback=fallback, bytes_mode=bytes_mode).decode()
        except ValueError as error:
            if refusals:
                raise refusals[0] from None
            if _SURROGATES in str(error):
                return _write_json(clean_data(to_jsonable_python(clean_data(value), fallback=fallback)))
            why = str(error).removeprefix(_NO_JSON)
    raise NotJsonError(f"its result cannot be written as JSON: {cut_clean(why, 200)}")


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


def bound_result(result: ToolResult) -> ToolResult:
    """Return the result within the limits. Notices come first in its text, where a cut cannot remove them."""
    if result.structured is None and not result.files:
        text = result.text
        if type(text) is str and not text[RESULT_LIMIT:] and text.isascii():
            return result
        text = cap(text)
        return result if text is result.text else ToolResult(text, final=result.final)
    notices: list[str] = []
    data = result.structured
    if data is not None:
        size = len(_dump(data))
        if size > STRUCTURED_LIMIT:
            data = None
            notices.append(
                f"[left out: the data of this result: {size:,} bytes of JSON; the limit: {STRUCTURED_LIMIT:,}]"
            )
    files, left_out = _select_files(result.files)
    notices += left_out
    return ToolResult(cap("\n".join([*notices, result.text])), data, files, result.final)


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
    omitted_count = len(files) - len(fitting) - len(notices)
    return tuple(fitting), [*notices, *([f"[left out: {omitted_count:,} more files]"] if omitted_count else [])]


def plain(value: object) -> JsonValue:
    """Return a copy of the value as plain JSON data, so that later changes to the value have no effect."""
    try:
        plain: JsonValue = json.loads(_dump(value))
    except RecursionError:
        raise NotJsonError(_too_deep()) from None
    except (TypeError, ValueError) as error:
        raise NotJsonError(f"the data of its result is not JSON: {cut_clean(str(error), 200)}") from None
    if deeper_than(plain, _DEEPEST):
        raise NotJsonError(_too_deep())
    return plain


def json_size(value: object) -> int:
    """Return the bytes of a value as compact JSON."""
    return len(_dump(value))


def _dump(value: object) -> bytes:
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
