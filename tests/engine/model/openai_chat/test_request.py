import gc
import json
from typing import Any

import pytest
from pydantic import JsonValue

from turnwright.errors import ConfigError
from turnwright.message import (
    AnyPart,
    FilePart,
    Message,
    ReasoningPart,
    SentinelPart,
    StepStartPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
)
from turnwright.model.anthropic.blocks import ORDER
from turnwright.model.capabilities import Capabilities, ReasoningField
from turnwright.model.http.encoding import in_words
from turnwright.model.openai_chat.request import OpenAIEncoder, to_wire
from turnwright.model.protocol import ModelRequest, ToolChoice
from turnwright.model.pydantic_ai import provider_details as pydantic_ai_details
from turnwright_states import EndReason, Outcome

HELLO = Message.user("hello")
TOOL = ToolSpec("read", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})


PICTURE = FilePart(media_type="image/png", data="cG5n", name="plot.png")
LINKED = FilePart(media_type="image/*", url="https://host/a.png")
PAPER = FilePart(media_type="application/pdf", data="cGRm", name="paper.pdf")


def encode(request: ModelRequest, encoder: OpenAIEncoder | None = None) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((encoder or OpenAIEncoder("m")).encode(request))
    return body


def test_request_asks_for_a_stream_with_usage() -> None:
    assert encode(ModelRequest((HELLO,))) == {
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
    assert encode(ModelRequest(messages))["messages"] == [
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


def test_parts_unknown_to_providers_are_left_out() -> None:
    parts = (
        StepStartPart(step_number=1),
        ReasoningPart(text="hm"),
        SentinelPart(kind=Outcome.CAP_HIT, reason=EndReason.STEP_CAP, text="stopped"),
    )
    assert to_wire(Message(role="assistant", parts=parts)) == []
    assert to_wire(Message(role="assistant", parts=(*parts, TextPart(text="a"), TextPart(text="b")))) == [
        {"role": "assistant", "content": "ab"}
    ]


def test_each_result_is_a_separate_message() -> None:
    parts = tuple(ToolResultPart(call=f"c{number}", name="f", text=str(number)) for number in (1, 2))
    assert [wire["tool_call_id"] for wire in to_wire(Message(role="tool", parts=parts))] == ["c1", "c2"]


def test_tools_are_described() -> None:
    body = encode(ModelRequest((HELLO,), tools=(TOOL,)))
    assert body["tools"] == [
        {"type": "function", "function": {"name": "read", "description": "Read a file.", "parameters": TOOL.parameters}}
    ]
    assert "tool_choice" not in body, "auto is what everybody does unasked"


@pytest.mark.parametrize("choice", ["none", "required"])
def test_a_choice_is_sent_with_tools_only(choice: ToolChoice) -> None:
    assert encode(ModelRequest((HELLO,), tools=(TOOL,), tool_choice=choice))["tool_choice"] == choice
    assert "tool_choice" not in encode(ModelRequest((HELLO,), tool_choice=choice))


def test_first_call_of_a_turn_may_have_a_special_choice() -> None:
    encoder = OpenAIEncoder("m", tool_choice_first="required")
    assert encode(ModelRequest((HELLO,), tools=(TOOL,), first=True), encoder)["tool_choice"] == "required"
    assert (
        encode(ModelRequest((HELLO,), tools=(TOOL,), first=True, tool_choice="none"), encoder)["tool_choice"] == "none"
    )
    assert "tool_choice" not in encode(ModelRequest((HELLO,), tools=(TOOL,)), encoder)
    assert "tool_choice" not in encode(ModelRequest((HELLO,), first=True), encoder)


def test_max_tokens_is_sent_under_the_name_known_to_the_server() -> None:
    assert encode(ModelRequest((HELLO,), max_tokens=5))["max_tokens"] == 5
    encoder = OpenAIEncoder("m", max_tokens_field="max_completion_tokens")
    assert encode(ModelRequest((HELLO,), max_tokens=0), encoder)["max_completion_tokens"] == 0


def test_an_extra_body_adds_replaces_and_removes() -> None:
    encoder = OpenAIEncoder("m", extra_body={"temperature": 0, "stream_options": None, "max_tokens": 1})
    body = encode(ModelRequest((HELLO,), max_tokens=5), encoder)
    assert (body["temperature"], body["max_tokens"], "stream_options" in body) == (0, 1, False)


@pytest.mark.parametrize(
    ("extra", "fault"),
    [
        ({"messages": []}, "must not contain messages"),
        ({"stream": False, "model": "x"}, "model, stream"),
        ({"a": float("nan")}, "JSON"),
    ],
)
def test_unusable_extra_body_is_refused(extra: dict[str, JsonValue], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        OpenAIEncoder("m", extra_body=extra)


def test_half_a_surrogate_pair_does_not_stop_a_request() -> None:
    assert encode(ModelRequest((Message.user("a\ud83d"),)))["messages"][0]["content"] == "a\ufffd"


def test_a_message_is_encoded_once_and_forgotten_with_the_message() -> None:
    """Else the steps of a long turn get slower and slower, or the memory fills."""
    encoder = OpenAIEncoder("m")
    kept_message, gone = Message.user("kept"), Message.user("gone")
    first = encoder.encode(ModelRequest((kept_message, gone)))
    assert encoder.encode(ModelRequest((kept_message, gone))) == first
    assert encoder.remembered == 2
    del gone
    gc.collect()
    assert encoder.remembered == 1
    assert encode(ModelRequest((kept_message, Message.user("new"))), encoder)["messages"][1]["content"] == "new"


def test_unsent_replies_may_come_last() -> None:
    silent = Message(role="assistant", parts=(ReasoningPart(text="hm"),))
    encoder = OpenAIEncoder("m")
    for messages in ((HELLO, silent), (HELLO, silent, silent), (HELLO, silent, silent, silent)):
        assert encode(ModelRequest(messages), encoder)["messages"] == [{"role": "user", "content": "hello"}]


# Pictures and files.


def test_a_users_files_are_parts_beside_the_text() -> None:
    (wire,) = to_wire(Message.user("see", [PICTURE, LINKED, PAPER]))
    assert wire == {
        "role": "user",
        "content": [
            {"type": "text", "text": "see"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
            {"type": "image_url", "image_url": {"url": "https://host/a.png"}},
            {"type": "file", "file": {"filename": "paper.pdf", "file_data": "data:application/pdf;base64,cGRm"}},
        ],
    }


def test_parts_keep_their_order_and_an_empty_text_is_left_out() -> None:
    parts = (TextPart(text=""), TextPart(text="before"), PICTURE, TextPart(text="after"))
    (wire,) = to_wire(Message(role="user", parts=parts))
    content: Any = wire["content"]
    assert [part.get("text") for part in content] == ["before", None, "after"]


def test_text_alone_stays_a_string() -> None:
    """Some servers take nothing else."""
    (wire,) = to_wire(Message(role="user", parts=(TextPart(text="a"), TextPart(text="b"))))
    assert wire["content"] == "ab"


def test_unnamed_file_is_named_after_the_type() -> None:
    (wire,) = to_wire(Message.user("", [FilePart(media_type="application/pdf", data="cGRm")]))
    content: Any = wire["content"]
    assert content[0]["file"]["filename"] == "file.pdf"


def test_linked_file_is_named_with_the_address() -> None:
    """Chat completions knows an address for pictures only."""
    linked = FilePart(media_type="application/pdf", url="https://host/x", name="x.pdf")
    (wire,) = to_wire(Message.user("", [linked]))
    assert wire["content"] == [{"type": "text", "text": "A file, x.pdf (application/pdf), is at https://host/x"}]


@pytest.mark.parametrize("media_type", ["image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp"])
def test_pictures_of_supported_types_are_shown(media_type: str) -> None:
    url = f"data:{media_type.replace('jpg', 'jpeg')};base64,cGl4"
    assert shown(FilePart.of(b"pix", media_type)) == {"type": "image_url", "image_url": {"url": url}}


@pytest.mark.parametrize(
    "file",
    [
        FilePart.of(b"<svg/>", "image/svg+xml", "x"),
        FilePart.of(b"II*", "image/tiff", "x"),
        FilePart.of(b"pix", "image/*", "x"),
        FilePart(media_type="image/svg+xml", url="https://host/x", name="x"),
        FilePart.of(b"ID3", "audio/mpeg", "x"),
        FilePart.of(b"a", "application/octet-stream", "x"),
        FilePart.of(b"\xff", "text/plain", "x"),
        FilePart.of(b"a,b", "text/csv", "x"),
        FilePart.of(b"{}", "application/json", "x"),
    ],
)
def test_unsupported_file_is_put_in_text(file: FilePart) -> None:
    """Anything else is refused, and the file stays in the conversation."""
    assert shown(file) == {"type": "text", "text": in_words(file)}


def shown(file: FilePart) -> JsonValue:
    (wire,) = to_wire(Message.user("", [file]))
    content: Any = wire["content"]
    (part,) = content
    value: JsonValue = part
    return value


def calling(*ids: str) -> Message:
    return Message.assistant(calls=[ToolCallPart(id=call_id, name="read") for call_id in ids])


def test_files_of_results_follow_the_batch_with_their_origin() -> None:
    """Never between a call and its results: that is refused by all."""
    messages = (
        HELLO,
        calling("c1", "c2", "c3"),
        Message.result("c1", "read", "one", files=[PICTURE]),
        Message.result("c2", "read", "two"),
        Message.result("c3", "read", "", files=[PAPER, LINKED]),
        Message.assistant("done"),
    )
    wire = encode(ModelRequest(messages))["messages"]
    assert [message["role"] for message in wire] == ["user", "assistant", "tool", "tool", "tool", "user", "assistant"]
    assert [message["content"] for message in wire[2:5]] == ["one", "two", "The result follows as a file."]
    kinds = [part.get("text", part["type"]) for part in wire[5]["content"]]
    assert kinds == [
        "From the result of read (call c1):",
        "image_url",
        "From the result of read (call c3):",
        "file",
        "image_url",
    ]


def test_files_of_the_last_batch_are_sent() -> None:
    messages = (HELLO, calling("c1"), Message.result("c1", "read", "one", files=[PICTURE]))
    assert encode(ModelRequest(messages))["messages"][-1]["role"] == "user"


def test_assistant_after_results_speaks_before_their_files() -> None:
    messages = (HELLO, calling("c1"), Message.result("c1", "read", "one", files=[PICTURE]))
    wire = encode(ModelRequest(messages), OpenAIEncoder("m", capabilities=Capabilities(strict_alternation=True)))[
        "messages"
    ]
    assert [message["role"] for message in wire] == ["user", "assistant", "tool", "assistant", "user"]
    assert wire[3]["content"]


def test_files_of_a_result_are_encoded_once() -> None:
    encoder = OpenAIEncoder("m")
    request = ModelRequest((HELLO, calling("c1"), Message.result("c1", "read", "one", files=[PICTURE])))
    assert encoder.encode(request) == encoder.encode(request)
    assert encoder.remembered == 3


# What goes back to the server that sent it.


def thinking(*details: dict[str, JsonValue], text: str = "hm", calls: int = 0) -> Message:
    parts: tuple[AnyPart, ...] = (
        ReasoningPart(text=text, details=details),
        TextPart(text="So."),
        *(ToolCallPart(id=f"c{number}", name="read") for number in range(calls)),
    )
    return Message(role="assistant", parts=parts)


def test_details_of_a_reasoning_go_back_unchanged() -> None:
    details: tuple[dict[str, JsonValue], ...] = (
        {"type": "reasoning.encrypted", "data": "x", "index": 0, "format": "unknown"},
        {"type": "reasoning.text", "text": "hm", "signature": "y"},
    )
    (wire,) = to_wire(thinking(*details), Capabilities(reasoning_field="reasoning"))
    assert wire == {"role": "assistant", "content": "So.", "reasoning_details": list(details)}


@pytest.mark.parametrize("kind", ["thinking", "redacted_thinking", ORDER])
def test_details_of_anthropics_own_api_are_not_for_chat_completions(kind: str) -> None:
    (wire,) = to_wire(thinking({"type": kind, "thinking": "hm", "signature": "x"}))
    assert wire == {"role": "assistant", "content": "So."}


def test_details_of_pydantic_ai_are_not_for_chat_completions() -> None:
    (wire,) = to_wire(thinking({"type": pydantic_ai_details.TYPE, "parts": []}))
    assert wire == {"role": "assistant", "content": "So."}


def test_details_are_not_sent_to_a_server_without_details() -> None:
    """A session that was begun at another server of the same model."""
    (wire,) = to_wire(thinking({"type": "reasoning.encrypted", "data": "x"}), Capabilities(reasoning_details=False))
    assert wire == {"role": "assistant", "content": "So."}


def test_extra_content_of_a_call_goes_back_on_the_call() -> None:
    """Gemini's thought signature. One of a call that is not there goes nowhere."""
    google: JsonValue = {"google": {"thought_signature": "x"}}
    extras: list[dict[str, JsonValue]] = [
        {"type": "extra_content", "call": number, "extra_content": google} for number in (1, 5)
    ]
    (wire,) = to_wire(thinking(*extras, calls=2))
    calls: Any = wire["tool_calls"]
    assert [call.get("extra_content") for call in calls] == [None, google]
    assert "reasoning_details" not in wire


@pytest.mark.parametrize(
    ("field", "required", "text", "expected"),
    [
        (None, False, "hm", {}),
        ("reasoning_content", False, "hm", {"reasoning_content": "hm"}),
        ("reasoning", False, "hm", {"reasoning": "hm"}),
        ("reasoning_content", False, "", {}),
        ("reasoning_content", True, "", {"reasoning_content": ""}),
    ],
)
def test_reasoning_goes_back_to_servers_expecting_reasoning(
    field: ReasoningField | None, required: bool, text: str, expected: dict[str, str]
) -> None:
    capabilities = Capabilities(reasoning_field=field, reasoning_required=required)
    (wire,) = to_wire(thinking(text=text), capabilities)
    assert wire == {"role": "assistant", "content": "So.", **expected}


def test_required_reasoning_goes_back_beside_the_details() -> None:
    detail: dict[str, JsonValue] = {"type": "reasoning.encrypted", "data": "x"}
    capabilities = Capabilities(reasoning_field="reasoning_content", reasoning_required=True)
    (wire,) = to_wire(thinking(detail), capabilities)
    assert (wire["reasoning_details"], wire["reasoning_content"]) == ([detail], "hm")


# One call a reply.


@pytest.mark.parametrize(("choice", "is_restricted"), [("auto", True), ("required", True), ("none", False)])
def test_model_limited_to_a_single_call_gets_the_restriction(choice: ToolChoice, is_restricted: bool) -> None:
    encoder = OpenAIEncoder("m", capabilities=Capabilities(parallel_tool_calls=False))
    body = encode(ModelRequest((HELLO,), tools=(TOOL,), tool_choice=choice), encoder)
    assert body.get("parallel_tool_calls", True) is not is_restricted
    assert "parallel_tool_calls" not in encode(ModelRequest((HELLO,)), encoder)
    assert "parallel_tool_calls" not in encode(ModelRequest((HELLO,), tools=(TOOL,)))


@pytest.mark.parametrize(
    ("name", "valid_name"),
    [
        ("functions.note", "functions_note"),
        ("", "_"),
        ("no\nte", "no_te"),
        ("n" * 300, "n" * 64),
        ("read_file", "read_file"),
    ],
)
def test_invalid_name_made_up_by_a_model_goes_back_valid(name: str, valid_name: str) -> None:
    """Else one slip of the model would have every later request of the session refused."""
    (wire,) = to_wire(Message.assistant(calls=[ToolCallPart(id="c", name=name)]))
    assert wire["tool_calls"] == [{"id": "c", "type": "function", "function": {"name": valid_name, "arguments": "{}"}}]


@pytest.mark.parametrize("most", [128, None])
def test_a_reply_with_129_calls_is_two_messages(most: int | None) -> None:
    calls = [ToolCallPart(id=f"c{number}", name="read") for number in range(129)]
    results = [Message.result(call.id, "read", "text") for call in calls]
    request = ModelRequest((HELLO, Message.assistant("", calls), *results, HELLO))
    encoder = OpenAIEncoder("m", capabilities=Capabilities(calls_per_message=most))
    messages = encode(request, encoder)["messages"]
    counts = [len(message["tool_calls"]) for message in messages if message["role"] == "assistant"]
    assert counts == ([129] if most is None else [128, 1])
    answers = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert answers == [call.id for call in calls]
    assert encode(request, encoder)["messages"] == messages
