"""Streams of chat completions, written down shortly."""

import json
from collections.abc import Iterable

import pytest
from pydantic import JsonValue

from turnwright.model.openai_chat.stream import ChatStream
from turnwright.model.protocol import ModelError, ModelResponse

Chunk = dict[str, JsonValue]


def chunk(delta: JsonValue = None, finish: JsonValue = None, **more: JsonValue) -> Chunk:
    """One chunk with one choice, and what else stands beside it."""
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        **more,
    }


def sse(*chunks: JsonValue, done: bool = True) -> bytes:
    """A stream of these chunks, with `[DONE]` at its end or without."""
    return b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks) + (
        b"data: [DONE]\n\n" if done else b""
    )


def decode(data: bytes | Iterable[bytes]) -> ChatStream:
    """A decoder that has been fed all of it, in these pieces."""
    stream = ChatStream()
    for piece in [data] if isinstance(data, bytes) else data:
        stream.feed(piece)
    stream.end()
    return stream


def reply(*chunks: JsonValue, done: bool = True) -> ModelResponse:
    """The reply of these chunks."""
    return decode(sse(*chunks, done=done)).reply()


def failure(data: bytes) -> ModelError:
    """Return the error that a stream raises."""
    with pytest.raises(ModelError) as caught:
        decode(data).reply()
    return caught.value


STOP = chunk({}, "stop")
