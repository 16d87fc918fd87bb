"""One message as content blocks of the Messages API, in the order in which the model wrote them. No I/O.

The API answers 400 to an empty text, to a name or an id with characters other than letters, digits, `_` and `-`, to
trailing whitespace in an assistant's last text, and to changed thinking. This module produces none of them.

Our replies have a text, a reasoning and calls; a reply of the Messages API is a list of blocks. When a model thinks
between texts and calls, each thinking block must be sent back at its place. If that differs from the usual order
(thinking, text, calls), one entry of `ModelResponse.reasoning_details` records it:
`{"type": "block_order", "blocks": ["thinking", 6, "thinking", "call"]}`, where a number is the length of a text.
Source: "Extended thinking" of Anthropic's documentation.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, Self, TypeGuard

import msgspec
from pydantic import JsonValue

from turnwright.message import FilePart, Message, ReasoningPart, Role, TextPart, ToolCallPart, ToolResultPart
from turnwright.model.fit import sendable_name
from turnwright.model.http.encoding import IMAGES, PDF, SOME_IMAGE, in_words, join, media_type_of, replies_of
from turnwright.model.http.json_text import read_text
from turnwright_states import CallStatus

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


def in_order(message: Message, *, unsigned: bool = False) -> list[Block]:
    """Return the blocks of an assistant's message, with each thinking block at its place.

    The thinking comes first if a text or the calls were changed after the reply. Blank texts are left out, and
    trailing whitespace of the last one is removed. With `unsigned`, each reply begins with thinking, signed or not.
    """
    row = [block for reasoning, parts in replies_of(message) for block in _reply(reasoning, parts, unsigned=unsigned)]
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


def _reply(
    reasoning: ReasoningPart | None, parts: Sequence[TextPart | ToolCallPart], *, unsigned: bool
) -> Iterator[Block]:
    details = reasoning.details if reasoning else ()
    thinking = [dict(detail) for detail in details if _is_kept(detail)]
    if unsigned and parts and not any(map(is_thinking, thinking)):
        thinking = [{"type": THINKING, "thinking": reasoning.text if reasoning else "", "signature": ""}, *thinking]
    text = "".join(part.text for part in parts if isinstance(part, TextPart))
    calls = [_call(part) for part in parts if isinstance(part, ToolCallPart)]
    order = next((detail.get("blocks") for detail in details if detail.get("type") == ORDER), None)
    thoughts, call_blocks, offset = iter(thinking), iter(calls), 0
    for entry in _choose_order(order, len(thinking), len(text), len(calls)):
        if isinstance(entry, int):
            yield from text_blocks(text[offset : offset + entry])
            offset += entry
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


#: The role of the API's message that a block belongs to.
Side = Literal["user", "assistant"]


class Blocks(msgspec.Struct, frozen=True):
    """One encoded message: its blocks as JSON objects separated by commas; empty if there is nothing to send.

    `content` leaves the thinking out, `thought` includes it; both are the same object if there is none. Thinking at
    the end, or alone, is not sent. `side` is the role of the API's message that the blocks belong to.
    `begins_with_thinking` is about `thought`.
    """

    role: Role
    content: bytes
    thought: bytes
    side: Side
    begins_with_thinking: bool = False

    @classmethod
    def of(cls, role: Role, blocks: Iterable[Block]) -> Self:
        """Encode the blocks of a message."""
        row = list(blocks)
        # The API rejects thinking at the end of a message.
        while row and is_thinking(row[-1]):
            row.pop()
        other_blocks = [block for block in row if not is_thinking(block)]
        content = join(other_blocks)
        side: Side = "assistant" if role == "assistant" else "user"
        if len(other_blocks) == len(row):
            return cls(role, content, content, side)
        return cls(role, content, join(row), side, is_thinking(row[0]))


def encode_blocks(message: Message, *, unsigned: bool = False) -> Blocks:
    """Translate one message, without the parts that a provider does not know: steps, sentinels, foreign reasoning.

    Files of a user's message and of a result stay at their place; a text names a file of a kind that the API rejects.
    For `unsigned` see `in_order`.
    """
    if message.role == "tool":
        return Blocks.of("tool", (_result(part) for part in message.parts if isinstance(part, ToolResultPart)))
    if message.role == "assistant":
        return Blocks.of("assistant", in_order(message, unsigned=unsigned))
    return Blocks.of(
        message.role, (block for part in message.parts for block in _encode_text(part, files=message.role == "user"))
    )


def _encode_text(part: object, *, files: bool) -> Iterator[Block]:
    if isinstance(part, TextPart):
        yield from text_blocks(part.text)
    elif isinstance(part, FilePart) and files:
        yield _file(part)


def _result(part: ToolResultPart) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": sendable_name(part.call)}
    is_error = part.status is not CallStatus.OK
    # The API rejects an error without text.
    text = part.text if part.text.strip() or not is_error else part.status.value
    if part.files:
        block["content"] = [*text_blocks(text), *map(_file, part.files)]
    elif text.strip():
        block["content"] = text
    if is_error:
        block["is_error"] = True
    return block


def _file(part: FilePart) -> Block:
    title: Block = {"title": part.name} if part.name else {}
    source = _source(part)
    if source is not None:
        return {"type": "image", "source": source} if part.is_image else {"type": "document", "source": source, **title}
    text = part.decoded_text
    if text:
        # The API has one name for all kinds of text.
        return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}, **title}
    return {"type": "text", "text": in_words(part)}


def _source(part: FilePart) -> Block | None:
    """Return the source of a picture or a PDF; None for other files and for addresses that the API does not fetch."""
    media_type = media_type_of(part)
    if part.url:
        is_accepted = media_type in IMAGES or media_type in {SOME_IMAGE, PDF}
        return {"type": "url", "url": part.url} if is_accepted and part.url.lower().startswith("https://") else None
    if media_type not in IMAGES and media_type != PDF:
        return None
    return {"type": "base64", "media_type": media_type, "data": part.data}
