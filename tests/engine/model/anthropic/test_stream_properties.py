"""The decoder of the Messages API, whatever comes and however it was cut."""

import copy
import json
from collections.abc import Iterator
from itertools import pairwise, product
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from tests.engine.model.streams import (
    CUTS,
    EDITS,
    NOISE,
    SCALAR,
    TEXT,
    cut,
    each_field_with,
    edited,
    events_in,
    fields_of,
    kept,
    run,
    streams,
)

from turnwright.model.anthropic.blocks import CALL, THINKING, order_of
from turnwright.model.anthropic.reply_builder import MessageBuilder
from turnwright.model.anthropic.stream import MessagesStream
from turnwright.model.protocol import ModelError, ModelResponse, ResponseToolCall
from turnwright_states import Usage

Event = dict[str, JsonValue]

NAMES = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "ping",
    "message",
]
KINDS = ["text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "web_search_tool_result"]
BLOCK = st.none() | st.fixed_dictionaries(
    {"type": SCALAR | st.sampled_from(KINDS)},
    optional={
        "text": SCALAR,
        "thinking": SCALAR,
        "signature": SCALAR,
        "data": SCALAR,
        "id": SCALAR,
        "name": SCALAR,
        "input": SCALAR | st.dictionaries(TEXT, SCALAR, max_size=1),
    },
)
DELTA = st.none() | st.fixed_dictionaries(
    {"type": SCALAR | st.sampled_from(["text_delta", "thinking_delta", "signature_delta", "input_json_delta"])},
    optional={
        "text": SCALAR,
        "thinking": SCALAR,
        "signature": SCALAR,
        "partial_json": SCALAR | st.dictionaries(TEXT, SCALAR, max_size=1),
        "stop_reason": SCALAR,
    },
)
USAGE = SCALAR | st.dictionaries(st.sampled_from(["input_tokens", "output_tokens"]), SCALAR)
EVENT = st.fixed_dictionaries(
    {"type": st.sampled_from(NAMES) | SCALAR},
    optional={
        "index": SCALAR,
        "content_block": BLOCK,
        "delta": DELTA,
        "usage": USAGE,
        "message": SCALAR | st.fixed_dictionaries({}, optional={"content": SCALAR | st.lists(BLOCK), "usage": USAGE}),
        "content": SCALAR | st.lists(BLOCK, max_size=2),
        "error": st.none(),
    },
)
DATA = st.one_of(EVENT, EVENT, EVENT, SCALAR).map(json.dumps) | st.sampled_from(["[DONE]", "{", "", "{}"])
STREAM = streams(DATA, NOISE | st.sampled_from(NAMES).map("event: {}".format))

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)

# The events that are read quickly; and the fields that are looked into, to be put into them.
PIECE = st.one_of(
    st.builds(lambda text: {"type": "text_delta", "text": text}, TEXT | st.text()),
    st.builds(lambda text: {"type": "thinking_delta", "thinking": text}, TEXT),
    st.builds(lambda text: {"type": "input_json_delta", "partial_json": text}, TEXT),
)
GOING_ON = st.builds(
    lambda index, delta: {"type": "content_block_delta", "index": index, "delta": delta}, st.integers(0, 7), PIECE
)
WATCHED = ["type", "index", "delta", "error", "object", "usage", "message", "stop_reason", "text", "thinking"]
WATCHED += ["partial_json", "signature", "content_block"]
TELLING: list[JsonValue] = [None, "", "x", "error", "ping", 1, [], {"error": "e"}, {"input_tokens": 3}]
TELLING += [*NAMES, "text_delta", "thinking_delta", "input_json_delta", "signature_delta"]
OTHERS = st.lists(
    st.tuples(st.integers(0), st.sampled_from(WATCHED), st.sampled_from(TELLING) | SCALAR | ANY), max_size=2
)
OPEN: list[Event] = [
    {"type": "content_block_start", "index": index, "content_block": {"type": kind, "id": "a", "name": "f"}}
    for index, kind in enumerate([*KINDS, ""])
]

# What a reply is made of: its blocks, each with the pieces in which it comes.
PIECES = st.lists(st.text(max_size=5), max_size=4)
ARGUMENTS = st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=5), max_size=3)
BLOCKS = st.lists(
    st.one_of(
        st.tuples(st.just("text"), PIECES, st.just("")),
        st.tuples(st.just("thinking"), PIECES, st.sampled_from(["", "sig"])),
        st.tuples(st.just("redacted_thinking"), st.just(list[str]()), st.text(min_size=1, max_size=5)),
        st.tuples(
            st.just("tool_use"), ARGUMENTS.flatmap(lambda arguments: split(json.dumps(arguments))), st.just("toolu")
        ),
        st.tuples(st.just("server_tool_use"), PIECES, st.just("srvtoolu")),
    ),
    max_size=5,
)
FIELDS = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
    "server_tool_use": ("input_json_delta", "partial_json"),
}
BEGUN: dict[str, Event] = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}}
STOP: Event = {"type": "message_stop"}
Block = tuple[str, list[str], str]


