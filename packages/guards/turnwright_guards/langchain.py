"""A guard for agents of LangChain: `create_agent(model, tools, middleware=[LoopGuardMiddleware(Limits(steps=20))])`."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final

from turnwright.model.http.reply_builder import finish_of
from turnwright.rules import Rules
from turnwright_states import CallDecision, CallStatus, Finish, Limits, Usage

from ._frameworks import framework
from .turn import Ending, GuardedTurn, GuardOptions, NextCall, maybe_cut_off, tool_call

with framework("langchain"):
    # An optional package: who checks types need not have it.
    from langchain.agents.middleware import (  # pyright: ignore[reportMissingImports]
        AgentMiddleware,
        AgentState,
        ModelRequest,
        ModelResponse,
        ToolCallRequest,
    )
    from langchain.agents.middleware.types import (  # pyright: ignore[reportMissingImports]
        OmitFromInput,
        PrivateStateAttr,
    )
    from langchain_core.messages import AIMessage, HumanMessage, ToolCall, ToolMessage  # pyright: ignore[reportMissingImports]
    from langgraph.channels.untracked_value import UntrackedValue  # pyright: ignore[reportMissingImports]
    from langgraph.errors import GraphBubbleUp  # pyright: ignore[reportMissingImports]
    from langgraph.types import Command  # pyright: ignore[reportMissingImports]

#: The most turns that a middleware keeps while they have no ending. The one that was used longest ago goes first: it
#: waits for a person, or its run was abandoned. A running one would begin its bounds anew.
_KEPT: Final = 4096
#: LangChain's name of a model whose requests must have tools if a message has calls.
_ANTHROPIC: Final = "anthropic-chat"
_APP: Final = "langchain"


class GuardState(AgentState[Any], total=False):  # type: ignore[misc, call-arg]
    """The agent's state with the ending of its turn."""

    turnwright_turn: Annotated[str, PrivateStateAttr]
    ending: Annotated[Ending | None, UntrackedValue, OmitFromInput]


