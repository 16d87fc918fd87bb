"""The text of a tool's return value for the model."""

import re
from collections.abc import Mapping, ValuesView
from collections.abc import Set as AbstractSet
from dataclasses import is_dataclass
from datetime import date, time, timedelta
from enum import Enum
from typing import Final

from msgspec import Struct, structs
from pydantic import BaseModel
from pydantic_core import to_json, to_jsonable_python

from turnwright._base.frozen import Value
from turnwright._base.words import clean, cut_clean, cut_utf8

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
