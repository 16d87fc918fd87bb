"""What the builders of all APIs share: bounds, names, usage and finish of one reply. No I/O."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue

from turnwright.model.protocol import Delta, ModelResponse, ResponseInfo, read_name
from turnwright_states import Finish, Usage

from .json_text import read_count
from .text_buffer import MAX_ARGUMENTS, MAX_REPLY, Meter

#: The finish reasons that are no plain stop: those of the APIs themselves, and of gateways for what is behind them.
FINISHES: Final = {
    "length": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "model_length": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "content_filter": Finish.CONTENT_FILTER,
    "content_filtered": Finish.CONTENT_FILTER,
    "guardrail_intervened": Finish.CONTENT_FILTER,
    "prohibited_content": Finish.CONTENT_FILTER,
    "refusal": Finish.CONTENT_FILTER,
    "safety": Finish.CONTENT_FILTER,
    "sensitive": Finish.CONTENT_FILTER,
}


class Builder(ABC):
    """Puts one reply together from parsed JSON, in the order in which it comes.

    `max_reply` and `max_arguments` bound, in characters, what is kept of the reply and of one call's arguments.
    """

    def __init__(self, *, max_reply: int = MAX_REPLY, max_arguments: int = MAX_ARGUMENTS) -> None:
        self._meter = Meter(max_reply)
        self._max_arguments = max_arguments
        #: Tokens, by the names of `Usage` and `ResponseInfo`.
        self._counts: dict[str, int] = {}
        self._id = self._model = ""
        self._made = time.perf_counter()
        self._first: float | None = None

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether the provider has said why the reply ended."""

    @property
    def progress(self) -> int:
        """How much of the reply has come: a number that grows with its text, reasoning, calls and usage alone."""
        return self._meter.progress

    @abstractmethod
    def add(self, chunk: Mapping[str, JsonValue], /) -> list[Delta]:
        """Take the JSON of one event, or a whole reply; return what it added to the text and the reasoning.

        Raises `TooLargeError` once the reply passes a bound; what came before is kept.
        """

    @abstractmethod
    def add_quickly(self, data: bytes, deltas: list[Delta], /) -> bool:
        """Take the data of an event that goes on with what has begun, and add to `deltas`; return whether it did.

        Raises one of `NOT_QUICK` where the event is not quick, and `TooLargeError` as `add` does; then it adds nothing.
        """

    @abstractmethod
    def reply(self) -> ModelResponse:
        """Give the reply as far as it has come."""

    def _note_first(self) -> None:
        if self._first is None:
            self._first = time.perf_counter() - self._made

    def _note_names(self, source: Mapping[str, JsonValue]) -> None:
        self._id = self._id or read_name(source.get("id"))
        self._model = self._model or read_name(source.get("model"))

    def _note_count(self, name: str, value: JsonValue) -> None:
        """Take note of a count of tokens. It is cumulative, and the last that is none but null is the right one."""
        count = read_count(value)
        if count is not None:
            self._meter.grow(self._counts, name, count)

    def _usage(self) -> Usage | None:
        read, written = self._counts.get("input_tokens"), self._counts.get("output_tokens")
        return None if read is written is None else Usage(input_tokens=read or 0, output_tokens=written or 0)

    def _info(self, input_tokens: int | None = None) -> ResponseInfo:
        return ResponseInfo(
            id=self._id,
            model=self._model,
            input_tokens=input_tokens,
            cache_read_input_tokens=self._counts.get("cache_read_input_tokens"),
            cache_creation_input_tokens=self._counts.get("cache_creation_input_tokens"),
            time_to_first_chunk=self._first,
        )
