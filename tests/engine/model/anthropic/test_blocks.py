import base64
import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import JsonValue, TypeAdapter

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
)
from turnwright.model.anthropic.blocks import CALL, ORDER, THINKING, encode_blocks, in_order, order_of
from turnwright.model.anthropic.reply_builder import MessageBuilder
from turnwright.model.protocol import ModelResponse
from turnwright_states import CallStatus, EndReason, Outcome

SIGNED: dict[str, JsonValue] = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
REDACTED: dict[str, JsonValue] = {"type": "redacted_thinking", "data": "ZGF0YQ=="}


def content(message: Message) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = json.loads(b"[" + encode_blocks(message).content + b"]")
    return blocks


def thinking(message: Message) -> list[dict[str, Any]]:
    """Return the blocks before the content: all thinking, in a message that was not interleaved."""
    encoded = encode_blocks(message)
    blocks: list[dict[str, Any]] = json.loads(b"[" + encoded.thought + b"]")
    assert blocks[len(blocks) - len(content(message)) :] == content(message)
    return blocks[: len(blocks) - len(content(message))]


def thought(*details: Mapping[str, JsonValue], text: str = "a") -> Message:
    return Message(role="assistant", parts=(ReasoningPart(text="hm", details=details), TextPart(text=text)))


def test_texts_are_blocks() -> None:
    assert content(Message.user("hello")) == [{"type": "text", "text": "hello"}]
    assert content(Message.system("be brief")) == [{"type": "text", "text": "be brief"}]
    assert content(Message.assistant("done")) == [{"type": "text", "text": "done"}]


@pytest.mark.parametrize("blank", ["", " ", "\n\t\u00a0"])
def test_blank_texts_are_never_sent(blank: str) -> None:
    """The API answers 400 to them."""
    for message in (
        Message.user(blank),
        Message.system(blank),
        Message.assistant(blank),
        thought(SIGNED, text=blank),
    ):
        assert (content(message), thinking(message)) == ([], [])
    call = ToolCallPart(id="c1", name="f")
    assert [block["type"] for block in content(Message.assistant(blank, [call]))] == ["tool_use"]
    assert content(Message.result("c1", "f", blank)) == [{"type": "tool_result", "tool_use_id": "c1"}]


def test_assistant_text_loses_trailing_blanks() -> None:
    assert content(Message.assistant(" a \n")) == [{"type": "text", "text": " a"}]


def test_calls_follow_the_text() -> None:
    calls = [ToolCallPart(id="call00001", name="read", arguments={"path": "é"}), ToolCallPart(id="call00002", name="f")]
    assert content(Message.assistant("I look", calls)) == [
        {"type": "text", "text": "I look"},
        {"type": "tool_use", "id": "call00001", "name": "read", "input": {"path": "é"}},
        {"type": "tool_use", "id": "call00002", "name": "f", "input": {}},
    ]


def test_names_and_ids_of_an_older_history_are_made_valid_alike() -> None:
    call = ToolCallPart(id="functions.read:0", name="my tool/é" + "x" * 200)
    (wire,) = content(Message.assistant(calls=[call]))
    (result,) = content(Message.result("functions.read:0", call.name, "a"))
    assert (wire["id"], wire["name"]) == ("functions_read_0", "my_tool__" + "x" * 55)
    assert result["tool_use_id"] == wire["id"]
    assert content(Message.assistant(calls=[ToolCallPart(id="", name="")]))[0]["id"] == "_"


@pytest.mark.parametrize("status", CallStatus)
def test_result_other_than_ok_is_an_error(status: CallStatus) -> None:
    (wire,) = content(Message.result("c1", "f", "words", status))
    assert wire == {"type": "tool_result", "tool_use_id": "c1", "content": "words"} | (
        {} if status is CallStatus.OK else {"is_error": True}
    )


def test_error_without_text_gets_a_text() -> None:
    """The API refuses an error that has no content."""
    assert content(Message.result("c1", "f", " ", CallStatus.REJECTED))[0]["content"] == "rejected"


