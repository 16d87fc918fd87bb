"""Assemble the reasoning that must be sent back unchanged from the `reasoning_details` of deltas. No I/O.

OpenRouter and compatible servers send one entry in many pieces: a piece of its text with every delta, and its signature
with the last one, sometimes alone. The signature covers the entire text, so complete entries must be sent back, in
order. The server rejects a piece sent back as an entry.
"""

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from turnwright.model.http.json_text import copy_object, read_objects, read_text
from turnwright.model.http.text_buffer import Meter, Pieces

# The memory of an entry without its texts, and of a field of it, counted as characters.
_ENTRY_SIZE: Final = 512
_FIELD_SIZE: Final = 128
# The fields that arrive in pieces.
_PIECES: Final = frozenset({"text", "summary"})
# Only its producer can use an entry with one of these fields.
_SEALS: Final = frozenset({"signature", "data", "encrypted_content"})
# Sent back with sealed entries. Unsigned text is not: Anthropic rejects thinking without its signature.
_SUMMARY: Final = "reasoning.summary"


class Details:
    """Assembles the entries that must be sent back from the `reasoning_details` of one reply.

    Pieces of one type and index belong together; without an index, a piece continues the entry before it, if both have
    the same type. A piece behind a sealed entry begins another one. `meter` counts the memory.
    Source: "Preserving reasoning blocks" of OpenRouter's documentation.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._entries: list[_DetailBuilder] = []
        self._by_place: dict[tuple[str, int], _DetailBuilder] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, pieces: JsonValue) -> None:
        """Add the details of one delta, except those that are not objects. Raises `TooLargeError`."""
        for piece in read_objects(pieces):
            if piece:
                self._add(piece)

    def entries(self) -> tuple[Mapping[str, JsonValue], ...]:
        """Return the sealed entries so far, and the summaries; an empty list if none is sealed."""
        if not any(entry.sealed for entry in self._entries):
            return ()
        return tuple(entry.value() for entry in self._entries if entry.sealed or entry.kind == _SUMMARY)

    def _add(self, piece: dict[str, JsonValue]) -> None:
        kind, index = read_text(piece.get("type")), piece.get("index")
        place = (kind, index) if isinstance(index, int) else None
        entry = self._by_place.get(place) if place else self._last(kind)
        if entry is None or not entry.takes(piece):
            entry = _DetailBuilder(kind, self._meter)
            self._entries.append(entry)
        if place:
            self._by_place[place] = entry
        entry.add(piece)

    def _last(self, kind: str) -> "_DetailBuilder | None":
        last = self._entries[-1] if self._entries else None
        return last if last is not None and last.kind == kind else None


class _DetailBuilder:
    def __init__(self, kind: str, meter: Meter) -> None:
        meter.reserve(_ENTRY_SIZE)
        self.kind = kind
        self._meter = meter
        self._fields: dict[str, JsonValue | Pieces] = {}

    @property
    def sealed(self) -> bool:
        return any(self._fields.get(name) for name in _SEALS)

    def takes(self, piece: Mapping[str, JsonValue]) -> bool:
        """Whether a piece can belong to this entry. A sealed piece does not continue a sealed entry."""
        is_repeat = all(not piece.get(name) or piece.get(name) == self._fields.get(name) for name in _SEALS)
        return not self.sealed or (is_repeat and not any(piece.get(name) for name in _PIECES))

    def add(self, piece: Mapping[str, JsonValue]) -> None:
        """Add a piece: append its texts, and keep the first non-empty value of every other field."""
        for name, value in piece.items():
            if name in _PIECES and isinstance(value, str):
                self._text(name).add(value)
            elif name not in self._fields or (self._fields[name] in (None, "") and value not in (None, "")):
                self._keep(name, value)

    def value(self) -> Mapping[str, JsonValue]:
        return {name: str(value) if isinstance(value, Pieces) else value for name, value in self._fields.items()}

    def _text(self, name: str) -> Pieces:
        text = self._fields.get(name)
        if not isinstance(text, Pieces):
            self._meter.reserve(_FIELD_SIZE)
            text = self._fields[name] = Pieces(self._meter)
        return text

    def _keep(self, name: str, value: JsonValue) -> None:
        self._meter.reserve(_FIELD_SIZE)
        # Of the other fields, only a signature or encrypted reasoning adds to the reply.
        self._fields.update(
            copy_object({name: value}, self._meter.take if name in _SEALS and value else self._meter.reserve)
        )
