"""Puts replies of Anthropic's API together from the events of a stream."""

from typing import Any, Final

import msgspec
from msgspec import Struct

from .anthropic_blocks import CALLS, Block, Message, Usage

BEGUN: Final = "message_start"
EVENTS: Final = frozenset(
    {BEGUN, "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"}
)


class Delta(Struct):
    """A part of a block, or the end of a reply."""

    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class StreamedReply:
    """A reply in the making.

    `lost` is the number of lines before it that could not be read. It is `damaged` if there was one inside it.
    """

    def __init__(self, begun: Message, lost: int) -> None:
        self.lost = lost
        self.damaged = False
        self._message = begun
        self._blocks: dict[int, Block] = {}
        self._json: dict[int, list[str]] = {}

    def block(self, index: int, block: Block) -> None:
        """Begin a block."""
        self._blocks[index] = block

    def delta(self, index: int, delta: Delta) -> None:
        """Add a part of a block."""
        block = self._blocks.setdefault(index, Block())
        if delta.text is not None:
            block.type, block.text = block.type or "text", (block.text or "") + delta.text
        if delta.thinking is not None:
            block.type, block.thinking = block.type or "thinking", (block.thinking or "") + delta.thinking
        if delta.partial_json is not None:
            self._json.setdefault(index, []).append(delta.partial_json)

    def end(self, delta: Delta, usage: Usage | None) -> None:
        """Take the reason of the end, and the tokens, which count all of the reply."""
        self._message.stop_reason = delta.stop_reason or self._message.stop_reason
        before = self._message.usage or Usage()
        for name in Usage.__struct_fields__ if usage else ():
            if (number := getattr(usage, name)) is not None:
                setattr(before, name, number)
        self._message.usage = before

    def message(self) -> Message:
        """Return the reply, without calls whose arguments may be cut."""
        blocks = []
        for index, block in sorted(self._blocks.items()):
            if block.type in CALLS:
                given = "".join(self._json.get(index, ()))
                arguments = _object(given) if given else block.input
                if self.damaged or arguments is None or (not given and self._message.stop_reason is None):
                    continue
                block.input = arguments
            blocks.append(block)
        self._message.role = "assistant"
        self._message.content = [*blocks]
        return self._message


def _object(text: str) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(text.encode(errors="replace"), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