def test_each_result_is_a_block() -> None:
    parts = tuple(ToolResultPart(call=f"c{number}", name="f", text=str(number)) for number in (1, 2))
    assert [block["tool_use_id"] for block in content(Message(role="tool", parts=parts))] == ["c1", "c2"]


def test_signed_thinking_stays_unchanged() -> None:
    omitted: dict[str, JsonValue] = {"type": "thinking", "thinking": "", "signature": "s", "later": [1]}
    assert thinking(thought(SIGNED, REDACTED, omitted)) == [SIGNED, REDACTED, omitted]


@pytest.mark.parametrize(
    "detail",
    [
        {"type": "thinking", "thinking": "hm"},
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "redacted_thinking", "data": ""},
        {"type": "reasoning.text", "text": "hm", "signature": "s"},
        {"type": "reasoning.encrypted", "data": "x"},
        {"data": "x"},
    ],
)
def test_unsigned_or_foreign_thinking_is_left_out(detail: dict[str, JsonValue]) -> None:
    assert thinking(thought(detail)) == []


def test_trailing_thinking_is_left_out() -> None:
    """The API refuses a message that ends with it."""
    order: dict[str, JsonValue] = {"type": "block_order", "blocks": [1, "thinking"]}
    encoded = encode_blocks(thought(SIGNED, order))
    assert encoded.thought is encoded.content
    assert not encoded.begins_with_thinking


def test_encoded_message_knows_leading_thinking() -> None:
    order: dict[str, JsonValue] = {"type": "block_order", "blocks": [1, "thinking", 1]}
    assert encode_blocks(thought(SIGNED, text="ab")).begins_with_thinking
    later = encode_blocks(thought(SIGNED, order, text="ab"))
    assert not later.begins_with_thinking
    assert [block["type"] for block in json.loads(b"[" + later.thought + b"]")] == ["text", "thinking", "text"]
    assert [block["text"] for block in json.loads(b"[" + later.content + b"]")] == ["a", "b"]


def test_parts_unknown_to_providers_are_left_out() -> None:
    parts = (
        StepStartPart(step_number=1),
        ReasoningPart(text="hm"),
        SentinelPart(kind=Outcome.CAP_HIT, reason=EndReason.STEP_CAP, text="stopped"),
    )
    assert content(Message(role="assistant", parts=parts)) == []


