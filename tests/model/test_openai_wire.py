import gc
import json
from typing import Any

import pytest
from pydantic import JsonValue

from turnwright.errors import ConfigError
from turnwright.message import (
    Message,
    ReasoningPart,
    SentinelPart,
    StepStartPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from turnwright.model.openai_wire import Encoder, to_wire
from turnwright.model.protocol import Request, ToolChoice, ToolSpec
from turnwright_states import EndReason, Outcome

HELLO = Message.user("hello")
TOOL = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


def encode(request: Request, encoder: Encoder | None = None) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((encoder or Encoder("m")).encode(request))
    return body


def test_a_request_asks_for_a_stream_with_its_usage() -> None:
    assert encode(Request((HELLO,))) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "hello"}],
    }


def test_every_role_is_translated() -> None:
    call = ToolCallPart(id="c1", name="read", arguments={"path": "é"})
    messages = (
        Message.system("be brief"),
        HELLO,
        Message.assistant("I look", [call]),
        Message.result("c1", "read", "text"),
        Message.assistant("done"),
    )
    assert encode(Request(messages))["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": "I look",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path":"é"}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "text"},
        {"role": "assistant", "content": "done"},
    ]


def test_an_assistant_without_text_has_null_for_content() -> None:
    (wire,) = to_wire(Message.assistant(calls=[ToolCallPart(id="c", name="f")]))
    assert wire["content"] is None


def test_what_a_provider_does_not_know_is_left_out() -> None:
    parts = (
        StepStartPart(step_number=1, started_at=0),
        ReasoningPart(text="hm"),
        SentinelPart(kind=Outcome.CAP_HIT, reason=EndReason.STEP_CAP, text="stopped"),
    )
    assert to_wire(Message(role="assistant", parts=parts)) == []
    assert to_wire(Message(role="assistant", parts=(*parts, TextPart(text="a"), TextPart(text="b")))) == [
        {"role": "assistant", "content": "ab"}
    ]


def test_each_result_is_a_message_of_its_own() -> None:
    parts = tuple(ToolResultPart(call=f"c{number}", name="f", text=str(number)) for number in (1, 2))
    assert [wire["tool_call_id"] for wire in to_wire(Message(role="tool", parts=parts))] == ["c1", "c2"]


def test_tools_are_described() -> None:
    body = encode(Request((HELLO,), tools=(TOOL,)))
    assert body["tools"] == [
        {"type": "function", "function": {"name": "read", "description": "Read a file.", "parameters": TOOL.parameters}}
    ]
    assert "tool_choice" not in body, "auto is what everybody does unasked"


@pytest.mark.parametrize("choice", ["none", "required"])
def test_a_choice_is_sent_with_tools_only(choice: ToolChoice) -> None:
    assert encode(Request((HELLO,), tools=(TOOL,), tool_choice=choice))["tool_choice"] == choice
    assert "tool_choice" not in encode(Request((HELLO,), tool_choice=choice))


def test_the_first_call_of_a_turn_may_have_a_choice_of_its_own() -> None:
    encoder = Encoder("m", tool_choice_first="required")
    assert encode(Request((HELLO,), tools=(TOOL,), first=True), encoder)["tool_choice"] == "required"
    assert encode(Request((HELLO,), tools=(TOOL,), first=True, tool_choice="none"), encoder)["tool_choice"] == "none"
    assert "tool_choice" not in encode(Request((HELLO,), tools=(TOOL,)), encoder)
    assert "tool_choice" not in encode(Request((HELLO,), first=True), encoder)


def test_max_tokens_is_sent_under_the_name_that_the_server_knows() -> None:
    assert encode(Request((HELLO,), max_tokens=5))["max_tokens"] == 5
    encoder = Encoder("m", max_tokens_field="max_completion_tokens")
    assert encode(Request((HELLO,), max_tokens=0), encoder)["max_completion_tokens"] == 0


def test_an_extra_body_adds_replaces_and_removes() -> None:
    encoder = Encoder("m", extra_body={"temperature": 0, "stream_options": None, "max_tokens": 1})
    body = encode(Request((HELLO,), max_tokens=5), encoder)
    assert (body["temperature"], body["max_tokens"], "stream_options" in body) == (0, 1, False)


@pytest.mark.parametrize(
    ("extra", "fault"),
    [
        ({"messages": []}, "may not hold messages"),
        ({"stream": False, "model": "x"}, "model, stream"),
        ({"a": float("nan")}, "JSON"),
    ],
)
def test_an_extra_body_that_cannot_be_used_is_refused(extra: dict[str, JsonValue], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        Encoder("m", extra_body=extra)


def test_half_a_surrogate_pair_does_not_stop_a_request() -> None:
    assert encode(Request((Message.user("a\ud83d"),)))["messages"][0]["content"] == "a\ufffd"


def test_a_message_is_encoded_once_and_forgotten_with_the_message() -> None:
    """Else the steps of a long turn get slower and slower, or the memory fills."""
    encoder = Encoder("m")
    kept, gone = Message.user("kept"), Message.user("gone")
    first = encoder.encode(Request((kept, gone)))
    assert encoder.encode(Request((kept, gone))) == first
    assert encoder.remembered == 2
    del gone
    gc.collect()
    assert encoder.remembered == 1
    assert encode(Request((kept, Message.user("new"))), encoder)["messages"][1]["content"] == "new"