def split(text: str) -> st.SearchStrategy[list[str]]:
    """Cut a text into pieces."""
    edges = st.lists(st.integers(0, len(text)), max_size=3).map(lambda edges: sorted({*edges, 0, len(text)}))
    return edges.map(lambda edges: [text[start:end] for start, end in pairwise(edges)])


def events_of(blocks: list[Block]) -> Iterator[Event]:
    """Send a reply as the API does."""
    usage: JsonValue = {"input_tokens": 25, "output_tokens": 1}
    yield {"type": "message_start", "message": {"type": "message", "content": [], "stop_reason": None, "usage": usage}}
    for index, (kind, pieces, mark) in enumerate(blocks):
        fields = BEGUN.get(kind) or {"id": mark, "name": "f", "input": {}}
        fields = {"data": mark} if kind == "redacted_thinking" else fields
        yield {"type": "content_block_start", "index": index, "content_block": {"type": kind, **fields}}
        for piece in pieces:
            delta_type, field = FIELDS[kind]
            yield {"type": "content_block_delta", "index": index, "delta": {"type": delta_type, field: piece}}
        if kind == "thinking" and mark:
            yield {
                "type": "content_block_delta",
                "index": index,
                "delta": {"type": "signature_delta", "signature": mark},
            }
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 15}}
    yield {"type": "message_stop"}


def reply_of(blocks: list[Block]) -> ModelResponse:
    """Say what those events are the reply of."""
    details: list[dict[str, JsonValue]] = []
    for kind, pieces, mark in blocks:
        if kind == "thinking" and mark:
            details.append({"type": "thinking", "thinking": "".join(pieces), "signature": mark})
        if kind == "redacted_thinking":
            details.append({"type": "redacted_thinking", "data": mark})
    row: list[str | int] = []
    for kind, pieces, mark in blocks:
        row += [CALL] if kind == "tool_use" else [THINKING] if "thinking" in kind and mark else []
        row += [len("".join(pieces))] if kind == "text" else []
    raws = ["".join(pieces) for kind, pieces, _ in blocks if kind == "tool_use"]
    return ModelResponse(
        text="".join("".join(pieces) for kind, pieces, _ in blocks if kind == "text"),
        reasoning="".join("".join(pieces) for kind, pieces, _ in blocks if kind == "thinking"),
        reasoning_details=(*details, *order_of(row)),
        calls=tuple(ResponseToolCall(name="f", arguments=json.loads(raw), raw=raw, id="toolu") for raw in raws),
        usage=Usage(input_tokens=25, output_tokens=15),
    )


def sse(events: list[Event], end: str = "\n") -> bytes:
    return "".join(
        f"event: {event['type']}{end}data: {json.dumps(event, ensure_ascii=False)}{end}{end}" for event in events
    ).encode()


def bounded() -> MessagesStream:
    """Make a decoder with bounds so small that they are met."""
    return MessagesStream(MessageBuilder(max_reply=4000, max_arguments=10), max_event=300)


def decode_with(events: list[Event], place: int, value: JsonValue, *, whole: bool) -> None:
    """Decode events of which one field holds another value."""
    events = copy.deepcopy(events)
    places = list(fields_of(events))
    holder, key = places[place % len(places)]
    holder[key] = value  # type: ignore[index]
    decode_oddly(events, whole=whole)


def decode_oddly(events: list[Event], *, whole: bool) -> None:
    """Decode events: nothing but the documented error may come of it."""
    lines = [json.dumps(event).encode() for event in events]
    stream = MessagesStream()
    for data in [b"[%s]" % b",".join(lines)] if whole else [b"data: %s\n\n" % line for line in lines]:
        stream.feed(data)
    try:
        reply = stream.reply()
    except ModelError:
        reply = stream.partial
    "".join([reply.text, reply.reasoning, *(call.name + call.id + call.raw for call in reply.calls)]).encode()


