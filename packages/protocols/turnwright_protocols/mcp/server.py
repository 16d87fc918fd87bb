"""An MCP server whose tools are agents: a call runs a turn."""

import logging
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from pydantic import JsonValue
from starlette.requests import Request

from turnwright._base.ids import new_id, root_of
from turnwright._base.version import VERSION
from turnwright.agent import Agent
from turnwright.errors import ConfigError, InvalidAnswerError, TurnAlreadyEndedError, TurnNotFoundError
from turnwright.journal.answers import Answer, approve, make_default_answer
from turnwright.journal.questions import ALWAYS_WORDS, words
from turnwright.runtime.engine import Engine
from turnwright.runtime.handle import TurnHandle
from turnwright.transcript.events import FactEvent, StreamEvent, ToolProgressEvent, TurnEndedEvent, TurnPausedEvent
from turnwright.transcript.interrupt import Interrupt
from turnwright_protocols.conversations import (
    AnswerValue,
    PausedTurn,
    abort_turn,
    agents_by_slug,
    answer_turn,
    answerable_by,
    events_for_client,
    start_in_session,
)
from turnwright_protocols.endings import explain_end, record_end
from turnwright_protocols.http import LONGEST_SESSION, Gate, RefusedRequestError, owned_session, refusal_of
from turnwright_protocols.items import APPROVALS, clean
from turnwright_states import InterruptKind, Outcome
from turnwright_states import facts as f

_LOG = logging.getLogger(__name__)

Result = types.CallToolResult | types.InputRequiredResult
Context = ServerRequestContext[Any, Any]

#: Our key in the metadata of turns, and the channel of answers.
_KEY: Final = "mcp"
_VIA: Final = "mcp"
_CANCELED: Final = "nobody answered"
_UNAVAILABLE: Final = "the turn cannot run here now: see the log of the server"
_NO_FORMS: Final = "the client cannot ask a person, so the turn was stopped: "
_INPUT: Final[dict[str, JsonValue]] = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "The message to the agent."},
        "session": {"type": "string", "description": "A conversation to continue. Choose any name for a new one."},
    },
    "required": ["prompt"],
    "additionalProperties": False,
}
_OUTPUT: Final[dict[str, JsonValue]] = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("turn", "outcome", "reason", "text")},
    "required": ["turn", "outcome", "reason"],
}


def mcp_server(engine: Engine, agents: Sequence[Agent], gate: Gate | None = None) -> Server[Any]:
    """Return an MCP server with a tool for each agent, for any transport of the SDK.

    Over HTTP, the `gate` authorizes each call for its session. Raises `ConfigError` without agents, for anything else,
    and for two agents whose tools would have one name.
    """
    tools = _AgentTools(engine, agents, gate)
    return Server("turnwright", version=VERSION, on_list_tools=tools.list_tools, on_call_tool=tools.call)


async def serve_mcp(engine: Engine, agents: Sequence[Agent]) -> None:
    """Serve agents over standard input and output until the client closes them.

    Raises `ConfigError` if standard input is closed from the beginning.
    """
    if sys.stdin is None:
        raise ConfigError("mcp: standard input is closed: the client that starts this command gives it pipes")
    server = mcp_server(engine, agents)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options(NotificationOptions()))


