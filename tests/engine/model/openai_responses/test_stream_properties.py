"""The decoder of the Responses API, for any stream: the cuts do not matter, and nothing unexpected is raised."""

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

from turnwright.model.openai_responses.reply_builder import ResponseBuilder
from turnwright.model.openai_responses.stream import ResponsesStream
from turnwright.model.protocol import ModelError, ModelResponse, ResponseToolCall
from turnwright_states import Usage

from .events import (
    SEARCH,
    Event,
    Item,
    added,
    call,
    completed,
    created,
    done,
    message,
    ordered,
    reasoning,
    sse,
    streamed,
    text,
    whole,
)
from .events import kept as entry

NAMES = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.output_item.done",
    "response.content_part.added",
    "response.content_part.done",
    "response.output_text.delta",
    "response.output_text.done",
    "response.refusal.delta",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.reasoning_summary_text.delta",
    "response.reasoning_summary_part.done",
    "response.reasoning_text.delta",
    "response.web_search_call.searching",
    "response.completed",
    "response.incomplete",
    "response.failed",
]
KINDS = ["message", "reasoning", "function_call", "web_search_call", "custom_tool_call"]
PART = SCALAR | st.fixed_dictionaries(
    {"type": st.sampled_from(["output_text", "refusal", "summary_text", "reasoning_text"]) | SCALAR},
    optional={"text": SCALAR, "refusal": SCALAR},
)
ITEM = SCALAR | st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS) | SCALAR},
    optional={
        "id": SCALAR,
        "call_id": SCALAR,
        "name": SCALAR,
        "arguments": SCALAR | st.dictionaries(TEXT, SCALAR, max_size=1),
        "content": SCALAR | st.lists(PART, max_size=2),
        "summary": SCALAR | st.lists(PART, max_size=2),
        "encrypted_content": SCALAR,
        "phase": SCALAR,
        "status": SCALAR,
    },
)
USED = SCALAR | st.dictionaries(st.sampled_from(["input_tokens", "output_tokens", "input_tokens_details"]), SCALAR)
RESPONSE = SCALAR | st.fixed_dictionaries(
    {},
    optional={
        "status": SCALAR | st.sampled_from(["completed", "incomplete", "failed", "in_progress"]),
        "output": SCALAR | st.lists(ITEM, max_size=3),
        "usage": USED,
        "error": SCALAR,
        "incomplete_details": SCALAR | st.fixed_dictionaries({"reason": SCALAR}),
    },
)
EVENT = st.fixed_dictionaries(
    {"type": st.sampled_from(NAMES) | SCALAR},
    optional={
        "output_index": SCALAR,
        "content_index": SCALAR,
        "summary_index": SCALAR,
        "item_id": SCALAR,
        "item": ITEM,
        "delta": SCALAR,
        "text": SCALAR,
        "refusal": SCALAR,
        "part": PART,
        "arguments": SCALAR,
        "response": RESPONSE,
        "output": SCALAR | st.lists(ITEM, max_size=2),
        "status": SCALAR,
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
GOING_ON = st.builds(
    lambda index, part, piece: {
        "type": "response.output_text.delta",
        "output_index": index,
        "content_index": part,
        "delta": piece,
    },
    st.integers(0, 5),
    st.integers(0, 1),
    TEXT | st.text(),
)
WATCHED = ["type", "output_index", "content_index", "item_id", "delta", "error", "object", "response", "item", "part"]
WATCHED += ["text", "status", "output", "arguments"]
TELLING: list[JsonValue] = [
    None,
    "",
    "x",
    "error",
    "id_0",
    "id_1",
    1,
    1.0,
    10**9,
    [],
    {"error": "e"},
    {"status": "failed"},
]
TELLING += [*NAMES]
OTHERS = st.lists(
    st.tuples(st.integers(0), st.sampled_from(WATCHED), st.sampled_from(TELLING) | SCALAR | ANY), max_size=2
)
OPEN: list[Event] = [
    event
    for index, kind in enumerate(["message", "message", "function_call", "reasoning", "web_search_call"])
    for event in (
        added(index, {"type": kind, "id": f"id_{index}", "call_id": "c", "name": "f"}),
        text(index, "x"),
    )
]

# What a reply is made of: its items, each with the pieces in which its text or arguments come.
PIECES = st.lists(st.text(max_size=5), min_size=1, max_size=4)
ARGUMENTS = st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=5), max_size=3)
ROWS = st.lists(
    st.one_of(
        st.tuples(st.just("message"), PIECES, st.sampled_from(["", "commentary"])),
        st.tuples(st.just("refusal"), PIECES, st.just("")),
        st.tuples(st.just("reasoning"), PIECES, st.just("gAAAA")),
        st.tuples(
            st.just("function_call"), ARGUMENTS.flatmap(lambda arguments: split(json.dumps(arguments))), st.just("")
        ),
        st.tuples(st.just("web_search_call"), st.just(list[str]()), st.just("")),
    ),
    max_size=6,
)
Row = tuple[str, list[str], str]


