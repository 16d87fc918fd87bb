"""Build a reply from the events that pydantic-ai streams. No I/O."""

import json
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import pydantic_ai.messages as pai
from pydantic import JsonValue
from pydantic_ai.usage import RequestUsage

from turnwright.model.http.json_text import read_count, whole_object
from turnwright.model.http.reply_builder import fault_of, finish_of, may_be_cut_off, plain_reason
from turnwright.model.http.text_buffer import (
    MAX_ARGUMENTS,
    MAX_CHUNKS,
    Meter,
    Pieces,
    TooLargeError,
    check_arguments,
    check_calls,
    mend,
)
from turnwright.model.protocol import (
    Delta,
    ModelError,
    ModelResponse,
    ReasoningDelta,
    ResponseInfo,
    ResponseToolCall,
    TextDelta,
    ToolCallDelta,
    read_name,
)
from turnwright_states import Cause, Usage

from .provider_details import details_of

# The memory of a part without its texts, counted as characters.
_PART_SIZE: Final = 256


class _Call(NamedTuple):
    number: int
    tool: str
    arguments: Pieces

    def go_on(self, piece: str) -> Iterator[Delta]:
        text = self.arguments.add(piece)
        if text:
            yield ToolCallDelta(self.number, self.tool, text)


class PartListener:
    """Reads the events of one response as they come, and then the response."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._text = Pieces(self._meter)
        self._reasoning = Pieces(self._meter)
        self._chunks_left = MAX_CHUNKS
        # The parts that have begun, by index: our calls, and other parts than text or thinking.
        self._calls: dict[int, _Call] = {}
        self._parts: set[int] = set()

    @property
    def progress(self) -> int:
        """A number that grows only with the reply's text, thinking and calls."""
        return self._meter.progress

    def take(self, event: pai.ModelResponseStreamEvent) -> Iterator[Delta]:
        """Return the deltas of an event. Raises `TooLargeError` once the reply exceeds a limit."""
        self._chunks_left -= 1
        if self._chunks_left < 0:
            raise TooLargeError(f"the response has more than {MAX_CHUNKS:,} chunks")
        match event:
            case pai.PartStartEvent(part=pai.TextPart(content=piece)):
                yield from self._add_text(piece)
            case pai.PartDeltaEvent(delta=pai.TextPartDelta(content_delta=piece)):
                yield from self._add_text(piece)
            case pai.PartStartEvent(part=pai.ThinkingPart(content=piece)):
                yield from self._add_thinking(piece)
            case pai.PartDeltaEvent(delta=pai.ThinkingPartDelta(content_delta=str(piece))):
                yield from self._add_thinking(piece)
            case pai.PartDeltaEvent(index=index, delta=pai.ToolCallPartDelta(args_delta=str(piece))) if (
                index in self._calls
            ):
                yield from self._calls[index].go_on(piece)
            case pai.PartDeltaEvent(delta=pai.ToolCallPartDelta(args_delta=str(arguments) | dict(arguments))):
                self._meter.take(len(arguments))
            case pai.PartStartEvent(index=index, part=pai.ToolCallPart() as part):
                self._begin(index)
                yield from self._start_call(index, part)
            case pai.PartStartEvent(index=index):
                # A part of the provider. A part that begins again at an index counts again.
                self._begin(index)
            case _:
                pass

    def rest(self, reply: ModelResponse) -> Iterator[Delta]:
        """Return the deltas that only the complete reply contains."""
        for text, whole, give in (
            (str(self._reasoning), reply.reasoning, self._add_thinking),
            (str(self._text), reply.text, self._add_text),
        ):
            if whole.startswith(text):
                yield from give(whole[len(text) :])

    def _begin(self, index: int) -> None:
        if index not in self._parts:
            self._parts.add(index)
            self._meter.take(1)
            self._meter.reserve(_PART_SIZE)

    def _start_call(self, index: int, part: pai.ToolCallPart) -> Iterator[Delta]:
        """Return the first delta of a call. Arguments that are not text have no deltas."""
        number = self._calls[index].number if index in self._calls else len(self._calls)
        check_calls(number + 1)
        self._calls[index] = call = _Call(number, mend(part.tool_name), Pieces(self._meter))
        yield ToolCallDelta(number, call.tool, call.arguments.add(part.args if isinstance(part.args, str) else ""))

    def _add_text(self, piece: str) -> Iterator[Delta]:
        text = self._text.add(piece)
        if text:
            yield TextDelta(text)

    def _add_thinking(self, piece: str) -> Iterator[Delta]:
        text = self._reasoning.add(piece)
        if text:
            yield ReasoningDelta(text)


