"""Connections that close at any byte of a reply. Before its end the reply is interrupted, so it is asked for again."""

import json
from collections.abc import Callable, Mapping

import pytest
from pydantic import JsonValue

from turnwright.model.anthropic.stream import MessagesStream
from turnwright.model.http.reply_stream import ReplyStream
from turnwright.model.openai_chat.stream import ChatStream
from turnwright.model.openai_responses.stream import ResponsesStream
from turnwright_states import Cause

from .chunks import STOP, chunk

ARGUMENTS = '{"a": "é", "b": 20}'


def events(*chunks: Mapping[str, JsonValue]) -> bytes:
    """The events of an API that names them, with their letters as UTF-8."""
    return b"".join(
        f"event: {chunk['type']}\ndata: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode() for chunk in chunks
    )


def begun(index: int, **block: JsonValue) -> dict[str, JsonValue]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def more(index: int, kind: str, **piece: JsonValue) -> dict[str, JsonValue]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **piece}}


def entry(**function: str) -> dict[str, JsonValue]:
    return chunk({"tool_calls": [{"index": 0, "function": {**function}}]})


CHAT = b"".join(
    f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
    for event in (
        chunk({"reasoning_content": "hm 😀"}),
        chunk({"content": "héllo "}),
        chunk({"content": "wörld"}),
        entry(name="f", arguments=ARGUMENTS[:5]),
        entry(arguments=ARGUMENTS[5:]),
        STOP,
    )
)
MESSAGES = events(
    begun(0, type="thinking", thinking=""),
    more(0, "thinking_delta", thinking="hm 😀"),
    begun(1, type="text", text=""),
    more(1, "text_delta", text="héllo "),
    more(1, "text_delta", text="wörld"),
    begun(2, type="tool_use", id="a", name="f", input={}),
    more(2, "input_json_delta", partial_json=ARGUMENTS[:5]),
    more(2, "input_json_delta", partial_json=ARGUMENTS[5:]),
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    {"type": "message_stop"},
)
ITEM: dict[str, JsonValue] = {"type": "function_call", "id": "a", "call_id": "a", "name": "f", "arguments": ""}
RESPONSES = events(
    {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "hm 😀"},
    {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "héllo "},
    {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "wörld"},
    {"type": "response.output_item.added", "output_index": 2, "item": ITEM},
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": ARGUMENTS[:5]},
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": ARGUMENTS[5:]},
    {"type": "response.completed", "response": {"status": "completed"}},
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "data", "last"),
    [
        (ChatStream, CHAT, b'"stop"'),
        (MessagesStream, MESSAGES, b'"message_delta"'),
        (ResponsesStream, RESPONSES, b'"response.completed"'),
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_stream_prefix_is_interrupted_or_the_whole_reply(
    make: Callable[[], ReplyStream], data: bytes, last: bytes, end: bytes
) -> None:
    data = data.replace(b"\n", end)
    stream = make()
    stream.feed(data)
    whole = stream.reply()
    assert (whole.text, whole.reasoning, whole.calls[0].arguments) == ("héllo wörld", "hm 😀", json.loads(ARGUMENTS))
    for length in range(len(data)):
        stream = make()
        stream.feed(data[:length])
        stream.end()
        if stream.error is None:
            assert data.index(last) < length
            assert stream.reply() == whole
        else:
            assert stream.error.cause is Cause.INTERRUPTED
            assert whole.text.startswith(stream.partial.text)
            assert whole.reasoning.startswith(stream.partial.reasoning)
            assert [call for call in stream.partial.calls if not ARGUMENTS.startswith(call.raw)] == []
