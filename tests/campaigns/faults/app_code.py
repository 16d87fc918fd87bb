"""The hooks, the guardrails and the typed answer of a trial's agent. Each decision depends on its object alone."""

from dataclasses import dataclass
from typing import Final

from turnwright.agent import Agent, Compact
from turnwright.context import TurnContext
from turnwright.errors import Retry
from turnwright.hooks.decisions import (
    CallView,
    ChangeArguments,
    ChangeRequest,
    Reject,
    RequireApproval,
    ReturnResult,
    ToolDecision,
    Trip,
)
from turnwright.hooks.guardrails import (
    Guardrail,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
    tool_output_guardrail,
)
from turnwright.hooks.hooks import Hooks, after_model, after_tool, before_model, before_tool
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.tools import ToolContext, ToolResult
from turnwright_testing.faults import Witness
from turnwright_testing.faults.audit import CONSULTED, TRIPPED

from .plan import Plan

NAME: Final = "Clerk"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The typed answer of a trial."""

    total: int


def agent_of(plan: Plan, witness: Witness) -> "Agent[object, object]":
    """Return the agent of a trial, with the plan's features."""
    code = _AppCode(plan, witness)
    features: dict[str, object] = {}
    if "guardrails" in plan.features:
        features["guardrails"] = code.guardrails()
    if "compaction" in plan.features:
        mode = "summarize" if plan.chosen("mode", 3) else "clear_tool_results"
        features["compaction"] = Compact(at_tokens=20, keep_steps=1, mode=mode, max_compactions=2)
    if "typed" in plan.features:
        features["output_type"] = Receipt
        features["output_validators"] = (code.validate,)
    return Agent.model_validate({"name": NAME, "hooks": code.hooks(), **features})


class _AppCode:
    """Functions of an app, and a note in the witness for each question to them."""

    def __init__(self, plan: Plan, witness: Witness) -> None:
        self._plan = plan
        self._witness = witness

    def hooks(self) -> tuple[Hooks[object], ...]:
        by_feature = {
            "before_model": before_model(self._before_model),
            "after_model": after_model(self._after_model),
            "before_tool": before_tool(self._before_tool),
            "after_tool": after_tool(self._after_tool),
        }
        return tuple(hook for name, hook in by_feature.items() if name in self._plan.features)

    def guardrails(self) -> tuple[Guardrail[object], ...]:
        return (
            input_guardrail(run_in_parallel=bool(self._plan.chosen("parallel", 2)))(self._input),
            output_guardrail(self._output),
            tool_input_guardrail(self._tool_input),
            tool_output_guardrail(self._tool_output),
        )

    async def _before_model(self, ctx: TurnContext, _: ModelRequest) -> ChangeRequest | None:
        return (ChangeRequest(append=(f"It is step {ctx.step}.",)), None)[self._chosen("before_model", ctx.step, 2)]

    async def _after_model(self, ctx: TurnContext, _: ModelResponse) -> None:
        if not self._chosen("after_model", ctx.step, 5):
            raise Retry("say it again")

    async def _before_tool(self, _: ToolContext, call: CallView) -> ToolDecision | None:
        decisions: tuple[ToolDecision | None, ...] = (
            ChangeArguments({"n": 7}),
            ChangeArguments({"m": 7}),
            Reject("not now"),
            RequireApproval("really?"),
            ReturnResult("known already"),
            None,
            None,
            None,
        )
        return decisions[self._chosen("before_tool", call.id, len(decisions))]

    async def _after_tool(self, _: ToolContext, call: CallView, __: ToolResult) -> ReturnResult | None:
        return (ReturnResult("hidden"), None, None)[self._chosen("after_tool", call.id, 3)]

    async def validate(self, ctx: TurnContext, answer: object) -> object:
        if not self._chosen("validator", ctx.step, 3):
            raise Retry("count again")
        return answer

    async def _input(self, _: TurnContext, __: str) -> Trip | None:
        return self._verdict("input_guardrail", 1)

    async def _output(self, ctx: TurnContext, _: str) -> Trip | None:
        return self._verdict("output_guardrail", ctx.step)

    async def _tool_input(self, _: ToolContext, call: CallView) -> Trip | None:
        return self._verdict("tool_input_guardrail", call.id)

    async def _tool_output(self, _: ToolContext, call: CallView, __: ToolResult) -> Trip | None:
        return self._verdict("tool_output_guardrail", call.id)

    def _verdict(self, on: str, about: int | str) -> Trip | None:
        number = int("".join(filter(str.isdigit, str(about))))
        trips = number == self._plan.trips and not self._plan.chosen(on, 2)
        self._witness.note(CONSULTED, on, about, TRIPPED if trips else "passed")
        return Trip("no") if trips else None

    def _chosen(self, on: str, about: int | str, below: int) -> int:
        self._witness.note(CONSULTED, on, about, "asked")
        return self._plan.chosen(f"{on}/{about}", below)
