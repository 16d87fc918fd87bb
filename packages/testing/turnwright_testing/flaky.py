"""A model whose streams break off and fall silent, as providers' do."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from json import dumps
from math import inf
from typing import Final, Literal

import anyio

from turnwright.model import ScriptedModel
from turnwright.model.model_settings import ModelSettings
from turnwright.model.protocol import (
    Delta,
    ModelError,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from turnwright_states import Cause
from turnwright_states.payload import thaw

from .behavior import HOUR


@dataclass(frozen=True, slots=True)
class Cut:
    """The stream breaks off after so many characters of the reply's reasoning, its text, and its calls' arguments.

    No call arrives whole. `silently`: it just ends, without an error.
    """

    reply: ModelResponse = field(default_factory=lambda: ModelResponse(text="Done."))
    after: int = 0
    silently: bool = False


@dataclass(frozen=True, slots=True)
class Stalls:
    """The model streams `text`, and then nothing for so many seconds; then the call fails."""

    text: str = ""
    seconds: float = HOUR


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A model call that had streamed `text` when the turn was aborted, or its time was up."""

    text: str = ""
    by: Literal["abort", "deadline"] = "abort"


@dataclass(frozen=True, slots=True)
class Broke:
    """A model call, or a synthesis, that raised another error than `ModelError`, in these words."""

    error: str
    text: str = ""


#: The lines of a script: one for each model call. A `ModelError` streams the text of its `partial` before it is raised.
Line = str | ModelResponse | ModelError | Cut | Stalls | Unfinished | Broke


class FlakyModel:
    """A model that replies by its script, line by line, the last one for ever; `requests` keeps its requests.

    The arguments of calls stream in two pieces. Override `next_line` to decide the lines in another way.

    It is one model for all processes of a scenario, so the script continues where a crash cut it off. From its call
    `most` on it refuses everything: an engine that calls without end must not make a test run without end.
    """

    name = "wayward"
    #: Clients of providers have timeouts of their own.
    silence_timeout: Final = None

    def __init__(self, script: Sequence[Line] = ()) -> None:
        self.requests: list[ModelRequest] = []
        self.most: int | None = None
        self._script = script or ("Done.",)

    def unsupported_settings(self, settings: ModelSettings) -> Mapping[str, str]:  # noqa: ARG002 (a script takes any)
        return {}

    async def next_line(self, request: ModelRequest) -> Line | None:  # noqa: ARG002 (a script does not listen)
        """Decide the line of a request, the last one in `requests`. None: there is no line, which ends the turn."""
        return self._script[min(len(self.requests), len(self._script)) - 1]

    async def fall_silent(self, line: Unfinished) -> None:  # noqa: ARG002 (a script waits alike for both)
        """Wait until somebody ends the call of an unfinished line."""
        await anyio.sleep_forever()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        """Stream the next line of the script. See `Model.stream`."""
        self.requests.append(request)
        if self.most is not None and len(self.requests) > self.most:
            raise ModelError(f"nobody may call a model more than {self.most} times here", cause=Cause.REJECTED)
        line = await self.next_line(request)
        async for item in _items(line, request):
            yield item
        match line:
            case Cut(silently=False):
                raise ModelError("the stream broke off", cause=Cause.INTERRUPTED, partial=_cut_reply(line))
            case Stalls():
                await anyio.sleep(line.seconds)
                raise ModelError(
                    "no byte came for too long", cause=Cause.TIMEOUT, partial=ModelResponse(text=line.text)
                )
            case Unfinished():
                await self.fall_silent(line)
            case Broke():
                raise RuntimeError(line.error)
            case ModelError():
                raise line.with_traceback(None)  # else it would remember every time that it was raised
            case _:
                pass


async def _items(line: Line | None, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
    """Stream a line up to the place where it fails."""
    match line:
        case Cut():
            for delta in _beginning(line):
                yield delta
        case None | str() | ModelResponse():
            async for item in ScriptedModel(*(() if line is None else (line,))).stream(request):
                if isinstance(item, ModelResponse):
                    for delta in _list_call_deltas(item):
                        yield delta
                yield item
        case ModelError(partial=partial):
            if partial is not None and partial.text:
                yield TextDelta(partial.text)
        case _:
            if line.text:
                yield TextDelta(line.text)


def _beginning(line: Cut) -> Iterator[Delta]:
    partial_reply = _cut_reply(line)
    if partial_reply.reasoning:
        yield ReasoningDelta(partial_reply.reasoning)
    if partial_reply.text:
        yield TextDelta(partial_reply.text)
    yield from _list_call_deltas(line.reply, line.after - len(line.reply.reasoning) - len(line.reply.text))


def _list_call_deltas(reply: ModelResponse, most: float = inf) -> Iterator[Delta]:
    """Return the deltas of the calls, with so many characters of arguments at most."""
    for number, call in enumerate(reply.calls):
        raw = call.raw or dumps(thaw(call.arguments or {}))
        for piece in (raw[:3], raw[3:]):
            if most > 0:
                yield ToolCallDelta(number, call.name, piece[: int(min(most, len(piece)))])
            most -= len(piece)


def _cut_reply(line: Cut) -> ModelResponse:
    reasoning, text = line.reply.reasoning, line.reply.text
    return ModelResponse(reasoning=reasoning[: line.after], text=text[: max(line.after - len(reasoning), 0)])
