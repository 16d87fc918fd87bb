"""Build the reply of a chat completion: parsed chunks in, deltas and a `ModelResponse` out. No I/O.

Any field of a chunk may be missing, null or of another type; such fields are skipped.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, cast

import msgspec
from pydantic import JsonValue

from turnwright.model.http.json_text import read_count, read_index, read_object, read_objects, read_text
from turnwright.model.http.reply_builder import Builder, fault_of, finish_of, last_reason, may_be_cut_off
from turnwright.model.http.text_buffer import MAX_ARGUMENTS, MAX_REPLY, Meter, Pieces, mend
from turnwright.model.protocol import Delta, ModelResponse, ReasoningDelta, TextDelta
from turnwright_states import Cause, Usage

from .call_deltas import CallAssembler, Nothing, QuickCall
from .reasoning_details import Details

# The memory of a choice without its texts, counted as characters.
_CHOICE_SIZE: Final = 1024

_COUNTS: Final = {
    "input_tokens": ("prompt_tokens", "input_tokens"),
    "output_tokens": ("completion_tokens", "output_tokens"),
    "total_tokens": ("total_tokens",),
    # DeepSeek, and Moonshot, beside the details.
    "cache_read_input_tokens": ("prompt_cache_hit_tokens", "cached_tokens"),
}
# Parts of the input and the output tokens: the fields with details, and in them the names of the counts.
_CACHED: Final = {"cache_read_input_tokens": "cached_tokens", "cache_creation_input_tokens": "cache_write_tokens"}
_REASONING: Final = {"reasoning_tokens": "reasoning_tokens"}
_DETAILS: Final = {
    "prompt_tokens_details": _CACHED,
    "input_tokens_details": _CACHED,
    "completion_tokens_details": _REASONING,
    "output_tokens_details": _REASONING,
}

# Some servers send these words instead of null while the reply continues.
_NOT_FINISHED: Final = frozenset({"null", "none"})


class FastChoiceDelta(msgspec.Struct, gc=False):
    """The piece in a chunk."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[QuickCall] | None = None
    function_call: None = None
    refusal: Nothing = None
    reasoning_details: tuple[()] | None = None
    reasoning_text: Nothing = None
    thinking: Nothing = None
    thinking_blocks: tuple[()] | None = None


class QuickChoice(msgspec.Struct, gc=False):
    """The choice with index 0, continued."""

    delta: FastChoiceDelta
    index: Literal[0] | None = 0
    finish_reason: Nothing = None
    message: None = None
    usage: None = None
    error: None = None
    object: None = None
    type: None = None


class QuickChunk(msgspec.Struct, gc=False):
    """The most common chunk: it continues one choice, without any error. Some providers send the usage with each.

    The plain path reads a chunk as JSON of any shape, with every field that some provider uses, in 160 function calls
    and 20 us; a long reply has thousands of chunks. This decodes the relevant fields in 20 calls and 2.5 us. Every
    other field that the plain path reads must be null, so any other chunk takes the plain path. A test compares both.
    """

    choices: tuple[QuickChoice]
    usage: dict[str, object] | None = None
    kind: Literal["chat.completion.chunk", "chat.completion", ""] | None = msgspec.field(name="object", default=None)
    type: None = None
    error: None = None
    x_groq: None = None
    base_resp: None = None


#: Decodes a quick chunk. Raises one of `turnwright.model.http.reply_stream.NOT_QUICK` for any other chunk.
read_chunk: Final = msgspec.json.Decoder(QuickChunk).decode


