"""Shared by the tests of this preset: a model that never stops by itself, and a way to run it."""

from dataclasses import dataclass
from typing import Protocol

import pytest

from turnwright import Agent, Engine, Limits, TurnResult, tool
from turnwright.message import SentinelPart
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright_states.facts import Notice


@tool
async def note(n: int = 0) -> str:
    """Note a number."""
    return f"noted {n}"


class Endless(ScriptedModel):
    """Asks for another note at each call, until its call `answers_at`, or until tools are disabled."""

    def __init__(self, *, answers_at: int = 0, last: "Last" = "Half is done; the rest is not.") -> None:
        super().__init__(self._say, repeat=True)
        self._answers_at, self._last = answers_at, last

    def _say(self, request: ModelRequest) -> "Last":
        if request.tool_choice == "none":
            return self._last
        return "Done." if len(self.requests) == self._answers_at else asks_for(("note", {"n": len(self.requests)}))


Last = ModelResponse | str | ModelError


@dataclass
class Ran:
    """A turn with what its model was sent."""

    turn: TurnResult
    requests: list[ModelRequest]
    engine: Engine

    @property
    def ended(self) -> tuple[str, str]:
        """Outcome and reason."""
        return str(self.turn.outcome), str(self.turn.reason)

    @property
    def choices(self) -> str:
        """For each model call `a` where tools were allowed and `n` where they were disabled."""
        return "".join(request.tool_choice[0] for request in self.requests)

    @property
    def sentinels(self) -> list[str]:
        """The texts of the turn's sentinels."""
        return [part.text for m in self.turn.messages for part in m.parts if isinstance(part, SentinelPart)]

    async def notices(self) -> list[Notice]:
        """The notices of steps."""
        facts = await self.engine.store.facts(self.turn.id)
        return [fact for _, fact in facts if isinstance(fact, Notice) and fact.limit == "steps"]


class Play(Protocol):
    """Runs a turn under the preset."""

    async def __call__(self, model: ScriptedModel, agent: Agent | None = None, **changes: object) -> Ran:
        """Run it with the preset's limits, changed by field name."""
        ...

    def endless(self, *, answers_at: int = 0, last: Last = ...) -> ScriptedModel:
        """A model that never stops by itself."""
        ...


class _Player:
    endless = Endless

    async def __call__(self, model: ScriptedModel, agent: Agent | None = None, **changes: object) -> Ran:
        engine = Engine(model=model, tools=[note], limits=Limits.preset("glm-cli", **changes))
        return Ran(await engine.run(agent or Agent(name="glm"), "Tidy up."), model.requests, engine)


@pytest.fixture
def play() -> Play:
    """Runs turns under the preset `glm-cli`."""
    return _Player()
