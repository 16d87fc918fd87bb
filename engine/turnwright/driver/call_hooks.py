"""The hooks and guardrails of tool calls, as a batch asks them (docs/rules.md#hooks)."""

from collections.abc import Mapping

from msgspec.structs import replace
from pydantic import JsonValue

from turnwright.context import JsonObject
from turnwright.errors import HookFailedError
from turnwright.hooks.chain import Chain, Hook
from turnwright.hooks.decisions import CallView, ChangeArguments, Reject, RequireApproval, ReturnResult
from turnwright.hooks.guardrails import GuardrailKind
from turnwright.message import FilePart
from turnwright.tools.batch_context import BatchContext, BeforeCall
from turnwright.tools.context import Ask
from turnwright.tools.errors import ToolError
from turnwright.tools.result import ToolResult, bounded, plain, to_result
from turnwright.tools.text import NotJsonError, cap
from turnwright.tools.tool import Tool
from turnwright.tools.tool_work import context_of
from turnwright_states import Call, CallSettledInput, CallStatus, InterruptKind
from turnwright_states.payload import frozen, thawed

from .guards import Guards


class CallHooks:
    """Asks the hooks and guardrails about the calls of a turn. `guards` asks one guardrail."""

    def __init__(self, chain: Chain, guards: Guards) -> None:
        self._before = chain.before("before_tool")
        self._after = chain.after("after_tool")
        self._inputs = chain.guardrails(GuardrailKind.TOOL_INPUT)
        self._outputs = chain.guardrails(GuardrailKind.TOOL_OUTPUT)
        self._guards = guards

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
        asked = call.counted or bool(call.answers)
        verdict = BeforeCall(call.arguments) if asked else await self._asked(call, tool, batch)
        if verdict.rejected is None and verdict.result is None:
            view = CallView(call.id, call.name, verdict.arguments)
            for guardrail in self._inputs:
                await self._guards.check(guardrail, context_of(call, batch), view)
        return verdict

    async def _asked(self, call: Call, tool: Tool, batch: BatchContext) -> BeforeCall:
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
                batch.decided[call.id] = verdict  # the call's result says what was decided
                raise ToolError(f"refused and not run: a hook changed the arguments: {error}") from error
        return verdict

    def _take(self, hook: Hook, decision: object, verdict: BeforeCall, tool: Tool) -> None:
        """Note what a hook decided."""
        match decision:
            case None:
                pass
            case ChangeArguments(arguments=arguments):
                kept = hook.decision("change_arguments", replaced=dict(thawed(verdict.arguments)))
                verdict.arguments, verdict.changed = _arguments(hook, arguments), True
                verdict.decisions.append(kept)
            case Reject(reason=given):
                reason = cap(hook.text(given))
                verdict.rejected = f"rejected: {reason}" if reason else "rejected"
                verdict.decisions.append(hook.decision("reject", reason=reason))
            case RequireApproval(question=asked):
                question = cap(hook.text(asked))
                if verdict.ask is None:
                    verdict.ask = Ask(kind=InterruptKind.APPROVAL, question=question, expires_in=tool.expires_in)
                verdict.decisions.append(hook.decision("require_approval", question=question))
            case ReturnResult(value=value):
                verdict.result = bounded(_result(hook, value))
                verdict.decisions.append(hook.decision("return_result"))
            case _:
                raise HookFailedError(
                    f"{hook.what} returned {decision!r:.80}: return ChangeArguments, Reject, RequireApproval,"
                    " ReturnResult, or None"
                )

    async def after(self, call: Call, batch: BatchContext, settled: CallSettledInput) -> CallSettledInput:
        """Ask about the result of a call that ran, in the order guardrails, hooks. Each hook gets the result so far.

        Raises `TripError` and `HookFailedError`.
        """
        result, status = _of(settled), settled.status
        view = CallView(call.id, call.name, call.arguments, status)
        for guardrail in self._outputs:
            await self._guards.check(guardrail, context_of(call, batch), view, result)
        decisions: list[JsonObject] = []
        for hook in self._after:
            if not hook.about(call.name):
                continue
            view = CallView(call.id, call.name, call.arguments, status)
            decision = await hook.ask(context_of(call, batch), view, result, grace=batch.cancel_grace)
            if decision is None:
                continue
            if not isinstance(decision, ReturnResult):
                raise HookFailedError(f"{hook.what} returned {decision!r:.80}: return ReturnResult or None")
            replaced: dict[str, JsonValue] = {"status": str(status), "result": result.text}
            if result.structured is not None:
                replaced["structured"] = result.structured
            decisions.append(hook.decision("return_result", replaced=replaced))
            result, status = bounded(_result(hook, decision.value)), CallStatus.OK
        if not decisions:
            return settled
        return replace(
            settled,
            status=status,
            retry=False,
            final=batch.tools[call.name].return_direct or result.final,
            result=result.text,
            structured=result.structured,
            files=tuple(file.kept() for file in result.files),
            decisions=(*settled.decisions, *decisions),
        )


def _arguments(hook: Hook, arguments: object) -> JsonObject:
    """Return changed arguments as the journal keeps them. Raises `HookFailedError` unless they are a JSON object."""
    if not isinstance(arguments, Mapping):
        raise HookFailedError(f"{hook.what} returned arguments that are not a JSON object: {arguments!r:.80}")
    try:
        kept = plain(thawed(dict(arguments)))
    except NotJsonError as error:
        raise HookFailedError(f"{hook.what} returned arguments that are not JSON: {error}") from error
    assert isinstance(kept, dict)  # noqa: S101 (a copy of a mapping)
    return frozen(kept)


def _result(hook: Hook, value: object) -> ToolResult:
    try:
        return to_result(value)
    except NotJsonError as error:
        raise HookFailedError(f"{hook.what} returned a result that is not JSON: {error}") from error


def _of(settled: CallSettledInput) -> ToolResult:
    files = tuple(FilePart.of_json(dict(file)) for file in settled.files)
    return ToolResult(settled.result, thawed(settled.structured), files, settled.final)
