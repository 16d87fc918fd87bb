"""Chat completions: each request is a turn of its own, with the messages that it has. Nothing can be asked.

A turn that waits for tools of the client continues with the request that has their results.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Final

import anyio
from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnwright._base.ids import new_id
from turnwright.agent import Agent
from turnwright.errors import TurnNotFoundError
from turnwright.journal.answers import Answer, settled
from turnwright.journal.questions import words
from turnwright.message import Message, ToolResultPart
from turnwright.runtime.engine import Engine
from turnwright.runtime.handle import TurnHandle
from turnwright.tools.result import ToolResult
from turnwright.transcript.events import FactEvent, StreamEvent, TurnEndedEvent
from turnwright_protocols import items as i
from turnwright_protocols.client_tools import (
    ToolDeclaration,
    call_reference,
    client_tools_in,
    give_results,
    need_result,
    read_call_reference,
    settleable,
    waits_for_client,
)
from turnwright_protocols.conversations import PausedTurn, abort_turn, answer_turn
from turnwright_protocols.endings import Ending, ending_of, explain_end
from turnwright_protocols.http import (
    EventStream,
    Gate,
    JsonObject,
    RefusedRequestError,
    choose_agent,
    declare_tools,
    refusal_of,
)
from turnwright_protocols.items import clean
from turnwright_protocols.turn_reader import TurnReader
from turnwright_states import facts as f

from .request import need_answer_format

Json = dict[str, JsonValue]
#: Our key in the metadata of turns whose client has tools.
_KEY: Final = "chat_completions"
_VIA: Final = "chat_completions"
_MOST_MESSAGES: Final = 2000
_ASKS: Final = "\n\nChat completions cannot answer this: use /responses."
_LEFT: Final = "the turn was interrupted"
#: Why a completion ended. A turn that was stopped, or failed, is an error.
_FINISHES: Final[Mapping[Ending, str]] = {
    "answered": "stop",
    "cut": "length",
    "writing limit": "length",
    "limit": "stop",
    "refused": "content_filter",
}


class ChatCompletions:
    """The handler of chat completions."""

    def __init__(self, engine: Engine, agents: Mapping[str, Agent], gate: Gate) -> None:
        self._engine = engine
        self._agents = agents
        self._gate = gate

    async def create(self, request: Request) -> Response:
        """Run a turn, and return its texts. A turn that asks is aborted, because nobody can answer."""
        body = await self._gate.read_json(request)
        messages = _messages(body)
        agent = choose_agent(self._agents, body.get("model") or "")
        streams, counts = _flag(body, "stream"), body.get("stream_options")
        if results := _results(messages):
            handle, completion, after = await self._continue(request, agent, results)
        else:
            handle, after = await self._start(request, agent, body, messages), 0
            completion = Completion(handle.id, agent.name.lower())
        events = self._until_asked(handle.events(after), completion)
        if streams:
            includes_usage = isinstance(counts, dict) and counts.get("include_usage") is True
            return EventStream(_lines(events, completion, includes_usage=includes_usage), self._gate.bounds)
        with anyio.move_on_after(self._gate.bounds.stream_seconds):
            async for _ in events:
                pass
        if completion.error or not completion.finish:
            raise RefusedRequestError(500, completion.error or _LEFT, code="server_error")
        return JSONResponse(completion.whole())

    async def _start(
        self, request: Request, agent: Agent, body: JsonObject, messages: Sequence[Message]
    ) -> TurnHandle[str]:
        *history, last = messages
        if last.role != "user" or not (last.text.strip() or last.files):
            raise RefusedRequestError(
                400, "messages: must end with a message of the user, or results of open calls", field="messages"
            )
        conversation = new_id()
        user = await self._gate.identify(request, conversation)
        need_answer_format(agent, body.get("response_format"), "response_format")
        tools = declare_tools(self._engine, agent, _tools(body))
        about: Json = {"conversation": conversation, "user": user}
        return await self._engine.start(
            agent,
            last.text,
            files=last.files,
            message_history=history,
            tools=tools,
            metadata={_KEY: about} if tools else {},
        )

    async def _continue(
        self, request: Request, agent: Agent, results: Mapping[str, Callable[[], Answer]]
    ) -> tuple[TurnHandle[str], "Completion", int]:
        """Settle the calls of a turn that waits for its client. Raises `RefusedRequestError`, also for other turns."""
        turns = {read_call_reference(reference)[0] for reference in results}
        if len(turns) > 1:
            raise RefusedRequestError(400, "messages: the results belong to several turns", field="messages")
        (turn,) = turns
        row = await self._engine.store.get(turn)
        paused = await PausedTurn.read(self._engine, turn)
        first = paused.events[0].fact if paused.events and isinstance(paused.events[0], FactEvent) else None
        about = first.metadata.get(_KEY) if isinstance(first, f.TurnStarted) else None
        if not isinstance(about, Mapping):
            raise TurnNotFoundError(turn)
        if await self._gate.identify(request, str(about.get("conversation"))) != about.get("user"):
            raise TurnNotFoundError(turn)
        if row.agent != agent.name:
            raise RefusedRequestError(400, "model: the calls are another agent's", field="model")
        by_call = {read_call_reference(reference)[1]: result for reference, result in results.items()}
        answers = give_results(settleable(paused.interrupts, paused.client_tools), by_call)
        need_result(answers, by_call)
        if answers.keys() != {interrupt.id for interrupt in paused.interrupts}:
            raise RefusedRequestError(400, "messages: each call needs its result", field="messages")
        user = str(about.get("user"))
        handle = await answer_turn(self._engine, agent, paused, turn, {**answers}, by=user, via=_VIA)
        completion = Completion(turn, agent.name.lower())
        completion.absorb(paused.events)
        return handle, completion, paused.seq

    async def _until_asked(
        self, events: AsyncIterator[StreamEvent], completion: "Completion"
    ) -> AsyncGenerator[str, None]:
        """Yield the pieces of a turn's text. Abort it if it pauses."""
        async for event in events:
            for piece in completion.read(event):
                yield piece
        if completion.is_paused:
            await abort_turn(self._engine, completion.turn)


