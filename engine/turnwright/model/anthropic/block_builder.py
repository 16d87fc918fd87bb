"""One block of a reply of the Messages API, built from the JSON of its events. No I/O."""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import JsonValue

from turnwright.model.http.json_text import copy_object, read_id, read_text, whole_object
from turnwright.model.http.text_buffer import Meter, Pieces, check_arguments, mend
from turnwright.model.protocol import Delta, ReasoningDelta, ResponseToolCall, TextDelta

from .blocks import answered_by, hosted_id

# The memory of a block without its texts, counted as characters.
_BLOCK_SIZE: Final = 1024

TOOL: Final = "tool_use"
# The blocks that are read; a block without a type may be any of the first three. Others belong to the provider: tools
# that run on its side, their results, compaction.
_OURS: Final = frozenset({"", "text", "thinking", "redacted_thinking", TOOL})
OTHER: Final = "other"


class BlockBuilder:
    """Builds one block of a reply: a text, thinking, a call of ours, or a block of the provider's tools."""

    def __init__(self, kind: str, meter: Meter, max_arguments: int) -> None:
        self.kind = kind if kind in _OURS else OTHER
        meter.reserve(_BLOCK_SIZE)  # to open a block adds nothing yet
        self.stopped = False
        #: Whether arguments came here because no call was open at their index.
        self.guessed = False
        #: Whether it was open when arguments came that no open call had the index of: they may be this one's.
        self.was_open_at_guess = False
        #: The call's number among those whose deltas were returned; None before its first delta.
        self.number: int | None = None
        self.name = ""
        self.text = Pieces(meter)
        self.thinking = Pieces(meter)
        self._meter = meter
        self._max_arguments = max_arguments
        self._signature = Pieces(meter)
        self._redacted: Mapping[str, JsonValue] | None = None
        #: A call or a result of the provider's tools.
        self._hosted_block: dict[str, JsonValue] | None = None
        self._id = ""
        self._arguments = Pieces(meter)
        self._input = ""

    def add(self, content: Mapping[str, JsonValue]) -> list[Delta]:
        """Take what the block began with, or the text, thinking and signature of a delta."""
        if self.kind == TOOL:
            self._add_call(content)
        if self.kind == "redacted_thinking" and content.get("data"):
            self._redacted = copy_object(content, self._meter.take)
        signature = read_text(content.get("signature"))
        # Some proxies send the whole signature with the block, and again behind its text.
        if len(signature) != len(self._signature) or signature != str(self._signature):
            self._signature.add(signature)
        reasoning = self.thinking.add(read_text(content.get("thinking")))
        text = self.text.add(read_text(content.get("text")))
        return [*([ReasoningDelta(reasoning)] if reasoning else ()), *([TextDelta(text)] if text else ())]

    def add_arguments(self, piece: str) -> str:
        """Take a piece of the arguments. They count instead of the input that the block began with.

        Returns the new readable part.
        """
        check_arguments(len(self._arguments) + len(piece), self._max_arguments)
        return self._arguments.add(piece)

    def keep(self, content: Mapping[str, JsonValue]) -> bool:
        """Keep a block of the provider's tools. Returns whether it is one."""
        if hosted_id(content) or answered_by(content):
            self._hosted_block = copy_object(content, self._meter.reserve)
        return self._hosted_block is not None

    def go_on(self, piece: str) -> None:
        """Add to the arguments of a call of the provider's tools."""
        if piece and self._hosted_block is not None and not self.stopped:
            check_arguments(len(self._arguments) + len(piece), self._max_arguments)
            before = self._meter.progress
            self._arguments.add(piece)
            # It is not progress of the reply.
            self._meter.progress = before

    def hosted(self) -> Mapping[str, JsonValue] | None:
        """Return the block of the provider's tools, with the arguments that came after its beginning."""
        if self._hosted_block is None or not len(self._arguments):
            return self._hosted_block
        arguments = whole_object(str(self._arguments))
        return None if arguments is None else {**self._hosted_block, "input": arguments}

    def repeated_by(self, content: Mapping[str, JsonValue]) -> bool:
        """Whether a block that begins here repeats this one: the same call, without arguments so far."""
        return (
            self.kind == TOOL == content.get("type")
            and not self.stopped
            and not len(self._arguments)
            and bool(self._id)
            and self._id == read_id(content.get("id"))
        )

    @property
    def lacks_arguments(self) -> bool:
        """Whether no arguments of the call have come."""
        return not (self._input or str(self._arguments).strip())

    @property
    def is_call(self) -> bool:
        """Whether the block calls one of our tools. A block that was only opened calls none."""
        return self.kind == TOOL and bool(self._id or self.name or self._input or len(self._arguments))

    def call(self, *, cut_off: bool, last: bool) -> ResponseToolCall:
        """Return the call. `cut_off`: the reply was; `last`: no other block began after this one.

        Blank arguments count as no arguments. The API also stops the block that the limit cut off, and a client before
        it may have completed the input of that block, so only the text of arguments shows whether they are complete.
        """
        raw = str(self._arguments)
        has_arguments = bool(raw.strip())
        raw = raw if has_arguments else self._input
        is_closed = self.stopped and not last
        if cut_off and not has_arguments and is_closed:
            raw = raw or "{}"
        call = ResponseToolCall(name=self.name, arguments=whole_object(raw), raw=raw, id=self._id)
        return call.without_arguments() if cut_off and not (has_arguments or is_closed) else call

    def details(self) -> Iterator[Mapping[str, JsonValue]]:
        """Return the signed or encrypted reasoning, which must be sent back unchanged."""
        if self._redacted:
            yield self._redacted
        # Hidden thinking is empty; its signature represents it.
        if len(self._signature) and (self.kind == "thinking" or len(self.thinking)):
            yield {"type": "thinking", "thinking": str(self.thinking), "signature": str(self._signature)}

    def _add_call(self, content: Mapping[str, JsonValue]) -> None:
        input_ = content.get("input")
        if not self._id:
            self._id = read_id(content.get("id"))
            self._meter.take(len(self._id))
        if not self.name:
            self.name = mend(read_text(content.get("name")))
            self._meter.take(len(self.name))
        if input_ and not self._input:
            raw = input_ if isinstance(input_, str) else json.dumps(input_, ensure_ascii=False)
            check_arguments(len(raw), self._max_arguments)
            self._meter.take(len(raw))
            self._input = mend(raw)
