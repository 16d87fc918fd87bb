"""Puts replies of OpenAI's chat completions together from the chunks of a stream."""

from typing import Final

import msgspec
from msgspec import Struct

from .chat_messages import Function, Message, ToolCall, Usage

CHUNK: Final = "chat.completion.chunk"


class DeltaCall(Struct):
    """A part of a call."""

    index: int = 0
    id: str | None = None
    function: Function | None = None


class Delta(Struct):
    """A part of a reply."""

    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[DeltaCall] | None = None


class StreamedReply:
    """A reply in the making. `stop` is why it ended, None before.

    `lost` is the number of lines before it that could not be read. It is `damaged` if there was one inside it.
    """

    def __init__(self, own: str | None, model: str | None, lost: int) -> None:
        self.own = own
        self.model = model
        self.usage: Usage | None = None
        self.stop: str | None = None
        self.lost = lost
        self.damaged = False
        self._texts: dict[str, list[str]] = {"content": [], "refusal": [], "reasoning_content": []}
        self._calls: dict[int, ToolCall] = {}
        self._arguments: dict[int, list[str]] = {}

    def add(self, delta: Delta) -> None:
        """Add a part."""
        for name, parts in self._texts.items():
            parts.append(getattr(delta, name) or "")
        for part in delta.tool_calls or ():
            call = self._calls.setdefault(part.index, ToolCall())
            call.id = call.id or part.id
            given = part.function or Function()
            call.name = call.name or given.name
            self._arguments.setdefault(part.index, []).append(
                given.arguments if isinstance(given.arguments, str) else ""
            )

    def message(self) -> Message:
        """Return the reply. A call whose arguments may be cut has no name, so that it counts as unreadable."""
        text, refusal, reasoning = ("".join(parts) or None for parts in self._texts.values())
        for index, call in self._calls.items():
            call.arguments = "".join(self._arguments[index])
            if self.damaged or (self.stop is None and not _is_object(call.arguments)):
                call.name = ""
        calls = list(self._calls.values())
        return Message(
            role="assistant", content=text, refusal=refusal, reasoning_content=reasoning, tool_calls=calls or None
        )


def _is_object(text: str) -> bool:
    try:
        msgspec.json.decode(text.encode(errors="replace"), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
