"""A reply of the Messages API, built from its events: parsed JSON in, deltas and a `ModelResponse` out. No I/O.

Any field of an event may be missing, null or of another type; such fields are skipped.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import JsonValue

from turnwright.model.http.json_text import read_id, whole_object
from turnwright.model.http.reply_builder import FINISHES, Builder, plain_reason
from turnwright.model.http.text_buffer import MAX_ARGUMENTS, MAX_CALLS, MAX_REPLY, Meter, Pieces, TooLargeError, mend
from turnwright.model.protocol import (
    Delta,
    ModelResponse,
    ReasoningDelta,
    ResponseToolCall,
    TextDelta,
    ToolCallDelta,
)
from turnwright_states import Finish, Usage

from .block_order import CALL, THINKING, answered_by, hosted_id, order_of
from .fast_events import read_event

# The memory of a block without its texts, counted as characters.
_BLOCK_SIZE: Final = 1024

_TOOL: Final = "tool_use"
# The blocks that are read; a block without a type may be any of the first three. Others belong to the provider: tools
# that run on its side, their results, compaction.
_OURS: Final = frozenset({"", "text", "thinking", "redacted_thinking", _TOOL})
_OTHER: Final = "other"
# The events whose usage and stop reason are those of the reply. The documentation defines no counts for others.
_TELLING: Final = frozenset({"message_start", "message", "message_delta", "message_stop"})

_CACHED: Final = ("cache_read_input_tokens", "cache_creation_input_tokens")
# Together the tokens of the whole prompt.
_PROMPT: Final = ("input_tokens", *_CACHED)


class MessageBuilder(Builder):
    """Builds one reply from its events, in their order.

    Blocks may be interleaved; the reply has them in the order in which they began. The first block is the first part
    of the reply.

    The provider counts tokens that were read from a prompt cache, or written to one, apart from its `input_tokens`. The
    usage of the reply includes both.
    Source: "Streaming Messages" and "Prompt caching" of Anthropic's documentation.
    """

    def __init__(self, *, max_reply: int = MAX_REPLY, max_arguments: int = MAX_ARGUMENTS) -> None:
        super().__init__(max_reply=max_reply, max_arguments=max_arguments)
        self._blocks: list[_BlockBuilder] = []
        self._by_index: dict[float | str, _BlockBuilder] = {}
        #: The blocks of other kinds that have begun, by index, kind and id.
        self._others: set[tuple[str, str, str]] = set()
        self._last: _BlockBuilder | None = None
        self._calls = 0
        #: The number of calls whose deltas were returned.
        self._shown = 0
        self._stop_reason = ""
        #: Whether `message_stop` has come.
        self.stopped = False

    def add(self, event: Mapping[str, JsonValue]) -> list[Delta]:
        """Take one event, or a whole `message`: see `Builder`."""
        kind, message, delta = event.get("type"), _dict(event.get("message")), _dict(event.get("delta"))
        if isinstance(kind, str) and kind in _TELLING:
            for source in (message, delta, event):
                usage = _dict(source.get("usage"))
                for name in ("output_tokens", *_PROMPT):
                    self._note_count(name, usage.get(name))
                details = _dict(usage.get("output_tokens_details"))
                self._note_count("reasoning_tokens", details.get("thinking_tokens"))
                created = _dict(usage.get("cache_creation"))
                self._note_count("cache_creation_1h_input_tokens", created.get("ephemeral_1h_input_tokens"))
                stop_reason = _text(source.get("stop_reason"))
                self._meter.reserve(len(stop_reason))
                self._stop_reason = mend(stop_reason) or self._stop_reason
        match kind:
            case "message_start" | "message":
                self._note_names(message or event)
                return self._take_content((message or event).get("content"))
            case "content_block_start":
                return self._start(event.get("index"), _dict(event.get("content_block")))
            case "content_block_delta":
                return self._go_on(event.get("index"), delta)
            case "content_block_stop":
                block = self._at(event.get("index"))
                if block is not None:
                    block.stopped = True
            case "message_stop":
                self.stopped = True
            case _:
                pass
        return []

    def add_quickly(self, data: bytes, deltas: list[Delta]) -> bool:
        """Take the data of a delta that goes on with its block: see `Builder`."""
        event = read_event(data)
        block, delta = self._by_index.get(event.index), event.delta
        if block is None or block.kind == _OTHER or (block.kind == _TOOL) is not (delta.type == "input_json_delta"):
            return False
        if delta.type == "text_delta":
            if delta.text:
                deltas.append(TextDelta(block.text.add_mended(delta.text)))
        elif delta.type == "thinking_delta":
            if delta.thinking:
                deltas.append(ReasoningDelta(block.thinking.add_mended(delta.thinking)))
        elif delta.partial_json:
            deltas += self._add_to(block, delta.partial_json)
        return True

    @property
    def finished(self) -> bool:
        """Whether a stop reason has come."""
        return bool(self._stop_reason)

    def reply(self) -> ModelResponse:
        """Give the reply as far as it has come."""
        row: list[str | int] = []
        hosted = self._hosted()
        details = [[*block.details(), *hosted.get(id(block), ())] for block in self._blocks]
        for block, kept in zip(self._blocks, details, strict=True):
            row += [THINKING for _ in kept]
            row += [len(str(block.text)), *([CALL] if block.is_call else ())]
        return ModelResponse(
            text="".join(str(block.text) for block in self._blocks),
            reasoning="".join(str(block.thinking) for block in self._blocks),
            reasoning_details=(*(detail for kept in details for detail in kept), *order_of(row)),
            calls=tuple(block.call() for block in self._blocks if block.is_call),
            finish=FINISHES.get(plain_reason(self._stop_reason), Finish.STOP),
            usage=self._usage(),
            finish_reason=self._stop_reason or None,
            response=self._info(),
        )

    def _usage_of(self, read: int, written: int) -> Usage:
        return super()._usage_of(read + sum(self._counts.get(name, 0) for name in _CACHED), written)

    def _hosted(self) -> dict[int, list[Mapping[str, JsonValue]]]:
        """Return the calls and results of the provider's tools, by block. A call without its result is left out.

        The API rejects it when it is sent back.
        """
        found = [(id(block), block.hosted()) for block in self._blocks if block.kind == _OTHER]
        uses = {hosted_id(one) for _, one in found if one}
        results = {answered_by(one) for _, one in found if one}
        pairs = (uses & results) - {""}
        return {place: [one] for place, one in found if one and {hosted_id(one), answered_by(one)} & pairs}

    def _take_content(self, content: JsonValue) -> list[Delta]:
        """Take the blocks of a message, unless it repeats those that have come."""
        if any(block.kind != _OTHER for block in self._blocks):
            return []
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        blocks = content if isinstance(content, list) else []
        return [delta for index, block in enumerate(blocks) for delta in self._start(index, _dict(block))]

    def _start(self, index: JsonValue, content: Mapping[str, JsonValue]) -> list[Delta]:
        """Begin a block, even if another one is open at its index."""
        block = self._at(index)
        if block is None or not block.repeated_by(content):
            kind = content.get("type")
            block = self._open(index, kind if isinstance(kind, str) else "")
        if block.kind == _OTHER:
            # Work on the provider's side counts once, however often its block begins.
            other = str(index), _text(content.get("type")), read_id(content.get("id"))
            if other not in self._others:
                self._others.add(other)
                self._meter.take(sum(map(len, other)))
                if block.keep(content):
                    self._blocks.append(block)
            return []
        named = block.name
        return [*block.add(content), *([self._delta(block)] if block.name and not named else ())]

    def _go_on(self, index: JsonValue, delta: Mapping[str, JsonValue]) -> list[Delta]:
        """Add a delta to the block of its index, which may never have begun."""
        block = self._at(index)
        arguments = _arguments(delta)
        if block is not None and block.kind == _OTHER:
            if arguments or not block.stopped:
                block.go_on(arguments)
                return []
            # A delta behind a stopped block belongs to another one.
            block = None
        deltas = self._add_arguments(block, arguments) if arguments else []
        known = {
            "text": _named(delta, "text_delta", "text"),
            "thinking": _named(delta, "thinking_delta", "thinking"),
            "signature": _named(delta, "signature_delta", "signature"),
        }
        if not any(known.values()):
            return deltas
        return [*deltas, *(block or self._open(index, "")).add(known)]

    def _add_arguments(self, block: "_BlockBuilder | None", piece: str) -> list[Delta]:
        """Add to the arguments of a block. If the block is no call, they may belong to the open call that began last.

        Without an open call they are dropped; they may belong to a tool of the provider.
        """
        if block is None or block.kind != _TOOL:
            block = None if self._last is None or self._last.stopped else self._last
        return self._add_to(block, piece) if block is not None and block.kind == _TOOL else []

    def _add_to(self, block: "_BlockBuilder", piece: str) -> list[Delta]:
        readable = block.add_arguments(piece)
        return [self._delta(block, readable)] if readable else []

    def _delta(self, block: "_BlockBuilder", piece: str = "") -> ToolCallDelta:
        if block.number is None:
            block.number = self._shown
            self._shown += 1
        return ToolCallDelta(block.number, block.name, piece)

    def _at(self, index: JsonValue) -> "_BlockBuilder | None":
        """Return the block of an index; without an index, the block that began last."""
        return self._by_index.get(index) if isinstance(index, int | float | str) else self._last

    def _open(self, index: JsonValue, kind: str) -> "_BlockBuilder":
        if kind == _TOOL:
            self._calls += 1
            if self._calls > MAX_CALLS:
                raise TooLargeError(f"the reply asks for more than {MAX_CALLS:,} calls")
        self._note_first()
        block = _BlockBuilder(kind, self._meter, self._max_arguments)
        if block.kind != _OTHER:
            self._blocks.append(block)
        if isinstance(index, int | float | str):
            self._meter.reserve(len(str(index)))
            self._by_index[index] = block
        self._last = block
        return block


class _BlockBuilder:
    def __init__(self, kind: str, meter: Meter, max_arguments: int) -> None:
        self.kind = kind if kind in _OURS else _OTHER
        meter.reserve(_BLOCK_SIZE)  # to open a block adds nothing yet
        self.stopped = False
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
        self._kept: dict[str, JsonValue] | None = None
        self._id = ""
        self._arguments = Pieces(meter)
        self._input = ""

    def add(self, content: Mapping[str, JsonValue]) -> list[Delta]:
        """Take what the block began with, or the text, thinking and signature of a delta."""
        if self.kind == _TOOL:
            self._add_call(content)
        if self.kind == "redacted_thinking" and content.get("data"):
            raw = json.dumps(content, ensure_ascii=False)
            self._meter.take(len(raw))
            self._redacted = whole_object(mend(raw))
        self._signature.add(_text(content.get("signature")))
        reasoning = self.thinking.add(_text(content.get("thinking")))
        text = self.text.add(_text(content.get("text")))
        return [*([ReasoningDelta(reasoning)] if reasoning else ()), *([TextDelta(text)] if text else ())]

    def add_arguments(self, piece: str) -> str:
        """Take a piece of the arguments. They count instead of the input that the block began with.

        Returns the new readable part.
        """
        self._check(len(self._arguments) + len(piece))
        return self._arguments.add(piece)

    def keep(self, content: Mapping[str, JsonValue]) -> bool:
        """Keep a block of the provider's tools. Returns whether it is one."""
        if hosted_id(content) or answered_by(content):
            raw = json.dumps(content, ensure_ascii=False)
            self._meter.reserve(len(raw))
            self._kept = whole_object(mend(raw))
        return self._kept is not None

    def go_on(self, piece: str) -> None:
        """Add to the arguments of a call of the provider's tools."""
        if piece and self._kept is not None and not self.stopped:
            self._check(len(self._arguments) + len(piece))
            before = self._meter.progress
            self._arguments.add(piece)
            # It is no progress of the reply.
            self._meter.progress = before

    def hosted(self) -> Mapping[str, JsonValue] | None:
        """Return the block of the provider's tools, with the arguments that came after its beginning."""
        if self._kept is None or not len(self._arguments):
            return self._kept
        arguments = whole_object(str(self._arguments))
        return None if arguments is None else {**self._kept, "input": arguments}

    def repeated_by(self, content: Mapping[str, JsonValue]) -> bool:
        """Whether a block that begins here repeats this one: the same call, without arguments so far."""
        return (
            self.kind == _TOOL == content.get("type")
            and not self.stopped
            and not len(self._arguments)
            and bool(self._id)
            and self._id == read_id(content.get("id"))
        )

    @property
    def is_call(self) -> bool:
        """Whether the block calls one of our tools. A block that was only opened calls none."""
        return self.kind == _TOOL and bool(self._id or self.name or self._input or len(self._arguments))

    def call(self) -> ResponseToolCall:
        """Return the call. Blank arguments count as no arguments."""
        raw = str(self._arguments)
        raw = raw if raw.strip() else self._input
        return ResponseToolCall(name=self.name, arguments=whole_object(raw), raw=raw, id=self._id)

    def details(self) -> Iterator[Mapping[str, JsonValue]]:
        """Return the signed or encrypted reasoning, which must be sent back unchanged."""
        if self._redacted:
            yield self._redacted
        # Hidden thinking is empty; its signature represents it.
        if len(self._signature) and (self.kind == "thinking" or len(self.thinking)):
            yield {"type": "thinking", "thinking": str(self.thinking), "signature": str(self._signature)}

    def _add_call(self, content: Mapping[str, JsonValue]) -> None:
        given = content.get("input")
        if not self._id:
            self._id = read_id(content.get("id"))
            self._meter.take(len(self._id))
        if not self.name:
            self.name = mend(_text(content.get("name")))
            self._meter.take(len(self.name))
        if given and not self._input:
            raw = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
            self._check(len(raw))
            self._meter.take(len(raw))
            self._input = mend(raw)

    def _check(self, length: int) -> None:
        if length > self._max_arguments:
            raise TooLargeError(f"the arguments of a call are longer than {self._max_arguments:,} characters")


def _named(delta: Mapping[str, JsonValue], kind: str, field: str) -> JsonValue:
    """Return the field of a delta of this kind. A delta without a type has the kind of its field."""
    return delta.get(field) if (delta.get("type") or kind) == kind else None


def _arguments(delta: Mapping[str, JsonValue]) -> str:
    piece = _named(delta, "input_json_delta", "partial_json")
    # An object instead of a text is complete.
    return json.dumps(piece, ensure_ascii=False) if isinstance(piece, dict) and piece else _text(piece)


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _dict(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, dict) else {}
