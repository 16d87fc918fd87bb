"""The base of all reply builders: limits, usage and finish of one reply. No I/O."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from turnwright.model.protocol import Delta, ModelResponse, ResponseInfo, read_name
from turnwright_states import Cause, Finish, Usage

from .json_text import read_count
from .text_buffer import MAX_ARGUMENTS, MAX_REPLY, Meter

#: The finish reasons other than a normal stop, of the APIs and of gateways, by `plain_reason`.
FINISHES: Final = {
    "length": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "max_output_tokens": Finish.LENGTH,
    "model_length": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "incomplete": Finish.LENGTH,
    # Anthropic's own tools took too many turns.
    "pause_turn": Finish.LENGTH,
    "content_filter": Finish.CONTENT_FILTER,
    "content_filtered": Finish.CONTENT_FILTER,
    # Cohere.
    "error_toxic": Finish.CONTENT_FILTER,
    "guardrail_intervened": Finish.CONTENT_FILTER,
    "refusal": Finish.CONTENT_FILTER,
    "sensitive": Finish.CONTENT_FILTER,
    # Gemini.
    "blocklist": Finish.CONTENT_FILTER,
    "image_prohibited_content": Finish.CONTENT_FILTER,
    "image_recitation": Finish.CONTENT_FILTER,
    "image_safety": Finish.CONTENT_FILTER,
    "prohibited_content": Finish.CONTENT_FILTER,
    "recitation": Finish.CONTENT_FILTER,
    "safety": Finish.CONTENT_FILTER,
    "spii": Finish.CONTENT_FILTER,
}

# The finish reasons of a broken reply, and their causes: DeepSeek, vLLM and SGLang, and Gemini, which drops a call that
# it cannot parse.
_BROKEN: Final = {
    "insufficient_system_resource": Cause.OVERLOADED,
    "function_call_filter": Cause.SERVER_ERROR,
    "malformed_function_call": Cause.SERVER_ERROR,
    "unexpected_tool_call": Cause.SERVER_ERROR,
}


#: The finish reasons of a reply that the model ended itself, by `plain_reason`.
_ENDED: Final = frozenset(
    {
        *("stop", "end", "done", "eos", "eos_token", "complete", "completed", "finished", "end_turn", "stop_sequence"),
        *("tool_calls", "tool_call", "tool_use", "function_call"),
    }
)

# A word of these in an unknown finish reason names a limit: `token_limit`, `maxOutputReached`, `context_exceeded`.
_LIMIT_WORDS: Final = ("length", "limit", "max", "exceed", "truncat", "window", "incomplete", "timeout", "timed")

# A word of these in another finish reason names a failure: `error` (OpenRouter and Mistral), `network_error` (GLM),
# `abort` (vLLM and SGLang), `cancelled`, `generation_failed`.
_FAULT_WORDS: Final = {
    "error": Cause.SERVER_ERROR,
    "fail": Cause.SERVER_ERROR,
    "abort": Cause.INTERRUPTED,
    "cancel": Cause.INTERRUPTED,
}

# No reply costs more.
_MOST_COST: Final = 1e9


def plain_reason(reason: str) -> str:
    """Normalize a finish reason. Gemini puts a kind before its own: `content_filter: PROHIBITED_CONTENT`."""
    return reason.partition(":")[0].strip().lower()


def finish_of(reason: str) -> Finish:
    """Return the finish of a reply with a provider's finish reason.

    An unknown reason that names a limit counts as one: a complete answer that is called cut off does less harm than
    half an answer that is called complete.
    """
    plain = plain_reason(reason)
    return FINISHES.get(plain) or (Finish.LENGTH if any(word in plain for word in _LIMIT_WORDS) else Finish.STOP)


def fault_of(reason: str) -> Cause | None:
    """Return the cause of a reply that broke off, if its finish reason says so."""
    plain = plain_reason(reason)
    if finish_of(reason) is not Finish.STOP:
        return None
    return _BROKEN.get(plain) or next((cause for word, cause in _FAULT_WORDS.items() if word in plain), None)


def may_be_cut_off(reason: str) -> bool:
    """Whether a reply with this finish reason may have ended inside a call: at a limit, or for an unknown reason.

    A call whose arguments have not arrived must not run with its defaults then.
    """
    return bool(reason) and plain_reason(reason).replace("-", "_") not in _ENDED


def last_reason(earlier: str, reason: str) -> str:
    """Return which of two finish reasons of one reply counts: the last, unless an earlier one says what went wrong."""
    is_wrong = finish_of(earlier) is not Finish.STOP or fault_of(earlier) is not None
    return earlier if is_wrong or not reason else reason


class Builder(ABC):
    """Builds one reply from parsed JSON, in the order of arrival.

    `max_reply` and `max_arguments` limit the reply and the arguments of one call, in characters.
    """

    def __init__(self, *, max_reply: int = MAX_REPLY, max_arguments: int = MAX_ARGUMENTS) -> None:
        self._meter = Meter(max_reply)
        self._max_arguments = max_arguments
        #: Tokens, by the names of `Usage` and `ResponseInfo`.
        self._counts: dict[str, int] = {}
        #: As the provider reports it; 0 if it reports none.
        self._cost = 0.0
        self._id = self._model = ""
        self._began_at = time.perf_counter()
        self._first: float | None = None

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether the provider has sent the finish reason."""

    @property
    def broken(self) -> Cause | None:
        """The cause of a reply that broke off, if its finish reason says so."""
        return None

    @property
    def progress(self) -> int:
        """A number that grows only with the reply's text, reasoning, calls and usage."""
        return self._meter.progress

    @abstractmethod
    def add(self, chunk: Mapping[str, JsonValue], /) -> list[Delta]:
        """Add the JSON of one event, or a complete reply. Returns its deltas of text and reasoning.

        Raises `TooLargeError` once the reply exceeds a limit; the earlier part is kept.
        """

    @abstractmethod
    def add_quickly(self, data: bytes, deltas: list[Delta], /) -> bool:
        """Add the data of a quick event, and append to `deltas`. Returns False, without effect, if nothing has begun.

        Raises one of `NOT_QUICK` for an event that is not quick, and `TooLargeError` like `add`; both without effect.
        """

    @abstractmethod
    def reply(self) -> ModelResponse:
        """Return the reply so far."""

    def _note_first(self) -> None:
        if self._first is None:
            self._first = time.perf_counter() - self._began_at

    def _note_names(self, source: Mapping[str, JsonValue]) -> None:
        self._id = self._id or read_name(source.get("id"))
        self._model = self._model or read_name(source.get("model"))

    def _note_count(self, name: str, value: JsonValue) -> None:
        """Record a count of tokens. Counts are cumulative: the last one counts, unless it is null, or 0 behind another.

        Some gateways fill the counts of their last event with zeros.
        """
        count = read_count(value)
        if count or (count is not None and name not in self._counts):
            self._meter.grow(self._counts, name, count)

    def _note_cost(self, usage: Mapping[str, JsonValue]) -> None:
        """Record the cost that OpenRouter and LiteLLM report. The last one counts.

        With a key of one's own for the provider behind OpenRouter, that provider's charge is apart.
        """
        details = usage.get("cost_details")
        apart = details.get("upstream_inference_cost") if isinstance(details, dict) else None
        own_key = usage.get("is_byok") is True
        self._cost = _amount(usage.get("cost")) + (_amount(apart) if own_key else 0.0) or self._cost

    @property
    def reported(self) -> dict[str, int] | None:
        """The input and output tokens as the provider counts them, or None if it reported neither.

        Some providers count cached tokens, or reasoning, apart from them; `Usage` includes both.
        """
        counts = self._counts
        if "input_tokens" not in counts and "output_tokens" not in counts:
            return None
        return {name: counts.get(name, 0) for name in ("input_tokens", "output_tokens")}

    def _usage(self) -> Usage | None:
        counts = self.reported
        return None if counts is None else self._usage_of(counts["input_tokens"], counts["output_tokens"])

    def _usage_of(self, read_tokens: int, written_tokens: int) -> Usage:
        """Return the usage of all tokens read and written. A part that a provider counts higher is cut to the whole."""
        counts = self._counts
        return Usage(
            input_tokens=read_tokens,
            output_tokens=written_tokens,
            cost=self._cost,
            cached_tokens=min(counts.get("cache_read_input_tokens", 0), read_tokens),
            reasoning_tokens=min(counts.get("reasoning_tokens", 0), written_tokens),
        )

    def _info(self) -> ResponseInfo:
        return ResponseInfo(
            id=self._id,
            model=self._model,
            cache_read_input_tokens=self._counts.get("cache_read_input_tokens"),
            cache_creation_input_tokens=self._counts.get("cache_creation_input_tokens"),
            cache_creation_1h_input_tokens=self._counts.get("cache_creation_1h_input_tokens"),
            time_to_first_chunk=self._first,
        )


def _amount(value: JsonValue) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 < value < _MOST_COST else 0.0
