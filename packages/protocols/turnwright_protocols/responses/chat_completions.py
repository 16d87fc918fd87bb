"""Chat completions: each request is a turn of its own, with the messages that it has. Nothing can be asked."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import anyio
from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnwright._base.ids import new_id
from turnwright.agent import Agent
from turnwright.engine import Engine
from turnwright.events import StreamEvent, TurnEndedEvent
from turnwright.journal.questions import words
from turnwright.message import Message
from turnwright_protocols import items as i
from turnwright_protocols.conversations import abort_turn
from turnwright_protocols.endings import CONTENT_REFUSED, WRITING_LIMITS, explain_end
from turnwright_protocols.http import EventStream, Gate, JsonObject, RefusedRequestError, choose_agent, refusal_of
from turnwright_protocols.items import clean
from turnwright_protocols.turn_reader import TurnReader
from turnwright_states import EndReason, Outcome

Json = dict[str, JsonValue]
_MOST_MESSAGES: Final = 2000
_ASKS: Final = "\n\nChat completions cannot answer this: use /responses."
_LEFT: Final = "the turn was interrupted"


class ChatCompletions:
    """The handler of chat completions."""

    def __init__(self, engine: Engine, agents: Mapping[str, Agent], gate: Gate) -> None:
        self._engine = engine
        self._agents = agents
        self._gate = gate

    async def create(self, request: Request) -> Response:
        """Run a turn, and return its texts. A turn that asks is aborted, because nobody can answer."""
        body = await self._gate.read_json(request)
        *history, last = _messages(body)
        agent = choose_agent(self._agents, body.get("model") or "")
        await self._gate.identify(request, new_id())
        streams, counts = _flag(body, "stream"), body.get("stream_options")
        handle = await self._engine.start(agent, last.text, files=last.files, message_history=history)
        completion = Completion(handle.id, agent.name.lower())
        events = self._until_asked(handle.events(), completion)
        if streams:
            includes_usage = isinstance(counts, dict) and counts.get("include_usage") is True
            return EventStream(_lines(events, completion, includes_usage=includes_usage), self._gate.bounds)
        with anyio.move_on_after(self._gate.bounds.stream_seconds):
            async for _ in events:
                pass
        if completion.error or not completion.finish:
            raise RefusedRequestError(500, completion.error or _LEFT, code="server_error")
        return JSONResponse(completion.whole())

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
    usage: Json = field(default_factory=dict)
    created: int = 0
    _reader: TurnReader | None = None
    _message: str = ""

    def read(self, event: StreamEvent) -> Iterator[str]:
        """Yield the pieces of text of an event."""
        self._reader = self._reader or TurnReader(self.turn)
        for item in self._reader.read(event):
            for piece in self._pieces(item):
                self.text += piece
                yield piece

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
        if event.reason in CONTENT_REFUSED:
            self.finish = "content_filter"
        elif event.outcome in (Outcome.FAILED, Outcome.ABORTED):
            self.error = explain_end(event) or str(event.reason)
        elif event.reason is EndReason.TRUNCATED or event.reason in WRITING_LIMITS:
            self.finish = "length"
        else:
            self.finish = "stop"

    def whole(self) -> Json:
        """Return the completion."""
        message: Json = {"role": "assistant", "content": self.text, "refusal": None}
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


def _messages(body: JsonObject) -> list[Message]:
    """Return the messages of a request, which end with the user's. Raises `RefusedRequestError`."""
    for name in ("tools", "functions"):
        if body.get(name):
            raise RefusedRequestError(
                400, f"{name}: tools of the client are not supported: the agent has its own", field=name
            )
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
    if messages[-1].role != "user" or not (messages[-1].text.strip() or messages[-1].files):
        raise RefusedRequestError(400, "messages: must end with a message of the user", field="messages")
    return messages