@dataclass(slots=True)
class Completion:
    """The text of one turn, its messages after each other, as a chat completion."""

    turn: str
    model: str
    text: str = ""
    finish: str = ""
    error: str = ""
    is_paused: bool = False
    calls: list[JsonValue] = field(default_factory=list)
    usage: Json = field(default_factory=dict)
    created: int = 0
    _reader: TurnReader | None = None
    _message: str = ""
    _client_tools: frozenset[str] = frozenset()

    def read(self, event: StreamEvent) -> Iterator[str]:
        """Yield the pieces of text of an event."""
        self._reader = self._reader or TurnReader(self.turn)
        if isinstance(event, FactEvent) and isinstance(event.fact, f.TurnStarted):
            self._client_tools = client_tools_in(event.fact)
        for item in self._reader.read(event):
            for piece in self._pieces(item):
                self.text += piece
                yield piece

    def absorb(self, events: Sequence[StreamEvent]) -> None:
        """Read the events of earlier completions of the turn."""
        for event in events:
            list(self.read(event))
        self.text = self._message = self.finish = ""
        self.calls.clear()

    def _pieces(self, item: i.Item) -> Iterator[str]:
        match item:
            case i.TextStartItem(message=message, kind="text"):
                if self._message and self._message != message:
                    yield "\n\n"
                self._message = message
            case i.TextDeltaItem(kind="text", delta=delta):
                yield delta
            case i.ReplyItem(text=text, replaced=True) if text:
                yield f"\n\n{text}"
            case i.PauseItem(event=pause) if all(
                waits_for_client(interrupt, self._client_tools) for interrupt in pause.interrupts
            ):
                self.finish = "tool_calls"
                for interrupt in pause.interrupts:
                    arguments = clean(json.dumps({**(interrupt.arguments or {})}))
                    function: Json = {"name": interrupt.tool, "arguments": arguments}
                    reference = call_reference(self.turn, interrupt.call)
                    self.calls.append({"id": reference, "type": "function", "function": function})
            case i.PauseItem(event=pause):
                yield "\n\n" * bool(self.text) + clean("\n\n".join(map(words, pause.interrupts))) + _ASKS
                self.finish, self.is_paused = "stop", True
            case i.EndItem(event=end):
                self._end(end)
            case _:
                pass

    def _end(self, event: TurnEndedEvent) -> None:
        tokens = event.usage
        self.usage = {
            "prompt_tokens": tokens.input_tokens,
            "completion_tokens": tokens.output_tokens,
            "total_tokens": tokens.input_tokens + tokens.output_tokens,
        }
        self.finish = _FINISHES.get(ending_of(event.outcome, event.reason), "")
        self.error = "" if self.finish else explain_end(event) or str(event.reason)

    def whole(self) -> Json:
        """Return the completion."""
        message: Json = {"role": "assistant", "content": self.text, "refusal": None}
        if self.calls:
            message |= {"content": self.text or None, "tool_calls": [*self.calls]}
        choice: Json = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish}
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0, **self.usage}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage}

    def chunk(self, delta: Json, finish: str | None = None) -> Json:
        """Return a piece of the completion."""
        choice: Json = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def total(self) -> Json:
        """Return the last chunk, with the usage."""
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": self.usage or None}

    def _head(self, kind: str) -> Json:
        return {"id": f"chatcmpl-{self.turn}", "object": kind, "created": self.created, "model": self.model}


