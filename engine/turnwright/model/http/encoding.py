"""The common parts of all encoders: JSON as bytes, and a cache. No I/O."""

import json
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, TypeVar

import msgspec
from pydantic import JsonValue

from turnwright.message import Message, ReasoningPart, TextPart, ToolCallPart

from .text_buffer import mend

Source = TypeVar("Source")
Encoded = TypeVar("Encoded")

#: The size, in bytes, from which a chunk is long (see `lengthened`).
CHUNK: Final = 64 * 1024

_JSON: Final = msgspec.json.Encoder()


class EncodedMessage(Generic[Source, Encoded]):
    """A cache of the encoded form of each message, or of another immutable object, for as long as that lives.

    A turn sends its messages again with every step, so each is encoded once (docs/rules.md#speed).
    """

    def __init__(self, encode: Callable[[Source], Encoded]) -> None:
        self._encode = encode
        self._entries: dict[int, tuple[weakref.ref[Source], Encoded]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, source: Source) -> Encoded:
        """Return the encoded form of `source`."""
        entry = self._entries.get(id(source))
        if entry is not None and entry[0]() is source:
            return entry[1]
        encoded_form = self._encode(source)
        # By identity, since an object with a mapping has no hash. The entry is deleted with its source.
        entries, key = self._entries, id(source)
        entries[key] = (weakref.ref(source, lambda _: entries.pop(key, None)), encoded_form)
        return encoded_form


def dump(value: Mapping[str, JsonValue]) -> bytes:
    """Encode JSON.

    Half a surrogate pair becomes U+FFFD; NaN and the infinities, which are not JSON, become null. Raises `TypeError`
    for a value that JSON cannot represent.
    """
    try:
        # Six times as fast as the standard library's: 0.4 us for a reply with two calls.
        return _JSON.encode(value)
    except (UnicodeEncodeError, TypeError):
        # msgspec rejects half pairs, and supports fewer types of keys.
        return _JSON.encode(json.loads(mend(json.dumps(value, ensure_ascii=False))))


def lengthened(chunks: tuple[bytes, ...], pieces: Iterable[bytes]) -> tuple[bytes, ...]:
    """Append pieces to chunks. Short chunks are merged, so that few are left to join; a long one is not copied."""
    row = [*chunks]
    short = [row.pop()] if row and len(row[-1]) < CHUNK else []
    for piece in pieces:
        if len(piece) < CHUNK:
            short.append(piece)
        else:
            row += [b"".join(short), piece]
            short = []
    row.append(b"".join(short))
    return tuple([chunk for chunk in row if chunk])


def replies_of(message: Message) -> Iterator[tuple[ReasoningPart | None, list[TextPart | ToolCallPart]]]:
    """Return the replies in a message: one, unless messages were merged. Reasoning begins a reply."""
    reasoning: ReasoningPart | None = None
    rest: list[TextPart | ToolCallPart] = []
    for part in message.parts:
        if isinstance(part, ReasoningPart):
            yield reasoning, rest
            reasoning, rest = part, []
        elif isinstance(part, TextPart | ToolCallPart):
            rest.append(part)
    yield reasoning, rest
