"""One turn from its prompt to its end, and all that can be seen of it: what the checklist of BooCode looks at."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import anyio
import pytest

from turnwright import Agent, Engine, TurnResult, tool
from turnwright.driver.dependencies import Synthesis
from turnwright.message import Message, Part, SentinelPart
from turnwright.model.prices import Price
from turnwright.model.protocol import ModelRequest, ModelResponse, ResponseToolCall
from turnwright.model.retry import Backoff
from turnwright.model.scripted import Line, ScriptedModel
from turnwright.tools import Tool, ToolContext
from turnwright.tools.builtin import builtin_tools
from turnwright.transcript.events import TurnEvent
from turnwright_states import Limits, Usage
from turnwright_states import facts as f

AGENT = Agent(name="Tidier")

_Part = TypeVar("_Part", bound=Part)
_Fact = TypeVar("_Fact", bound=f.Fact)


class Clock:
    """Measures the seconds of driving; only a tool makes time pass."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Turn:
    """One turn: `sent` is what the model was asked, `lines` what `turnwright run --json` prints."""

    def __init__(self, engine: Engine, model: ScriptedModel, events: list[TurnEvent], result: TurnResult) -> None:
        self.engine = engine
        self.requests = model.requests
        self.result = result
        self._events = events

    @property
    def lines(self) -> list[dict[str, object]]:
        return [json.loads(json.dumps(event.to_json())) for event in self._events]

    @property
    def ended(self) -> tuple[str, str]:
        return str(self.result.outcome), str(self.result.reason)

    @property
    def sentinels(self) -> list[tuple[str, str, str]]:
        """Kind, reason, and the figures that the text begins with."""
        return [(part.kind, part.reason, part.text.split(". ")[0]) for part in self.parts(SentinelPart)]

    def said(self, kind: str) -> list[dict[str, object]]:
        """The lines of one type."""
        return [line for line in self.lines if line["type"] == kind]

    def parts(self, kind: type[_Part]) -> list[_Part]:
        return [part for message in self.result.messages for part in message.parts if isinstance(part, kind)]

    def assistant(self) -> list[Message]:
        return [message for message in self.result.messages if message.role == "assistant"]

    async def facts(self, kind: type[_Fact]) -> list[_Fact]:
        return [fact for _, fact in await self.engine.store.facts(self.result.id) if isinstance(fact, kind)]

    async def notices(self) -> list[tuple[str, float, float]]:
        return [(notice.limit, notice.used, notice.of) for notice in await self.facts(f.Notice)]

    async def answer(self, **answers: str | bool) -> None:
        """Answer what the turn waits for: `question_1="yes"`."""
        by_id = {name.replace("_", "-"): answer for name, answer in answers.items()}
        self.result = await self.engine.resume(self.result.id, by_id)


class Play(Protocol):
    """Runs a turn. The last line of the script is repeated."""

    clock: Clock
    #: What the tools did, in order.
    done: list[str]

    async def __call__(
        self,
        *script: Line,
        agent: Agent = ...,
        limits: Limits | None = ...,
        tools: Sequence[Tool] | None = ...,
        show_budget_to_model: bool | str = ...,
        prices: dict[str, Price] | None = ...,
        synthesize: Synthesis | None = ...,
    ) -> Turn: ...

    def endless(self, calls: int = 1, *, usage: Usage | None = None, answer_at: int | None = None) -> Line: ...


class _Player:
    def __init__(self, root: Path) -> None:
        self.clock = Clock()
        self.done: list[str] = []

        @tool
        async def note(n: int = 0) -> str:
            self.done.append(f"note {n}")
            return f"noted {n}"

        @tool
        async def work(seconds: float) -> str:
            self.clock.now += seconds
            return "worked"

        @tool
        async def hang(context: ToolContext) -> None:
            self.done.append("hang")
            await self._engine.abort(context.turn_id)
            await anyio.sleep_forever()

        self.tools: list[Tool] = [note, work, hang, *builtin_tools(root)]

    async def __call__(
        self,
        *script: Line,
        agent: Agent = AGENT,
        limits: Limits | None = None,
        tools: Sequence[Tool] | None = None,
        show_budget_to_model: bool | str = False,
        prices: dict[str, Price] | None = None,
        synthesize: Synthesis | None = None,
    ) -> Turn:
        model, events = ScriptedModel(*script, repeat=True), list[TurnEvent]()
        self._engine = engine = Engine(
            model=model,
            tools=self.tools if tools is None else tools,
            limits=Limits.preset("boocode") if limits is None else limits,
            show_budget_to_model=show_budget_to_model,
            prices=prices,
            synthesize=synthesize,
            backoff=Backoff(initial=0),
            cancel_grace=0.01,
            on_event=[events.append],
            clock=self.clock,
        )
        return Turn(engine, model, events, await engine.run(agent, "Tidy utils.py"))

    def endless(self, calls: int = 1, *, usage: Usage | None = None, answer_at: int | None = None) -> Line:
        """Asks for so many calls per step, none of them twice, and answers at a step, or when its tools are gone."""
        step = 0

        def line(request: ModelRequest) -> ModelResponse:
            nonlocal step
            step += 1
            spent = usage or Usage(input_tokens=1, output_tokens=1)
            if request.tool_choice == "none" or step == answer_at:
                return ModelResponse(text="That was it.", usage=spent)
            tool_calls = (ResponseToolCall("note", {"n": calls * step + number}) for number in range(calls))
            return ModelResponse(calls=tuple(tool_calls), usage=spent)

        return line


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Runs turns with tools that take notes, take time, hang until an abort, and read the files of an empty folder."""
    return _Player(tmp_path)
