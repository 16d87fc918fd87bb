"""The decoder, whatever comes and however it was cut."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from turnwright.model.openai_stream import ChatStream
from turnwright.model.protocol import ModelError, ReasoningDelta, Reply, TextDelta
from turnwright_states import Cause

TEXT = st.sampled_from(["", "a", "é\u2028", "😀", "\ud83d", "\ude00", '{"a"', ": 1}", "stop", "f", "[DONE]"])
SCALAR: st.SearchStrategy[JsonValue] = st.none() | st.booleans() | st.integers(-2, 2) | TEXT
CALL = st.fixed_dictionaries(
    {},
    optional={
        "index": SCALAR,
        "id": SCALAR,
        "function": st.none() | st.fixed_dictionaries({}, optional={"name": SCALAR, "arguments": SCALAR}),
    },
)
DELTA = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "content": SCALAR | st.lists(st.fixed_dictionaries({"type": TEXT | st.just("text"), "text": SCALAR})),
        "reasoning": SCALAR,
        "reasoning_content": SCALAR,
        "reasoning_details": st.lists(st.fixed_dictionaries({"text": SCALAR, "data": SCALAR})),
        "tool_calls": SCALAR | st.lists(CALL, max_size=2),
        "function_call": SCALAR,
        "refusal": SCALAR,
    },
)
CHOICE = st.fixed_dictionaries(
    {}, optional={"index": SCALAR, "delta": DELTA, "message": DELTA, "finish_reason": SCALAR, "error": st.none()}
)
CHUNK = st.fixed_dictionaries(
    {},
    optional={
        "choices": SCALAR | st.lists(SCALAR | CHOICE, max_size=2),
        "usage": SCALAR | st.dictionaries(st.sampled_from(["prompt_tokens", "completion_tokens"]), SCALAR),
        "error": SCALAR,
    },
)
DATA = st.one_of(CHUNK, CHUNK, CHUNK, SCALAR).map(json.dumps) | st.sampled_from(["[DONE]", "{", ""])
NOISE = st.sampled_from([": PROCESSING", "event: error", "event: x", "{", '{"error": "x"}', "id: 1", "  ", "<p>"])
LINE = st.builds(lambda prefix, data: prefix + data, st.sampled_from(["data: ", "data:"]), DATA) | NOISE
END = st.sampled_from(["\n\n", "\r\n\r\n", "\r\r", "\n", "\r\n", "\r", "\r\n\n"])
STREAM = st.builds(
    lambda mark, lines, rest: (mark + "".join(line + end for line, end in lines) + rest).encode(),
    st.sampled_from(["", "", "\ufeff", "\n", " "]),
    st.lists(st.tuples(LINE, END), max_size=8),
    LINE | st.just(""),
)
Seen = tuple[str, str, Reply, str | None, bool, str | None, Cause | None, Reply | None]


def bounded() -> ChatStream:
    """Make a decoder with bounds so small that they are met."""
    return ChatStream(max_event=300, max_reply=3000, max_arguments=10)


def run(*pieces: bytes) -> Seen:
    """Decode the pieces: the text and the reasoning of the deltas, and all that the stream says of itself."""
    stream = bounded()
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
    )


@given(data=STREAM, cuts=st.lists(st.integers(0, 2000), max_size=6))
def test_the_result_does_not_depend_on_the_cuts(data: bytes, cuts: list[int]) -> None:
    edges = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    pieces = [data[start:end] for start, end in pairwise(edges)]
    assert run(*pieces) == run(data)
    assert run(*(bytes([byte]) for byte in data)) == run(data)


@given(data=STREAM | st.binary())
def test_nothing_but_a_model_error_is_raised(data: bytes) -> None:
    stream = bounded()
    stream.feed(data)
    stream.end()
    assert stream.done
    assert stream.complete is (stream.error is None)
    if stream.error is None:
        assert isinstance(stream.reply(), Reply)
        return
    assert stream.error.partial is not None
    with pytest.raises(ModelError) as caught:
        stream.reply()
    assert caught.value is stream.error


@given(data=STREAM)
def test_what_is_kept_can_be_encoded(data: bytes) -> None:
    text, reasoning, reply, *_ = run(data)
    kept = [text, reasoning, reply.text, reply.reasoning, reply.finish_reason or ""]
    for call in reply.calls:
        kept += [call.id, call.name, call.raw, json.dumps(call.arguments, ensure_ascii=False, allow_nan=False)]
    "".join(kept).encode()
