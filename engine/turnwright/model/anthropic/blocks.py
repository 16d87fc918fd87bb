"""One message as content blocks of the Messages API. No I/O.

The API answers 400 to empty texts, to a name or an id with other than letters, digits, `_` and `-`, to an assistant's
last text that ends in a blank, and to thinking that was changed. Nothing of that leaves this module.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, Self

import msgspec
from pydantic import JsonValue

from turnwright.message import FilePart, Message, Role, TextPart, ToolResultPart
from turnwright.model.http.attachments import IMAGES, PDF, SOME_IMAGE, in_words, media_type_of, text_in
from turnwright.model.http.encoding import dump, sendable_name
from turnwright_states import CallStatus

from .block_order import Block, in_order, is_thinking, text_blocks

#: Whose message on the wire something belongs to.
Side = Literal["user", "assistant"]


class Blocks(msgspec.Struct, frozen=True):
    """One message, encoded: its blocks as objects with commas between them, and empty where there is nothing to send.

    `content` is without the thinking, `thought` with it; the same object where there is none. Thinking alone is
    nothing, nor is what stands at the end. `side` is whose message on the wire they belong to; `begins_with_thinking`
    says what `thought` does.
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
        # Refused at the end of a message, and nothing is left there for it to lead to.
        while row and is_thinking(row[-1]):
            row.pop()
        rest = [block for block in row if not is_thinking(block)]
        said = _joined(rest)
        side: Side = "assistant" if role == "assistant" else "user"
        if len(rest) == len(row):
            return cls(role, said, said, side)
        return cls(role, said, _joined(row), side, is_thinking(row[0]))


def encode_blocks(message: Message) -> Blocks:
    """Translate one message. What a provider does not know (steps, sentinels, other providers' reasoning) is left out.

    Files of a user's message and of a result are shown in their place; one of a kind that the API does not take is
    named in words.
    """
    if message.role == "tool":
        return Blocks.of("tool", (_result(part) for part in message.parts if isinstance(part, ToolResultPart)))
    if message.role == "assistant":
        return Blocks.of("assistant", in_order(message))
    return Blocks.of(
        message.role, (block for part in message.parts for block in _said(part, files=message.role == "user"))
    )


def _said(part: object, *, files: bool) -> Iterator[Block]:
    if isinstance(part, TextPart):
        yield from text_blocks(part.text)
    elif isinstance(part, FilePart) and files:
        yield _file(part)


def _result(part: ToolResultPart) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": sendable_name(part.call)}
    failed = part.status is not CallStatus.OK
    # An error without words is refused.
    text = part.text if part.text.strip() or not failed else part.status.value
    if part.files:
        block["content"] = [*text_blocks(text), *map(_file, part.files)]
    elif text.strip():
        block["content"] = text
    if failed:
        block["is_error"] = True
    return block


def _file(part: FilePart) -> Block:
    title: Block = {"title": part.name} if part.name else {}
    source = _source(part)
    if source is not None:
        return {"type": "image", "source": source} if part.is_image else {"type": "document", "source": source, **title}
    text = text_in(part)
    if text:
        # The API knows one name for all kinds of text.
        return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}, **title}
    return {"type": "text", "text": in_words(part)}


def _source(part: FilePart) -> Block | None:
    """Where a picture or a PDF is; None for what is neither, and for an address that the API does not ask."""
    media_type = media_type_of(part)
    if part.url:
        shown = media_type in IMAGES or media_type in {SOME_IMAGE, PDF}
        return {"type": "url", "url": part.url} if shown and part.url.lower().startswith("https://") else None
    if media_type not in IMAGES and media_type != PDF:
        return None
    return {"type": "base64", "media_type": media_type, "data": part.data}


def _joined(blocks: Iterable[Mapping[str, JsonValue]]) -> bytes:
    return b",".join(map(dump, blocks))
