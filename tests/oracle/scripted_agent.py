"""The agent of a scripted turn: its hooks, guardrails, typed answer and compaction, as the script says."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import anyio
from pydantic import BaseModel
from tests.oracle.turn_script import (
    CHANGED_BY,
    HELPER,
    LATE_AFTER,
    LATER_IN_HELPER,
    LONG,
    RAISES_AFTER,
    TRIPS_AFTER,
    ScriptedCall,
    ScriptedReply,
    TurnScript,
)

from turnwright.agent import Agent, Compact
from turnwright.driver.hooks.decisions import (
    CallView,
    ChangeArguments,
    ChangeRequest,
    Reject,
    RequireApproval,
    ReturnResult,
    ToolDecision,
    Trip,
)
from turnwright.driver.hooks.guardrails import Guardrail, GuardrailKind
from turnwright.driver.hooks.hooks import Hooks
from turnwright.model.protocol import ModelError
from turnwright_states import Cause
from turnwright_testing.hook_script import DecidedCode, Decision, HookQuestion, Refuses

#: The word for no decision, in a prompt.
_NONE: Final = "-"
#: More than the time of a hook.
_TOO_LONG: Final = 1_000.0

_TRIP: Final = Trip("It trips, as its script says.")
_DECISIONS: Final[Mapping[str, ToolDecision]] = {
    "reject": Reject("Not that."),
    "ask": RequireApproval("Really?"),
    "result": ReturnResult("Known."),
}


class Answer(BaseModel):
    """The typed answer: the arguments of a scripted call."""

    number: int
    does: str
    seconds: float
    before: str = ""
    after: str = ""


#: The prompt of a scripted turn.
PROMPT: Final = "Begin."


def scripted_agent(script: TurnScript, current_reply: Callable[[], ScriptedReply]) -> Agent[None, object]:
    """Return the agent of a scripted turn. `current_reply` returns the model's last reply."""
    code = DecidedCode(_Decisions(script, current_reply).decide)
    hooks = [code.hook("before_model")] if script.offered else []
    guardrails = []
    if script.guardrail is not None:
        guardrails.append(code.guardrail(GuardrailKind.INPUT, run_in_parallel=script.guardrail.parallel))
    if script.hooked:
        hooks += [code.hook("after_model", timeout=LATE_AFTER), *_hooks_of_calls(LATE_AFTER)]
        guardrails += [code.guardrail(GuardrailKind.OUTPUT), *_guardrails_of_calls()]
    most = script.compactions
    plain = Agent(
        name="Scripted",
        hooks=hooks,
        guardrails=guardrails,
        compaction=Compact(
            mode="clear_tool_results" if script.clears else "summarize",
            at_tokens=LONG,
            keep_steps=script.keep_steps,
            max_compactions=most,
        )
        if most
        else None,
    )
    if not script.typed:
        return plain
    typed: dict[str, object] = {"output_type": Answer, "output_mode": "tool", "output_validators": (code.validate,)}
    return plain.model_copy(update=typed)


def helpers(script: TurnScript) -> list[Agent[None, object]]:
    """Return the sub-agent of a scripted turn, if it has one."""
    tools = [tool.name for tool in script.tools]
    helper = Agent(
        name=HELPER,
        description="It helps.",
        mode="subagent",
        model=HELPER,
        tools=tools,
        hooks=_hooks_of_calls(LATE_AFTER + LATER_IN_HELPER) if script.hooked else [],
        guardrails=_guardrails_of_calls() if script.hooked else [],
    )
    return [helper] if script.helper else []