class _AgentTools:
    """The agents as tools."""

    def __init__(self, engine: Engine, agents: Sequence[Agent], gate: Gate | None) -> None:
        self._engine = engine
        self._gate = gate
        self._agents = agents_by_slug(agents, "tool")

    async def list_tools(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        """List the agents."""
        tools = [
            types.Tool(
                name=name,
                title=agent.name,
                description=agent.description or f"Asks the agent {agent.name}.",
                input_schema=_INPUT,
                output_schema=_OUTPUT,
            )
            for name, agent in self._agents.items()
        ]
        return types.ListToolsResult(tools=tools)

    async def call(self, context: Context, params: types.CallToolRequestParams) -> Result:
        """Run a turn, or continue the one that `request_state` names."""
        agent = self._agents.get(params.name)
        if agent is None:
            raise _refusal(f"there is no such tool: use one of {', '.join(self._agents)}")
        try:
            if params.request_state is not None:
                return await self._continue(context, agent, params.request_state, params.input_responses or {})
            try:
                prompt, session = _arguments(params.arguments or {})
            except ValueError as error:  # a result, so that the model of the client can correct its call
                return _failure(str(error))
            conversation = session or new_id()
            user = await self._identify(context, conversation)
            metadata: dict[str, Any] = {_KEY: {"tool": params.name, "conversation": conversation, "user": user}}
            options: dict[str, Any] = {} if session is None else {"session": owned_session(user, f"mcp/{session}")}
            handle = await start_in_session(self._engine, agent, prompt, metadata=metadata, **options)
            return await self._follow(context, handle, user)
        except MCPError:
            raise
        except (InvalidAnswerError, TurnAlreadyEndedError) as error:
            return _failure(refusal_of(error).why)
        except Exception as error:  # noqa: BLE001 (the library would send the error's words, which may name hosts)
            _LOG.warning("a call failed", exc_info=error)
            return _failure(_UNAVAILABLE)

    async def _continue(self, context: Context, agent: Agent, state: str, responses: Mapping[str, object]) -> Result:
        """Answer the paused turn that a call ended with. Raises `MCPError` for a forged state."""
        paused_turn, user = await self._find_paused(context, agent, state, responses)
        answers = {
            interrupt.id: _answer(interrupt, responses.get(interrupt.id))
            for interrupt in answerable_by(user)(paused_turn.interrupts)
        }
        handle = await answer_turn(self._engine, agent, paused_turn, state, answers, by=user, via=_VIA)
        return await self._follow(context, handle, user, paused_turn.seq)

    async def _identify(self, context: Context, conversation: str) -> str:
        """Return the user of a call. Raises `MCPError` if the call may not use the conversation."""
        if self._gate is None:
            return ""
        try:
            return await self._gate.identify(cast("Request", context.request), conversation)
        except RefusedRequestError as refusal:
            raise _refusal(refusal.why) from None

    async def _find_paused(
        self, context: Context, agent: Agent, state: str, responses: Mapping[str, object]
    ) -> tuple[PausedTurn, str]:
        """Return the paused turn of a state, and its user."""
        try:
            paused_turn = await PausedTurn.read(self._engine, state, lambda interrupt: interrupt.id in responses)
            row = await self._engine.store.get(state)
        except TurnNotFoundError:
            raise _refusal("the request_state is not one of this server") from None
        about = paused_turn.note(_KEY)
        if about is None or root_of(state) != state or row.agent != agent.name:
            raise _refusal("the request_state is not one of this server")
        user = await self._identify(context, str(about.get("conversation")))
        if user != about.get("user"):
            raise _refusal("the request_state is not one of this server")
        if not paused_turn.interrupts:
            raise _refusal("the turn waits for no answer")
        return paused_turn, user

    async def _follow(self, context: Context, handle: TurnHandle[str], user: str, after: int = 0) -> Result:
        """Drive a turn to its end, or to a question that the next request answers. A canceled call aborts the turn.

        The call waits too for results from elsewhere, and for other people. `user` signs the answers.
        """
        asks_inside = context.session.can_send_request and _has_forms(context)
        report = _Progress(context)
        async with self._aborted_on_cancel(handle.id):
            while True:
                last: StreamEvent | None = None
                async for event in events_for_client(self._engine, handle, after, answerable_by(user)):
                    await report(event)
                    last = event
                if isinstance(last, TurnEndedEvent):
                    return _result(last)
                if not isinstance(last, TurnPausedEvent):
                    return _failure("the turn was interrupted: call again")
                if not asks_inside:
                    return await self._ask_later(context, last)
                answers = {interrupt.id: await _ask(context, interrupt) for interrupt in last.interrupts}
                await handle.answer(answers, by=user, via=_VIA)
                after = last.seq

    async def _ask_later(self, context: Context, pause: TurnPausedEvent) -> Result:
        """End the call with its questions; without forms, the turn is stopped, because nobody could answer."""
        if not _has_forms(context):
            await abort_turn(self._engine, pause.turn)
            return _failure(_NO_FORMS + clean("; ".join(map(words, pause.interrupts))))
        requests: dict[str, Any] = {
            interrupt.id: types.ElicitRequest(
                method="elicitation/create",
                params=types.ElicitRequestFormParams(
                    mode="form", message=_message(interrupt), requested_schema=_schema(interrupt)
                ),
            )
            for interrupt in pause.interrupts
        }
        return types.InputRequiredResult(
            result_type="input_required", input_requests=requests, request_state=pause.turn
        )

    @asynccontextmanager
    async def _aborted_on_cancel(self, turn: str) -> AsyncIterator[None]:
        try:
            yield
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._engine.abort(turn)
            raise


def _arguments(arguments: Mapping[str, Any]) -> tuple[str, str | None]:
    prompt, session = arguments.get("prompt"), arguments.get("session")
    if unknown_names := sorted(arguments.keys() - {"prompt", "session"}):
        raise ValueError(f"{clean(unknown_names[0])[:40]!r} is not an argument: give prompt, and session")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError("prompt: give a text")
    if clean(prompt) != prompt:
        raise ValueError("prompt: has half a surrogate pair")
    if session is not None and not (
        isinstance(session, str) and 0 < len(session) <= LONGEST_SESSION and session.isprintable()
    ):
        raise ValueError(f"session: give 1 to {LONGEST_SESSION} visible characters")
    return prompt, session


def _message(interrupt: Interrupt) -> str:
    return clean(words(interrupt, choices=False))


def _schema(interrupt: Interrupt) -> dict[str, Any]:
    answers = {
        InterruptKind.UNKNOWN_OUTCOME: ["rerun", "unknown"],
        InterruptKind.DOOM_LOOP: ["go_on", "always", "stop"],
    }.get(interrupt.kind, list(interrupt.choices))
    field: dict[str, Any] = {"type": "string", "title": "Answer"}
    if interrupt.kind in APPROVALS:
        field["type"] = "boolean"
    elif answers:
        field["enum"] = answers
    properties = {"answer": field}
    if interrupt.may_cover_equal_calls:
        properties["always"] = {"type": "boolean", "title": ALWAYS_WORDS, "default": False}
    return {"type": "object", "properties": properties, "required": ["answer"]}


def _has_forms(context: Context) -> bool:
    """Return whether the client shows forms. One that names no mode of elicitation does."""
    capabilities = context.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


async def _ask(context: Context, interrupt: Interrupt) -> AnswerValue:
    response = await context.session.elicit_form(_message(interrupt), _schema(interrupt), context.request_id)
    return _answer(interrupt, response)


def _answer(interrupt: Interrupt, response: object) -> str | bool | Answer:
    """Return the answer of a form. A form that is declined, canceled or missing rejects the question."""
    content = response.content if isinstance(response, types.ElicitResult) and response.action == "accept" else None
    answer = None if content is None else content.get("answer")
    if answer is True and content is not None and content.get("always") is True:
        return approve(always=True)
    return answer if isinstance(answer, str | bool) else make_default_answer(interrupt, _CANCELED)


class _Progress:
    """Reports the progress of steps and calls. Its number increases with each report, as the protocol demands."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reports = 0

    async def __call__(self, event: StreamEvent) -> None:
        message = ""
        if isinstance(event, ToolProgressEvent):
            message = f"{event.tool}: {event.message}" if event.message else event.tool
        elif isinstance(event, FactEvent) and isinstance(event.fact, f.StepStarted):
            message = f"step {event.fact.number}"
        elif isinstance(event, FactEvent) and isinstance(event.fact, f.CallStarted):
            message = event.tool
        if message:
            self._reports += 1
            await self._context.session.report_progress(self._reports, None, clean(message))


def _result(event: TurnEndedEvent) -> types.CallToolResult:
    """Return the result of an ended turn: its text, and why it was stopped if it was."""
    is_error = event.outcome in (Outcome.FAILED, Outcome.ABORTED)
    sentinel = "" if event.sentinel is None else clean(event.sentinel.text)
    texts = [explain_end(event) or str(event.reason)] if is_error else [clean(event.text), sentinel]
    content: list[Any] = [types.TextContent(type="text", text=text) for text in texts if text]
    record: dict[str, JsonValue] = {"turn": event.turn, **record_end(event)}
    return types.CallToolResult(content=content, structured_content=record, is_error=is_error)


def _refusal(why: str) -> MCPError:
    """Return the error of a call that is refused. `why` is for the client."""
    return MCPError(types.INVALID_PARAMS, why)


def _failure(why: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=why)], is_error=True)