class ReplyBuilder(Builder):
    """Builds one reply from its chunks, in their order.

    Of several interleaved choices, the reply is the one with index 0, else the first one. A choice without an index
    has that of its place in the chunk. The first chunk with a choice is the first part of the reply.
    """

    def __init__(self, *, max_reply: int = MAX_REPLY, max_arguments: int = MAX_ARGUMENTS) -> None:
        super().__init__(max_reply=max_reply, max_arguments=max_arguments)
        self._choices: dict[int, _ChoiceBuilder] = {}

    def add(self, chunk: Mapping[str, JsonValue]) -> list[Delta]:
        """Take one chunk, or a whole `chat.completion`: see `Builder`."""
        deltas: list[Delta] = []
        for place, choice in enumerate(read_objects(chunk.get("choices"))):
            index = read_index(choice.get("index"))
            index = place if index is None else index
            if index not in self._choices:
                self._note_first()
                self._meter.reserve(_CHOICE_SIZE)
                self._choices[index] = _ChoiceBuilder(self._meter, self._max_arguments)
            before = self._meter.progress
            choice_deltas = self._choices[index].add(choice)
            if self._choices[index] is self._main:
                deltas += choice_deltas
                # Moonshot reports usage for each choice.
                self._count(choice.get("usage"))
            else:
                # Another choice takes memory, but is not part of the reply.
                self._meter.progress = before
        self._note_names(chunk)
        self._count(read_object(chunk.get("x_groq")).get("usage"))
        self._count(chunk.get("usage"))
        return deltas

    def add_quickly(self, data: bytes, deltas: list[Delta]) -> bool:
        """Take the data of a chunk that continues what has begun: see `Builder`."""
        chunk = read_chunk(data)
        main = self._choices.get(0)
        delta = chunk.choices[0].delta
        if main is None or (delta.tool_calls and not main.calls.has(delta.tool_calls)):
            return False
        text, reasoning = delta.content, delta.reasoning_content or delta.reasoning
        if text:
            text = main.text.add_mended(text)
        if reasoning:
            reasoning = main.reasoning.add_mended(reasoning)
        calls: list[Delta] = []
        for entry in delta.tool_calls or ():
            main.calls.add_quickly(entry, calls)
        if chunk.usage is not None:
            self._count(cast("JsonValue", chunk.usage))
        if reasoning:
            deltas.append(ReasoningDelta(reasoning))
        if text:
            deltas.append(TextDelta(text))
        deltas += calls
        return True

    @property
    def finished(self) -> bool:
        """Whether a finish reason has come."""
        return self._main is not None and bool(self._main.finish_reason)

    @property
    def broken(self) -> Cause | None:
        """See `Builder.broken`."""
        return fault_of(self._main.finish_reason) if self._main else None

    @property
    def refusal(self) -> str:
        """The refusal, if the reply has neither text nor calls.

        Some providers send it apart from the text. Without it the chart would see an empty reply and retry.
        """
        main = self._main
        return str(main.refusal) if main and not len(main.text) and not main.calls.any else ""

    def reply(self) -> ModelResponse:
        """Return the reply so far."""
        main = self._main
        if main is None:
            return ModelResponse(usage=self._usage(), response=self._info())
        is_doubtful = may_be_cut_off(main.finish_reason)
        calls = main.calls.calls(cut_off=is_doubtful)
        # Gateways also append `[DONE]` to a reply that broke off.
        if is_doubtful or (calls and not main.finish_reason and (calls[-1].arguments is None or calls[-1].is_blank)):
            calls = tuple(call.without_arguments() if call.is_blank else call for call in calls)
        return ModelResponse(
            text=str(main.text) or self.refusal,
            reasoning=str(main.reasoning),
            reasoning_details=(*main.details.entries(), *main.calls.extras()),
            calls=calls,
            finish=finish_of(main.finish_reason),
            usage=self._usage(),
            finish_reason=main.finish_reason or None,
            response=self._info(),
        )

    def _count(self, usage: JsonValue) -> None:
        if not isinstance(usage, dict):
            return
        for name, keys in _COUNTS.items():
            counts = (usage.get(key) for key in keys)
            self._note_count(name, next((count for count in counts if read_count(count) is not None), None))
        for place, names in _DETAILS.items():
            details = usage.get(place)
            if isinstance(details, dict):
                for name, key in names.items():
                    self._note_count(name, details.get(key))
        self._note_cost(usage)

    def _usage_of(self, read_tokens: int, written_tokens: int) -> Usage:
        counts = self._counts
        apart = counts.get("total_tokens", 0) - read_tokens - written_tokens
        # xAI counts reasoning apart from the completion, and Gemini counts it in the total only.
        reasoning = counts.get("reasoning_tokens") or apart
        is_hidden = apart > 0 and apart == reasoning and apart != counts.get("cache_read_input_tokens")
        return super()._usage_of(read_tokens, written_tokens + apart if is_hidden else written_tokens)

    @property
    def _main(self) -> "_ChoiceBuilder | None":
        return self._choices.get(0) or next(iter(self._choices.values()), None)


