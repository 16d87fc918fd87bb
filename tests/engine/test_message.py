"""Messages as embedders bring them: the chat completions format, as real clients and servers write it."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue, TypeAdapter, ValidationError

from turnwright import ConfigError, Message
from turnwright.message import MAX_FILE, FilePart, TextPart, ToolCallPart, ToolResultPart
from turnwright.model.openai_chat.request import to_wire
from turnwright_states import CallStatus
from turnwright_testing.strategies import json_values

Chat = dict[str, JsonValue]


def asks(arguments: JsonValue, **fields: JsonValue) -> Chat:
    function: JsonValue = {"name": "look", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function, **fields}],
    }


@pytest.mark.parametrize(
    ("chat", "message"),
    [
        ({"role": "system", "content": "Be kind."}, Message.system("Be kind.")),
        ({"role": "developer", "content": "Be kind."}, Message.system("Be kind.")),
        ({"role": "user", "content": "Hi", "name": "Ann"}, Message.user("Hi")),
        ({"role": "user", "content": [{"type": "text", "text": "Hi"}]}, Message.user("Hi")),
        ({"role": "assistant", "content": "Hello."}, Message.assistant("Hello.")),
        ({"role": "assistant", "content": None, "refusal": "I will not."}, Message.assistant("I will not.")),
        (
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not."}]},
            Message.assistant("I will not."),
        ),
        (
            # What the SDK's message is as a mapping.
            {"role": "assistant", "content": "", "refusal": None, "annotations": [], "audio": None}
            | {"function_call": None, "tool_calls": None},
            Message(role="assistant"),
        ),
        ({"role": "tool", "tool_call_id": "c1", "content": "noted"}, Message.result("c1", "", "noted")),
        (
            {"role": "tool", "tool_call_id": "c1", "name": "note", "content": "noted"},
            Message.result("c1", "note", "noted"),
        ),
        (
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": t} for t in ("no", "ted")]},
            Message.result("c1", "", "noted"),
        ),
        ({"role": "tool", "content": None}, Message.result("", "", "")),
    ],
)
def test_message_of_the_chat_format_is_read(chat: Chat, message: Message) -> None:
    assert Message.from_chat(chat) == message


PIXEL = FilePart.of(b"\x89PNG", "image/png")


@pytest.mark.parametrize(
    ("part", "file"),
    [
        (
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
            FilePart(media_type="image/*", url="https://example.com/a.png"),
        ),
        ({"type": "image_url", "image_url": {"url": PIXEL.address}}, PIXEL),
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
            FilePart.of(b"%PDF", "application/pdf", "a.pdf"),
        ),
    ],
)
def test_pictures_and_files_of_a_user_are_read(part: Chat, file: FilePart) -> None:
    message = Message.from_chat({"role": "user", "content": [{"type": "text", "text": "This?"}, part]})
    assert message == Message.user("This?", [file])
    assert message.files == (file,)


def test_file_address_is_a_url_or_a_data_url() -> None:
    assert PIXEL.address == "data:image/png;base64,iVBORw=="
    assert FilePart(media_type="image/*", url="https://example.com/a.png").address == "https://example.com/a.png"


def test_file_repr_hides_the_content() -> None:
    """A picture is a megabyte of letters."""
    assert "iVBORw" not in repr(PIXEL)


def test_file_is_read_from_a_path_and_takes_the_name(tmp_path: Path) -> None:
    (tmp_path / "plan.pdf").write_bytes(b"%PDF")
    assert FilePart.read(tmp_path / "plan.pdf") == FilePart.of(b"%PDF", "application/pdf", "plan.pdf")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("plan", "its type is unknown: give its name an ending such as .png or .pdf"),
        ("plans.tar.gz", "its type is unknown: give its name an ending such as .png or .pdf"),
        ("missing.pdf", "it cannot be read: No such file or directory"),
        ("empty.pdf", "it is empty"),
        ("large.pdf", "it is larger than 33,554,432 bytes"),
    ],
)
def test_unreadable_file_is_refused_by_name(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "plan").write_bytes(b"%PDF")
    (tmp_path / "empty.pdf").write_bytes(b"")
    with (tmp_path / "large.pdf").open("wb") as file:
        file.truncate(MAX_FILE + 1)
    with pytest.raises(ConfigError) as error:
        FilePart.read(tmp_path / name)
    assert str(error.value) == f"file {tmp_path / name}: {why}"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"media_type": "image/png"}, "either its content"),
        ({"media_type": "image/png", "data": "aGk=", "url": "https://example.com"}, "either its content"),
        ({"media_type": "image/png", "data": "a b"}, "data must be base64"),
        ({"media_type": "png", "data": "aGk="}, "media_type must be a MIME type such as image/png, not 'png'"),
        ({"media_type": "image/png", "url": "file:///etc/passwd"}, "must begin with https:// or http://"),
        ({"media_type": "image/png", "data": "A" * (MAX_FILE * 4 // 3 + 8)}, "larger than 33,554,432 bytes"),
    ],
)
def test_file_unacceptable_to_providers_is_refused(fields: Mapping[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        FilePart.of_json(fields)


@pytest.mark.parametrize("field", ["media_type", "data", "url", "name"])
def test_file_fields_must_be_text(field: str) -> None:
    """Also in code, where no other part is looked at: what a tool makes a file of is often not its own."""
    fields: dict[str, object] = {"media_type": "image/png", "data": "aGk=", field: 3}
    with pytest.raises(ValueError, match=f"{field} must be text, not int"):
        FilePart(**fields)  # type: ignore[arg-type]


def test_data_url_is_read_as_content() -> None:
    assert FilePart(media_type="image/*", url=PIXEL.address) == PIXEL


# As JSON, in journals and in what is printed.

WHOLE: Chat = {
    "role": "assistant",
    "parts": [
        {"seq": 1, "type": "step_start", "step_number": 1, "started_at": "2026-11-30T02:13:20.000Z", "elapsed": 0.5},
        {"seq": 2, "type": "reasoning", "text": "hm", "details": [{"signature": "s"}]},
        {"seq": 3, "type": "text", "text": "Hello."},
        {"seq": 4, "type": "file", "media_type": "image/png", "data": "aGk=", "url": "", "name": "a.png"},
        {"seq": 5, "type": "tool_call", "id": "c1", "name": "look", "arguments": {"path": ["a", None]}},
        {
            "seq": 6,
            "type": "tool_result",
            "call": "c1",
            "name": "look",
            "status": "ok",
            "retry": False,
            "text": "a",
            "structured": {"n": 1},
            "files": [PIXEL.to_json()],
        },
        {
            "seq": 7,
            "type": "step_finish",
            "step_number": 1,
            "input_tokens": 7,
            "output_tokens": 3,
            "seconds": 0.5,
            "cached_tokens": 0,
            "reasoning_tokens": 0,
            "refused": False,
        },
        {
            "seq": 8,
            "type": "sentinel",
            "kind": "cap_hit",
            "reason": "step_cap",
            "text": "Enough.",
            "refusal": "",
            "refused_from": None,
        },
    ],
}


def test_tool_message_has_text_only_in_the_part() -> None:
    part = ToolResultPart(seq=1, call="call00001", name="note", text="noted", status=CallStatus.OK)
    message = Message(role="tool", parts=(part,))
    assert message.text == ""
    assert [part.text for part in message.parts if isinstance(part, ToolResultPart)] == ["noted"]


def test_message_survives_a_json_round_trip() -> None:
    """With its fields in this order, which people read."""
    message = Message.of_json(WHOLE)
    assert json.dumps(message.to_json()) == json.dumps(WHOLE)
    assert Message.of_json(message.to_json()) == message
    assert [type(part).__name__ for part in message.parts] == [
        "StepStartPart",
        "ReasoningPart",
        "TextPart",
        "FilePart",
        "ToolCallPart",
        "ToolResultPart",
        "StepFinishPart",
        "SentinelPart",
    ]


def test_fields_with_a_default_may_be_missing_from_json() -> None:
    chat: Chat = {"role": "tool", "parts": [{"type": "tool_result", "call": "c1", "name": "look", "text": "a"}]}
    assert Message.of_json(chat) == Message.result("c1", "look", "a")


def test_parsed_message_shares_nothing_with_the_source() -> None:
    arguments: Chat = {"path": ["a"]}
    message = Message.of_json(
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "look", "arguments": arguments}]}
    )
    arguments["path"] = ["b"]
    assert message.calls[0].arguments == {"path": ["a"]}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"role": "ai"}, "role: Input should be 'system', 'user', 'assistant' or 'tool'"),
        ({"parts": []}, "role: Field required"),
        ({"role": "user", "text": "Hi"}, "text: Extra inputs are not permitted"),
        ({"role": "user", "parts": [{"type": "text"}]}, "parts.0.text.text: Field required"),
        ({"role": "user", "parts": [{"text": "Hi"}]}, "parts.0: Unable to extract tag using discriminator 'type'"),
        ({"role": "user", "parts": [{"type": "sound"}]}, "parts.0: Input tag 'sound'"),
        ({"role": "user", "parts": [{"type": "text", "text": 3}]}, "parts.0.text.text: Input should be a valid string"),
        (
            {"role": "user", "parts": [{"type": "text", "text": "Hi"}, {"type": "file", "media_type": "png"}]},
            "parts.1.file: media_type must be a MIME type such as image/png, not 'png'",
        ),
        (
            {"role": "tool", "parts": [{"type": "tool_result", "call": "", "name": "", "text": "", "status": "fine"}]},
            "parts.0.tool_result.status: Input should be 'ok'",
        ),
    ],
)
def test_invalid_message_json_is_refused_by_field(fields: Chat, why: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the text is compared below)
        Message.of_json(fields)
    assert str(error.value).startswith(why)


def test_pydantic_model_may_hold_messages() -> None:
    """As an embedder's own models do, which go over its own wires."""
    holder = TypeAdapter(dict[str, Message])
    message = Message.of_json(WHOLE)
    assert holder.validate_python({"a": message})["a"] is message
    assert holder.validate_json(holder.dump_json({"a": message})) == {"a": message}
    with pytest.raises(ValidationError, match=r"a\.parts\.0\.text\.text"):
        holder.validate_python({"a": {"role": "user", "parts": [{"type": "text"}]}})