@given(data=STREAM, cuts=CUTS)
def test_the_result_does_not_depend_on_the_cuts(data: bytes, cuts: list[int]) -> None:
    assert run(bounded, *cut(data, cuts)) == run(bounded, data)
    assert run(bounded, *(bytes([byte]) for byte in data)) == run(bounded, data)
    assert run(bounded, *events_in(data)) == run(bounded, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", WATCHED)
def test_fast_path_sees_every_field_of_the_plain_path(name: str) -> None:
    """In each object of an event that is quick, each field that means something anywhere, with each such value."""
    deltas: list[tuple[int, Event]] = [
        (0, {"type": "text_delta", "text": "a"}),
        (3, {"type": "input_json_delta", "partial_json": "a"}),
    ]
    for (index, delta), value in product(deltas, TELLING):
        quick: Event = {"type": "content_block_delta", "index": index, "delta": delta}
        events: list[Event] = [{**quick, name: value}, {**quick, "delta": {**delta, name: value}}]
        for event in events:
            data = sse([*OPEN, quick]) + f"event: content_block_delta\ndata: {json.dumps(event)}\n\n".encode()
            assert run(MessagesStream, *events_in(data)) == run(MessagesStream, data), event


@given(
    events=st.lists(GOING_ON, min_size=1, max_size=6),
    extras=OTHERS,
    edits=EDITS,
    ascii_only=st.booleans(),
    small=st.booleans(),
)
def test_fast_and_plain_path_read_alike(
    events: list[Event],
    extras: list[tuple[int, str, JsonValue]],
    edits: list[tuple[int, int]],
    ascii_only: bool,
    small: bool,
) -> None:
    objects = [target for event in events for target in (event, cast("Event", event["delta"]))]
    for place, name, value in extras:
        objects[place % len(objects)][name] = value
    head = "event: content_block_delta\ndata:"
    lines = "".join(f"{head} {json.dumps(event, ensure_ascii=ascii_only)}\n\n" for event in events)
    quick = edited(lines.encode("utf-8", "surrogatepass"), edits)
    data = sse(OPEN) + quick

    def make() -> MessagesStream:
        return (
            MessagesStream(MessageBuilder(max_reply=9000, max_arguments=10), max_event=300)
            if small
            else MessagesStream()
        )

    assert run(make, *events_in(data), sse([STOP])) == run(make, data + sse([STOP]))
    assert run(make, sse(OPEN), quick) == run(make, data)


@given(blocks=BLOCKS, cuts=CUTS, end=st.sampled_from(["\n", "\r\n", "\r"]))
def test_reply_is_read_as_sent(blocks: list[Block], cuts: list[int], end: str) -> None:
    data = sse(list(events_of(blocks)), end)
    expected = reply_of(blocks)
    for pieces in ([data], cut(data, cuts), events_in(data), [bytes([byte]) for byte in data]):
        outcome = run(MessagesStream, *pieces)
        calls = {number: (call.name, call.raw) for number, call in enumerate(expected.calls)}
        assert outcome == (expected.text, expected.reasoning, expected, "end_turn", True, None, None, None, calls)


@given(data=STREAM | st.binary())
def test_nothing_but_a_model_error_is_raised(data: bytes) -> None:
    stream = bounded()
    stream.feed(data)
    stream.end()
    assert stream.done
    assert stream.complete is (stream.error is None)
    if stream.error is None:
        assert isinstance(stream.reply(), ModelResponse)
        return
    assert stream.error.partial is not None
    with pytest.raises(ModelError) as caught:
        stream.reply()
    assert caught.value is stream.error


@given(blocks=BLOCKS, place=st.integers(0), value=ANY, whole=st.booleans())
def test_any_value_may_stand_in_any_field(blocks: list[Block], place: int, value: JsonValue, whole: bool) -> None:
    decode_with(list(events_of(blocks)), place, value, whole=whole)


@pytest.mark.slow
@pytest.mark.parametrize("value", [None, True, 0, -1.5, 10**400, "", "x", [], [[]], {}, {"type": []}, {"text": {}}])
@pytest.mark.parametrize("whole", [True, False])
def test_every_field_may_hold_a_value_of_another_type(value: JsonValue, whole: bool) -> None:
    calls: list[Block] = [("tool_use", ["{", "}"], "toolu"), ("server_tool_use", ["{}"], "srvtoolu")]
    events = list(events_of([("text", ["a"], ""), ("thinking", ["a"], "sig"), ("redacted_thinking", [], "a"), *calls]))
    message: Event = {"type": "message", "content": [{"type": "text", "text": "a"}], "error": None}
    for sequence in (events, [message]):
        for _ in each_field_with(value, sequence):
            decode_oddly(sequence, whole=whole)


@given(data=STREAM)
def test_kept_data_is_bounded_and_encodable(data: bytes) -> None:
    outcome = run(bounded, data)
    texts = kept(outcome)
    "".join(texts).encode()
    assert all(len(call.raw) <= 10 for call in outcome[2].calls)
    # Each text is counted once, and seen at most four times: as it came, in the reply, in its details and parsed.
    assert sum(map(len, texts)) <= 4 * 4000
