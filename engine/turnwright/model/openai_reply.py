"""A chat completion, put together from its chunks: already parsed JSON in, deltas and a `Reply` out. No I/O.

A chunk may lack anything, and anything in it may be null or of another type: what is not understood is skipped.
Each rule below is one of STREAMS.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import JsonValue

from turnwright_states import Finish, Usage

from .json_text import whole_object
from .openai_calls import CallAssembler
from .pieces import MAX_ARGUMENTS, MAX_REPLY, Meter, Pieces, mend
from .protocol import ReasoningDelta, Reply, TextDelta

Delta = TextDelta | ReasoningDelta

# What a choice costs in memory beside its texts, counted as characters.
_CHOICE_SIZE: Final = 1024
# No reply has used more tokens than a double can count; a larger number is a slip, and would not survive as JSON.
_MOST_TOKENS: Final = 2**53

_FINISHES: Final = {
    "length": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "model_length": Finish.LENGTH,
    "content_filter": Finish.CONTENT_FILTER,
}


class ReplyBuilder:
    """Takes the chunks of one reply in their order.

    Where several choices are interleaved, the reply is the one of index 0, or the first that came if there is none.
    `max_reply` and `max_arguments` bound, in characters, what is kept of the reply and of one call's arguments.
    """

    def __init__(self, *, max_reply: int = MAX_REPLY, max_arguments: int = MAX_ARGUMENTS) -> None:
        self._meter = Meter(max_reply)
        self._max_arguments = max_arguments
        self._choices: dict[int, _Choice] = {}
        self._usage: Usage | None = None

    def add(self, chunk: Mapping[str, JsonValue]) -> list[Delta]:
        """Take one chunk, or a whole `chat.completion`; return what it added to the text and the reasoning.

        Raises `TooLarge` once the reply passes a bound; what came before is kept.
        """
        self._usage = _usage_of(chunk) or self._usage
        deltas: list[Delta] = []
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                number = choice.get("index")
                index = number if isinstance(number, int) else 0
                if index not in self._choices:
                    self._meter.take(_CHOICE_SIZE)
                    self._choices[index] = _Choice(self._meter, self._max_arguments)
                added = self._choices[index].add(choice)
                if self._choices[index] is self._main:
                    deltas += added
        return deltas

    @property
    def finished(self) -> bool:
        """Whether a finish reason has come."""
        return self._main is not None and bool(self._main.finish_reason)

    @property
    def refusal(self) -> str:
        """What the model said instead of an answer, where the provider keeps that apart from the text."""
        return str(self._main.refusal) if self._main else ""

    def reply(self) -> Reply:
        """Give the reply as far as it has come."""
        main = self._main
        if main is None:
            return Reply(usage=self._usage)
        return Reply(
            text=str(main.text),
            reasoning=str(main.reasoning),
            reasoning_details=tuple(main.details),
            calls=main.calls.calls(),
            finish=_FINISHES.get(main.finish_reason.lower(), Finish.STOP),
            usage=self._usage,
            finish_reason=main.finish_reason or None,
        )

    @property
    def _main(self) -> "_Choice | None":
        return self._choices.get(0) or next(iter(self._choices.values()), None)


class _Choice:
    """One of the choices that a provider offers. We ask for one; some recorded streams hold more."""

    def __init__(self, meter: Meter, max_arguments: int) -> None:
        self.text = Pieces(meter)
        self.reasoning = Pieces(meter)
        self.refusal = Pieces(meter)
        self.details: list[Mapping[str, JsonValue]] = []
        self.calls = CallAssembler(meter, max_arguments)
        self.finish_reason = ""
        self._meter = meter

    def add(self, choice: dict[str, JsonValue]) -> list[Delta]:
        finish_reason = choice.get("finish_reason")
        if isinstance(finish_reason, str) and finish_reason:
            self._meter.take(len(finish_reason))
            self.finish_reason = mend(finish_reason)
        delta = choice.get("delta")
        message = choice.get("message")
        if isinstance(delta, dict) and delta:
            return self._add(delta)
        # A whole reply comes as a message. Some servers close a stream with one too, and then it repeats the deltas.
        if isinstance(message, dict) and not (len(self.text) or len(self.reasoning) or self.calls):
            return self._add(message)
        return []

    def _add(self, delta: dict[str, JsonValue]) -> list[Delta]:
        content = delta.get("content")
        text = self.text.add("".join(_texts(content)))
        reasoning = self.reasoning.add(_reasoning_of(delta))
        self._keep_details(delta.get("reasoning_details"))
        refusal = delta.get("refusal")
        if isinstance(refusal, str):
            self.refusal.add(refusal)
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            self.calls.add(calls)
        function_call = delta.get("function_call")
        if isinstance(function_call, dict):
            self.calls.add_function_call(function_call)
        return [*([ReasoningDelta(reasoning)] if reasoning else ()), *([TextDelta(text)] if text else ())]

    def _keep_details(self, details: JsonValue) -> None:
        """Keep the objects that hold a signature or encrypted reasoning: they must go back unchanged."""
        for detail in details if isinstance(details, list) else ():
            if isinstance(detail, dict) and (detail.get("signature") or detail.get("data")):
                raw = json.dumps(detail, ensure_ascii=False)
                self._meter.take(len(raw))
                kept = whole_object(mend(raw))
                if kept:
                    self.details.append(kept)


def _texts(content: JsonValue) -> Iterator[str]:
    """The text of a content that is a text, a part, or a list of parts."""
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict) and part.get("type", "text") in {"text", "output_text"}:
            text = part.get("text")
            yield text if isinstance(text, str) else ""


def _thoughts(content: JsonValue) -> Iterator[str]:
    """The thinking parts of a content that is a list of parts; their own content may be a list of parts again."""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") in {"thinking", "reasoning"}:
            yield from _texts(part.get("thinking") or part.get("text") or part.get("reasoning"))


def _reasoning_of(delta: dict[str, JsonValue]) -> str:
    """The reasoning of a delta. Some servers send the same text under two names: the first that has any is taken."""
    details = delta.get("reasoning_details")
    named = (
        delta.get("reasoning_content"),
        delta.get("reasoning"),
        "".join(_detail_texts(details)),
        delta.get("thinking"),
        "".join(_thoughts(delta.get("content"))),
    )
    return next((text for text in named if isinstance(text, str) and text), "")


def _detail_texts(details: JsonValue) -> Iterator[str]:
    for detail in details if isinstance(details, list) else ():
        text = detail.get("text") if isinstance(detail, dict) else None
        if isinstance(text, str):
            yield text


def _usage_of(chunk: Mapping[str, JsonValue]) -> Usage | None:
    """The usage of a chunk, from `usage` or Groq's `x_groq.usage`; None where neither counts anything."""
    groq = chunk.get("x_groq")
    for usage in (chunk.get("usage"), groq.get("usage") if isinstance(groq, dict) else None):
        if isinstance(usage, dict):
            read = _count(usage, "prompt_tokens", "input_tokens")
            written = _count(usage, "completion_tokens", "output_tokens")
            if read is not None or written is not None:
                return Usage(input_tokens=read or 0, output_tokens=written or 0)
    return None


def _count(usage: dict[str, JsonValue], *names: str) -> int | None:
    for name in names:
        value = usage.get(name)
        if isinstance(value, str) and value.isdecimal() and len(value) < len(str(_MOST_TOKENS)):
            value = int(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return min(max(int(value), 0), _MOST_TOKENS)
    return None
