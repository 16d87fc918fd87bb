"""A reply of the Messages API, built from its events: parsed JSON in, deltas and a `ModelResponse` out. No I/O.

Any field of an event may be missing, null or of another type; such fields are skipped.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec
from pydantic import JsonValue

from turnwright.model.http.json_text import read_id, read_object, read_text
from turnwright.model.http.reply_builder import Builder, fault_of, finish_of, last_reason, may_be_cut_off, plain_reason
from turnwright.model.http.text_buffer import MAX_ARGUMENTS, MAX_REPLY, check_calls, mend
from turnwright.model.protocol import (
    Delta,
    ModelResponse,
    ReasoningDelta,
    ResponseToolCall,
    TextDelta,
    ToolCallDelta,
)
from turnwright_states import Cause, Usage

from .block_builder import OTHER, TOOL, BlockBuilder
from .blocks import CALL, THINKING, answered_by, hosted_id, is_thinking, order_of, text_blocks

_PAUSED: Final = "pause_turn"
# The most pauses of one reply. The provider pauses after about ten uses of its tools.
_MOST_PAUSES: Final = 10
# The events whose usage and stop reason are those of the reply. The documentation defines no counts for others.
_REPLY_EVENTS: Final = frozenset({"message_start", "message", "message_delta", "message_stop"})

_CACHED: Final = ("cache_read_input_tokens", "cache_creation_input_tokens")
# Together the tokens of the whole prompt.
_PROMPT: Final = ("input_tokens", *_CACHED)


class FastDelta(msgspec.Struct, gc=False):
    """The piece of an event, in the field that its type names."""

    type: Literal["text_delta", "thinking_delta", "input_json_delta"]
    text: str = ""
    thinking: str = ""
    partial_json: str = ""


class QuickEvent(msgspec.Struct, gc=False):
    """The most common event: a `content_block_delta` without an error in it.

    The plain path reads an event as JSON of any shape, in 110 function calls and 12 us; a long reply has thousands of
    events. This decodes the relevant fields in 18 calls and 2 us. Every other field that the plain path reads must be
    null, so any other event takes the plain path. A test compares both.
    """

    type: Literal["content_block_delta"]
    index: int
    delta: FastDelta
    error: None = None
    object: None = None


#: Decodes a quick event. Raises one of `turnwright.model.http.reply_stream.NOT_QUICK` for any other event.
read_event: Final = msgspec.json.Decoder(QuickEvent).decode


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
        self._blocks: list[BlockBuilder] = []
        self._by_index: dict[float | str, BlockBuilder] = {}
        #: The blocks of other kinds that have begun, by index, kind and id.
        self._other_keys: set[tuple[str, str, str]] = set()
        self._last: BlockBuilder | None = None
        #: Whether arguments came for which there was no open call.
        self._has_lost_arguments = False
        self._calls = 0
        #: The number of calls whose deltas were returned.
        self._delta_count = 0
        self._stop_reason = ""
        #: The responses that paused, and their usage.
        self._pauses = 0
        self._spent: Usage | None = None
        #: Whether `message_stop` has come.
        self.stopped = False

    def add(self, event: Mapping[str, JsonValue]) -> list[Delta]:
        """Take one event, or a whole `message`: see `Builder`."""
        kind, message, delta = event.get("type"), read_object(event.get("message")), read_object(event.get("delta"))
        if isinstance(kind, str) and kind in _REPLY_EVENTS:
            for source in (message, delta, event):
                usage = read_object(source.get("usage"))
                for name in ("output_tokens", *_PROMPT):
                    self._note_count(name, usage.get(name))
                details = read_object(usage.get("output_tokens_details"))
                self._note_count("reasoning_tokens", details.get("thinking_tokens"))
                cache_creation = read_object(usage.get("cache_creation"))
                self._note_count("cache_creation_1h_input_tokens", cache_creation.get("ephemeral_1h_input_tokens"))
                stop_reason = read_text(source.get("stop_reason"))
                self._meter.reserve(len(stop_reason))
                self._stop_reason = last_reason(self._stop_reason, mend(stop_reason))
        match kind:
            case "message_start" | "message":
                self._note_names(message or event)
                return self._take_content((message or event).get("content"), whole=kind == "message")
            case "content_block_start":
                return self._start(event.get("index"), read_object(event.get("content_block")))
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
        """Take the data of a delta that continues its block: see `Builder`."""
        event = read_event(data)
        block, delta = self._by_index.get(event.index), event.delta
        if block is None or block.kind == OTHER or (block.kind == TOOL) is not (delta.type == "input_json_delta"):
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

    @property
    def broken(self) -> Cause | None:
        """See `Builder.broken`."""
        return fault_of(self._stop_reason)

    @property
    def hosted_blocks(self) -> list[Mapping[str, JsonValue] | None]:
        """The calls and results of the provider's tools, in order; None for a call whose input is incomplete."""
        return [block.hosted() for block in self._blocks if block.kind == OTHER]

    def reply(self) -> ModelResponse:
        """Give the reply as far as it has come."""
        reason = self._stop_reason or (_PAUSED if self._pauses else "")
        row: list[str | int] = []
        hosted_blocks = self._list_hosted()
        details = [[*block.details(), *hosted_blocks.get(id(block), ())] for block in self._blocks]
        for block, block_details in zip(self._blocks, details, strict=True):
            row += [THINKING for _ in block_details]
            row += [len(str(block.text)), *([CALL] if block.is_call else ())]
        return ModelResponse(
            text="".join(str(block.text) for block in self._blocks),
            reasoning="".join(str(block.thinking) for block in self._blocks),
            reasoning_details=(*(detail for block_details in details for detail in block_details), *order_of(row)),
            calls=tuple(self._build_calls(reason)),
            finish=finish_of(reason),
            usage=self._usage(),
            finish_reason=reason or None,
            response=self._info(),
        )

    def resume(self) -> list[JsonValue]:
        """Continue a paused reply with the next response. Returns the content to send; empty if the reply ends here.

        Only the tools of the provider pause. With a call of ours the reply ends, because its result comes first.
        """
        content = [*self._content()]
        if self._stop_reason != _PAUSED or self._pauses == _MOST_PAUSES or any(block.is_call for block in self._blocks):
            return []
        if content:
            self._pauses += 1
            self._spent = self._usage()
            self._counts.clear()
            self._by_index.clear()
            self._other_keys.clear()
            self._last = None
            self._stop_reason = ""
            self.stopped = False
        return content

    def _build_calls(self, reason: str) -> Iterator[ResponseToolCall]:
        """Return the calls of our tools."""
        blocks = [block for block in self._blocks if block.is_call]
        incomplete = [
            block
            for block in blocks
            if block.lacks_arguments and (self._has_lost_arguments or block.was_open_at_guess or not block.stopped)
        ]
        guessed_blocks = [block for block in blocks if block.guessed]
        # Nobody knows which of these have which arguments.
        unsure = (
            {id(block) for block in (*incomplete, *guessed_blocks)}
            if self._has_lost_arguments or (incomplete and guessed_blocks)
            else set()
        )
        # Without a reason, an open block shows that the reply broke off. A proxy may have closed it, and the stream.
        last = self._last
        is_broken = not reason and last is not None and (not last.stopped or (self.stopped and last.lacks_arguments))
        cut_off = is_broken or may_be_cut_off(reason)
        # A pause comes between two blocks.
        last = None if plain_reason(reason) == _PAUSED else last
        for block in blocks:
            call = block.call(cut_off=cut_off, last=block is last)
            yield call.without_arguments() if id(block) in unsure else call

    def _content(self) -> list[JsonValue]:
        """Return the blocks as they came. The API rejects thinking and blanks at their end."""
        row: list[Mapping[str, JsonValue]] = []
        for block in self._blocks:
            text, hosted_block = str(block.text), block.hosted()
            row += [*block.details(), *([hosted_block] if hosted_block else ()), *text_blocks(text)]
        while row and is_thinking(row[-1]):
            row.pop()
        if row and row[-1]["type"] == "text":
            row[-1] = {"type": "text", "text": str(row[-1]["text"]).rstrip()}
        return [dict(block) for block in row]

    def _usage(self) -> Usage | None:
        usage = super()._usage()
        return self._spent + usage if self._spent and usage else usage or self._spent

    def _usage_of(self, read_tokens: int, written_tokens: int) -> Usage:
        return super()._usage_of(read_tokens + sum(self._counts.get(name, 0) for name in _CACHED), written_tokens)

    def _list_hosted(self) -> dict[int, list[Mapping[str, JsonValue]]]:
        """Return the calls and results of the provider's tools, by block. A call without its result is left out.

        The API rejects it when it is sent back.
        """
        hosted_blocks = [(id(block), block.hosted()) for block in self._blocks if block.kind == OTHER]
        uses = {hosted_id(content) for _, content in hosted_blocks if content}
        results = {answered_by(content) for _, content in hosted_blocks if content}
        pairs = (uses & results) - {""}
        return {
            place: [content]
            for place, content in hosted_blocks
            if content and {hosted_id(content), answered_by(content)} & pairs
        }

    def _take_content(self, content: JsonValue, *, whole: bool) -> list[Delta]:
        """Take the blocks of a message, unless it repeats those that have come. In a whole message all have ended."""
        if any(block.kind != OTHER for block in self._blocks):
            return []
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        parts = content if isinstance(content, list) else []
        deltas = [delta for index, part in enumerate(parts) for delta in self._start(index, read_object(part))]
        for block in self._blocks:
            block.stopped = block.stopped or whole
        return deltas

    def _start(self, index: JsonValue, content: Mapping[str, JsonValue]) -> list[Delta]:
        """Begin a block, even if another one is open at its index."""
        block = self._at(index)
        if block is None or not block.repeated_by(content):
            block = self._open(index, read_text(content.get("type")))
        if block.kind == OTHER:
            # Work on the provider's side counts once, however often its block begins.
            block_key = str(index), read_text(content.get("type")), read_id(content.get("id"))
            if block_key not in self._other_keys:
                self._other_keys.add(block_key)
                self._meter.take(sum(map(len, block_key)))
                if block.keep(content):
                    self._blocks.append(block)
            return []
        had_name = block.name
        return [*block.add(content), *([self._delta(block)] if block.name and not had_name else ())]

    def _go_on(self, index: JsonValue, delta: Mapping[str, JsonValue]) -> list[Delta]:
        """Add a delta to the block of its index, which may never have begun."""
        block = self._at(index)
        arguments = _arguments(delta)
        if block is not None and block.kind == OTHER:
            if arguments or not block.stopped:
                block.go_on(arguments)
                return []
            # A delta behind a stopped block belongs to another one.
            block = None
        deltas = self._add_arguments(block, arguments) if arguments else []
        fields = {
            "text": _read_field(delta, "text_delta", "text"),
            "thinking": _read_field(delta, "thinking_delta", "thinking"),
            "signature": _read_field(delta, "signature_delta", "signature"),
        }
        if not any(fields.values()):
            return deltas
        return [*deltas, *(block or self._open(index, "")).add(fields)]

    def _add_arguments(self, block: "BlockBuilder | None", piece: str) -> list[Delta]:
        """Add to the arguments of a block. If it is not a call, they may belong to the open call that began last.

        Without an open call they are dropped; they may belong to a tool of the provider, or to a call that has ended.
        """
        if block is None or block.kind != TOOL:
            block = self._last
            if block is None or block.stopped or block.kind != TOOL:
                self._has_lost_arguments = True
                return []
            block.guessed = True
            for candidate in self._blocks:
                candidate.was_open_at_guess = candidate.was_open_at_guess or not candidate.stopped
        return self._add_to(block, piece)

    def _add_to(self, block: "BlockBuilder", piece: str) -> list[Delta]:
        readable = block.add_arguments(piece)
        return [self._delta(block, readable)] if readable else []

    def _delta(self, block: "BlockBuilder", piece: str = "") -> ToolCallDelta:
        if block.number is None:
            block.number = self._delta_count
            self._delta_count += 1
        return ToolCallDelta(block.number, block.name, piece)

    def _at(self, index: JsonValue) -> "BlockBuilder | None":
        """Return the block of an index; without an index, the block that began last."""
        return self._by_index.get(index) if isinstance(index, int | float | str) else self._last

    def _open(self, index: JsonValue, kind: str) -> "BlockBuilder":
        if kind == TOOL:
            self._calls += 1
            check_calls(self._calls)
        self._note_first()
        block = BlockBuilder(kind, self._meter, self._max_arguments)
        if block.kind != OTHER:
            self._blocks.append(block)
        if isinstance(index, int | float | str):
            self._meter.reserve(len(str(index)))
            self._by_index[index] = block
        self._last = block
        return block


def _read_field(delta: Mapping[str, JsonValue], kind: str, field: str) -> JsonValue:
    """Return the field of a delta of this kind. A delta without a type has the kind of its field."""
    return delta.get(field) if (delta.get("type") or kind) == kind else None


def _arguments(delta: Mapping[str, JsonValue]) -> str:
    piece = _read_field(delta, "input_json_delta", "partial_json")
    # An object instead of a text is complete.
    return json.dumps(piece, ensure_ascii=False) if isinstance(piece, dict) and piece else read_text(piece)
