"""A reply in which llama.cpp could not read the model's tool call."""

import json

import pytest
from pydantic import JsonValue

from turnwright.model.local.model import malformed_reply
from turnwright.model.openai_chat.stream import ChatStream
from turnwright.model.protocol import ModelError
from turnwright_states import Cause


def failed(*deltas: dict[str, JsonValue]) -> ModelError:
    """Return the error of a stream with these deltas, and then llama.cpp's error."""
    chunks: list[JsonValue] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"error": {"code": 500, "message": "Invalid diff: now finding less tool calls!", "type": "server"}})
    stream = ChatStream()
    stream.feed("".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode())
    with pytest.raises(ModelError, match="Invalid diff:") as caught:
        stream.reply()
    return caught.value


@pytest.mark.parametrize("raw", ['{"amount": 5', '{"amount": 5}'])
def test_last_call_is_malformed_even_with_whole_arguments(raw: str) -> None:
    function: dict[str, JsonValue] = {"name": "pay", "arguments": raw}
    reply = malformed_reply(failed({"tool_calls": [{"index": 0, "id": "a", "function": function}]}))
    assert [(call.name, call.arguments, call.raw) for call in reply.calls] == [("pay", None, raw)]


def test_malformed_reply_without_a_call_is_not_retried() -> None:
    with pytest.raises(ModelError, match="the embedded model wrote a malformed tool call: name the tool") as caught:
        malformed_reply(failed({"content": "I"}))
    assert (caught.value.cause, caught.value.cause.may_pass) == (Cause.REJECTED, False)
