"""The decoder, whatever comes and however it was cut."""

import contextlib
import copy
import json
from collections.abc import Callable, Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from tests.engine.model.chunks import STOP, Chunk, chunk, decode, sse
from tests.engine.model.provider_streams import STREAMS
from tests.engine.model.streams import (
    CUTS,
    EDITS,
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

from turnwright.model.openai_chat.reply_builder import ReplyBuilder
from turnwright.model.openai_chat.stream import ChatStream
from turnwright.model.protocol import ModelError, ModelResponse

CALL = st.fixed_dictionaries(
    {},
    optional={
        "index": SCALAR,
        "id": SCALAR,
        "function": st.none() | st.fixed_dictionaries({}, optional={"name": SCALAR, "arguments": SCALAR}),
        "extra_content": SCALAR | st.dictionaries(TEXT, SCALAR, max_size=1),
    },
)
DETAIL = st.fixed_dictionaries(
    {},
    optional={
        "type": SCALAR | st.sampled_from(["reasoning.text", "reasoning.summary"]),
        "index": SCALAR,
        "text": SCALAR,
        "summary": SCALAR,
        "data": SCALAR,
        "signature": SCALAR,
    },
)
PART = st.fixed_dictionaries({"type": SCALAR | st.sampled_from(["text", [], {}]), "text": SCALAR})
DELTA = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "content": SCALAR | st.lists(PART),
        "reasoning": SCALAR,
        "reasoning_content": SCALAR,
        "reasoning_details": st.lists(SCALAR | DETAIL, max_size=3),
        "tool_calls": SCALAR | st.lists(CALL, max_size=2),
        "function_call": SCALAR,
        "refusal": SCALAR,
    },
)
CHOICE = st.fixed_dictionaries(
    {}, optional={"index": SCALAR, "delta": DELTA, "message": DELTA, "finish_reason": SCALAR, "error": st.none()}
)
USAGE = SCALAR | st.dictionaries(st.sampled_from(["prompt_tokens", "completion_tokens"]), SCALAR)
CHUNK = st.fixed_dictionaries(
    {},
    optional={
        "choices": SCALAR | st.lists(SCALAR | CHOICE, max_size=2),
        "usage": USAGE,
        "error": SCALAR,
        "x_groq": SCALAR | st.fixed_dictionaries({}, optional={"usage": USAGE, "error": SCALAR}),
        "base_resp": SCALAR | st.fixed_dictionaries({}, optional={"status_code": SCALAR, "status_msg": SCALAR}),
    },
)
DATA = st.one_of(CHUNK, CHUNK, CHUNK, SCALAR).map(json.dumps) | st.sampled_from(["[DONE]", "{", ""])
STREAM = streams(DATA)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ALIKE: list[JsonValue] = [None, True, 0, -1.5, 10**400, "", "x", [], [[]], {}, {"type": []}, {"text": {}}]
# The chunks that are read quickly; and the fields that are looked into, to be put into them.
PIECE: st.SearchStrategy[Chunk] = st.one_of(
    st.builds(lambda text: {"content": text}, TEXT | st.text()),
    st.builds(
        lambda text, name: {"content": None, name: text}, TEXT, st.sampled_from(["reasoning", "reasoning_content"])
    ),
    st.builds(
        lambda text, index: {"tool_calls": [{"index": index, "function": {"arguments": text}}]}, TEXT, st.integers(0, 1)
    ),
)
GOING_ON: st.SearchStrategy[JsonValue] = st.builds(chunk, PIECE)
FIELDS = [
    *("choices", "usage", "object", "type", "error", "errors", "x_groq", "base_resp", "index", "delta", "message"),
    *("finish_reason", "content", "refusal", "reasoning", "reasoning_content", "reasoning_details", "reasoning_text"),
    *("thinking", "thinking_blocks", "tool_calls", "function_call", "function", "id", "name", "arguments"),
    *("extra_content", "role", "x"),
]
# What says something in one of them.
TELLING: list[JsonValue] = [
    None,
    "",
    "error",
    "ping",
    1,
    {"content": "m"},
    {"prompt_tokens": 3},
    {"name": "g", "arguments": "{}"},
    {"error": "e"},
    {"status_code": 1002},
    [],
    [{"type": "thinking", "thinking": "t"}],
    [{"type": "text", "text": "t", "refusal": "r"}],
]
OTHERS = st.lists(
    st.tuples(st.integers(0), st.sampled_from(FIELDS), st.sampled_from(TELLING) | SCALAR | ANY), max_size=2
)
BEGUN = chunk({"content": "", "tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}]})

MOST = 12_000
MOST_ARGUMENTS = 200


def bounded() -> ChatStream:
    """Make a decoder with bounds so small that they are met."""
    return ChatStream(ReplyBuilder(max_reply=3000, max_arguments=10), max_event=300)


def small() -> ChatStream:
    """Make a decoder whose bounds a provider's short stream keeps, and what is added to it may pass."""
    return ChatStream(ReplyBuilder(max_reply=MOST, max_arguments=MOST_ARGUMENTS))


@given(data=STREAM, cuts=CUTS)
def test_the_result_does_not_depend_on_the_cuts(data: bytes, cuts: list[int]) -> None:
    assert run(bounded, *cut(data, cuts)) == run(bounded, data)
    assert run(bounded, *(bytes([byte]) for byte in data)) == run(bounded, data)
    assert run(bounded, *events_in(data)) == run(bounded, data)


def objects_in(value: JsonValue) -> Iterator[Chunk]:
    """Every object of a value."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects_in(inner)


def with_others(chunks: list[JsonValue], extras: list[tuple[int, str, JsonValue]]) -> list[JsonValue]:
    """Put other fields into some of the objects of the chunks."""
    chunks = copy.deepcopy(chunks)
    for place, name, value in extras:
        objects = list(objects_in(chunks))
        if objects:
            objects[place % len(objects)][name] = copy.deepcopy(value)
    return chunks


@given(
    chunks=st.lists(GOING_ON, max_size=6),
    extras=OTHERS,
    edits=EDITS,
    ascii_only=st.booleans(),
    make=st.sampled_from([bounded, small]),
)
def test_fast_and_plain_path_read_alike(
    chunks: list[JsonValue],
    extras: list[tuple[int, str, JsonValue]],
    edits: list[tuple[int, int]],
    ascii_only: bool,
    make: Callable[[], ChatStream],
) -> None:
    lines = [f"data: {json.dumps(chunk, ensure_ascii=ascii_only)}\n\n" for chunk in with_others(chunks, extras)]
    quick = edited("".join(lines).encode("utf-8", "surrogatepass") or b"\n", edits)
    data = sse(BEGUN, done=False) + quick
    assert run(make, *events_in(data), b"data: [DONE]\n\n") == run(make, data + b"data: [DONE]\n\n")
    assert run(make, sse(BEGUN, done=False), quick) == run(make, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIELDS)
def test_fast_path_sees_every_field_of_the_plain_path(name: str) -> None:
    """In each object of a chunk that is quick, each field that means something anywhere, with each such value."""
    call: Chunk = {"index": 0, "function": {"arguments": "}"}}
    begun: Chunk = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}}
    turns: list[tuple[Chunk, Chunk]] = [
        ({"role": "assistant"}, {"reasoning": "a"}),
        ({"tool_calls": [begun]}, {"tool_calls": [call]}),
    ]
    for first, more in turns:
        quick = chunk(more)
        for place, value in product(range(len(list(objects_in(quick)))), TELLING):
            data = sse(chunk(first), quick, *with_others([quick], [(place, name, value)]))
            assert run(ChatStream, *events_in(data)) == run(ChatStream, data), (place, value)


@given(name=st.sampled_from(sorted(STREAMS)), edits=EDITS)
def test_edited_provider_stream_is_read_alike_by_event(name: str, edits: list[tuple[int, int]]) -> None:
    data = edited(STREAMS[name][0], edits)
    assert run(small, *events_in(data)) == run(small, data)


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


@given(data=STREAM)
def test_kept_data_is_encodable(data: bytes) -> None:
    "".join(kept(run(bounded, data))).encode()


def chunks_of(data: bytes) -> list[JsonValue]:
    """The JSON of the events of a provider's stream."""
    lines = (line.removeprefix(b"data: ") for line in data.splitlines() if line and not line.startswith(b":"))
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def put(chunks: list[JsonValue], place: int, value: JsonValue) -> None:
    """Put another value into one of the fields of the chunks: a copy, for it may be changed in its turn."""
    places = list(fields_of(chunks))
    if places:
        holder, key = places[place % len(places)]
        holder[key] = copy.deepcopy(value)  # type: ignore[index]


def nothing_worse_than_the_documented_error(data: bytes) -> None:
    """Any data gives a reply or the documented error, both encodable and bounded."""
    outcome = run(small, data)
    assert run(small, *events_in(data)) == outcome
    texts = kept(outcome)
    "".join(texts).encode()
    assert all(len(call.raw) <= MOST_ARGUMENTS for call in outcome[2].calls)
    # Each text is counted once, and seen at most four times: as it came, in the reply, in its details and parsed.
    assert sum(map(len, texts)) <= 4 * MOST
    stream = small()
    stream.feed(data)
    with contextlib.suppress(ModelError):
        assert stream.reply() == stream.partial


@given(
    name=st.sampled_from(sorted(STREAMS)),
    replacements=st.lists(st.tuples(st.integers(0), ANY | st.sampled_from(ALIKE)), max_size=4),
    order=st.lists(st.integers(0, 9), min_size=1, max_size=30),
    done=st.booleans(),
    cuts=CUTS,
)
def test_odd_values_in_shuffled_events_raise_only_model_errors(
    name: str, replacements: list[tuple[int, JsonValue]], order: list[int], done: bool, cuts: list[int]
) -> None:
    chunks = copy.deepcopy(chunks_of(STREAMS[name][0]))
    for place, value in replacements:
        put(chunks, place, value)
    data = sse(*(chunks[number % len(chunks)] for number in order), done=done)
    nothing_worse_than_the_documented_error(data)
    assert run(small, *cut(data, cuts)) == run(small, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMS)
def test_every_field_of_every_provider_may_hold_a_value_of_another_type(name: str) -> None:
    chunks = chunks_of(STREAMS[name][0])
    for value in ALIKE:
        for _ in each_field_with(value, chunks):
            nothing_worse_than_the_documented_error(sse(*chunks))


@given(
    entries=st.lists(st.tuples(st.lists(st.text(max_size=5), max_size=4), st.text("abc", min_size=1)), max_size=4),
    numbered=st.booleans(),
    apart=st.booleans(),
)
def test_details_go_back_whole_at_any_cuts(entries: list[tuple[list[str], str]], numbered: bool, apart: bool) -> None:
    pieces: list[JsonValue] = []
    expected: list[Chunk] = []
    for index, (texts, signature) in enumerate(entries):
        place: Chunk = {"type": "reasoning.text", **({"index": index} if numbered else {})}
        pieces += [{**place, "text": text, "signature": None} for text in texts]
        pieces.append({**place, "text": "", "signature": f"{index}{signature}"})
        expected.append({**place, "text": "".join(texts), "signature": f"{index}{signature}"})
    deltas = [[piece] for piece in pieces] if apart else [pieces]
    stream = decode(sse(*(chunk({"reasoning_details": delta}) for delta in deltas), STOP))
    assert [dict(detail) for detail in stream.reply().reasoning_details] == expected
