"""Chat completions: each request is a turn of its own, with the messages that it has. Nothing can be asked.

A turn that waits for tools of the client continues with the request that has their results.
"""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Final

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnwright._base.background_task import spawn
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
from turnwright.transcript.interrupt import Interrupt
from turnwright_protocols import items as i
from turnwright_protocols.client_tools import (
    ToolDeclaration,
    call_reference,
    give_results,
    need_result,
    read_call_reference,
    settleable,
    waits_for_client,
)
from turnwright_protocols.conversations import (
    PausedTurn,
    abort_turn,
    answer_turn,
    events_for_client,
    without_waits,
)
from turnwright_protocols.endings import Ending, ending_of, explain_end
from turnwright_protocols.http import (
    EventStream,
    Gate,
    JsonObject,
    RefusedRequestError,
    choose_agent,
    declare_tools,
    encode_stream,
    read_flag,
    to_sse,
    waiting,
    wrong_field,
)
from turnwright_protocols.items import arguments_text, clean
from turnwright_protocols.segment_usage import SegmentUsage
from turnwright_protocols.turn_reader import TurnReader

from .request import need_answer_format

_LOG = logging.getLogger(__name__)

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
        #: Follow turns whose clients have gone, by their ids.
        self._followers: dict[str, object] = {}

    async def create(self, request: Request) -> Response:
        """Run a turn, and return its texts. A turn that asks is aborted, because nobody can answer."""
        body = await self._gate.read_json(request)
        messages = _messages(body)
        agent = choose_agent(self._agents, body.get("model") or "")
        streams, counts = read_flag(body, "stream"), body.get("stream_options")
        if results := _results(messages):
            handle, completion, after = await self._continue(request, agent, results)
        else:
            handle, after = await self._start(request, agent, body, messages), 0
            completion = self._completion(handle.id, agent)
        # At once: the text of a fast reply streams in from now on.
        events = events_for_client(self._engine, handle, after, completion.choose_questions)
        pieces, follow_on = self._until_asked(handle, completion, events), partial(self._follow_on, handle, completion)
        if streams:
            includes_usage = isinstance(counts, dict) and counts.get("include_usage") is True
            lines = _stream(pieces, completion, includes_usage=includes_usage)
            return EventStream(lines, self._gate.bounds, on_end=follow_on)
        try:
            async with waiting(request, self._gate.bounds):
                async for _ in pieces:
                    pass
        finally:
            follow_on()
        if completion.error or not completion.finish:
            raise RefusedRequestError(500, completion.error or _LEFT, code="server_error")
        return JSONResponse(completion.whole())

    def _completion(self, turn: str, agent: Agent) -> "Completion":
        return Completion(turn, agent.name.lower(), int(self._engine.setup.now()))

    async def _start(
        self, request: Request, agent: Agent, body: JsonObject, messages: Sequence[Message]
    ) -> TurnHandle[str]:
        *history, last = messages
        if last.role != "user" or not (last.text.strip() or last.files):
            raise wrong_field("messages", "must end with a message of the user, or results of open calls")
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
            raise wrong_field("messages", "the results belong to several turns")
        (turn,) = turns
        try:
            row = await self._engine.store.get(turn)
        except TurnNotFoundError:
            raise _no_call() from None
        by_call = {read_call_reference(reference)[1]: result for reference, result in results.items()}
        events = without_waits(await self._engine.snapshot(turn))
        paused_turn = PausedTurn(events, lambda interrupt: interrupt.call in by_call)
        about = paused_turn.note(_KEY)
        if about is None or await self._gate.identify(request, str(about.get("conversation"))) != about.get("user"):
            raise _no_call()
        if row.agent != agent.name:
            raise wrong_field("model", "the calls are another agent's")
        answers = give_results(paused_turn.interrupts, by_call)
        need_result(answers, by_call)
        if answers.keys() != {interrupt.id for interrupt in paused_turn.interrupts}:
            raise wrong_field("messages", "each call needs its result")
        user = str(about.get("user"))
        handle = await answer_turn(self._engine, agent, paused_turn, turn, {**answers}, by=user, via=_VIA)
        completion = self._completion(turn, agent)
        completion.absorb(paused_turn.events)
        return handle, completion, paused_turn.seq

    async def _until_asked(
        self, handle: TurnHandle[str], completion: "Completion", events: AsyncIterator[StreamEvent]
    ) -> AsyncGenerator[str, None]:
        """Yield the pieces of a turn's text. Abort it if it pauses."""
        async for event in events:
            for piece in completion.read(event):
                yield piece
        if completion.is_paused:
            await abort_turn(self._engine, handle.id)
        completion.is_followed = True

    def _follow_on(self, handle: TurnHandle[str], completion: "Completion") -> None:
        """Follow a turn whose client has gone: nobody could answer it either."""
        if not completion.is_followed:
            self._followers[handle.id] = spawn(partial(self._follow_alone, handle, completion))

    async def _follow_alone(self, handle: TurnHandle[str], completion: "Completion") -> None:
        events = events_for_client(self._engine, handle, completion.seq, completion.choose_questions)
        try:
            async for _ in self._until_asked(handle, completion, events):
                pass
        except Exception as error:  # noqa: BLE001 (nobody waits for this task)
            _LOG.warning("turn %s cannot be followed to its end: %s", handle.id, error, extra={"turn": handle.id})
        finally:
            self._followers.pop(handle.id, None)


