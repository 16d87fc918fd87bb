"""Keep the values of a reply that its provider requires unchanged, and restore them in later requests. No I/O.

Our replies have a text, a reasoning and calls. A response of pydantic-ai is a list of parts, and providers check it: a
signature belongs to one thinking part, Gemini signs single calls and texts, and thinking between two calls must be sent
back between them. One entry of `ModelResponse.reasoning_details` keeps the list: each part with its signature and
details, but without its text and arguments, which the journal already has.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

import pydantic_ai.messages as pai
from pydantic import JsonValue, ValidationError
from pydantic_core import PydanticSerializationError

from turnwright.message import Message, TextPart, ToolCallPart
from turnwright.model.http.encoding import replies_of
from turnwright.model.http.json_text import read_objects
from turnwright.model.http.text_buffer import mend

#: The `type` of the entry.
TYPE: Final = "pydantic_ai"

# The item ids of OpenAI's Responses API refer to stored calls and texts. The API would use those instead of the ids and
# texts that we send.
_LEFT_OUT: Final = frozenset({"content", "args", "tool_call_id", "tool_kind", "citations"})


def details_of(response: pai.ModelResponse) -> tuple[Mapping[str, JsonValue], ...]:
    """Make the entry for a response; None if it only has texts and calls without details."""
    parts = [
        part
        for part in response.parts
        if isinstance(part, pai.TextPart | pai.ThinkingPart | pai.ToolCallPart | pai.CompactionPart)
    ]
    if not any(_says_more(part) for part in parts):
        return ()
    try:
        (record,) = pai.ModelMessagesTypeAdapter.dump_python([pai.ModelResponse(parts=parts)], mode="json")
    except PydanticSerializationError:
        # Details that are not JSON do not fit into the journal; the provider receives the text and the calls.
        return ()
    rows: list[JsonValue] = []
    calls = 0
    for part, fields in zip(parts, record["parts"], strict=True):
        row = _without_texts(part, fields)
        if isinstance(part, pai.ToolCallPart):
            row["call"] = calls
            calls += 1
        elif not isinstance(part, pai.CompactionPart):
            row["length"] = len(mend(part.content))
        rows.append(row)
    origin = {"provider_name": response.provider_name, "canonical_system": response.canonical_system}
    return ({"type": TYPE, **{name: value for name, value in origin.items() if value is not None}, "parts": rows},)


def response_of(message: Message) -> pai.ModelResponse | None:
    """Translate an assistant's message, with the details of its reply at their places; None if it is empty.

    If a text or the calls were changed after the reply, they are sent without details, and without the reasoning,
    whose signature would be wrong. Reasoning from elsewhere is left out.
    """
    parts: list[pai.ModelResponsePart] = []
    entry: Mapping[str, JsonValue] = {}
    for reasoning, reply_parts in replies_of(message):
        details = next((detail for detail in reasoning.details if detail.get("type") == TYPE), {}) if reasoning else {}
        entry = details or entry
        parts += _ReplyParts(reasoning.text if reasoning else "", reply_parts).fill(details)
    if not parts:
        return None
    name, system = entry.get("provider_name"), entry.get("canonical_system")
    return pai.ModelResponse(
        parts=parts,
        provider_name=name if isinstance(name, str) else None,
        canonical_system=system if isinstance(system, str) else None,
    )


def _says_more(part: pai.ModelResponsePart) -> bool:
    return isinstance(part, pai.ThinkingPart | pai.CompactionPart) or bool(getattr(part, "provider_details", None))


def _without_texts(part: pai.ModelResponsePart, fields: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    if isinstance(part, pai.CompactionPart):
        return {name: value for name, value in fields.items() if value is not None}
    left_out = _LEFT_OUT if isinstance(part, pai.ThinkingPart) else _LEFT_OUT | {"id"}
    return {name: value for name, value in fields.items() if value is not None and name not in left_out}


class _ReplyParts:
    """The parts of one reply, with its texts and calls restored at their places."""

    def __init__(self, reasoning: str, parts: Sequence[TextPart | ToolCallPart]) -> None:
        self._reasoning = reasoning
        self._text = "".join(part.text for part in parts if isinstance(part, TextPart))
        self._calls = [part for part in parts if isinstance(part, ToolCallPart)]

    def fill(self, entry: Mapping[str, JsonValue]) -> list[pai.ModelResponsePart]:
        places = _read(entry)
        has_thinking = _lengths(places, pai.ThinkingPart) == len(self._reasoning)
        has_same_lengths = _lengths(places, pai.TextPart) == len(self._text)
        if not has_same_lengths:
            places = [place for place in places if not isinstance(place[0], pai.TextPart)]
        thinking_at = offset = 0
        used_calls: set[int] = set()
        row: list[pai.ModelResponsePart] = []
        for part, length, call in places:
            match part:
                case pai.ThinkingPart() if has_thinking:
                    row.append(dataclasses.replace(part, content=self._reasoning[thinking_at : thinking_at + length]))
                    thinking_at += length
                case pai.TextPart():
                    row.append(dataclasses.replace(part, content=self._text[offset : offset + length]))
                    offset += length
                case pai.ToolCallPart() if call < len(self._calls) and self._calls[call].name == part.tool_name:
                    row.append(_call(self._calls[call], part))
                    used_calls.add(call)
                case pai.CompactionPart():
                    row.append(part)
                case _:
                    pass
        if self._text and not (has_same_lengths and offset):
            first = next((at for at, part in enumerate(row) if isinstance(part, pai.ToolCallPart)), len(row))
            row.insert(first, pai.TextPart(self._text))
        return row + [_call(call) for at, call in enumerate(self._calls) if at not in used_calls]


_Place = tuple[pai.ModelResponsePart, int, int]


def _read(entry: Mapping[str, JsonValue]) -> list[_Place]:
    """Return the parts of an entry, each with its length and the number of its call; empty for an invalid entry."""
    fields = [dict(row) for row in read_objects(entry.get("parts"))]
    places = [(_whole(row.pop("length", 0)), _whole(row.pop("call", 0))) for row in fields]
    parts = [row if row.get("part_kind") in ("tool-call", "compaction") else {"content": "", **row} for row in fields]
    try:
        (response,) = pai.ModelMessagesTypeAdapter.validate_python([{"kind": "response", "parts": parts}])
    except ValidationError:
        return []
    return [
        (part, length, call)
        for part, (length, call) in zip(response.parts, places, strict=True)
        if isinstance(part, pai.TextPart | pai.ThinkingPart | pai.ToolCallPart | pai.CompactionPart)
    ]


def _lengths(places: Sequence[_Place], kind: type[pai.TextPart | pai.ThinkingPart]) -> int:
    return sum(length for part, length, _ in places if isinstance(part, kind))


def _call(call: ToolCallPart, like: pai.ToolCallPart | None = None) -> pai.ToolCallPart:
    """Return the call under our id, with the provider's details."""
    part = pai.ToolCallPart(tool_name=call.name, args=dict(call.arguments), tool_call_id=call.id)
    if like is None:
        return part
    return dataclasses.replace(part, provider_name=like.provider_name, provider_details=like.provider_details)


def _whole(value: JsonValue) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
