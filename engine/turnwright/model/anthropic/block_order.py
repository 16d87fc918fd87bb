"""The order of a reply's blocks, kept with its signed thinking and restored when the reply is sent again. No I/O.

Our replies have a text, a reasoning and calls; a reply of the Messages API is a list of blocks. When a model thinks
between texts and calls, each thinking block must be sent back at its place. If that differs from the usual order
(thinking, text, calls), one entry of `ModelResponse.reasoning_details` records it:
`{"type": "block_order", "blocks": ["thinking", 6, "thinking", "call"]}`, where a number is the length of a text.
Source: "Extended thinking" of Anthropic's documentation.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeGuard

from pydantic import JsonValue

from turnwright.message import Message, ReasoningPart, TextPart, ToolCallPart
from turnwright.model.fit import sendable_name
from turnwright.model.http.encoding import replies_of
from turnwright.model.http.json_text import read_text

Block = dict[str, JsonValue]

#: The `type` of the entry.
ORDER: Final = "block_order"
THINKING: Final = "thinking"
CALL: Final = "call"

#: The blocks of tools that the provider runs: a call, and by this ending its result.
_HOSTED_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})
_HOSTED_RESULT: Final = "_tool_result"
# The API accepts only its own thinking, and only with its signature.
_SEALS: Final = {"thinking": "signature", "redacted_thinking": "data"}


def order_of(row: Sequence[str | int]) -> tuple[Mapping[str, JsonValue], ...]:
    """Make the entry for the blocks of a reply: `CALL`, the length of each text, and `THINKING` for any kept block.

    Kept are signed thinking, and the calls and results of tools that the provider runs.

    Returns None where nothing is signed, or the usual order is right.
    """
    blocks: list[str | int] = []
    for entry in row:
        if isinstance(entry, str) or not blocks or isinstance(last := blocks[-1], str):
            blocks.append(entry)
        else:
            blocks[-1] = last + entry
    blocks = [entry for entry in blocks if entry != 0]
    ranks = [0 if entry == THINKING else 2 if entry == CALL else 1 for entry in blocks]
    if THINKING not in row or ranks == sorted(ranks):
        return ()
    return ({"type": ORDER, "blocks": [*blocks]},)


def in_order(message: Message) -> list[Block]:
    """Return the blocks of an assistant's message, with each thinking block at its place.

    The thinking comes first if a text or the calls were changed after the reply. Blank texts are left out, and
    trailing whitespace of the last one is removed.
    """
    row = [block for reasoning, rest in replies_of(message) for block in _reply(reasoning, rest)]
    last = next((block for block in reversed(row) if block["type"] == "text"), None)
    if last is not None:
        last["text"] = str(last["text"]).rstrip()
    return row


def hosted_id(block: Mapping[str, JsonValue]) -> str:
    """Return the id of a call of the provider's tools; empty for another block."""
    return read_text(block.get("id")) if block.get("type") in _HOSTED_CALLS else ""


def answered_by(block: Mapping[str, JsonValue]) -> str:
    """Return the id of the call that a result of the provider's tools answers; empty for another block."""
    return read_text(block.get("tool_use_id")) if read_text(block.get("type")).endswith(_HOSTED_RESULT) else ""


def _is_kept(detail: Mapping[str, JsonValue]) -> bool:
    """Whether the entry is a block that is sent back: signed thinking, or one of the provider's tools."""
    return bool(detail.get(_SEALS.get(read_text(detail.get("type")), "")) or hosted_id(detail) or answered_by(detail))


def is_thinking(block: Mapping[str, JsonValue]) -> bool:
    """Whether the block contains thinking."""
    return block.get("type") in _SEALS


def text_blocks(text: str) -> Iterator[Block]:
    """Return the text as a block, or no block for a blank text, which the API rejects."""
    if text.strip():
        yield {"type": "text", "text": text}


def _reply(reasoning: ReasoningPart | None, rest: Sequence[TextPart | ToolCallPart]) -> Iterator[Block]:
    details = reasoning.details if reasoning else ()
    thinking = [dict(detail) for detail in details if _is_kept(detail)]
    text = "".join(part.text for part in rest if isinstance(part, TextPart))
    calls = [_call(part) for part in rest if isinstance(part, ToolCallPart)]
    order = next((detail.get("blocks") for detail in details if detail.get("type") == ORDER), None)
    thoughts, call_blocks, read = iter(thinking), iter(calls), 0
    for entry in _choose_order(order, len(thinking), len(text), len(calls)):
        if isinstance(entry, int):
            yield from text_blocks(text[read : read + entry])
            read += entry
        else:
            yield next(thoughts if entry == THINKING else call_blocks)


def _choose_order(order: JsonValue, thinking: int, length: int, calls: int) -> list[str | int]:
    """Return the recorded order if it fits the message, else the usual one."""
    row = [entry for entry in order if _is_known(entry)] if isinstance(order, list) else []
    counts = (row.count(THINKING), sum(entry for entry in row if isinstance(entry, int)), row.count(CALL))
    return row if counts == (thinking, length, calls) else [*[THINKING] * thinking, length, *[CALL] * calls]


def _is_known(entry: JsonValue) -> TypeGuard[str | int]:
    return entry in (THINKING, CALL) or (isinstance(entry, int) and not isinstance(entry, bool) and entry > 0)


def _call(call: ToolCallPart) -> Block:
    return {
        "type": "tool_use",
        "id": sendable_name(call.id),
        "name": sendable_name(call.name),
        "input": dict(call.arguments),
    }