def test_several_texts_are_separate_parts_and_a_single_text() -> None:
    message = Message.from_chat({"role": "user", "content": [{"type": "text", "text": t} for t in ("Hi", " there")]})
    assert message.parts == (TextPart(text="Hi"), TextPart(text=" there"))
    assert message.text == "Hi there"


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ('{"path": "a.py"}', {"path": "a.py"}),
        ({"path": "a.py"}, {"path": "a.py"}),
        ("", {}),
        (None, {}),
        ('{"path": "a', {}),
        ('["a.py"]', {}),
        ('{"n": NaN}', {}),
        ("[" * 100_000, {}),
    ],
)
def test_arguments_other_than_an_object_are_null(arguments: JsonValue, read: Chat) -> None:
    """Arguments that are not a JSON object are sent as `{}`, like those of a turn's calls (docs/rules.md#pairing)."""
    assert Message.from_chat(asks(arguments)).calls == (ToolCallPart(id="c1", name="look", arguments=read),)


@pytest.mark.parametrize("missing", [{"id": None}, {"id": ""}])
def test_call_without_an_id_has_an_empty_id(missing: Chat) -> None:
    """Some servers give none; the result has none either, and answers it all the same."""
    assert [call.id for call in Message.from_chat(asks("{}", **missing)).calls] == [""]