@dataclass(slots=True)
class Completion:
    """The text of one turn, its messages after each other, as a chat completion."""

    turn: str
    model: str
    #: The time of the request, in seconds since the Unix epoch.
    created: int
    text: str = ""
    finish: str = ""
    error: str = ""
    is_paused: bool = False
    #: The seq of the last event, and whether the turn was followed to its end or its abort.
    seq: int = 0
    is_followed: bool = False
    calls: list[JsonValue] = field(default_factory=list)
    _message: str = ""
    _usage: SegmentUsage = field(default_factory=SegmentUsage)
    _reader: TurnReader = field(init=False)

    def __post_init__(self) -> None:
        self._reader = TurnReader(self.turn)

    def read(self, event: StreamEvent) -> Iterator[str]:
        """Yield the pieces of text of an event."""
        self.seq = event.seq
        if isinstance(event, FactEvent):
            self._usage.add(event.fact)
        for item in self._reader.read(event):
            for piece in self._pieces(item):
                self.text += piece
                yield piece

    def choose_questions(self, interrupts: Sequence[Interrupt]) -> list[Interrupt]:
        """Return the interrupts without results that others than the client owe."""
        return settleable(interrupts, self._reader.client_tools)

    def absorb(self, events: Sequence[StreamEvent]) -> None:
        """Read the events of earlier completions of the turn."""
        for event in events:
            list(self.read(event))
        self.text = self._message = self.finish = ""
        self.calls.clear()
        self._usage.begin()

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
                waits_for_client(interrupt, self._reader.client_tools) for interrupt in pause.interrupts
            ):
                self.finish = "tool_calls"
                for interrupt in pause.interrupts:
                    function: Json = {"name": interrupt.tool, "arguments": arguments_text(interrupt)}
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
        self._usage.end(event.usage)
        self.finish = _FINISHES.get(ending_of(event.outcome, event.reason), "")
        self.error = "" if self.finish else explain_end(event) or str(event.reason)

    def whole(self) -> Json:
        """Return the completion."""
        message: Json = {"role": "assistant", "content": self.text, "refusal": None}
        if self.calls:
            message |= {"content": self.text or None, "tool_calls": [*self.calls]}
        choice: Json = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage_json()}

    def chunk(self, delta: Json, finish: str | None = None) -> Json:
        """Return a piece of the completion."""
        choice: Json = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def total(self) -> Json:
        """Return the last chunk, with the usage."""
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage_json()}

    def _usage_json(self) -> Json:
        prompt_tokens, output_tokens = self._usage.input_tokens, self._usage.own.output_tokens
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": prompt_tokens + output_tokens,
        }

    def _head(self, kind: str) -> Json:
        return {"id": f"chatcmpl-{self.turn}", "object": kind, "created": self.created, "model": self.model}


def _no_call() -> RefusedRequestError:
    return RefusedRequestError(404, "messages: there is no such call, or it is not this server's", field="messages")


def _stream(
    pieces: AsyncGenerator[str, None], completion: Completion, *, includes_usage: bool
) -> AsyncGenerator[str, None]:
    """Return the lines of a completion whose text comes in pieces."""

    def close(error: str) -> str:
        error = error or completion.error or ("" if completion.finish else _LEFT)
        if error:
            return to_sse({"error": {"message": error, "type": "server_error", "param": None, "code": "server_error"}})
        calls: list[JsonValue] = [
            {"index": number, **call} for number, call in enumerate(completion.calls) if isinstance(call, dict)
        ]
        chunks = [completion.chunk({"tool_calls": calls})] if calls else []
        chunks += [completion.chunk({}, completion.finish), *([completion.total()] if includes_usage else ())]
        return "".join(map(to_sse, chunks))

    start = to_sse(completion.chunk({"role": "assistant", "content": ""}))
    return encode_stream(pieces, start, lambda piece: to_sse(completion.chunk({"content": piece})), close)


def _tools(body: JsonObject) -> list[ToolDeclaration]:
    """Return the functions of the client. Raises `RefusedRequestError`."""
    value = body.get("tools")
    if not isinstance(value, list | None):
        raise wrong_field("tools", "must be a list")
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
                    raise wrong_field("messages", "a call has two results")
                results[part.call] = partial(settled, ToolResult(part.text, files=part.files))
    return results


def _messages(body: JsonObject) -> list[Message]:
    """Return the messages of a request. Raises `RefusedRequestError`."""
    if body.get("functions"):
        raise wrong_field("functions", "are not supported: use tools")
    if body.get("n") not in (None, 1):
        raise wrong_field("n", "must be 1")
    if not isinstance(body.get("model"), str):
        raise wrong_field("model", "is missing: it is the agent's name")
    values = body.get("messages")
    if not isinstance(values, list) or not 0 < len(values) <= _MOST_MESSAGES:
        raise wrong_field("messages", f"must be a list of 1 to {_MOST_MESSAGES} messages")
    messages: list[Message] = []
    for number, value in enumerate(values):
        if not isinstance(value, dict):
            raise wrong_field("messages", f"message {number} is not an object")
        role = "system" if value.get("role") == "developer" else value.get("role")
        try:
            messages.append(Message.from_chat({**value, "role": role}))
        except ValueError as error:
            raise wrong_field("messages", f"message {number}: {error}") from None
    return messages
