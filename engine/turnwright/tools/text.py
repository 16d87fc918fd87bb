"""The text of a tool's return value for the model."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Final

from msgspec import Struct, structs
from pydantic import BaseModel
from pydantic_core import to_json

from turnwright._base.frozen import Value

#: The maximum size of a result's text, in bytes of UTF-8 (docs/rules.md#tool-results).
RESULT_LIMIT: Final = 64 * 1024
#: The text of an empty result, because some models read an empty text as a failure.
NO_OUTPUT: Final = "(no output)"


def to_text(value: object) -> str:
    """Return the text for a tool's return value.

    A string stays as it is. None becomes `(no output)`. Bytes are decoded if they are UTF-8, else described by their
    number. Pydantic models, dataclasses, msgspec structs, mappings, sequences, sets, numbers and booleans become
    compact JSON. Anything else becomes `str(value)`. UTF-8 can always encode the text.
    """
    if value is None:
        return NO_OUTPUT
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _decoded(bytes(value))
    if isinstance(value, Mapping):
        return _json(value if isinstance(value, dict) else dict(value))
    if isinstance(value, BaseModel | Struct | list | tuple | set | frozenset | int | float) or is_dataclass(value):
        return _json(value)
    return clean(str(value))


def cap(text: str, limit: int = RESULT_LIMIT) -> str:
    """Cut `text` after `limit` bytes of UTF-8, never inside a character, and append a notice.

    A shorter text is returned unchanged, as a plain `str`. The notice is not counted, so cap a text only once.
    """
    if type(text) is str and len(text) <= limit and text.isascii():
        return text
    data = str.encode(text, errors="replace")
    if len(data) <= limit:
        return data.decode()
    kept = cut(data, limit)
    return f"{kept}\n[cut: the first {len(kept.encode())} of {len(data)} bytes; ask for less]"


def cut(data: bytes, limit: int) -> str:
    """Decode the first `limit` bytes of valid UTF-8, without an incomplete last character."""
    return data[:limit].decode(errors="ignore")


def clean(text: str) -> str:
    """Return a plain `str` without lone surrogates, which neither a store nor a provider can encode."""
    return text if type(text) is str and text.isascii() else str.encode(text, errors="replace").decode()


def shorten(text: str, limit: int) -> str:
    """Cut `text` to `limit` characters. The last character of a cut text is an ellipsis."""
    text = clean(text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def one_line(text: str) -> str:
    r"""Write line breaks, other control characters and surrogates as escapes (`\n`).

    Otherwise a file's name could imitate another line of a listing, or another question to a person.
    """
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text)


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"<{len(data)} bytes of binary data>"


def _fields_or_text(value: object) -> object:
    if isinstance(value, Value):
        return value.to_json()
    return structs.asdict(value) if isinstance(value, Struct) else str(value)


def _json(value: object) -> str:
    try:
        return to_json(value, fallback=_fields_or_text).decode()
    except ValueError:  # circular, or bytes inside that are not UTF-8
        return clean(str(value))
