"""The reasoning that must go back unchanged, put together from the `reasoning_details` of deltas. No I/O.

OpenRouter and those who followed it send one entry in many pieces: a piece of its text with every delta, its signature
with the last one, sometimes alone. The signature covers the whole text, so what goes back must be whole entries, in
their order; a piece that goes back as an entry of its own is refused.
"""

import json
from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from turnwright.model.http.json_text import whole_object
from turnwright.model.http.text_buffer import Meter, Pieces, mend

# What an entry costs in memory beside its texts, and a field of it, counted as characters.
_ENTRY_SIZE: Final = 512
_FIELD_SIZE: Final = 128
# The fields that come in pieces.
_PIECES: Final = frozenset({"text", "summary"})
# An entry with one of these is worth something only to the one who made it.
_SEALS: Final = frozenset({"signature", "data", "encrypted_content"})
# Goes back beside what is sealed. Unsigned text must not: Anthropic takes no thinking without its signature.
_SUMMARY: Final = "reasoning.summary"


class Details:
    """Takes the `reasoning_details` of one reply, gives the entries that must go back.

    Pieces belong together by type and index; without an index, a piece goes on with the entry before it, if that is of
    the same type. A sealed entry is whole: what comes after it begins another one. `meter` counts what is kept.
    Source: "Preserving reasoning blocks" of OpenRouter's documentation.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._entries: list[_Entry] = []
        self._by_place: dict[tuple[str, int], _Entry] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, pieces: JsonValue) -> None:
        """Take the details of one delta. What is no object is skipped. Raises `TooLargeError`."""
        for piece in pieces if isinstance(pieces, list) else ():
            if isinstance(piece, dict) and piece:
                self._add(piece)

    def entries(self) -> tuple[Mapping[str, JsonValue], ...]:
        """Give those of the entries so far that are sealed, with the summaries beside them; none if none is sealed."""
        if not any(entry.sealed for entry in self._entries):
            return ()
        return tuple(entry.value() for entry in self._entries if entry.sealed or entry.kind == _SUMMARY)

    def _add(self, piece: dict[str, JsonValue]) -> None:
        kind, index = piece.get("type"), piece.get("index")
        kind = kind if isinstance(kind, str) else ""
        place = (kind, index) if isinstance(index, int) else None
        entry = self._by_place.get(place) if place else self._last(kind)
        if entry is None or not entry.takes(piece):
            entry = _Entry(kind, self._meter)
            self._entries.append(entry)
        if place:
            self._by_place[place] = entry
        entry.add(piece)

    def _last(self, kind: str) -> "_Entry | None":
        last = self._entries[-1] if self._entries else None
        return last if last is not None and last.kind == kind else None


class _Entry:
    def __init__(self, kind: str, meter: Meter) -> None:
        meter.reserve(_ENTRY_SIZE)
        self.kind = kind
        self._meter = meter
        self._fields: dict[str, JsonValue | Pieces] = {}

    @property
    def sealed(self) -> bool:
        return any(self._fields.get(name) for name in _SEALS)

    def takes(self, piece: Mapping[str, JsonValue]) -> bool:
        """Whether a piece can belong to it: nothing that is signed or encrypted is added to what is already so."""
        repeated = all(not piece.get(name) or piece.get(name) == self._fields.get(name) for name in _SEALS)
        return not self.sealed or (repeated and not any(piece.get(name) for name in _PIECES))

    def add(self, piece: Mapping[str, JsonValue]) -> None:
        """Take a piece: texts go on, of every other field the first value that says anything stays."""
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
        raw = json.dumps({name: value}, ensure_ascii=False)
        # Of the fields that stay, only a signature or encrypted reasoning adds to the reply, and an empty one is none.
        (self._meter.take if name in _SEALS and value else self._meter.reserve)(len(raw) + _FIELD_SIZE)
        self._fields.update(whole_object(mend(raw)) or {})