class LoopGuardMiddleware(AgentMiddleware[GuardState, Any, Any]):  # type: ignore[misc]
    """Bounds each invocation of an agent. The state that `invoke` returns has its `ending`.

    A call beyond the budget gets a `ToolMessage` that says so. At a limit the model answers once more, without tools
    and without `response_format`. Put it first in the list, so that retries of other middleware are inside.
    `seconds` are checked between steps only. `journal` is the address of a store. `rules` are judged where a call
    starts. A rule that would ask a person refuses.

    An exception of the model or a tool fails the turn and is raised. A turn that is interrupted for a person keeps its
    limits in the same process; where another process resumes the run, it gets a new turn with fresh limits. Raises
    `ConfigError` for limits that a guard cannot keep.
    """

    state_schema = GuardState

    def __init__(self, limits: Limits | None = None, *, journal: str | None = None, rules: Rules = ()) -> None:
        super().__init__()
        self._options = GuardOptions(limits or Limits(), journal, rules=rules).checked()
        self._turns: OrderedDict[str, GuardedTurn] = OrderedDict()

    def before_agent(self, state: GuardState, runtime: object) -> dict[str, Any]:
        """Begin a turn."""
        del runtime
        turn = GuardedTurn(self._options, app=_APP, prompt=_prompt(state))
        return {"turnwright_turn": self._keep(turn.id, turn).id, "ending": None}

    async def abefore_agent(self, state: GuardState, runtime: object) -> dict[str, Any]:
        """Begin a turn."""
        del runtime
        turn = await GuardedTurn.begin(self._options, app=_APP, prompt=_prompt(state))
        return {"turnwright_turn": self._keep(turn.id, turn).id, "ending": None}

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Call the model as often as the turn allows."""
        turn = self._turn_of(request.state)
        while True:
            call = turn.next_call()
            try:
                response = handler(_guard_request(request, call))
            except Exception as error:  # noqa: BLE001 (`_failed` raises it)
                return self._end_failed(turn, call, error)
            kept_message = _take_reply(turn, response)
            if kept_message is not None:
                return kept_message

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Call the model as often as the turn allows."""
        turn = self._turn_of(request.state)
        while True:
            call = await turn.in_thread(turn.next_call)
            try:
                response = await handler(_guard_request(request, call))
            except Exception as error:  # noqa: BLE001 (`_failed` raises it)
                return await turn.in_thread(self._end_failed, turn, call, error)
            kept_message = await turn.in_thread(_take_reply, turn, response)
            if kept_message is not None:
                return kept_message

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]
    ) -> ToolMessage | Command[Any]:
        """Run a tool if its call may run."""
        turn = self._turns.get(request.state.get("turnwright_turn", ""))
        if turn is None:  # a call that a person approved in another process
            return handler(request)
        decision = turn.started(request.tool_call["id"] or "")
        if not decision.runs:
            return _refusal(decision, request.tool_call)
        try:
            result = handler(request)
        except BaseException as error:
            self._broke(turn, error)
            raise
        _settle(turn, decision, request, result)
        return result

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> ToolMessage | Command[Any]:
        """Run a tool if its call may run."""
        turn = self._turns.get(request.state.get("turnwright_turn", ""))
        if turn is None:
            return await handler(request)
        decision = await turn.in_thread(turn.started, request.tool_call["id"] or "")
        if not decision.runs:
            return _refusal(decision, request.tool_call)
        try:
            result = await handler(request)
        except BaseException as error:
            self._broke(turn, error)
            raise
        await turn.in_thread(_settle, turn, decision, request, result)
        return result

    def after_agent(self, state: GuardState, runtime: object) -> dict[str, Any]:
        """Return the ending. A turn that other middleware ended without an answer is aborted."""
        del runtime
        turn = self._turn_of(state)
        self._drop(turn)
        turn.reviewed()
        turn.aborted()
        return {"ending": turn.ending}

    async def aafter_agent(self, state: GuardState, runtime: object) -> dict[str, Any]:
        """Return the ending."""
        turn = self._turn_of(state)
        return await turn.in_thread(self.after_agent, state, runtime)

    def _keep(self, name: str, turn: GuardedTurn) -> GuardedTurn:
        self._turns[name] = turn
        self._turns.move_to_end(name)
        if len(self._turns) > _KEPT:
            self._turns.popitem(last=False)
        return turn

    def _drop(self, turn: GuardedTurn) -> None:
        for name in [name for name, guarded_turn in self._turns.items() if guarded_turn is turn]:
            del self._turns[name]

    def _turn_of(self, state: GuardState) -> GuardedTurn:
        """Return the turn of a run, or a new one for a run that was interrupted in another process."""
        name = state.get("turnwright_turn", "")
        turn = self._turns.get(name) or GuardedTurn(self._options, app=_APP, prompt=_prompt(state))
        return self._keep(name, turn)

    def _end_failed(self, turn: GuardedTurn, call: NextCall, error: Exception) -> ModelResponse[Any]:
        """Return the summary of a turn whose conclusion failed. Any other error fails the turn and is raised."""
        if isinstance(error, GraphBubbleUp):
            raise error
        turn.model_failed(error)
        if call.conclude:
            return ModelResponse(result=[AIMessage(content=turn.summary)])
        self._drop(turn)
        raise error

    def _broke(self, turn: GuardedTurn, error: BaseException) -> None:
        """End the turn with the run, unless the run waits for a person."""
        if not isinstance(error, GraphBubbleUp):
            turn.broke(error)
            self._drop(turn)


def _prompt(state: GuardState) -> str:
    """Return the text of the last user message."""
    prompts = [message for message in state["messages"] if isinstance(message, HumanMessage)]
    return str(prompts[-1].text) if prompts else ""