def whole_reply(response: pai.ModelResponse, first: float | None = None) -> ModelResponse:
    """Translate a complete response. `first` is the time of its first chunk, in seconds, if it was streamed.

    Raises `ModelError` with any `partial` reply for a response that broke off, failed at the provider, or has to be
    waited for; `TooLargeError` for arguments that are too long, and for too many calls.
    """
    reply = reply_of(response, first)
    check_calls(len(reply.calls))
    if response.state == "suspended":
        why = "the provider has not finished: it runs tools of its own, or works in the background"
        raise ModelError(f"{why}. Switch that off in the settings.", cause=Cause.REJECTED, partial=reply)
    if response.state != "complete":
        raise ModelError("the stream ended before the reply did", cause=Cause.INTERRUPTED, partial=reply)
    cause = fault_of(_reason(response))
    if cause is not None:
        reason = f" ({reply.finish_reason})" if reply.finish_reason else ""
        raise ModelError(f"the provider could not finish its reply{reason}", cause=cause, partial=reply)
    return reply


def reply_of(response: pai.ModelResponse, first: float | None = None) -> ModelResponse:
    """Translate a response so far, without parts other than text, thinking and our calls.

    `first` is the time of its first chunk, in seconds, if it was streamed.
    """
    provider_reason = (response.provider_details or {}).get("finish_reason")
    calls = tuple(_call(part) for part in response.parts if isinstance(part, pai.ToolCallPart))
    if may_be_cut_off(_reason(response)):
        calls = tuple(call.without_arguments() if call.is_blank else call for call in calls)
    return ModelResponse(
        text="".join(mend(part.content) for part in response.parts if isinstance(part, pai.TextPart)),
        reasoning="".join(mend(part.content) for part in response.parts if isinstance(part, pai.ThinkingPart)),
        reasoning_details=details_of(response),
        calls=calls,
        finish=finish_of(_reason(response)),
        usage=_usage(response.usage),
        finish_reason=provider_reason if isinstance(provider_reason, str) else response.finish_reason,
        response=ResponseInfo(
            id=read_name(response.provider_response_id),
            model=read_name(response.model_name),
            # A provider without usage leaves zeros.
            cache_read_input_tokens=read_count(response.usage.cache_read_tokens) or None,
            cache_creation_input_tokens=read_count(response.usage.cache_write_tokens) or None,
            time_to_first_chunk=first,
        ),
    )


def _reason(response: pai.ModelResponse) -> str:
    """Return the finish reason, or the provider's own if pydantic-ai does not know it; empty without one."""
    provider_reason = (response.provider_details or {}).get("finish_reason")
    return response.finish_reason or (plain_reason(provider_reason) if isinstance(provider_reason, str) else "")


def _call(part: pai.ToolCallPart) -> ResponseToolCall:
    raw = part.args if isinstance(part.args, str) else _dump_arguments(part.args)
    check_arguments(len(raw), MAX_ARGUMENTS)
    raw = mend(raw)
    return ResponseToolCall(name=mend(part.tool_name), arguments=whole_object(raw), raw=raw, id=mend(part.tool_call_id))


def _dump_arguments(arguments: Mapping[str, JsonValue] | None) -> str:
    # An empty object may be all that arrived of a call.
    if not arguments:
        return ""
    try:
        return json.dumps(arguments, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        # The text stays invalid JSON, because a tool must not run with nearly right arguments.
        return repr(arguments)


def _usage(usage: RequestUsage) -> Usage | None:
    # A provider without usage leaves zeros, which no real request has.
    input_tokens, output_tokens = read_count(usage.input_tokens), read_count(usage.output_tokens)
    if not input_tokens and not output_tokens:
        return None
    input_tokens, output_tokens = input_tokens or 0, output_tokens or 0
    reasoning = read_count(usage.output_reasoning_tokens) or read_count(usage.details.get("reasoning_tokens"))
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=min(read_count(usage.cache_read_tokens) or 0, input_tokens),
        reasoning_tokens=min(reasoning or 0, output_tokens),
    )