@dataclass(frozen=True, slots=True)
class _Decisions:
    """The decisions of one script about requests, replies, answers and texts."""

    script: TurnScript
    current_reply: Callable[[], ScriptedReply]
    #: The number of times that the guardrails of prompts and of replies were asked.
    ask_counts: Counter[str] = field(default_factory=Counter)

    async def decide(self, question: HookQuestion) -> Decision:
        match question.on:
            case "before_model":
                return self._offer(question.number)
            case "after_model":
                await _fail(self.current_reply().fault)
                return Refuses("Not this.") if self.current_reply().refused else None
            case "validator":
                return Refuses("Once more.") if getattr(question.subject, "does", "") == "retry" else None
            case "input_guardrail":
                return await self._check_prompt(question.subject)
            case _:
                return self._check_reply()

    def _offer(self, step: int) -> ChangeRequest | None:
        offered = self.script.offered
        names = offered[(step - 1) % len(offered)]
        if names == "raise":
            raise RuntimeError
        return None if names is None else ChangeRequest(tools=names)

    async def _check_prompt(self, text: object) -> Trip | None:
        guardrail = self.script.guardrail
        if text != PROMPT or guardrail is None:  # the script has no verdict on text that enters later
            return None
        await anyio.sleep(guardrail.seconds)
        self._fail_its_model("prompt", guardrail.fault)
        if guardrail.raises:
            raise RuntimeError
        return _TRIP if guardrail.trips else None

    def _check_reply(self) -> Trip | None:
        reply = self.current_reply()
        self._fail_its_model("reply", reply.fault)
        if reply.fault == "guardrail":
            raise RuntimeError
        return _TRIP if reply.trips else None

    def _fail_its_model(self, kind: str, fault: str) -> None:
        """Count that a guardrail is asked. Raises the error of its own model, if the script says so."""
        self.ask_counts[kind] += 1
        if fault == "model" or (fault == "once" and self.ask_counts[kind] % 2):
            raise ModelError("scripted", cause=Cause.SERVER_ERROR)


def prompt_of(call: ScriptedCall) -> str:
    """Return the prompt of a sub-agent, from which the hooks read their decisions."""
    return f"{call.number} {call.does} {call.seconds} {call.before or _NONE} {call.after or _NONE}"


def _hooks_of_calls(timeout: float) -> list[Hooks[object]]:
    code = DecidedCode(_decide_call)
    return [code.hook("before_tool", timeout), code.hook("after_tool", timeout)]


def _guardrails_of_calls() -> list[Guardrail[object]]:
    code = DecidedCode(_decide_call)
    return [code.guardrail(GuardrailKind.TOOL_INPUT), code.guardrail(GuardrailKind.TOOL_OUTPUT)]


async def _decide_call(question: HookQuestion) -> Decision:
    """Decide about a call as its arguments say."""
    call = question.subject
    assert isinstance(call, CallView)
    before, after = _scripted(call)
    is_before = question.on in ("before_tool", "tool_input_guardrail")
    decision = before if is_before else after
    later = LATER_IN_HELPER if question.ctx.agent == HELPER else 0.0
    if question.on.endswith("_guardrail"):
        if decision != "trip":
            return None
        await anyio.sleep(TRIPS_AFTER + later)
        return _TRIP
    await _fail(decision, later)
    if is_before:
        return _decision(before, call)
    return ReturnResult("Hidden.") if after == "hide" else None


def _scripted(call: CallView) -> tuple[object, object]:
    """Return the decisions before and after a call, which are in its arguments."""
    prompt = call.arguments.get("prompt")
    if isinstance(prompt, str):
        _, _, _, before, after = prompt.split()
        return before, after
    return call.arguments.get("before"), call.arguments.get("after")


def _decision(before: object, call: CallView) -> ToolDecision | None:
    number = call.arguments.get("number")
    if before == "change" and isinstance(number, int):
        return ChangeArguments({**call.arguments, "number": number + CHANGED_BY})
    if before == "change":
        return ChangeArguments({"prompt": f"{CHANGED_BY}{call.arguments['prompt']}"})
    if before == "spoil":
        return ChangeArguments({**call.arguments, "number": "none"})
    return _DECISIONS.get(str(before))


async def _fail(fault: object, later: float = 0.0) -> None:
    """Raise, or take too long, if the script says so."""
    if fault == "raise":
        await anyio.sleep(RAISES_AFTER + later)
        raise RuntimeError
    if fault == "late":
        await anyio.sleep(_TOO_LONG)
