"""Reads messages of Anthropic's API.

A document is a list of messages, a request (`messages`), a pair of a request and its response, or a list of these; so
is each line of a file of JSON lines. Messages or responses of their own in each line are one conversation, and so are
the events of streams. Results of bashkit's evaluation, each with a `trace` and a `score`, are among them.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from msgspec import Struct
from pydantic import JsonValue

from turnwright_audit.trajectories.atif import FinalMetrics, Trajectory
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.shapes import Shape
from turnwright_audit.trajectories.source import Recording
from turnwright_audit.trajectories.values import Values

from .anthropic_blocks import CALLS, Block, Content, Message, blocks_of, is_notice, result_text, status_of, text_of
from .anthropic_stream import BEGUN, EVENTS, Delta, StreamedReply
from .joined import Joined

NAME: Final = "anthropic-messages"
_LISTS: Final = ("messages", "results")
_NESTED: Final = ("request", "params", "body", "trace", "response", "result", "message")
_RESULTS: Final = ("tool_result", "_tool_result")
#: The marks of these messages alone: types of blocks, a role, and reasons to stop.
_BLOCKS: Final = frozenset({*CALLS, "tool_result", "thinking", "redacted_thinking"})
_STOPS: Final = frozenset({"end_turn", "tool_use", "max_tokens", "stop_sequence", "pause_turn", "refusal"})
_ROLES: Final = frozenset({"system", "user", "assistant", "tool_result"})
_LOOKED_AT: Final = 40


class Request(Struct):
    """A request, or the HTTP request around it."""

    model: str | None = None
    system: Content = None
    messages: list[Message] | None = None
    body: "Request | None" = None


class Response(Message):
    """A response, the HTTP response around it, or (`message`) a result of a batch."""

    body: Message | None = None
    message: Message | None = None
    error: Any = None


class Trace(Struct):
    """A run of bashkit's evaluation."""

    messages: list[Message] | None = None
    natural_stop: bool | None = None
    total_input_tokens: int | None = None
    total_output_tokens: int | None = None


class Score(Struct):
    """The score of such a run."""

    score: float | None = None
    max_score: float | None = None


class Task(Struct):
    """The task of such a run."""

    id: str | None = None
    system: str | None = None


class Result(Response):
    """A result of bashkit's evaluation, or of a batch."""

    trace: Trace | None = None
    score: Score | None = None
    task: Task | None = None


class Record(Message):
    """A message, a record of a conversation, or an event of a stream."""

    type: str = ""
    index: int = 0
    message: Message | None = None
    content_block: Block | None = None
    delta: Delta | None = None
    system: Content = None
    messages: list[Message] | None = None
    request: Request | None = None
    params: Request | None = None
    body: Request | None = None
    response: Response | None = None
    result: Response | None = None
    results: list[Result] | None = None
    error: Any = None
    custom_id: str | None = None
    success: bool | None = None


_Found = Record | list[Record | list[Message]]
_SHAPE: Final[Shape[_Found]] = Shape(_Found)  # type: ignore[arg-type]  # a union is not a class


