"""Scripted hooks, validators and guardrails of an agent, and stand-ins that follow the scripts."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar, cast

from turnwright.agent import Agent, Compact
from turnwright.context import TurnContext
from turnwright.driver.hooks.asking import TIMEOUT
from turnwright.driver.hooks.decisions import CallView, ChangeRequest, ReturnResult, ToolDecision, Trip
from turnwright.driver.hooks.guardrails import Guardrail, GuardrailKind
from turnwright.driver.hooks.hooks import Hooks, after_model, after_tool, before_model, before_tool
from turnwright.errors import Retry
from turnwright.model.protocol import ModelError

T = TypeVar("T")


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


#: What a hook, a validator or a guardrail decides. `Refuses` and errors are raised, and the others are returned.
Decision = ChangeRequest | ToolDecision | Refuses | Trip | ModelError | tuple[str, ...] | None
#: Returns the number of facts of a turn.
Length = Callable[[str], Awaitable[int]]

_HOOKS: Final[Mapping[str, object]] = {
    "before_model": before_model,
    "after_model": after_model,
    "before_tool": before_tool,
    "after_tool": after_tool,
}


@dataclass(frozen=True, slots=True)
class HookQuestion:
    """A question to an app's code: the hook, the validator or the guardrail, and the `subject` that it is shown.

    The subject is a request, a response, a call, a text or an answer. `place` is that of the guardrail.
    """

    on: str
    ctx: TurnContext
    subject: object
    place: int = 0

    @property
    def about(self) -> int | str:
        """Return the id of the call, or the number of the step."""
        return self.subject.id if isinstance(self.subject, CallView) else self.ctx.step

    @property
    def number(self) -> int:
        """Return the number of the prompt, of the step, or of the call in the turn, from 1."""
        if self.on == f"{GuardrailKind.INPUT}_guardrail":
            return 1
        return max(int("".join(filter(str.isdigit, str(self.about)))), 1)


class DecidedCode:
    """The code of an app that takes part in a turn: hooks, guardrails and so on, all of which ask `decide`."""

    def __init__(self, decide: Callable[[HookQuestion], Awaitable[Decision]]) -> None:
        self._decide = decide

    def hook(self, on: str, timeout: float | None = TIMEOUT) -> Hooks[object]:
        """Return the hook of this name."""

        async def hook(ctx: TurnContext, subject: object, *_: object) -> Decision:
            return await self._ask(HookQuestion(on, ctx, subject))

        hook.__name__ = f"scripted_{on}"
        decorator = cast("Callable[..., Callable[[object], Hooks[object]]]", _HOOKS[on])
        return decorator(timeout=timeout)(hook)

    def guardrail(
        self, kind: GuardrailKind, place: int = 0, *, run_in_parallel: bool = True, hold_stream: bool = True
    ) -> Guardrail[object]:
        """Return a guardrail of this kind."""

        async def check(ctx: TurnContext, subject: object, *_: object) -> Decision:
            return await self._ask(HookQuestion(f"{kind}_guardrail", ctx, subject, place))

        check.__name__ = f"scripted_{kind}_guardrail_{place + 1}"
        return Guardrail(kind, check, run_in_parallel=run_in_parallel, hold_stream=hold_stream)

    async def validate(self, ctx: TurnContext, answer: T) -> T:
        """Return a typed answer, if it is not refused."""
        await self._ask(HookQuestion("validator", ctx, answer))
        return answer

    async def prepare_tools(self, ctx: TurnContext, tool_names: tuple[str, ...]) -> Sequence[str]:
        """Return the names of a step's tools."""
        answer = await self._ask(HookQuestion("prepare_tools", ctx, tool_names))
        return [name for name in tool_names if name in answer] if isinstance(answer, tuple) else tool_names

    async def _ask(self, question: HookQuestion) -> Decision:
        decision = await self._decide(question)
        if isinstance(decision, Refuses):
            raise Retry(decision.feedback)
        if isinstance(decision, ModelError):
            raise decision.with_traceback(None)  # else it would remember every time that it was raised
        return decision


class Prompter:
    """Follows the scripts of one scenario. It serves all engines of the scenario: it is the world outside.

    `facts_of` returns the number of facts of a turn. `consulted` are the questions so far, oldest first.
    """

    def __init__(self, hooks: HookScript, guardrails: Sequence[GuardrailScript], facts_of: Length) -> None:
        self.consulted: list[Consulted] = []
        self._hooks = hooks
        self._guardrails = guardrails
        self._facts_of = facts_of
        self._tools: Collection[str] = ()
        #: The checks whose model has failed once, by guardrail, turn and object.
        self._failed: set[tuple[int, str, int]] = set()

    def instruct(self, agent: Agent, tools: Collection[str], compaction: Compact | None) -> Agent:
        """Return the agent with what the scenario adds to it. `tools` are the names of those that it may use."""
        script, code, additions = self._hooks, DecidedCode(self._decide), dict[str, object]()
        self._tools = tools
        hooks = [code.hook(name) for name in _HOOKS if getattr(script, name)]
        if hooks:
            additions["hooks"] = (*agent.hooks, *hooks)
        if self._guardrails:
            guardrails = [
                code.guardrail(
                    guardrail.kind,
                    place,
                    run_in_parallel=guardrail.run_in_parallel,
                    hold_stream=guardrail.hold_stream,
                )
                for place, guardrail in enumerate(self._guardrails)
            ]
            additions["guardrails"] = (*agent.guardrails, *guardrails)
        if script.validator and agent.is_typed:
            additions["output_validators"] = (*agent.output_validators, code.validate)
        if script.prepare_tools and agent.prepare_tools is None:
            additions["prepare_tools"] = code.prepare_tools
        if compaction is not None:
            additions["compaction"] = compaction
        return agent.model_copy(update=additions) if additions else agent

    async def process_died(self) -> None:
        """Note that what was decided so far, and is not in the journal, is lost."""
        for place, consultation in enumerate(self.consulted):
            if consultation.died is None:
                self.consulted[place] = replace(consultation, died=await self._facts_of(consultation.turn))

    async def _decide(self, question: HookQuestion) -> Decision:
        """Return the decision about this step or this call, and record the question."""
        turn, number = question.ctx.turn_id, question.number
        is_guardrail = question.on.endswith("_guardrail")
        decisions: Sequence[Decision] = (
            self._guardrails[question.place].verdicts if is_guardrail else getattr(self._hooks, question.on)
        )
        decision = decisions[number - 1] if number <= len(decisions) else None
        facts, is_trip = await self._facts_of(turn), isinstance(decision, Trip)
        self.consulted.append(Consulted(turn, question.on, question.about, facts, is_trip))
        failure = (question.place, turn, number)
        if isinstance(decision, ModelError) and failure in self._failed:
            return None
        if isinstance(decision, ModelError):
            self._failed.add(failure)
        if isinstance(decision, ChangeRequest) and decision.tools is not None:
            return replace(decision, tools=tuple(name for name in decision.tools if name in self._tools))
        return decision
