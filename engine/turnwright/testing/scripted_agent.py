"""The agent of a scripted turn: its hooks, guardrails, typed answer and compaction, as the script says."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import anyio
from pydantic import BaseModel

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

from .turn_script import CHANGED_BY, HELPER, LATE_AFTER, LONG, RAISES_AFTER, TRIPS_AFTER, ScriptedReply, TurnScript

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


def scripted_agent(script: TurnScript, said: Callable[[], ScriptedReply]) -> Agent[None, object]:
    """Return the agent of a scripted turn. `said` returns the model's last reply."""
    decides = _Decisions(script, said)
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
    helper = Agent(name=HELPER, description="It helps.", mode="subagent", model=HELPER, tools=tools)
    return [helper] if script.helper else []


async def _validated(_: TurnContext[None], answer: Answer) -> Answer:
    if answer.does == "retry":
        raise Retry("Once more.")
    return answer


@dataclass(frozen=True, slots=True)
class _Decisions:
    """The decisions of one script."""

    script: TurnScript
    said: Callable[[], ScriptedReply]
    #: How often the guardrails of prompts and of replies were asked.
    asked: Counter[str] = field(default_factory=Counter)

    def hooks(self) -> list[Hooks[None]]:
        hooks: list[Hooks[None]] = []
        if self.script.offered:
            hooks.append(before_model(self._offer))
        if self.script.hooked:
            hooks.append(after_model(timeout=LATE_AFTER)(self._judge_reply))
            hooks += [before_tool(timeout=LATE_AFTER)(_decide), after_tool(timeout=LATE_AFTER)(_replace)]
        return hooks

    def guardrails(self) -> list[Guardrail[None]]:
        guardrails: list[Guardrail[None]] = []
        prompt = self.script.guardrail
        if prompt is not None:
            guardrails.append(input_guardrail(run_in_parallel=prompt.parallel)(self._check_prompt))
        if self.script.hooked:
            guardrails += [output_guardrail(self._check_reply), tool_input_guardrail(_check_call)]
            guardrails.append(tool_output_guardrail(_check_result))
        return guardrails

    async def _offer(self, ctx: TurnContext[None], _: ModelRequest) -> ChangeRequest | None:
        offered = self.script.offered
        names = offered[(max(ctx.step, 1) - 1) % len(offered)]
        if names == "raise":
            raise RuntimeError
        return None if names is None else ChangeRequest(tools=names)

    async def _judge_reply(self, _: TurnContext[None], __: ModelResponse) -> None:
        await _fail(self.said().fault)
        if self.said().refused:
            raise Retry("Not this.")

    async def _check_prompt(self, _: TurnContext[None], __: str) -> Trip | None:
        guardrail = self.script.guardrail
        assert guardrail is not None  # noqa: S101 (else nobody asks)
        await anyio.sleep(guardrail.seconds)
        self._fail_its_model("prompt", guardrail.fault)
        if guardrail.raises:
            raise RuntimeError
        return _TRIP if guardrail.trips else None

    async def _check_reply(self, _: TurnContext[None], __: str) -> Trip | None:
        said = self.said()
        self._fail_its_model("reply", said.fault)
        if said.fault == "guardrail":
            raise RuntimeError
        return _TRIP if said.trips else None

    def _fail_its_model(self, what: str, fault: str) -> None:
        """Count that a guardrail is asked. Raises the error of its own model, if the script says so."""
        self.asked[what] += 1
        if fault == "model" or (fault == "once" and self.asked[what] % 2):
            raise ModelError("scripted", cause=Cause.SERVER_ERROR)


async def _decide(_: ToolContext[None], call: CallView) -> ToolDecision | None:
    await _fail(call.arguments.get("before"))
    match call.arguments.get("before"):
        case "change":
            number = call.arguments["number"]
            assert isinstance(number, int)  # noqa: S101 (it has been validated)
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


async def _replace(_: ToolContext[None], call: CallView, __: ToolResult) -> ReturnResult | None:
    await _fail(call.arguments.get("after"))
    return ReturnResult("Hidden.") if call.arguments.get("after") == "hide" else None


async def _fail(fault: object) -> None:
    """Raise, or take too long, if the script says so."""
    if fault == "raise":
        await anyio.sleep(RAISES_AFTER)
        raise RuntimeError
    if fault == "late":
        await anyio.sleep(_TOO_LONG)


async def _check_call(_: ToolContext[None], call: CallView) -> Trip | None:
    return await _trip_later(call.arguments.get("before") == "trip")


async def _check_result(_: ToolContext[None], call: CallView, __: ToolResult) -> Trip | None:
    return await _trip_later(call.arguments.get("after") == "trip")


async def _trip_later(trips: bool) -> Trip | None:
    if not trips:
        return None
    await anyio.sleep(TRIPS_AFTER)
    return _TRIP