def split(raw: str) -> st.SearchStrategy[list[str]]:
    """Cut a text into pieces."""
    edges = st.lists(st.integers(0, len(raw)), max_size=3).map(lambda edges: sorted({*edges, 0, len(raw)}))
    return edges.map(lambda edges: [raw[start:end] for start, end in pairwise(edges)])


def item_of(number: int, row: Row) -> Item:
    kind, pieces, mark = row
    text = "".join(pieces)
    match kind:
        case "message":
            return message(text, item_id=f"msg_{number}", phase=mark)
        case "refusal":
            return {**message(item_id=f"msg_{number}"), "content": [{"type": "refusal", "refusal": text}]}
        case "reasoning":
            return reasoning(text, sealed=mark, item_id=f"rs_{number}")
        case "function_call":
            return call("f", text, f"call_{number}", f"fc_{number}")
        case _:
            return {**SEARCH, "id": f"ws_{number}"}


def events_of(rows: list[Row]) -> Iterator[Event]:
    """Send a reply as the API does, in its pieces."""
    items = [item_of(number, row) for number, row in enumerate(rows)]
    yield created()
    for number, (item, (_, pieces, _)) in enumerate(zip(items, rows, strict=True)):
        yield from streamed(number, item, pieces)
    yield completed(*items)


def reply_of(rows: list[Row]) -> ModelResponse:
    """Say what those events are the reply of."""
    items = [item_of(number, row) for number, row in enumerate(rows)]
    texts = [("".join(pieces), mark) for kind, pieces, mark in rows if kind in ("message", "refusal")]
    thoughts = ["".join(pieces) for kind, pieces, _ in rows if kind == "reasoning"]
    order: list[JsonValue] = []
    for kind, pieces, mark in rows:
        length = len("".join(pieces))
        if kind == "function_call":
            order.append("call")
        elif kind in ("reasoning", "web_search_call"):
            order.append("item")
        elif length:
            order.append({"text": length, "phase": mark} if mark else length)
    ranks = [{"item": 0, "call": 2}.get(str(entry), 1) for entry in order]
    phases = any(isinstance(entry, dict) for entry in order)
    usual = ranks == sorted(ranks) and not phases
    placed = ("item" in order or phases) and not usual
    details = [entry(item) for item in items if item["type"] in ("reasoning", "web_search_call")]
    raws = [("".join(pieces), number) for number, (kind, pieces, _) in enumerate(rows) if kind == "function_call"]
    return ModelResponse(
        text="\n\n".join(words for words, _ in texts if words),
        reasoning="\n\n".join(filter(None, thoughts)),
        reasoning_details=(*details, *([ordered(*order)] if placed else ())),
        calls=tuple(
            ResponseToolCall(name="f", arguments=json.loads(raw), raw=raw, id=f"call_{number}") for raw, number in raws
        ),
        usage=Usage(input_tokens=25, output_tokens=15, cached_tokens=5, reasoning_tokens=8),
    )


def bounded() -> ResponsesStream:
    """Make a decoder with bounds so small that they are met."""
    return ResponsesStream(ResponseBuilder(max_reply=4000, max_arguments=10), max_event=300)


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
    stream = ResponsesStream()
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
    for index, value in product((0, 2), TELLING):
        quick: Event = {
            "type": "response.output_text.delta",
            "output_index": index,
            "content_index": 0,
            "delta": "a",
        }
        data = sse(*OPEN, quick) + f"event: {quick['type']}\ndata: {json.dumps({**quick, name: value})}\n\n".encode()
        assert run(ResponsesStream, *events_in(data)) == run(ResponsesStream, data), value


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
    for place, name, value in extras:
        events[place % len(events)][name] = value
    head = "event: response.output_text.delta\ndata:"
    lines = "".join(f"{head} {json.dumps(event, ensure_ascii=ascii_only)}\n\n" for event in events)
    quick = edited(lines.encode("utf-8", "surrogatepass"), edits)
    data = sse(*OPEN) + quick

    def make() -> ResponsesStream:
        small_one = ResponsesStream(ResponseBuilder(max_reply=12000, max_arguments=10), max_event=300)
        return small_one if small else ResponsesStream()

    end = sse({"type": "response.completed", "response": {}})
    assert run(make, *events_in(data), end) == run(make, data + end)
    assert run(make, sse(*OPEN), quick) == run(make, data)


