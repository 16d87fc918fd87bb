"""Thinking blocks go back in their place: the API refuses a last message in which they were moved."""

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import JsonValue, TypeAdapter

from turnwright.message import AnyPart, Message, ReasoningPart, TextPart, ToolCallPart
from turnwright.model.anthropic.block_order import CALL, ORDER, THINKING, in_order, order_of
from turnwright.model.anthropic.blocks import encode_blocks
from turnwright.model.anthropic.reply_builder import MessageBuilder
from turnwright.model.protocol import ModelResponse

MESSAGE = TypeAdapter(Message)
Block = dict[str, Any]


def thinking(text: str) -> Block:
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
    st.builds(thinking, st.text(max_size=3)),
    st.builds(redacted, st.text(min_size=1, max_size=3)),
    st.builds(text, st.text(max_size=3) | st.sampled_from([" ", "\n\n", "a\n"])),
    st.just(call()),
)


@given(st.lists(ANY_BLOCK, max_size=7).filter(lambda row: any("thinking" in block["type"] for block in row)))
@example([thinking("1"), text("Hello."), thinking("2"), call()])
@example([thinking("1"), call("a"), text("b "), redacted("3"), call("c"), thinking("4")])
def test_interleaved_blocks_come_back_in_order(blocks: list[Block]) -> None:
    assert back(*blocks) == ours(blocks)


@pytest.mark.parametrize(
    "blocks",
    [
        (),
        (text("a"), call("x")),
        (call("x"), text("a")),
        (thinking("1"), redacted("2"), text("a"), text("b"), call("x"), call("y")),
        (thinking("1"), text(""), redacted("2"), call("x")),
    ],
)
def test_usual_order_is_not_recorded(blocks: tuple[Block, ...]) -> None:
    assert all(detail["type"] != ORDER for detail in reply(blocks).reasoning_details)


def test_blocks_stay_unchanged_beside_the_order() -> None:
    first = {**redacted("data"), "later": [1]}
    details = reply([first, text("Hello."), thinking("2"), call()]).reasoning_details
    order = {"type": ORDER, "blocks": ["thinking", 6, "thinking", "call"]}
    assert details == (first, thinking("2"), order)


ROW: list[JsonValue] = [THINKING, 2, THINKING, CALL]


def message(order: JsonValue, *, text: str = "ab", calls: int = 1) -> Message:
    details = (thinking("1"), thinking("2"), {"type": ORDER, "blocks": order})
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
        for content in ([thinking("1"), text("a")], [text("b"), thinking("2"), text("c"), call()])
        for part in journalled(reply(content)).parts
    ]
    row = in_order(Message(role="assistant", parts=tuple(parts)))
    assert [block.get("text") or block.get("thinking") for block in row] == ["1", "a", "b", "2", "c", None]


def test_order_is_recorded_only_with_thinking() -> None:
    assert order_of([CALL, 3]) == ()
    assert order_of([1, 0, 2, THINKING]) == ({"type": ORDER, "blocks": [3, THINKING]},)