@pytest.mark.parametrize(
    ("chat", "why"),
    [
        ({"content": "Hi"}, "role must be one of system, developer, user, assistant, tool, not 'None'"),
        ({"role": "ai", "content": "Hi"}, "role must be one of system, developer, user, assistant, tool, not 'ai'"),
        ({"role": "function", "name": "look", "content": "a"}, "use tool_calls and the role tool"),
        (
            {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
            "use tool_calls and the role tool",
        ),
        ({"role": "user", "content": 3}, "content must be text, or a list of parts, not int"),
        ({"role": "user", "content": ["Hi"]}, "a part of a content must be a mapping, not str"),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]},
            "an invalid file: url must begin with https:// or http://",
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,a b"}}]},
            "an invalid file: data must be base64",
        ),
        (
            {"role": "user", "content": [{"type": "file", "file": {"file_data": 3}}]},
            "an invalid file: media_type: Field required",
        ),
        (
            {"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]},
            "content has a part of type 'file'",
        ),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]},
            "content has a part of type 'input_audio'",
        ),
        (
            {"role": "system", "content": [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]},
            "pictures and files must be in a message of role user, not system",
        ),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a"}]},
            "content has a part of type 'tool_result': only text, pictures and files are supported",
        ),
        ({"role": "user", "content": [{"type": "text", "text": None}]}, "a part of type 'text'"),
        ({"role": "user", "content": [{"type": ["text"]}]}, "a part of type ['text']"),
        ({"role": "assistant", "tool_calls": {}}, "tool_calls must be a list, not dict"),
        ({"role": "assistant", "tool_calls": ["c1"]}, "a tool call must be {'id': ..., "),
        (
            {"role": "assistant", "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "x", "input": ""}}]},
            "not of type 'custom'",
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": 7, "function": {"name": "x"}}]},
            "the id of a tool call must be text",
        ),
        ({"role": "user", "tool_calls": [{"id": "c", "function": {"name": "x"}}]}, "not user"),
        ({"role": "tool", "tool_call_id": 7, "content": "noted"}, "tool_call_id must be text, not int"),
    ],
)
def test_unreadable_message_is_refused_by_name(chat: Chat, why: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the text is compared below)
        Message.from_chat(chat)
    assert why in str(error.value)


def test_client_object_is_refused_with_advice() -> None:
    class ChatCompletionMessage: ...

    with pytest.raises(ValueError, match=r"a mapping \(such as its model_dump\(\)\), not ChatCompletionMessage"):
        Message.from_chat(ChatCompletionMessage())  # type: ignore[arg-type]


@given(st.dictionaries(st.sampled_from(["role", "content", "refusal", "tool_calls", "tool_call_id"]), json_values()))
def test_any_mapping_is_read_or_refused_with_value_error(chat: Chat) -> None:
    try:
        Message.from_chat(chat)
    except ValueError as error:
        assert str(error)  # noqa: PT017 (either is right)


parts = st.one_of(
    st.builds(Message.user, st.text(min_size=1)),
    st.builds(Message.system, st.text(min_size=1)),
    st.builds(lambda call, text: Message.result(call, "", text), st.text(), st.text()),
    st.builds(
        Message.assistant,
        st.text(),
        st.lists(
            st.builds(
                ToolCallPart,
                id=st.text(),
                name=st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True),
                arguments=st.dictionaries(st.text(), st.integers() | st.text() | st.none()),
            ),
            min_size=1,
        ),
    ),
)


@given(parts)
def test_sent_message_can_be_read_back(message: Message) -> None:
    assert [Message.from_chat(wire) for wire in to_wire(message)] == [message]
