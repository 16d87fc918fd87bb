"""A guard for agents of pydantic-ai: `Agent(model, capabilities=[LoopGuardCapability(Limits(steps=20))])`."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from turnwright.model.http.reply_builder import finish_of
from turnwright.rules import Rules
from turnwright_states import CallStatus, Limits, Usage

from ._frameworks import framework
from .turn import Ending, GuardedTurn, GuardOptions, NextCall, tool_call

with framework("pydantic-ai"):
    from pydantic_ai import AgentRunResult, ModelRetry, RetryModelRequest, RunContext, ToolDefinition
    from pydantic_ai.capabilities import (
        AbstractCapability,
        WrapRunHandler,
        WrapToolExecuteHandler,
        WrapToolValidateHandler,
    )
    from pydantic_ai.exceptions import ToolFailed, ToolFailedError, ToolRetryError
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequest,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.settings import ModelSettings
    from pydantic_core import to_json

#: The endings that a capability remembers.
_KEPT: Final = 256
_STATUSES: Final = {"success": CallStatus.OK, "denied": CallStatus.REJECTED, "interrupted": CallStatus.UNKNOWN}


@dataclass
class LoopGuardCapability(AbstractCapability[Any]):
    """Bounds each run of an agent. `ending_of(result)` returns how it ended.

    A call beyond the budget fails with a result that says so. At a limit the model answers once more, without function
    tools: with a text, or with the agent's output if that is not text. A run whose agent accepts neither raises
    `TurnAlreadyEndedError`. `seconds` are checked between steps only. `journal` is the address of a store.
    `rules` are judged where a call starts. A rule that would ask a person refuses. A streamed answer is shown before a
    rule can refuse it: its run ends, and its ending is not `finished`.

    An exception fails the turn and is raised. A run that ends with deferred calls aborts its turn. The run that
    continues it has a turn of its own, and first runs the approved calls, which do not count again. Raises
    `ConfigError` for limits that a guard cannot keep.
    """

    limits: Limits = field(default_factory=Limits)
    journal: str | None = None
    rules: Rules = ()
    _run: "_Run | None" = field(default=None, repr=False)
    _endings: OrderedDict[str, Ending] = field(default_factory=OrderedDict, repr=False)

    def __post_init__(self) -> None:
        self._options = GuardOptions(self.limits, self.journal, rules=self.rules).checked()

    def ending_of(self, result: AgentRunResult[Any]) -> Ending:
        """Return the ending of a run. Raises `KeyError` for a run of other agents, or after 256 later ones."""
        return self._endings[result.run_id]

    async def for_run(self, ctx: RunContext[Any]) -> "LoopGuardCapability":
        """Return a capability for one run."""
        del ctx
        return replace(self, _run=None)

    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Begin a turn, and end it with the run."""
        prompt = ctx.prompt if isinstance(ctx.prompt, str) else _text(ctx.prompt or ())
        model = ctx.model.model_name
        turn = await GuardedTurn.begin(self._options, app="pydantic-ai", prompt=prompt, model=model)
        self._run = run = _Run(turn)
        try:
            result = await handler()
        except BaseException as error:
            end = turn.model_failed if error is run.model_error else turn.broke
            end(error)
            raise
        await turn.in_thread(run.finish)
        if turn.ending is not None:
            self._endings[result.run_id] = turn.ending
            if len(self._endings) > _KEPT:
                self._endings.popitem(last=False)
        return result

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Ask the guard what the request is like."""
        run = self._running(ctx)
        messages = request_context.messages
        call = run.call = await run.turn.in_thread(run.next_call, messages)
        if call.hint:
            messages = [*messages, ModelRequest(parts=[UserPromptPart(call.hint)])]
        settings = request_context.model_settings
        if not call.tools:
            settings = ModelSettings(**{**(settings or {}), "tool_choice": "none"})
        return replace(request_context, messages=messages, model_settings=settings)

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Record the reply. One that says nothing is requested again."""
        run = self._running(ctx)
        if run.turn.over:  # the conclusion failed
            return response
        outputs = {tool.name for tool in request_context.model_request_parameters.output_tools}
        kept_response = await run.turn.in_thread(run.reply, response, outputs)
        if kept_response is not None:
            return kept_response
        if request_context.streaming:  # the consumer has it already, and the agent asks again by itself
            return response
        raise RetryModelRequest

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Sum up for a conclusion that failed. Any other error is raised."""
        del request_context
        run = self._running(ctx)
        if not run.call.conclude:
            run.model_error = error
            raise error
        await run.turn.in_thread(run.turn.model_failed, error)
        return ModelResponse(parts=[TextPart(run.turn.summary)])

    async def wrap_tool_validate(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: str | dict[str, Any],
        handler: WrapToolValidateHandler,
    ) -> dict[str, Any]:
        """Do not validate a call that is refused."""
        del tool_def
        return {} if self._running(ctx).turn.refusal(call.tool_call_id) else await handler(args)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> object:
        """Run a tool if its call may run. A call of an earlier run, such as an approved one, was decided there."""
        del tool_def
        run = self._running(ctx)
        turn = run.turn
        if not run.has_reply:
            return await handler(args)
        decision = await turn.in_thread(turn.started, call.tool_call_id)
        if not decision.runs:
            raise ToolFailed(decision.refusal)
        try:
            result: object = await handler(args)
        except (ModelRetry, ToolRetryError, ToolFailedError) as error:
            await turn.in_thread(turn.settled, decision.id, str(error), CallStatus.ERROR)
            raise
        await turn.in_thread(turn.settled, decision.id, _as_text(result))
        return result

    def _running(self, ctx: RunContext[Any]) -> "_Run":
        """Return the run. It is missing where a capability is asked outside `wrap_run`."""
        del ctx
        if self._run is None:
            raise RuntimeError("the guard of a run was used before the run began")
        return self._run


class _Run:
    """One run: its turn, and the model call that the guard allowed last."""

    def __init__(self, turn: GuardedTurn) -> None:
        self.turn = turn
        self.call = NextCall(tools=True)
        self.model_error: BaseException | None = None
        #: Whether the model has replied. Calls that run before are open calls of the history.
        self.has_reply = False
        #: The arguments of an output tool that came with other calls.
        self._output = ""

    def next_call(self, messages: Sequence[ModelMessage]) -> NextCall:
        """Record the results that no tool gave, such as those of unknown tools, and ask the guard."""
        last = messages[-1] if messages else None
        parts = last.parts if isinstance(last, ModelRequest) else ()
        results = {
            part.tool_call_id: (part.model_response_str(), _STATUSES.get(part.outcome, CallStatus.ERROR))
            for part in parts
            if isinstance(part, ToolReturnPart)
        }
        self.turn.settle_rest(results)
        return self.turn.next_call()

    def reply(self, response: ModelResponse, outputs: set[str]) -> ModelResponse | None:
        """Record a reply. Return what of it the agent receives, or None if the model is called again."""
        self.has_reply = True
        call_parts = [part for part in response.parts if isinstance(part, ToolCallPart)]
        calls = [part for part in call_parts if part.tool_name not in outputs]
        output = next((part.args_as_json_str() for part in call_parts if part.tool_name in outputs), "")
        self._output = output if calls else ""
        text = response.text or ("" if calls else output)
        tool_calls = [tool_call(part.tool_name, part.args, part.tool_call_id) for part in calls]
        finish = finish_of(str(response.finish_reason))
        self.turn.replied(text, tool_calls, finish=finish, usage=_usage(response), review=True)
        if not self.turn.over:
            return None if self.turn.model_is_next and (self.call.conclude or not calls) else response
        last_text = self.turn.text_after(text)
        text_parts = [TextPart(last_text)] if last_text != text else []
        other_parts = [part for part in response.parts if part not in calls and not text_parts]
        return replace(response, parts=[*other_parts, *text_parts]) if calls or text_parts else response

    def finish(self) -> None:
        """Accept the last reply as the answer. A typed output that came with other calls counts as a reply."""
        self.turn.reviewed()
        if not self.turn.over and self._output:
            self.turn.next_call()
            self.turn.replied(self._output)
        self.turn.aborted()


def _text(content: Sequence[object]) -> str:
    return "".join(part for part in content if isinstance(part, str))


def _as_text(result: object) -> str:
    return result if isinstance(result, str) else to_json(result, fallback=repr).decode()


def _usage(response: ModelResponse) -> Usage:
    counts = response.usage
    return Usage(
        input_tokens=counts.input_tokens,
        output_tokens=counts.output_tokens,
        cached_tokens=counts.cache_read_tokens,
        reasoning_tokens=counts.details.get("reasoning_tokens", 0),
    )