async def _lines(
    pieces: AsyncGenerator[str, None], completion: Completion, *, includes_usage: bool
) -> AsyncGenerator[str, None]:
    yield _sse(completion.chunk({"role": "assistant", "content": ""}))
    error = ""
    try:
        async for piece in pieces:
            yield _sse(completion.chunk({"content": piece}))
        error = completion.error or ("" if completion.finish else _LEFT)
    except Exception as failure:  # noqa: BLE001 (the response has begun: the client gets words of ours)
        error = refusal_of(failure).why
    if error:
        yield _sse({"error": {"message": error, "type": "server_error", "param": None, "code": "server_error"}})
    else:
        calls: list[JsonValue] = [
            {"index": number, **call} for number, call in enumerate(completion.calls) if isinstance(call, dict)
        ]
        if calls:
            yield _sse(completion.chunk({"tool_calls": calls}))
        yield _sse(completion.chunk({}, completion.finish))
        if includes_usage:
            yield _sse(completion.total())
    yield "data: [DONE]\n\n"


def _sse(value: Json) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n"


def _flag(body: JsonObject, name: str) -> bool:
    value = body.get(name)
    if not isinstance(value, bool | None):
        raise RefusedRequestError(400, f"{name}: must be true or false", field=name)
    return bool(value)


def _tools(body: JsonObject) -> list[ToolDeclaration]:
    """Return the functions of the client. Raises `RefusedRequestError`."""
    value = body.get("tools")
    if not isinstance(value, list | None):
        raise RefusedRequestError(400, "tools: must be a list", field="tools")
    tools: list[ToolDeclaration] = []
    for number, tool in enumerate(() if body.get("tool_choice") == "none" else value or ()):
        function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
        if not isinstance(function, dict):
            why = f"tools: tool {number} is not of the type 'function': the agent has its own tools"
            raise RefusedRequestError(400, why, field="tools")
        tools.append(ToolDeclaration(function.get("name"), function.get("description"), function.get("parameters")))
    return tools


def _results(messages: Sequence[Message]) -> dict[str, Callable[[], Answer]]:
    """Return the results at the end of the messages, by the ids of their calls. Raises `RefusedRequestError`."""
    results: dict[str, Callable[[], Answer]] = {}
    for message in takewhile(lambda message: message.role == "tool", reversed(messages)):
        for part in message.parts:
            if isinstance(part, ToolResultPart):
                if part.call in results:
                    raise RefusedRequestError(400, "messages: a call has two results", field="messages")
                results[part.call] = partial(settled, ToolResult(part.text, files=part.files))
    return results


def _messages(body: JsonObject) -> list[Message]:
    """Return the messages of a request. Raises `RefusedRequestError`."""
    if body.get("functions"):
        raise RefusedRequestError(400, "functions: are not supported: use tools", field="functions")
    if body.get("n") not in (None, 1):
        raise RefusedRequestError(400, "n: must be 1", field="n")
    if not isinstance(body.get("model"), str):
        raise RefusedRequestError(400, "model: is missing: it is the agent's name", field="model")
    values = body.get("messages")
    if not isinstance(values, list) or not 0 < len(values) <= _MOST_MESSAGES:
        raise RefusedRequestError(400, f"messages: must be a list of 1 to {_MOST_MESSAGES} messages", field="messages")
    messages: list[Message] = []
    for number, value in enumerate(values):
        if not isinstance(value, dict):
            raise RefusedRequestError(400, f"messages: message {number} is not an object", field="messages")
        role = "system" if value.get("role") == "developer" else value.get("role")
        try:
            messages.append(Message.from_chat({**value, "role": role}))
        except ValueError as error:
            raise RefusedRequestError(400, f"messages: message {number}: {error}", field="messages") from None
    return messages