def recognizes(recording: Recording) -> bool:
    """Whether one of the first messages has what only Anthropic's messages have."""
    if any(map(_begins_stream, recording.objects)):
        return True
    found = islice(_messages(recording.document), _LOOKED_AT)
    if any(map(_is_one, found)):
        return True
    return recording.is_lines and any(map(_is_one, islice(_messages(list(recording.records)), _LOOKED_AT)))


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield the conversations."""
    values = Values(recording, _SHAPE, {*_LISTS, *_NESTED}, _uses)
    return values.noted(_runs(values), "no message in it could be read")


def _uses(value: _Found) -> Iterator[bool]:
    for record in value if isinstance(value, list) else [value]:
        if isinstance(record, list):
            yield from map(_says_something, record)
        elif record.messages is not None:
            yield from map(_says_something, record.messages)
        elif record.role and record.type not in EVENTS:
            yield _says_something(record)
        else:
            around = (record.request, record.params, record.body, record.response, record.result, record.error)
            yield record.type in EVENTS or any(one is not None for one in (record.results, *around))


def _says_something(message: Message) -> bool:
    return message.role in _ROLES and message.content is not None


def _runs(values: Values[_Found]) -> Iterator[Trajectory]:
    reader = _Reader()
    for value in values:
        reader.lost = values.unreadable_lines
        for one in reader.runs(value):
            yield one
    for one in reader.rest():
        yield one


class _Chat:
    """A run that grows by messages."""

    def __init__(self, model: str | None, name: str | None, system: Content = None) -> None:
        self.run = RunBuilder(NAME, agent="", model=model, run=name)
        self.ending: str | None = None
        if system:
            self.run.system(text_of(blocks_of(system)))

    def add(self, message: Message) -> None:
        """Add a message. What stands beside results of calls in it is not a message of the user."""
        blocks = blocks_of(message.content)
        if message.role == "assistant":
            self._reply(message, blocks)
            return
        text = text_of(block for block in blocks if not block.type.endswith(_RESULTS))
        answered = self._results(blocks)
        if text or not answered:
            of_program = answered or message.role == "system" or is_notice(text)
            (self.run.system if of_program else self.run.user)(text)

    def _reply(self, message: Message, blocks: list[Block]) -> None:
        step = self.run.reply(
            text_of(block for block in blocks if not block.type.endswith(_RESULTS)),
            model=message.model,
            reasoning="\n".join(block.thinking for block in blocks if block.thinking),
            metrics=message.usage.metrics() if message.usage else None,
            stop_reason=message.stop_reason,
        )
        self.ending = message.stop_reason
        for block in blocks:
            if block.type in CALLS and block.name:
                self.run.call(block.id, block.name, block.input, step=step)
        self._results(blocks)

    def _results(self, blocks: list[Block]) -> bool:
        found = [block for block in blocks if block.type.endswith(_RESULTS)]
        for block in found:
            text = result_text(block.content)
            self.run.result(block.tool_use_id, text, status=status_of(block, text))
        return bool(found)


class _Reader:
    """Makes runs of records. Messages of their own, and requests that continue one another, are joined."""

    def __init__(self) -> None:
        self._own: _Chat | None = None
        self._logged: Joined[_Chat] = Joined()
        self._chats: list[_Chat] = []
        self._streamed: StreamedReply | None = None
        #: The number of lines so far that could not be read.
        self.lost = 0
        self._number = 0

    def runs(self, value: _Found) -> Iterator[Trajectory]:
        """Yield the conversations that are complete with this value."""
        several = isinstance(value, list)
        for record in value if isinstance(value, list) else [value]:
            if isinstance(record, list):
                yield from self._whole(Record(messages=record), several=several)
            elif record.results is not None:
                for result in record.results:
                    yield from _evaluated(result, record.model)
            elif record.type in EVENTS:
                self._event(record)
            elif record.role:
                self._say(record)
            elif record.request or record.params or record.body or record.response or record.result or record.error:
                self._log(record)
            else:
                yield from self._whole(record, several=several)

    def rest(self) -> Iterator[Trajectory]:
        """Yield the conversations that more records could have continued."""
        self._end_stream()
        for chat in self._chats:
            if chat.run.steps:
                yield chat.run.finish(ending=chat.ending)

    def _say(self, message: Message) -> None:
        if self._own is None:
            self._own = self._new(message.model, None)
        self._own.add(message)

    def _event(self, event: Record) -> None:
        if event.type == BEGUN:
            self._end_stream()
            self._streamed = StreamedReply(event.message or Message(), self.lost)
            return
        if self._streamed is None:
            return
        self._streamed.damaged = self._streamed.damaged or self.lost != self._streamed.lost
        if event.type == "message_stop":
            self._end_stream()
        elif event.content_block is not None:
            self._streamed.block(event.index, event.content_block)
        elif event.type == "message_delta":
            self._streamed.end(event.delta or Delta(), event.usage)
        elif event.delta is not None:
            self._streamed.delta(event.index, event.delta)

    def _end_stream(self) -> None:
        reply, self._streamed = self._streamed, None
        if reply is not None:
            self._say(reply.message())

    def _new(self, model: str | None, name: str | None, system: Content = None) -> _Chat:
        chat = _Chat(model, name, system)
        self._chats.append(chat)
        return chat

    def _whole(self, record: Record, *, several: bool) -> Iterator[Trajectory]:
        if not record.messages:
            return
        name = record.id or record.custom_id or (str(self._number) if several else None)
        self._number += 1
        chat = _Chat(record.model, name, record.system)
        for message in record.messages:
            chat.add(message)
        yield chat.run.finish(ending=chat.ending, success=record.success)

    def _log(self, record: Record) -> None:
        request = record.request or record.params or record.body or Request()
        request = request.body or request
        messages = request.messages or record.messages or []
        known = self._logged.take(map(_key, messages))
        chat = known.conversation or self._new(
            request.model or record.model, record.custom_id, request.system or record.system
        )
        for message in messages[known.messages :]:
            chat.add(message)
        response = record.response or record.result
        reply = response and (response.body or response.message or response)
        if reply and reply.content is not None:  # a reply may be empty
            reply.role = "assistant"
            chat.add(reply)
            self._logged.keep(chat, known.digest, [_key(reply)])
            return
        if record.error or (response and response.error):
            chat.run.system(str(record.error or (response and response.error)), error=True)
        self._logged.keep(chat, known.digest)


def _evaluated(result: Result, model: str | None) -> Iterator[Trajectory]:
    """Yield the run of a result of bashkit's evaluation."""
    trace, task, score = result.trace or Trace(), result.task or Task(), result.score or Score()
    if not trace.messages:
        return
    chat = _Chat(model, task.id, task.system)
    for message in trace.messages:
        chat.add(message)
    rated = score.score is not None and score.max_score is not None
    yield chat.run.finish(
        ending=None if trace.natural_stop is None else "natural stop" if trace.natural_stop else "max turns",
        success=(score.score or 0) >= (score.max_score or 0) if rated else None,
        totals=FinalMetrics(
            total_prompt_tokens=trace.total_input_tokens, total_completion_tokens=trace.total_output_tokens
        ),
    )