class _ChoiceBuilder:
    """A choice of the provider. Requests ask for a single choice; some recorded streams have several."""

    def __init__(self, meter: Meter, max_arguments: int) -> None:
        self.text = Pieces(meter)
        self.reasoning = Pieces(meter)
        self.refusal = Pieces(meter)
        self.details = Details(meter)
        self.calls = CallAssembler(meter, max_arguments)
        self.finish_reason = ""
        self._meter = meter

    def add(self, choice: dict[str, JsonValue]) -> list[Delta]:
        finish_reason = choice.get("finish_reason")
        if isinstance(finish_reason, str) and finish_reason and finish_reason.lower() not in _NOT_FINISHED:
            self._meter.reserve(len(finish_reason))
            self.finish_reason = last_reason(self.finish_reason, mend(finish_reason))
        delta = choice.get("delta")
        deltas = self._add(delta) if isinstance(delta, dict) else []
        # A complete reply comes as a message. Some servers also send one that repeats the deltas.
        message = choice.get("message")
        if isinstance(message, dict):
            deltas += self._add({name: value for name, value in message.items() if not self._has(name)})
        return deltas

    def _add(self, delta: dict[str, JsonValue]) -> list[Delta]:
        content = delta.get("content")
        text = self.text.add("".join(_texts(content)))
        reasoning = self.reasoning.add(_reasoning_of(delta))
        self.details.add(delta.get("reasoning_details"))
        self.refusal.add("".join(_refusals(delta)))
        calls = delta.get("tool_calls")
        call_deltas = (
            self.calls.add(calls if isinstance(calls, list) else [calls]) if isinstance(calls, list | dict) else []
        )
        function_call = delta.get("function_call")
        if isinstance(function_call, dict):
            self.calls.add_function_call(function_call)
        return [*([ReasoningDelta(reasoning)] if reasoning else ()), *([TextDelta(text)] if text else ()), *call_deltas]

    def _has(self, name: str) -> bool:
        """Whether the deltas contained this field of a message."""
        pieces = {"content": self.text, "refusal": self.refusal}.get(name)
        if pieces is not None:
            return bool(len(pieces))
        return bool(self.calls if name in {"tool_calls", "function_call"} else len(self.reasoning) or self.details)


def _texts(content: JsonValue, kinds: tuple[str, ...] = ("text", "output_text")) -> Iterator[str]:
    """Return the text of a content that is a text, a part, or a list of parts."""
    for part in _parts(content):
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict) and part.get("type", kinds[0]) in kinds:
            yield read_text(part.get("text"))


def _thoughts(content: JsonValue) -> Iterator[str]:
    """Return the thinking in a list of parts, whose content may be a list of parts too."""
    for part in _parts(content):
        if isinstance(part, dict) and part.get("type") in ("thinking", "reasoning"):
            texts = (part.get(name) for name in ("thinking", "text", "reasoning", "summary"))
            yield from _texts(next(filter(None, texts), None), ("text", "summary_text"))


def _refusals(delta: dict[str, JsonValue]) -> Iterator[str]:
    """Return the refusal of a delta, or the refusals among the parts of its content."""
    for part in (delta, *_parts(delta.get("content"))):
        refusal = part.get("refusal") if isinstance(part, dict) else None
        if isinstance(refusal, str):
            yield refusal


def _parts(content: JsonValue) -> list[JsonValue]:
    return content if isinstance(content, list) else [content]


def _reasoning_of(delta: dict[str, JsonValue]) -> str:
    """Return the reasoning of a delta: the first name that has any, because some servers repeat it under two names."""
    candidates = (
        delta.get("reasoning_content"),
        delta.get("reasoning"),
        "".join(_detail_texts(delta.get("reasoning_details"))),
        delta.get("reasoning_text"),
        delta.get("thinking"),
        "".join(_thoughts(delta.get("content"))),
        "".join(_thoughts(delta.get("thinking_blocks"))),
    )
    return next((text for text in candidates if isinstance(text, str) and text), "")


def _detail_texts(details: JsonValue) -> Iterator[str]:
    for detail in read_objects(details):
        yield from (text for name in ("text", "summary") if isinstance(text := detail.get(name), str))
