"""A model whose replies are chosen."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Final

from pydantic import JsonValue

from turnwright.message import ToolSpec
from turnwright.model.protocol import Delta, ModelError, ModelRequest, ModelResponse, ResponseToolCall
from turnwright_states import Cause, Finish, Usage
from turnwright_testing.flaky import Cut, FlakyModel, Line, Stalls

from .choices import Surroundings
from .sample import arguments

#: An answer, one call, several calls, a call again, a wrong call, an empty reply, too long a reply; errors that are
#: retried or not; streams that break off or fall silent.
_KINDS: Final = (6, 18, 8, 6, 3, 1, 1, 3, 1, 2, 1)
_RETRIED: Final = (Cause.OVERLOADED, Cause.RATE_LIMITED, Cause.CONNECTION, Cause.SERVER_ERROR)
_REFUSED: Final = (Cause.REJECTED, Cause.CONTEXT_OVERFLOW, Cause.CONTENT_FILTER)
_MOST_CALLS: Final = 4


class SimulatedModel(FlakyModel):
    """The model of the process `process`."""

    name = "simulated"

    def __init__(self, process: str, world: Surroundings) -> None:
        super().__init__()
        self._process = process
        self._world = world
        self._last: tuple[ResponseToolCall, ...] = ()

    async def next_line(self, request: ModelRequest) -> Line:
        self._world.asked(self._process, request)
        line = self._line(request)
        await self._world.pause("model")
        return line

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | ModelResponse]:
        """Stream a chosen reply, each piece of which takes its time. See `Model.stream`."""
        async for item in super().stream(request):
            yield item
            await self._world.pause("piece")

    def _line(self, request: ModelRequest) -> Line:  # noqa: PLR0911 (a case a kind: flat)
        choices = self._world.choices
        kind = choices.weighted("model", _KINDS)
        tool_specs = request.tools if request.tool_choice != "none" else ()
        usage = Usage(input_tokens=choices.of("usage", (1, 0, 40)), output_tokens=1)
        text = "Done." if request.output is None else json.dumps(arguments(request.output.schema, choices))
        answer = ModelResponse(text=text, usage=usage)
        match kind:
            case 1 | 2 if tool_specs:
                self._last = self._calls(tool_specs, 1 if kind == 1 else 2 + choices.below("model", _MOST_CALLS - 1))
                return ModelResponse(calls=self._last, usage=usage)
            case 3 if self._last:
                return ModelResponse(calls=self._last, usage=usage)
            case 4:
                return ModelResponse(calls=self._wrong(tool_specs), usage=usage)
            case 5:
                return ModelResponse(text="", usage=usage)
            case 6:
                return ModelResponse(text="Too lo", finish=Finish.LENGTH, usage=usage)
            case 7:
                after = choices.of("model", (None, 0.5))
                return ModelError("busy", cause=choices.of("model", _RETRIED), retry_after=after)
            case 8:
                return ModelError("refused", cause=choices.of("model", _REFUSED))
            case 9:
                reply = ModelResponse(text="Half", calls=self._calls(tool_specs, 1) if tool_specs else ())
                return Cut(reply, choices.below("model", 8), silently=choices.one_in("model", 3))
            case 10:
                return Stalls("Hm", choices.of("model", (1.0, 20.0)))
            case _:
                return answer

    def _calls(self, tool_specs: Sequence[ToolSpec], number: int) -> tuple[ResponseToolCall, ...]:
        choices = self._world.choices
        specs = [choices.of("model", tool_specs) for _ in range(number)]
        return tuple(ResponseToolCall(name=spec.name, arguments=arguments(spec.parameters, choices)) for spec in specs)

    def _wrong(self, tool_specs: Sequence[ToolSpec]) -> tuple[ResponseToolCall, ...]:
        wrong: dict[str, JsonValue] = {"no_such_argument": 1}
        if not tool_specs or self._world.choices.one_in("model", 2):
            return (ResponseToolCall(name="no_such_tool", arguments=wrong),)
        return (ResponseToolCall(name=self._world.choices.of("model", tool_specs).name, arguments=wrong),)
