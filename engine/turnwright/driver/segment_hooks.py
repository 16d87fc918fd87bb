"""The hooks and guardrails of a turn, as participants (docs/rules.md#hooks). Turns without any need none of this."""

import dataclasses
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping

from msgspec.structs import replace
from pydantic import JsonValue

from turnwright._base.words import show_value
from turnwright.context import JsonObject, TurnContext
from turnwright.errors import HookFailedError, Retry
from turnwright.journal.result import TurnResult
from turnwright.message import FilePart
from turnwright.model.protocol import ModelResponse, ResponseToolCall
from turnwright.tools.batch_context import BatchContext, BeforeCall
from turnwright.tools.errors import ToolError
from turnwright.tools.result import NotJsonError, ToolResult, bound_result, cap, plain, to_result
from turnwright.tools.tool import Tool
from turnwright.tools.tool_work import context_of
from turnwright_states import Call, CallSettledInput, CallStatus
from turnwright_states.facts import CallMade, ModelReplied
from turnwright_states.payload import freeze, thaw

from .guardrail_checks import GuardrailCaller, InputGuardrails, OutputGuardrails
from .hooks.asking import RETRY
from .hooks.chain import Chain, Hook, checked_guardrails, checked_hooks
from .hooks.decisions import CallView, ChangeArguments, Reject, RequireApproval, ReturnResult
from .hooks.guardrails import GuardrailKind
from .hooks.hooks import Hooks
from .participants import Participants
from .prepare_request import PrepareRequest
from .review import Review, Reviewing
from .segment import Segment

_LOG = logging.getLogger(__name__)


class SegmentHooks(Hooks[object], ABC):
    """Hooks that are not functions of an app: they say themselves who acts in the turns of an engine."""

    async def on_start(self, ctx: TurnContext[object]) -> None:
        """Do nothing. An engine accepts no hooks that override nothing."""

    @abstractmethod
    def participants(self, segment: Segment, participants: Participants) -> Participants:
        """Return who acts in a turn that has these participants without them."""


def with_hooks(segment: Segment, participants: Participants) -> Participants:
    """Add the hooks and guardrails of a turn's engine and agent, and what asks for dynamic instructions and tools.

    A review has one order: input guardrails, `after_model` hooks, the typed answer, output guardrails.
    """
    setup, agent = segment.setup, segment.agent
    chain = Chain(
        (*checked_hooks(setup.hooks, "engine"), *checked_hooks(agent.hooks, f"agent {agent.name!r}")),
        (
            *checked_guardrails(setup.guardrails, "engine"),
            *checked_guardrails(agent.guardrails, f"agent {agent.name!r}"),
        ),
    )
    caller = GuardrailCaller(setup.backoff, lambda: segment.machine.turn.limits.max_retries, setup.cancel_grace)
    calls = CallHooks(chain, caller)
    input_guardrails, output_guardrails = chain.guardrails(GuardrailKind.INPUT), chain.guardrails(GuardrailKind.OUTPUT)
    inputs = InputGuardrails(segment, input_guardrails, caller)
    outputs = OutputGuardrails(segment, output_guardrails, caller) if output_guardrails else None
    prepare = PrepareRequest(segment, chain, inputs)
    replies = ReplyHooks(segment, chain)
    stages = [
        *([inputs.finish] if inputs.are_left else []),
        *([replies.review] if replies.after_model else []),
        *(participants.review.stages if participants.review is not None else ()),
        *([outputs.review] if outputs is not None else []),
    ]
    participants = dataclasses.replace(
        participants,
        inputs=inputs if input_guardrails else None,
        prepare=prepare if prepare.is_needed else None,
        outputs=outputs,
        review=Review(*stages) if stages else None,
        judge=calls if calls.judges_before or calls.judges_after else None,
        on_end=replies.end if chain.before("on_end") else None,
    )
    for hooks in setup.hooks:
        if isinstance(hooks, SegmentHooks):
            participants = hooks.participants(segment, participants)
    return participants


