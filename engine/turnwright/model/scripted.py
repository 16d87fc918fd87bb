"""A model that replies from a script: for tests, demonstrations and benchmarks."""

import inspect
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from turnwright.errors import ConfigError, need_kind
from turnwright_states import Cause, Finish, Usage
from turnwright_states.payload import thaw

from .capabilities import Capabilities
from .model_settings import ModelSettings
from .protocol import (
    SILENCE_TIMEOUT,
    Delta,
    ModelError,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    ResponseToolCall,
    TextDelta,
    ToolCallDelta,
)

ScriptedReply = ModelResponse | str | ModelError
#: One reply of a script: a `ModelResponse`, a text, an error to raise, or a function of the request, async or not.
Line = ScriptedReply | Callable[[ModelRequest], ScriptedReply | Awaitable[ScriptedReply]]

_LINE_FORM: Final = "a text, a ModelResponse such as asks_for(...), a ModelError, or a function that returns one"


class ScriptedModel:
    """A model that replies line by line; `requests` keeps the requests.

    A text is streamed word by word, and with `stream_calls` the JSON of a call's arguments too, after an empty piece
    that names the tool. The last line is repeated when `repeat` is true; otherwise a call past the end
    of the script raises `ModelError` with the cause `rejected`, which ends the turn. Raises `ConfigError` for a line
    that is none, also from a function.
    """

    def __init__(self, *lines: Line, name: str = "scripted", repeat: bool = False, stream_calls: bool = False) -> None:
        for line in lines:
            if not callable(line):
                need_kind("a line of the script", line, ScriptedReply, _LINE_FORM)
        self.name = name
        self.requests: list[ModelRequest] = []
        self._lines = lines
        self._repeat = repeat
        self._stream_calls = stream_calls
        # A text cannot be silent, and a function may never return.
        self.silence_timeout = SILENCE_TIMEOUT if any(map(callable, lines)) else None

    @property
    def capabilities(self) -> Capabilities:
        """The defaults, and whether the replies report their cost: unknown for a function, unless another line does."""
        costs = any(isinstance(line, ModelResponse) and line.usage and line.usage.cost for line in self._lines)
        return Capabilities(reports_cost=costs or (None if any(map(callable, self._lines)) else False))

    def unsupported_settings(self, settings: ModelSettings) -> Mapping[str, str]:  # noqa: ARG002 (a script takes any)
        """Return nothing: `requests` has the settings of each request."""
        return {}

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        """Stream the next line of the script. See `Model.stream`."""
        self.requests.append(request)
        line = self._next()
        if callable(line):
            result = line(request)
            line = await result if inspect.isawaitable(result) else result
            need_kind("a line of the script", line, ScriptedReply, _LINE_FORM)
        if isinstance(line, ModelError):
            raise line
        reply = (
            ModelResponse(text=line, usage=Usage(input_tokens=1, output_tokens=1)) if isinstance(line, str) else line
        )
        if reply.reasoning:
            yield ReasoningDelta(reply.reasoning)
        for index, word in enumerate(reply.text.split(" ") if reply.text else ()):
            yield TextDelta(f" {word}" if index else word)
        for delta in _call_deltas(reply.calls) if self._stream_calls else ():
            yield delta
        yield reply

    def _next(self) -> Line:
        place = len(self.requests) - 1
        if place < len(self._lines):
            return self._lines[place]
        if self._repeat and self._lines:
            return self._lines[-1]
        return ModelError(
            f"ScriptedModel has no line {len(self.requests)}: give it one more reply", cause=Cause.REJECTED
        )


def _call_deltas(calls: Sequence[ResponseToolCall]) -> Iterator[ToolCallDelta]:
    for index, call in enumerate(calls):
        text = call.raw or json.dumps(thaw(call.arguments or {}), ensure_ascii=False)
        for piece in ("", *re.findall(r"\S+\s*|\s+", text)):
            yield ToolCallDelta(index, call.name, piece)


def asks_for(
    *calls: tuple[str, Mapping[str, JsonValue]] | ResponseToolCall, text: str = "", usage: Usage | None = None
) -> ModelResponse:
    """Make a reply that asks for tool calls: `asks_for(("read_file", {"path": "a.py"}))`.

    Raises `ConfigError` for anything else.
    """
    return ModelResponse(
        text=text,
        calls=tuple(map(_call, calls)),
        finish=Finish.STOP,
        usage=usage or Usage(input_tokens=1, output_tokens=1),
        finish_reason="tool_calls",
    )


def _call(call: object) -> ResponseToolCall:
    match call:
        case ResponseToolCall():
            return call
        case (str() as name, Mapping() as arguments):
            return ResponseToolCall(name, arguments)
        case _:
            form = 'asks_for(("read_file", {"path": "a.py"}))'
            raise ConfigError(
                f"asks_for: {call!r:.80} is not a call: write each as a pair of a name and a dict: {form}"
            )
