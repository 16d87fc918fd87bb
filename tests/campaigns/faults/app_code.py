"""The hooks, the guardrails and the typed answer of a trial's agent. Each decision depends on its object alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from turnwright.agent import Agent, Compact
from turnwright.driver.hooks.decisions import (
    ChangeArguments,
    ChangeRequest,
    Reject,
    RequireApproval,
    ReturnResult,
    Trip,
)
from turnwright.driver.hooks.guardrails import GuardrailKind
from turnwright_testing.faults import Witness
from turnwright_testing.hook_script import DecidedCode, Decision, HookQuestion, Refuses

from .plan import HELPER_TOOLS, Plan

NAME: Final = "Clerk"
#: A question to a hook, in the witness: `consulted {hook} {step or call} {decision}`.
CONSULTED: Final = "consulted"
TRIPPED: Final = "tripped"
#: The sub-agent of each trial, which has no code of the app.
HELPER: Final = Agent(name="Helper", description="Helps.", mode="subagent", tools=HELPER_TOOLS)
#: What each hook, and the validator, may decide.
_DECISIONS: Final[Mapping[str, tuple[Decision, ...]]] = {
    "before_model": (ChangeRequest(), None),
    "after_model": (Refuses("say it again"), None, None, None, None),
    "before_tool": (
        ChangeArguments({"n": 7}),
        ChangeArguments({"m": 7}),
        Reject("not now"),
        RequireApproval("really?"),
        ReturnResult("known already"),
        None,
        None,
        None,
    ),
    "after_tool": (ReturnResult("hidden"), None, None),
    "validator": (Refuses("count again"), None, None),
}


@dataclass(frozen=True, slots=True)
class Receipt:
    """The typed answer of a trial."""

    total: int


def agent_of(plan: Plan, witness: Witness) -> "Agent[object, object]":
    """Return the agent of a trial, with the plan's features."""
    code = DecidedCode(_AppCode(plan, witness).decide)
    hooks = [code.hook(name) for name in _DECISIONS if name in plan.features]
    features: dict[str, object] = {}
    if "guardrails" in plan.features:
        in_parallel = bool(plan.chosen("parallel", 2))
        features["guardrails"] = [code.guardrail(kind, run_in_parallel=in_parallel) for kind in GuardrailKind]
    if "compaction" in plan.features:
        mode = "summarize" if plan.chosen("mode", 3) else "clear_tool_results"
        features["compaction"] = Compact(at_tokens=20, keep_steps=1, mode=mode, max_compactions=2)
    if "typed" in plan.features:
        features["output_type"] = Receipt
        features["output_validators"] = (code.validate,)
    return Agent.model_validate({"name": NAME, "hooks": hooks, **features})


class _AppCode:
    """The decisions of a plan, and a note in the witness for each question."""

    def __init__(self, plan: Plan, witness: Witness) -> None:
        self._plan = plan
        self._witness = witness

    async def decide(self, question: HookQuestion) -> Decision:
        on, about = question.on, 1 if question.on == "input_guardrail" else question.about
        if on.endswith("_guardrail"):
            trips = question.number == self._plan.trips and not self._plan.chosen(on, 2)
            self._witness.note(CONSULTED, on, about, TRIPPED if trips else "passed")
            return Trip("no") if trips else None
        self._witness.note(CONSULTED, on, about, "asked")
        decisions = _DECISIONS[on]
        decision = decisions[self._plan.chosen(f"{on}/{about}", len(decisions))]
        return ChangeRequest(append=(f"It is step {about}.",)) if isinstance(decision, ChangeRequest) else decision