@given(rows=ROWS, cuts=CUTS, end=st.sampled_from(["\n", "\r\n", "\r"]))
def test_reply_is_read_as_sent(rows: list[Row], cuts: list[int], end: str) -> None:
    data = sse(*events_of(rows), end=end)
    expected = reply_of(rows)
    for pieces in ([data], cut(data, cuts), events_in(data), [bytes([byte]) for byte in data]):
        outcome = run(ResponsesStream, *pieces)
        calls = {number: (call.name, call.raw) for number, call in enumerate(expected.calls)}
        assert outcome == (expected.text, expected.reasoning, expected, "completed", True, None, None, None, calls)


@given(rows=ROWS)
def test_any_single_body_is_read_like_a_stream(rows: list[Row]) -> None:
    """So is a stream that has only its last event, or only complete items."""
    events = list(events_of(rows))
    items = [item_of(number, row) for number, row in enumerate(rows)]
    expected = reply_of(rows)
    bare: list[Event] = [created(), *(done(number, item) for number, item in enumerate(items))]
    bare.append({"type": "response.completed"})
    for data in (json.dumps(events[-1]["response"]).encode(), sse(events[-1]), sse(*bare)):
        outcome = run(ResponsesStream, data)
        assert outcome[:2] == (expected.text, expected.reasoning)
        assert (outcome[2].text, outcome[2].calls, outcome[2].reasoning_details) == (
            expected.text,
            expected.calls,
            expected.reasoning_details,
        )


@given(rows=ROWS, place=st.integers(0))
def test_truncated_stream_is_no_reply(rows: list[Row], place: int) -> None:
    """The partial reply is the beginning of the reply, and no call is invented."""
    data = sse(*events_of(rows))
    end = data.index(b"event: response.completed")
    outcome = run(ResponsesStream, data[: place % end])
    expected = reply_of(rows)
    assert (outcome[4], outcome[7]) == (False, outcome[2])
    assert expected.text.startswith(outcome[2].text.rstrip("\ufffd"))
    assert {call.id for call in outcome[2].calls} <= {call.id for call in expected.calls}


@given(rows=ROWS, leave=st.sets(st.sampled_from(NAMES[2:-3])), turned=st.booleans())
def test_missing_events_cost_nothing(rows: list[Row], leave: set[str], turned: bool) -> None:
    """The last event has all items. Nor does it matter if items come in another order."""
    events = [event for event in events_of(rows) if event["type"] not in leave]
    if turned:
        places = [event.get("output_index", -1) for event in events[:-1]]
        row = sorted(range(len(places)), key=lambda number: -cast("int", places[number]))
        events = [*(events[number] for number in row), events[-1]]
    outcome = run(ResponsesStream, sse(*events))
    expected = reply_of(rows)
    assert (outcome[2], outcome[5]) == (expected, None)


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


@given(rows=ROWS, place=st.integers(0), value=ANY, whole=st.booleans())
def test_any_value_may_be_in_any_field(rows: list[Row], place: int, value: JsonValue, whole: bool) -> None:
    decode_with(list(events_of(rows)), place, value, whole=whole)


@pytest.mark.slow
@pytest.mark.parametrize("value", [None, True, 0, -1.5, 10**400, "", "x", [], [[]], {}, {"type": []}, {"text": {}}])
@pytest.mark.parametrize("at_once", [True, False])
def test_every_field_may_have_a_value_of_another_type(value: JsonValue, at_once: bool) -> None:
    events = whole(reasoning("a", "b"), message("a", phase="commentary"), SEARCH, call("f", "{}"), message("b"))
    for _ in each_field_with(value, events):
        decode_oddly(events, whole=at_once)


@given(data=STREAM)
def test_kept_data_is_bounded_and_encodable(data: bytes) -> None:
    outcome = run(bounded, data)
    texts = kept(outcome)
    "".join(texts).encode()
    assert all(len(call.raw) <= 10 for call in outcome[2].calls)
    # Each text is counted once, and seen at most four times: as it came, in the reply, in its details and parsed.
    assert sum(map(len, texts)) <= 4 * 4000