def _key(message: Message) -> tuple[object, ...]:
    """Return what two copies of a message have in common."""
    blocks = blocks_of(message.content)
    ids = tuple(block.id or block.tool_use_id for block in blocks if block.type not in ("text", "thinking"))
    return message.role, text_of(block for block in blocks if block.type == "text"), ids


def _messages(value: JsonValue) -> Iterator[Mapping[str, JsonValue]]:
    """Yield the messages in a value that has conversations, from its beginning."""
    if isinstance(value, list):
        for part in value:
            yield from _messages(part)
    elif isinstance(value, Mapping):
        if "role" in value:
            yield value
            return
        for name in (*_LISTS, *_NESTED):
            found = value.get(name)
            if isinstance(found, (list, Mapping)):
                yield from _messages(found)


def _begins_stream(event: Mapping[str, JsonValue]) -> bool:
    message = event.get("message")
    return event.get("type") == BEGUN and isinstance(message, Mapping) and message.get("type") == "message"


def _is_one(message: Mapping[str, JsonValue]) -> bool:
    if message.get("role") == "tool_result":
        return True
    content = message.get("content")
    if not isinstance(content, list):
        return False
    types = {str(part.get("type")) for part in content if isinstance(part, Mapping)}
    return bool(types & _BLOCKS) or (message.get("type") == "message" and str(message.get("stop_reason")) in _STOPS)
