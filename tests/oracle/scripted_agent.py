"""The agent of a scripted turn: its hooks, guardrails, typed answer and compaction, as the script says."""

from collections import Counter
from collections.abc import Callable
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
from turnwright.model.protocol import ModelError, ModelRequest, ModelResponse
from turnwright.tools import ToolContext, ToolResult
from turnwright_states import Cause

#: The word for no decision, in a prompt.
_NONE: Final = "-"
#: More than the time of a hook.
_TOO_LONG: Final = 1_000.0

_TRIP: Final = Trip("It trips, as its script says.")


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
    decides = _Decisions(script, current_reply)
    most = script.compactions
    plain = Agent(
        name="Scripted",
        hooks=decides.hooks(),
        guardrails=decides.guardrails(),
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
    typed: dict[str, object] = {"output_type": Answer, "output_mode": "tool", "output_validators": (_validated,)}
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


async def _validated(_: TurnContext[None], answer: Answer) -> Answer:
    if answer.does == "retry":
        raise Retry("Once more.")
    return answer


@dataclass(frozen=True, slots=True)
class _Decisions:
    """The decisions of one script."""

    script: TurnScript
    current_reply: Callable[[], ScriptedReply]
    #: The number of times that the guardrails of prompts and of replies were asked.
    ask_counts: Counter[str] = field(default_factory=Counter)

    def hooks(self) -> list[Hooks[None]]:
        hooks: list[Hooks[None]] = []
        if self.script.offered:
            hooks.append(before_model(self._offer))
        if self.script.hooked:
            hooks.append(after_model(timeout=LATE_AFTER)(self._judge_reply))
            hooks += _hooks_of_calls(LATE_AFTER)
        return hooks

    def guardrails(self) -> list[Guardrail[None]]:
        guardrails: list[Guardrail[None]] = []
        prompt = self.script.guardrail
        if prompt is not None:
            guardrails.append(input_guardrail(run_in_parallel=prompt.parallel)(self._check_prompt))
        if self.script.hooked:
            guardrails += [output_guardrail(self._check_reply), *_guardrails_of_calls()]
        return guardrails

    async def _offer(self, ctx: TurnContext[None], _: ModelRequest) -> ChangeRequest | None:
        offered = self.script.offered
        names = offered[(max(ctx.step, 1) - 1) % len(offered)]
        if names == "raise":
            raise RuntimeError
        return None if names is None else ChangeRequest(tools=names)

    async def _judge_reply(self, _: TurnContext[None], __: ModelResponse) -> None:
        await _fail(self.current_reply().fault)
        if self.current_reply().refused:
            raise Retry("Not this.")

    async def _check_prompt(self, _: TurnContext[None], text: str) -> Trip | None:
        if text != PROMPT:  # the script has no verdict on text that enters later
            return None
        guardrail = self.script.guardrail
        assert guardrail is not None
        await anyio.sleep(guardrail.seconds)
        self._fail_its_model("prompt", guardrail.fault)
        if guardrail.raises:
            raise RuntimeError
        return _TRIP if guardrail.trips else None

    async def _check_reply(self, _: TurnContext[None], __: str) -> Trip | None:
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


def _hooks_of_calls(timeout: float) -> list[Hooks[None]]:
    return [before_tool(timeout=timeout)(_decide), after_tool(timeout=timeout)(_replace)]


def _guardrails_of_calls() -> list[Guardrail[None]]:
    return [tool_input_guardrail(_check_call), tool_output_guardrail(_check_result)]


def _scripted(call: CallView) -> tuple[object, object]:
    """Return the decisions before and after a call, which are in its arguments."""
    prompt = call.arguments.get("prompt")
    if isinstance(prompt, str):
        _, _, _, before, after = prompt.split()
        return before, after
    return call.arguments.get("before"), call.arguments.get("after")


async def _decide(ctx: ToolContext[None], call: CallView) -> ToolDecision | None:  # noqa: PLR0911 (one for each decision)
    before, _after = _scripted(call)
    await _fail(before, _later(ctx))
    match before:
        case "change":
            number = call.arguments.get("number")
            if not isinstance(number, int):
                return ChangeArguments({"prompt": f"{CHANGED_BY}{call.arguments['prompt']}"})
            return ChangeArguments({**call.arguments, "number": number + CHANGED_BY})
        case "spoil":
            return ChangeArguments({**call.arguments, "number": "none"})
        case "reject":
            return Reject("Not that.")
        case "ask":
            return RequireApproval("Really?")
        case "result":
            return ReturnResult("Known.")
        case _:
            return None


async def _replace(ctx: ToolContext[None], call: CallView, __: ToolResult) -> ReturnResult | None:
    _before, after = _scripted(call)
    await _fail(after, _later(ctx))
    return ReturnResult("Hidden.") if after == "hide" else None


def _later(ctx: ToolContext[None]) -> float:
    return LATER_IN_HELPER if ctx.agent == HELPER else 0.0


async def _fail(fault: object, later: float = 0.0) -> None:
    """Raise, or take too long, if the script says so."""
    if fault == "raise":
        await anyio.sleep(RAISES_AFTER + later)
        raise RuntimeError
    if fault == "late":
        await anyio.sleep(_TOO_LONG)


async def _check_call(ctx: ToolContext[None], call: CallView) -> Trip | None:
    return await _trip_later(_later(ctx), trips=_scripted(call)[0] == "trip")


async def _check_result(ctx: ToolContext[None], call: CallView, __: ToolResult) -> Trip | None:
    return await _trip_later(_later(ctx), trips=_scripted(call)[1] == "trip")


async def _trip_later(later: float, *, trips: bool) -> Trip | None:
    if not trips:
        return None
    await anyio.sleep(TRIPS_AFTER + later)
    return _TRIP
