"""What turns are driven with: the models, the tools, and the embedder's hooks."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from turnwright_states import CallStatus, Usage

from .agent import Agent
from .errors import ConfigError
from .message import Message
from .model.protocol import Model
from .model.retry import Backoff
from .tools.tool import Tool


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """A call of a batch with its result, as a synthesis sees it."""

    name: str
    arguments: Mapping[str, object]
    status: CallStatus
    text: str


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs for a million tokens, in whatever currency the limits' `cost` is in."""

    input: float
    output: float

    def of(self, usage: Usage) -> Usage:
        """The same usage with its cost."""
        cost = (usage.input_tokens * self.input + usage.output_tokens * self.output) / 1_000_000
        return usage.model_copy(update={"cost": cost})


Prepare = Callable[[tuple[Message, ...]], Awaitable[Sequence[Message]]]
Synthesis = Callable[[tuple[FinishedCall, ...]], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class Setup:
    """What a driver is given.

    `model` serves every agent that names none; `models` finds the model that an agent names. `prepare` may change
    what is sent, never what is stored. `synthesise` is offered each finished batch. `parallel` bounds the calls that
    run at once in a turn, `grace` is how long tools may go on after an abort, `poll` how often the inbox of a store
    that others write to is looked at (both in seconds). `now` is the wall clock, for the expiry of interrupts.
    """

    model: Model | None = None
    models: Callable[[str], Model] | None = None
    tools: Mapping[str, Tool] = field(default_factory=dict)
    prices: Mapping[str, Price] = field(default_factory=dict)
    prepare: Prepare | None = None
    synthesise: Synthesis | None = None
    backoff: Backoff = field(default_factory=Backoff)
    parallel: int = 8
    grace: float = 1.0
    poll: float = 0.25
    now: Callable[[], float] = time.time

    def model_for(self, agent: Agent) -> Model:
        """The agent's model. Raises `ConfigError` when there is none."""
        if agent.model is not None and self.models is not None:
            return self.models(agent.model)
        if self.model is None:
            raise ConfigError(f"agent {agent.name!r}: no model: give the engine one, or name one in the agent")
        return self.model

    def tools_for(self, agent: Agent) -> dict[str, Tool]:
        """The agent's tools by name, in the order in which they were given. Raises `ConfigError` for an unknown one."""
        if agent.tools is None:
            return dict(self.tools)
        unknown = [name for name in agent.tools if name not in self.tools]
        if unknown:
            offered = ", ".join(self.tools) or "none"
            raise ConfigError(f"agent {agent.name!r}: tools: there is no tool {unknown[0]!r} (offered: {offered})")
        return {name: tool for name, tool in self.tools.items() if name in agent.tools}