class ReplyHooks:
    """The hooks that judge replies, and those of the end."""

    def __init__(self, segment: Segment, chain: Chain) -> None:
        self._segment = segment
        self._on_end = chain.after("on_end")
        self.after_model = chain.after("after_model")

    async def review(self, reviewing: Reviewing) -> None:
        """Ask the `after_model` hooks, as a stage of a review. Raises `Retry`."""
        segment = self._segment
        response = _response(reviewing.reply)
        for hook in self.after_model:
            try:
                answer = await hook.ask(
                    segment.context(), response, grace=segment.setup.cancel_grace, allowed_errors=RETRY
                )
            except Retry as refusal:
                reviewing.decisions.append(hook.decision("retry", feedback=cap(str(refusal.feedback))))
                raise
            if answer is not None:
                raise HookFailedError(f"{hook.what} returned {show_value(answer)}: return None, or raise Retry")

    async def end(self, result: TurnResult) -> None:
        """Ask the `on_end` hooks. An error is logged, because the turn has ended."""
        segment = self._segment
        for hook in self._on_end:
            try:
                await hook.ask(segment.context(), result, grace=segment.setup.cancel_grace)
            except HookFailedError:
                about = {"turn": segment.journal.turn_id}
                _LOG.warning(
                    "turn %s has ended: %s failed", segment.journal.turn_id, hook.what, exc_info=True, extra=about
                )


class CallHooks:
    """Asks the hooks and guardrails about the calls of a turn. `caller` asks one guardrail."""

    def __init__(self, chain: Chain, caller: GuardrailCaller) -> None:
        self._before = chain.before("before_tool")
        self._after = chain.after("after_tool")
        self._inputs = chain.guardrails(GuardrailKind.TOOL_INPUT)
        self._outputs = chain.guardrails(GuardrailKind.TOOL_OUTPUT)
        self._caller = caller

    @property
    def judges_before(self) -> bool:
        """Whether something is asked before a call starts."""
        return bool(self._before or self._inputs)

    @property
    def judges_after(self) -> bool:
        """Whether something is asked after a call ran."""
        return bool(self._after or self._outputs)

    async def before(self, call: Call, tool: Tool, batch: BatchContext) -> BeforeCall:
        """Ask about a call that is about to start, or about to wait for a person.

        A call that was asked about before has its decision in the journal: only the guardrails see it again, because a
        person may have changed its arguments. Raises `ToolError` for changed arguments that the tool does not accept,
        `TripError`, and `HookFailedError`.
        """
        was_asked = call.counted or bool(call.answers)
        verdict = BeforeCall(call.arguments) if was_asked else await self._ask_hooks(call, tool, batch)
        if verdict.rejected is None and verdict.result is None:
            view = CallView(call.id, call.name, verdict.arguments)
            for guardrail in self._inputs:
                await self._caller.check(guardrail, context_of(call, batch), view)
        return verdict

    async def _ask_hooks(self, call: Call, tool: Tool, batch: BatchContext) -> BeforeCall:
        verdict = BeforeCall(call.arguments)
        for hook in self._before:
            if not hook.about(call.name):
                continue
            view = CallView(call.id, call.name, verdict.arguments)
            decision = await hook.ask(context_of(call, batch), view, grace=batch.cancel_grace)
            self._take(hook, decision, verdict, tool)
            if verdict.rejected is not None or verdict.result is not None:
                break
        if verdict.changed:
            try:
                verdict.values = tool.parse(verdict.arguments)
            except ToolError as error:
                batch.decisions[call.id] = verdict  # the call's result says what was decided
                raise ToolError(f"refused and not run: a hook changed the arguments: {error}") from error
        return verdict

    def _take(self, hook: Hook, decision: object, verdict: BeforeCall, tool: Tool) -> None:
        """Note what a hook decided."""
        match decision:
            case None:
                pass
            case ChangeArguments(arguments=arguments):
                change = hook.decision("change_arguments", replaced=dict(thaw(verdict.arguments)))
                verdict.arguments, verdict.changed = _arguments(hook, arguments), True
                verdict.decisions.append(change)
            case Reject(reason=why):
                reason = cap(hook.text(why))
                verdict.rejected = f"rejected: {reason}" if reason else "rejected"
                verdict.decisions.append(hook.decision("reject", reason=reason))
            case RequireApproval(question=wording):
                question = cap(hook.text(wording))
                if verdict.ask is None:
                    verdict.ask = tool.approval(question)
                verdict.decisions.append(hook.decision("require_approval", question=question))
            case ReturnResult(value=value):
                verdict.result = bound_result(_result(hook, value))
                verdict.decisions.append(hook.decision("return_result"))
            case _:
                raise HookFailedError(
                    f"{hook.what} returned {show_value(decision)}: return ChangeArguments, Reject, RequireApproval,"
                    " ReturnResult, or None"
                )

    async def after(self, call: Call, batch: BatchContext, event: CallSettledInput) -> CallSettledInput:
        """Ask about the result of a call that ran, in the order guardrails, hooks. Each hook gets the result so far.

        Raises `TripError` and `HookFailedError`.
        """
        result, status = _of(event), event.status
        view = CallView(call.id, call.name, call.arguments, status)
        for guardrail in self._outputs:
            await self._caller.check(guardrail, context_of(call, batch), view, result)
        decisions: list[JsonObject] = []
        for hook in self._after:
            if not hook.about(call.name):
                continue
            view = CallView(call.id, call.name, call.arguments, status)
            decision = await hook.ask(context_of(call, batch), view, result, grace=batch.cancel_grace)
            if decision is None:
                continue
            if not isinstance(decision, ReturnResult):
                raise HookFailedError(f"{hook.what} returned {show_value(decision)}: return ReturnResult or None")
            replacement: dict[str, JsonValue] = {"status": str(status), "result": result.text}
            if result.structured is not None:
                replacement["structured"] = result.structured
            decisions.append(hook.decision("return_result", replaced=replacement))
            result, status = bound_result(_result(hook, decision.value)), CallStatus.OK
        if not decisions:
            return event
        return replace(
            event,
            status=status,
            retry=False,
            final=batch.tools[call.name].return_direct or result.final,
            result=result.text,
            structured=result.structured,
            files=tuple(file.kept() for file in result.files),
            decisions=(*event.decisions, *decisions),
        )