class TestFiles:
    @pytest.mark.parametrize("media_type", ["image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp"])
    def test_a_picture_is_shown(self, media_type: str) -> None:
        wire = content(Message.user("look", [FilePart.of(b"pix", media_type, "a.png")]))
        source = {"type": "base64", "media_type": media_type.replace("jpg", "jpeg"), "data": "cGl4"}
        assert wire == [{"type": "text", "text": "look"}, {"type": "image", "source": source}]

    def test_a_picture_may_be_an_address(self) -> None:
        for media_type in ("image/*", "image/png"):
            part = FilePart(media_type=media_type, url="https://host/a")
            source = {"type": "url", "url": "https://host/a"}
            assert content(Message.user("", [part])) == [{"type": "image", "source": source}]

    def test_pdf_is_a_document_with_a_name(self) -> None:
        source: dict[str, str] = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}
        part = FilePart.of(b"%PDF", "application/pdf", "a.pdf")
        assert content(Message.user("", [part])) == [{"type": "document", "source": source, "title": "a.pdf"}]
        part = FilePart(media_type="application/pdf", url="https://host/a.pdf")
        source = {"type": "url", "url": "https://host/a.pdf"}
        assert content(Message.user("", [part])) == [{"type": "document", "source": source}]

    @pytest.mark.parametrize("media_type", ["text/plain", "text/markdown", "application/json", "application/x+xml"])
    def test_text_is_a_document_of_text(self, media_type: str) -> None:
        (wire,) = content(Message.user("", [FilePart.of("\ufeffé".encode(), media_type, "a.md")]))
        source = {"type": "text", "media_type": "text/plain", "data": "é"}
        assert wire == {"type": "document", "source": source, "title": "a.md"}

    @pytest.mark.parametrize(
        ("part", "words"),
        [
            (FilePart.of(b"a", "image/svg+xml", "a.svg"), "A file, a.svg (image/svg+xml), cannot be shown here."),
            (FilePart.of(b"a", "audio/mpeg"), "A file, (audio/mpeg), cannot be shown here."),
            (FilePart.of(b"\xff", "text/plain", "a.txt"), "A file, a.txt (text/plain), cannot be shown here."),
            (FilePart.of(b" \n", "text/plain", "a.txt"), "A file, a.txt (text/plain), cannot be shown here."),
            (FilePart(media_type="text/csv", url="https://h/a"), "A file, (text/csv), is at https://h/a"),
            (FilePart(media_type="image/png", url="http://h/a"), "A file, (image/png), is at http://h/a"),
        ],
    )
    def test_unsupported_file_is_named_in_text(self, part: FilePart, words: str) -> None:
        assert content(Message.user("", [part])) == [{"type": "text", "text": words}]

    def test_result_shows_files_behind_the_text(self) -> None:
        (wire,) = content(Message.result("c1", "shot", "done", files=[FilePart.of(b"pix", "image/png")]))
        source = {"type": "base64", "media_type": "image/png", "data": "cGl4"}
        assert wire["content"] == [{"type": "text", "text": "done"}, {"type": "image", "source": source}]
        (wire,) = content(Message.result("c1", "shot", "", files=[FilePart.of(b"pix", "image/png")]))
        assert [block["type"] for block in wire["content"]] == ["image"]

    def test_only_the_user_and_results_show_files(self) -> None:
        file = FilePart.of(b"pix", "image/png")
        for role in ("system", "assistant"):
            message = Message(role=role, parts=(TextPart(text="a"), file))
            assert content(message) == [{"type": "text", "text": "a"}]

    @given(st.binary(min_size=1), st.sampled_from(["text/plain", "image/png", "application/pdf", "video/mp4"]))
    def test_every_file_is_a_block_with_the_content_or_a_notice(self, data: bytes, media_type: str) -> None:
        (wire,) = content(Message.user("", [FilePart.of(data, media_type)]))
        if wire["type"] == "text":
            assert media_type in wire["text"]
        elif wire["source"]["type"] == "text":
            assert data.removeprefix(b"\xef\xbb\xbf").decode() == wire["source"]["data"]
        else:
            assert base64.b64decode(wire["source"]["data"]) == data


MESSAGE = TypeAdapter(Message)
Block = dict[str, Any]


def signed(text: str) -> Block:
    return {"type": "thinking", "thinking": text, "signature": f"sig {text}"}


def redacted(data: str) -> Block:
    return {"type": "redacted_thinking", "data": data}


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def call(identifier: str = "toolu") -> Block:
    return {"type": "tool_use", "id": identifier, "name": "f", "input": {"x": 1}}


def reply(blocks: Sequence[Block]) -> ModelResponse:
    builder = MessageBuilder()
    builder.add({"type": "message", "content": [*blocks], "stop_reason": "tool_use"})
    return builder.reply()


def journalled(response: ModelResponse) -> Message:
    """The reply as the transcript has it: calls under our ids, through JSON."""
    parts: list[AnyPart] = []
    if response.reasoning or response.reasoning_details:
        parts.append(ReasoningPart(text=response.reasoning, details=response.reasoning_details))
    if response.text:
        parts.append(TextPart(text=response.text))
    for number, call in enumerate(response.calls, 1):
        parts.append(ToolCallPart(id=f"call{number}", name=call.name, arguments=call.arguments or {}))
    return MESSAGE.validate_json(MESSAGE.dump_json(Message(role="assistant", parts=tuple(parts))))


def back(*blocks: Block) -> list[Block]:
    """Return the blocks that go back for a reply of these blocks."""
    content: list[Block] = json.loads(b"[" + encode_blocks(journalled(reply(blocks))).thought + b"]")
    return content


