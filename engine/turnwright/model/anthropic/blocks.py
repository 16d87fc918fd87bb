"""One message as content blocks of the Messages API. No I/O.

The API answers 400 to an empty text, to a name or an id with characters other than letters, digits, `_` and `-`, to
trailing whitespace in an assistant's last text, and to changed thinking. This module produces none of them.
"""

from collections.abc import Iterable, Iterator
from typing import Literal, Self

import msgspec

from turnwright.message import FilePart, Message, Role, TextPart, ToolResultPart
from turnwright.model.fit import sendable_name
from turnwright.model.http.attachments import IMAGES, PDF, SOME_IMAGE, in_words, media_type_of
from turnwright.model.http.encoding import join
from turnwright_states import CallStatus

from .block_order import Block, in_order, is_thinking, text_blocks

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
        rest = [block for block in row if not is_thinking(block)]
        content = join(rest)
        side: Side = "assistant" if role == "assistant" else "user"
        if len(rest) == len(row):
            return cls(role, content, content, side)
        return cls(role, content, join(row), side, is_thinking(row[0]))


def encode_blocks(message: Message) -> Blocks:
    """Translate one message, without the parts that a provider does not know: steps, sentinels, foreign reasoning.

    Files of a user's message and of a result stay at their place; a text names a file of a kind that the API rejects.
    """
    if message.role == "tool":
        return Blocks.of("tool", (_result(part) for part in message.parts if isinstance(part, ToolResultPart)))
    if message.role == "assistant":
        return Blocks.of("assistant", in_order(message))
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
