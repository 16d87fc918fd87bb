"""Scripted behaviors of tools, stand-ins that follow them in place of the real tools, and the record of a turn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, assert_never

import anyio
from pydantic import JsonValue

from turnwright.errors import Retry
from turnwright.model.protocol import ModelRequest
from turnwright.tools import RESULT_LIMIT, Ask, Tool, ToolContext, ToolError
from turnwright.tools.later import Later
from turnwright.tools.rate_limiter import RateLimiter
from turnwright_states import InterruptKind
from turnwright_states.facts import Fact

from .hook_script import Consulted

#: Longer than anybody waits: what hangs gives up after an hour.
HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Returns:
    """The tool returns a text."""

    text: str = "ok"


@dataclass(frozen=True, slots=True)
class Floods:
    """The tool returns so many bytes, more than a model is given of one result."""

    size: int = RESULT_LIMIT + 1


@dataclass(frozen=True, slots=True)
class Raises:
    """The tool raises: an error of its own, words for the model, an error that would end the process, or `Retry`."""

    error: Literal["RuntimeError", "ToolError", "SystemExit", "Retry"] = "RuntimeError"
    text: str = "boom"


@dataclass(frozen=True, slots=True)
class Hangs:
    """The tool does not return for so many seconds, unless it is canceled."""

    seconds: float = HOUR


@dataclass(frozen=True, slots=True)
class Runs:
    """The real tool runs."""


@dataclass(frozen=True, slots=True)
class Asks:
    """The call asks a person before it runs, until it has been answered so many `times`; then it does `then`.

    `expires_in` is the time to answer in seconds. `midway`: it asks in the middle of its work, and a question whatever
    the `kind`; so it runs anew for each answer.
    """

    kind: Literal[InterruptKind.QUESTION, InterruptKind.GRANT, InterruptKind.APPROVAL] = InterruptKind.APPROVAL
    times: int = 1
    expires_in: float | None = None
    then: "Returns | Floods | Raises | Hangs | Runs" = field(default_factory=Returns)
    midway: bool = False


@dataclass(frozen=True, slots=True)
class Waits:
    """The tool has a job done elsewhere: its result comes from outside, within so many seconds; None is for ever."""

    expires_in: float | None = None


Behavior = Returns | Floods | Raises | Hangs | Runs | Asks | Waits


@dataclass(frozen=True, slots=True)
class Execution:
    """One start of a tool's work. `attempt` is the attempt's number in the tool's context."""

    turn: str
    call: str
    tool: str
    attempt: int


class Stage:
    """The behaviors of a turn's calls, and a record of executions.

    The calls take the `behaviours` in the order in which they first come up, and keep theirs through pauses and
    crashes; `after_that` is everybody else's. Override `choose` to decide them in another way. One stage serves all
    engines of a scenario: it is the world outside.
    """

    def __init__(self, behaviours: Sequence[Behavior] = (), after_that: Behavior | None = None) -> None:
        self.executions: list[Execution] = []
        self._behaviours = behaviours
        self._after_that = after_that or Returns()
        self._casting: dict[str, Behavior] = {}

    def choose(self, place: int) -> Behavior:
        """Choose the behavior of the call that comes up at this place, from 0."""
        return self._behaviours[place] if place < len(self._behaviours) else self._after_that

    def behaviour(self, context: ToolContext) -> Behavior:
        """Return the behavior of this call."""
        key = context.idempotency_key
        if key not in self._casting:
            self._casting[key] = self.choose(len(self._casting))
        return self._casting[key]

    def tools(self, real: Sequence[Tool]) -> list[Tool]:
        """Return a stand-in for each of the `real` tools."""
        return [StandIn(tool, self) for tool in real]


class StandIn(Tool):
    """A stand-in for the tool `real` that follows the stage."""

    def __init__(self, real: Tool, stage: Stage) -> None:
        vars(self).update(vars(real))  # whatever it is set to: timeouts, retries, approvers and so on
        self.limiter = None if real.limiter is None else RateLimiter(real.concurrency, real.rate)
        # A stage may let any call ask a person, and its work is known by the context.
        self.read_only, self.never_asks, self.asks_by_code, self.takes_context = None, False, True, True
        self.runs_plainly = True
        self._real = real
        self._stage = stage

    def parse(self, arguments: Mapping[str, JsonValue]) -> dict[str, object]:
        """See `Tool.parse`: the real tool checks its arguments."""
        return self._real.parse(arguments)

    def plain(self, arguments: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        return self._real.plain(arguments)

    def loop_key(self, arguments: Mapping[str, JsonValue]) -> str | None:
        """See `Tool.loop_key`: the real tool names it."""
        return self._real.loop_key(arguments)

    async def awaited_loop_key(self, arguments: Mapping[str, JsonValue]) -> str | None:
        return await self._real.awaited_loop_key(arguments)

    async def asks_first(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> Ask | None:
        ask = await self._real.asks_first(arguments, context)
        behaviour = self._stage.behaviour(context)
        if ask is not None or not isinstance(behaviour, Asks) or behaviour.midway:
            return ask
        if len(context.answers) < behaviour.times:
            grant = self.name if behaviour.kind is InterruptKind.GRANT else None
            return Ask(behaviour.kind, question=f"{self.name}?", grant=grant, expires_in=behaviour.expires_in)
        return None

    async def execute(self, values: Mapping[str, object], context: ToolContext) -> object:
        """Follow the stage's behavior for this call, and record the execution."""
        self._stage.executions.append(Execution(context.turn_id, context.call_id, self.name, context.attempt))
        behaviour = self._stage.behaviour(context)
        does = behaviour.then if isinstance(behaviour, Asks) else behaviour
        if isinstance(behaviour, Asks) and behaviour.midway:
            for number in range(behaviour.times):
                context.ask(f"{self.name} {number}?", expires_in=behaviour.expires_in)
        match does:
            case Returns(text=text):
                return text
            case Floods(size=size):
                return "x" * size
            case Raises():
                raise _ERRORS[does.error](does.text)
            case Hangs(seconds=seconds):
                await anyio.sleep(seconds)
                return "after all"
            case Waits(expires_in=expires_in):
                raise Later(expires_in=expires_in)
            case Runs() if self._real.delegates:  # only the driver of a turn runs a sub-agent
                return Returns().text
            case Runs():
                return await self._real.execute(values, context)
            case _:
                assert_never(does)


_ERRORS: Final = {"RuntimeError": RuntimeError, "ToolError": ToolError, "SystemExit": SystemExit, "Retry": Retry}


@dataclass(frozen=True, slots=True)
class Driven:
    """The record of one turn that was driven, for the invariants.

    `facts` are (seq, fact) pairs as the store has them, oldest first. `requests` are the model calls that were made,
    `executions` what was begun of tools' work, `tools` what the agent may use, `consulted` the questions to scripted
    hooks and guardrails; None where nobody watched. `raised` is what came out of the engine instead of a result,
    `gave_up` why nobody waited any longer for the turn to end.
    """

    facts: Sequence[tuple[int, Fact]]
    requests: Sequence[ModelRequest] | None = None
    executions: Sequence[Execution] | None = None
    tools: Mapping[str, Tool] | None = None
    consulted: Sequence[Consulted] | None = None
    raised: str = ""
    gave_up: str = ""