def _response(reply: ModelReplied) -> ModelResponse:
    """Return a journaled reply as its model gave it. The ids of its calls are the turn's."""
    return ModelResponse(
        text=reply.text,
        reasoning=reply.reasoning,
        calls=tuple(ResponseToolCall(call.name, call.arguments, _raw(call), call.id) for call in reply.calls),
        finish=reply.finish,
        usage=reply.usage,
    )


def _raw(call: CallMade) -> str:
    """Return the text of a call's arguments. The journal keeps it only for a call that cannot run."""
    return call.raw if call.arguments or call.arguments is None else "{}"


def _arguments(hook: Hook, arguments: object) -> JsonObject:
    """Return changed arguments as the journal keeps them. Raises `HookFailedError` unless they are a JSON object."""
    if not isinstance(arguments, Mapping):
        raise HookFailedError(f"{hook.what} returned arguments that are not a JSON object: {show_value(arguments)}")
    try:
        copy = plain(thaw(dict(arguments)))
    except NotJsonError as error:
        raise HookFailedError(f"{hook.what} returned arguments that are not JSON: {error}") from error
    assert isinstance(copy, dict)  # noqa: S101 (a copy of a mapping)
    return freeze(copy)


def _result(hook: Hook, value: object) -> ToolResult:
    try:
        return to_result(value)
    except NotJsonError as error:
        raise HookFailedError(f"{hook.what} returned a result that is not JSON: {error}") from error


def _of(event: CallSettledInput) -> ToolResult:
    files = tuple(FilePart.of_json(dict(file)) for file in event.files)
    return ToolResult(event.result, thaw(event.structured), files, event.final)
