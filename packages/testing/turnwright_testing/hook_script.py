"""Scripted hooks, validators and guardrails of an agent, and stand-ins that follow the scripts."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from turnwright.agent import Agent, Compact
from turnwright.context import TurnContext
from turnwright.errors import Retry
from turnwright.hooks.decisions import CallView, ChangeRequest, ReturnResult, ToolDecision, Trip
from turnwright.hooks.guardrails import Guardrail, GuardrailKind
from turnwright.hooks.hooks import Hooks, after_model, after_tool, before_model, before_tool
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse
from turnwright.tools import ToolContext, ToolResult


@dataclass(frozen=True, slots=True)
class Refuses:
    """A hook or a validator raises `Retry` with this feedback."""

    feedback: str = "try again"


@dataclass(frozen=True, slots=True)
class HookScript:
    """The decisions of the hooks, of `prepare_tools` and of an output validator, which a scenario adds to its agent.

    `before_tool` and `after_tool` have a decision for each call of the turn, the others one for each step. None decides
    nothing, and so does every hook after its last decision. `prepare_tools` has the names of a step's tools.
    """

    before_model: tuple[ChangeRequest | None, ...] = ()
    after_model: tuple[Refuses | None, ...] = ()
    before_tool: tuple[ToolDecision | None, ...] = ()
    after_tool: tuple[ReturnResult | None, ...] = ()
    prepare_tools: tuple[tuple[str, ...] | None, ...] = ()
    validator: tuple[Refuses | None, ...] = ()


@dataclass(frozen=True, slots=True)
class GuardrailScript:
    """A guardrail, and its verdicts: on the prompt, on the reply of each step, or on each call of the turn.

    None lets it pass, and so does the guardrail after its last verdict. A `ModelError` fails the first check of this
    object, and not the next one.
    """

    kind: GuardrailKind
    verdicts: tuple[Trip | ModelError | None, ...] = ()
    run_in_parallel: bool = True
    hold_stream: bool = True


@dataclass(frozen=True, slots=True)
class Consulted:
    """A scripted hook, or a guardrail, was asked. `about` is the number of the step, or the id of the call.

    `facts` is the number of facts in the journal at that time. `tripped` says that a guardrail ended the turn. `died`
    is the number of facts when that process died, which lost a verdict that no fact has; None if it lived.
    """

    turn: str
    on: str
    about: int | str
    facts: int
    tripped: bool = False
    died: int | None = None


#: A decision.
D = TypeVar("D")
#: Returns the number of facts of a turn.
Length = Callable[[str], Awaitable[int]]


class Prompter:
    """Follows the scripts of one scenario. It serves all engines of the scenario: it is the world outside.

    `facts_of` returns the number of facts of a turn. `consulted` are the questions so far, oldest first.
    """

    def __init__(self, hooks: HookScript, guardrails: Sequence[GuardrailScript], facts_of: Length) -> None:
        self.consulted: list[Consulted] = []
        self._hooks = hooks
        self._guardrails = guardrails
        self._facts_of = facts_of
        #: The checks whose model has failed once, by guardrail, turn and object.
        self._failed: set[tuple[int, str, int]] = set()

    def instructed(self, agent: Agent, tools: Collection[str], compaction: Compact | None) -> Agent:
        """Return the agent with what the scenario adds to it. `tools` are the names of those that it may use."""
        script, additions = self._hooks, dict[str, object]()
        hooks = [hook for name, hook in self._made(tools).items() if getattr(script, name)]
        if hooks:
            additions["hooks"] = (*agent.hooks, *hooks)
        if self._guardrails:
            additions["guardrails"] = (*agent.guardrails, *map(self._guardrail, range(len(self._guardrails))))
        if script.validator and agent.is_typed:
            additions["output_validators"] = (*agent.output_validators, self._validate)
        if script.prepare_tools and agent.prepare_tools is None:
            additions["prepare_tools"] = self._prepare_tools
        if compaction is not None:
            additions["compaction"] = compaction
        return agent.model_copy(update=additions) if additions else agent

    async def process_died(self) -> None:
        """Note that what was decided so far, and is not in the journal, is lost."""
        for place, consultation in enumerate(self.consulted):
            if consultation.died is None:
                self.consulted[place] = replace(consultation, died=await self._facts_of(consultation.turn))

    def _made(self, tools: Collection[str]) -> dict[str, Hooks[object]]:
        async def scripted_before_model(ctx: TurnContext, _: ModelRequest) -> ChangeRequest | None:
            decision = await self._consult(ctx, "before_model", self._hooks.before_model)
            if decision is None or decision.tools is None:
                return decision
            return replace(decision, tools=tuple(name for name in decision.tools if name in tools))

        async def scripted_after_model(ctx: TurnContext, _: ModelResponse) -> None:
            _refuse(await self._consult(ctx, "after_model", self._hooks.after_model))

        async def scripted_before_tool(ctx: ToolContext, call: CallView) -> ToolDecision | None:
            return await self._consult(ctx, "before_tool", self._hooks.before_tool, call.id)

        async def scripted_after_tool(ctx: ToolContext, call: CallView, _: ToolResult) -> ReturnResult | None:
            return await self._consult(ctx, "after_tool", self._hooks.after_tool, call.id)

        return {
            "before_model": before_model(scripted_before_model),
            "after_model": after_model(scripted_after_model),
            "before_tool": before_tool(scripted_before_tool),
            "after_tool": after_tool(scripted_after_tool),
        }

    async def _prepare_tools(self, ctx: TurnContext, offered: tuple[str, ...]) -> Sequence[str]:
        chosen = await self._consult(ctx, "prepare_tools", self._hooks.prepare_tools)
        return offered if chosen is None else [name for name in offered if name in chosen]

    async def _validate(self, ctx: TurnContext, answer: object) -> object:
        _refuse(await self._consult(ctx, "validator", self._hooks.validator))
        return answer

    def _guardrail(self, place: int) -> Guardrail[object]:
        script = self._guardrails[place]

        async def check(ctx: TurnContext, checked: str | CallView, *_: ToolResult) -> Trip | None:
            call = checked.id if isinstance(checked, CallView) else ""
            number = 1 if script.kind is GuardrailKind.INPUT else _number(ctx, call)
            verdict: Trip | ModelError | None = await self._consult(
                ctx, f"{script.kind}_guardrail", script.verdicts, call, number
            )
            if isinstance(verdict, Trip):
                self.consulted[-1] = replace(self.consulted[-1], tripped=True)
                return verdict
            failure = (place, ctx.turn_id, number)
            if verdict is not None and failure not in self._failed:
                self._failed.add(failure)
                raise verdict.with_traceback(None)  # else it would remember every time that it was raised
            return None

        check.__name__ = f"scripted_{script.kind}_guardrail_{place + 1}"
        return Guardrail(script.kind, check, run_in_parallel=script.run_in_parallel, hold_stream=script.hold_stream)

    async def _consult(
        self, ctx: TurnContext, on: str, decisions: Sequence[D | None], call: str = "", number: int = 0
    ) -> D | None:
        """Return the decision about this step or this call, and record the question."""
        number = number or _number(ctx, call)
        facts = await self._facts_of(ctx.turn_id)
        self.consulted.append(Consulted(ctx.turn_id, on, call or ctx.step, facts))
        return decisions[number - 1] if number <= len(decisions) else None


def _number(ctx: TurnContext, call: str) -> int:
    """Return the number of the step, or that of the call in the turn, from 1."""
    return int("".join(filter(str.isdigit, call))) if call else max(ctx.step, 1)


def _refuse(decision: Refuses | None) -> None:
    if decision is not None:
        raise Retry(decision.feedback)