def _guard_request(request: ModelRequest[Any], call: NextCall) -> ModelRequest[Any]:
    changes: dict[str, Any] = {}
    if call.hint:
        changes["messages"] = [*request.messages, HumanMessage(content=call.hint)]
    if not call.tools:
        # There is no `tool_choice` that forbids calls and that all providers' classes understand.
        keeps = getattr(request.model, "_llm_type", "") == _ANTHROPIC
        changes |= {"response_format": None, "tool_choice": {"type": "none"} if keeps else None}
        if not keeps:
            changes["tools"] = []
    return request.override(**changes) if changes else request


def _take_reply(turn: GuardedTurn, response: ModelResponse[Any]) -> ModelResponse[Any] | None:
    """Record a reply. Return what of it the agent receives, or None if the model is called again."""
    message = next(message for message in response.result if isinstance(message, AIMessage))
    text = str(message.text)
    finish, usage = _finish(message), _usage(message)
    if response.structured_response is not None:
        turn.replied(text or repr(response.structured_response), finish=finish, usage=usage, review=True)
        if not turn.over:
            return None if turn.model_is_next else response
        return ModelResponse(result=[AIMessage(content=turn.summary)])
    calls = [tool_call(call["name"], call["args"], call["id"] or "") for call in message.tool_calls]
    if calls and finish is Finish.LENGTH:
        calls[-1] = maybe_cut_off(calls[-1], usage)
    decisions = turn.replied(text, calls, finish=finish, usage=usage, review=True)
    if turn.over:
        answer_text = turn.text_after(text)
        answer = AIMessage(
            content=answer_text,
            id=message.id,
            name=message.name,
            usage_metadata=message.usage_metadata,
            response_metadata=message.response_metadata,
        )
        return ModelResponse(result=[answer])
    if not decisions and turn.model_is_next:
        return None
    answers_by_id = {answer.tool_call_id: answer for answer in response.result if isinstance(answer, ToolMessage)}
    refusals = []
    for call, decision in zip(message.tool_calls, decisions, strict=False):
        if decision.runs and decision.provider_id in answers_by_id:  # a call for structured output that does not fit
            turn.settled(decision.id, str(answers_by_id[decision.provider_id].text), CallStatus.ERROR)
        elif not decision.runs and decision.provider_id not in answers_by_id:
            refusals.append(_refusal(decision, call))
    return ModelResponse(result=[*response.result, *refusals])


def _refusal(decision: CallDecision, call: ToolCall) -> ToolMessage:
    return ToolMessage(content=decision.refusal, tool_call_id=call["id"], name=call["name"], status="error")


def _settle(
    turn: GuardedTurn, decision: CallDecision, request: ToolCallRequest, result: ToolMessage | Command[Any]
) -> None:
    update = result.update if isinstance(result, Command) else {"messages": [result]}
    messages: list[Any] = (update.get("messages") or []) if isinstance(update, Mapping) else []
    answers = (
        message
        for message in messages
        if isinstance(message, ToolMessage) and message.tool_call_id == decision.provider_id
    )
    answer = next(answers, None)
    status = CallStatus.ERROR if answer is not None and answer.status == "error" else CallStatus.OK
    direct = request.tool is not None and request.tool.return_direct and turn.has_one_call
    turn.settled(decision.id, "" if answer is None else str(answer.text), status, final=direct)


def _finish(message: AIMessage) -> Finish:
    about = message.response_metadata
    return finish_of(str(about.get("finish_reason") or about.get("stop_reason")))


def _usage(message: AIMessage) -> Usage | None:
    counts = message.usage_metadata
    if counts is None:
        return None
    return Usage(
        input_tokens=counts["input_tokens"],
        output_tokens=counts["output_tokens"],
        cached_tokens=counts.get("input_token_details", {}).get("cache_read", 0),
        reasoning_tokens=counts.get("output_token_details", {}).get("reasoning", 0),
    )
