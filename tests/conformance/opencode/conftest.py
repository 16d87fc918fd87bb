"""Shared by the tests of this preset: a model that never stops by itself, and a way to run it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pytest

from turnwright import Agent, Engine, Limits, Tool, TurnResult, tool
from turnwright.message import SentinelPart
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import Line, ScriptedModel, asks_for


@tool
async def note(n: int = 0) -> str:
    """Note a number."""
    return f"noted {n}"


@tool
async def look(n: int = 0) -> str:
    """Look at a number."""
    return f"seen {n}"


class Endless(ScriptedModel):
    """Asks for another note at each call, until its call `answers_at`, or until tools are disabled."""

    def __init__(self, *, answers_at: int = 0, last: Line = "Half is done; the rest is not.") -> None:
        super().__init__(self._say, repeat=True)
        self._answers_at, self._last = answers_at, last

    def _say(self, request: ModelRequest) -> ModelResponse | str:
        if request.tool_choice == "none":
            return self._last if isinstance(self._last, str | ModelResponse) else "Done."
        if len(self.requests) == self._answers_at:
            return "Done."
        return asks_for(("note", {"n": len(self.requests)}))


@dataclass
class Ran:
    """A turn with what its model was sent."""

    turn: TurnResult
    requests: list[ModelRequest]
    engine: Engine
    sentinels: list[str] = field(default_factory=list)

    @property
    def ended(self) -> tuple[str, str]:
        """Outcome and reason."""
        return str(self.turn.outcome), str(self.turn.reason)

    @property
    def choices(self) -> str:
        """For each model call `a` where tools were allowed and `n` where they were disabled."""
        return "".join(request.tool_choice[0] for request in self.requests)


class Play(Protocol):
    """Runs a turn under the preset."""

    async def __call__(
        self, model: ScriptedModel, agent: Agent | None = None, *, tools: Sequence[Tool] = (), **changes: object
    ) -> Ran:
        """Run it with the preset's limits, changed by field name; the tools come beside `note` and `look`."""
        ...

    def endless(self, *, answers_at: int = 0, last: Line = ...) -> ScriptedModel:
        """A model that never stops by itself."""
        ...


class _Player:
    endless = Endless

    async def __call__(
        self, model: ScriptedModel, agent: Agent | None = None, *, tools: Sequence[Tool] = (), **changes: object
    ) -> Ran:
        engine = Engine(model=model, tools=[note, look, *tools], limits=Limits.preset("opencode", **changes))
        turn = await engine.run(agent or Agent(name="build"), "Tidy up.")
        sentinels = [part.text for m in turn.messages for part in m.parts if isinstance(part, SentinelPart)]
        return Ran(turn, model.requests, engine, sentinels)


@pytest.fixture
def play() -> Play:
    """Runs turns under the preset `opencode`."""
    return _Player()
