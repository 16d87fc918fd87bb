"""Shared by the properties of both decoders: hard texts, ways to write events, and all visible results."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import cast

from hypothesis import strategies as st
from pydantic import JsonValue

from turnwright.model.http.reply_stream import ReplyStream
from turnwright.model.protocol import Delta, ModelResponse, ReasoningDelta, TextDelta, ToolCallDelta
from turnwright_states import Cause

TEXT = st.sampled_from(["", "a", "é\u2028", "😀", "\ud83d", "\ude00", '{"a"', ": 1}", "stop", "f", "[DONE]"])
SCALAR: st.SearchStrategy[JsonValue] = st.none() | st.booleans() | st.integers(-2, 2) | TEXT
EDITS: st.SearchStrategy[list[tuple[int, int]]] = st.just([]) | st.lists(
    st.tuples(st.integers(0), st.sampled_from(b'{}[]",:\\\n\r 0eud\x00\xff') | st.integers(0, 255)), max_size=2
)
CUTS = st.lists(st.integers(0, 2000), max_size=6)
NOISE = st.sampled_from([": PROCESSING", "event: error", "event: x", "{", '{"error": "x"}', "id: 1", "  ", "<p>"])
END = st.sampled_from(["\n\n", "\r\n\r\n", "\r\r", "\n", "\r\n", "\r", "\r\n\n"])
Holder = dict[str, JsonValue] | list[JsonValue]
Calls = dict[int, tuple[str, str]]
Seen = tuple[str, str, ModelResponse, str | None, bool, str | None, Cause | None, ModelResponse | None, Calls]


def streams(data: st.SearchStrategy[str], noise: st.SearchStrategy[str] = NOISE) -> st.SearchStrategy[bytes]:
    """Make streams of events that hold `data`, with lines of `noise` in between."""
    line = st.builds(lambda prefix, data: prefix + data, st.sampled_from(["data: ", "data:"]), data) | noise
    return st.builds(
        lambda mark, lines, rest: (mark + "".join(line + end for line, end in lines) + rest).encode(),
        st.sampled_from(["", "", "\ufeff", "\n", " "]),
        st.lists(st.tuples(line, END), max_size=8),
        line | st.just(""),
    )


def fields_of(value: object) -> Iterator[tuple[Holder, str | int]]:
    """Find every place in a value of JSON that another value could be put into."""
    places = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in places:
        yield cast("Holder", value), key
        yield from fields_of(inner)


def each_field_with(odd_value: JsonValue, value: object) -> Iterator[None]:
    """Put another value into each field, one after the other, and the field's own value back."""
    for holder, key in list(fields_of(value)):
        own_value = holder[key]  # type: ignore[index]
        holder[key] = odd_value  # type: ignore[index]
        yield
        holder[key] = own_value  # type: ignore[index]


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut `data` at these places."""
    edges = sorted({min(place, len(data)) for place in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(edges)]


def events_in(data: bytes) -> list[bytes]:
    """Cut `data` behind each empty line: what may be read quickly is, and as one piece nothing is."""
    return re.findall(rb".+?\n\n|.+\Z", data, re.DOTALL)


def edited(data: bytes, edits: list[tuple[int, int]]) -> bytes:
    """Put other bytes at these places."""
    changed = bytearray(data)
    for place, byte in edits:
        changed[place % len(changed)] = byte
    return bytes(changed)


def run(make: Callable[[], ReplyStream], *pieces: bytes) -> Seen:
    """Decode the pieces: the text and the reasoning of the deltas, and all that the stream says of itself."""
    stream = make()
    deltas = [delta for piece in pieces for delta in stream.feed(piece)] + stream.end()
    error = stream.error
    return (
        "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)),
        "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)),
        stream.partial,
        stream.partial.finish_reason,
        stream.complete,
        str(error) if error else None,
        error.cause if error else None,
        error.partial if error else None,
        calls_in(deltas),
    )


def calls_in(deltas: list[Delta]) -> Calls:
    """The tool and the joined arguments of each call whose deltas these are."""
    calls: Calls = {}
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            calls[delta.call_index] = (delta.tool, calls.get(delta.call_index, ("", ""))[1] + delta.arguments_delta)
    return calls


def kept(outcome: Seen) -> list[str]:
    """Every text that a decoder kept."""
    text, reasoning, reply, *_ = outcome
    texts = [text, reasoning, reply.text, reply.reasoning, reply.finish_reason or ""]
    texts += [json.dumps(detail, ensure_ascii=False) for detail in reply.reasoning_details]
    for call in reply.calls:
        texts += [call.id, call.name, call.raw, json.dumps(call.arguments, ensure_ascii=False, allow_nan=False)]
    return texts