def ours(blocks: Sequence[Block]) -> list[Block]:
    """The blocks as they should go back: texts in a row as one, without what the API refuses, calls under our ids."""
    row: list[Block] = []
    for kind, group in groupby(blocks, lambda block: str(block["type"])):
        run = list(group)
        row += [text("".join(block["text"] for block in run))] if kind == "text" else run
    row = [block for block in row if block["type"] != "text" or block["text"].strip()]
    texts = [number for number, block in enumerate(row) if block["type"] == "text"]
    for number in texts[-1:]:
        row[number] = text(row[number]["text"].rstrip())
    while row and "thinking" in row[-1]["type"]:
        row.pop()
    ids = iter(range(1, len(row) + 1))
    return [{**block, "id": f"call{next(ids)}"} if block["type"] == "tool_use" else block for block in row]


ANY_BLOCK = st.one_of(
    st.builds(signed, st.text(max_size=3)),
    st.builds(redacted, st.text(min_size=1, max_size=3)),
    st.builds(text, st.text(max_size=3) | st.sampled_from([" ", "\n\n", "a\n"])),
    st.just(call()),
)


@given(st.lists(ANY_BLOCK, max_size=7).filter(lambda row: any("thinking" in block["type"] for block in row)))
@example([signed("1"), text("Hello."), signed("2"), call()])
@example([signed("1"), call("a"), text("b "), redacted("3"), call("c"), signed("4")])
def test_interleaved_blocks_come_back_in_order(blocks: list[Block]) -> None:
    assert back(*blocks) == ours(blocks)


@pytest.mark.parametrize(
    "blocks",
    [
        (),
        (text("a"), call("x")),
        (call("x"), text("a")),
        (signed("1"), redacted("2"), text("a"), text("b"), call("x"), call("y")),
        (signed("1"), text(""), redacted("2"), call("x")),
    ],
)
def test_usual_order_is_not_recorded(blocks: tuple[Block, ...]) -> None:
    assert all(detail["type"] != ORDER for detail in reply(blocks).reasoning_details)


def test_blocks_stay_unchanged_beside_the_order() -> None:
    first = {**redacted("data"), "later": [1]}
    details = reply([first, text("Hello."), signed("2"), call()]).reasoning_details
    order = {"type": ORDER, "blocks": ["thinking", 6, "thinking", "call"]}
    assert details == (first, signed("2"), order)


ROW: list[JsonValue] = [THINKING, 2, THINKING, CALL]


def message(order: JsonValue, *, text: str = "ab", calls: int = 1) -> Message:
    details = (signed("1"), signed("2"), {"type": ORDER, "blocks": order})
    call_parts = (ToolCallPart(id=f"c{number}", name="f") for number in range(calls))
    return Message(
        role="assistant", parts=(ReasoningPart(text="12", details=details), TextPart(text=text), *call_parts)
    )


@pytest.mark.parametrize(
    "changed",
    [
        message(ROW, text="abc"),
        message(ROW, calls=2),
        message(ROW, calls=0),
        message([2, CALL]),
        message([THINKING, True, True, THINKING, CALL]),
        message([THINKING, 3, -1, THINKING, CALL]),
        message([THINKING, {}, 2.5, THINKING, CALL]),
        message("thinking"),
        message(None),
    ],
)
def test_mismatched_order_puts_thinking_first(changed: Message) -> None:
    """A hook changed the text, or another program the journal."""
    assert [block["type"] for block in in_order(message(ROW))] == ["thinking", "text", "thinking", "tool_use"]
    kinds = [block["type"] for block in in_order(changed)]
    assert kinds == ["thinking", "thinking", "text", *["tool_use"] * len(changed.calls)]


def test_merged_messages_are_read_in_sequence() -> None:
    """Messages of one role in a row are sent as one."""
    parts = [
        part
        for content in ([signed("1"), text("a")], [text("b"), signed("2"), text("c"), call()])
        for part in journalled(reply(content)).parts
    ]
    row = in_order(Message(role="assistant", parts=tuple(parts)))
    assert [block.get("text") or block.get("thinking") for block in row] == ["1", "a", "b", "2", "c", None]


def test_order_is_recorded_only_with_thinking() -> None:
    assert order_of([CALL, 3]) == ()
    assert order_of([1, 0, 2, THINKING]) == ({"type": ORDER, "blocks": [3, THINKING]},)
