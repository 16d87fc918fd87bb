"""Reads messages of Anthropic's API.

A document is a list of messages, a request (`messages`), a pair of a request and its response, or a list of these; so
is each line of a file of JSON lines. Messages or responses of their own in each line are one conversation, and so are
the events of streams. Results of bashkit's evaluation, each with a `trace` and a `score`, are among them.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from msgspec import Struct
from pydantic import JsonValue

from turnwright_audit.trajectories.atif import StepMetrics, Trajectory
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.shapes import Shape, nested_objects
from turnwright_audit.trajectories.source import Recording
from turnwright_audit.trajectories.values import Values

from .anthropic_blocks import (
    CALLS,
    RESULTS,
    Block,
    Content,
    Message,
    MessageReplyBuilder,
    blocks_of,
    fields_of,
    is_notice,
    read_message,
    result_text,
    status_of,
    text_of,
)
from .joined import Joined
from .model_replies import RecordedReply, StreamedReply, add_reply

NAME: Final = "anthropic-messages"
_BEGUN: Final = "message_start"
_EVENTS: Final = frozenset(
    {_BEGUN, "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"}
)
_LISTS: Final = ("messages", "results")
_NESTED: Final = ("request", "params", "body", "trace", "response", "result", "message")
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
    index: Any = None
    message: Message | None = None
    content_block: Any = None
    delta: Any = None
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


_Value = Record | list[Record | list[Message]]
_SHAPE: Final[Shape[_Value]] = Shape(_Value)  # type: ignore[arg-type]  # a union is not a class


def recognizes(recording: Recording) -> bool:
    """Whether one of the first messages has what only Anthropic's messages have."""
    if any(map(_begins_stream, recording.objects)):
        return True
    messages = islice(_messages(recording.document), _LOOKED_AT)
    if any(map(_is_message, messages)):
        return True
    return recording.is_sequence and any(map(_is_message, islice(_messages(list(recording.records)), _LOOKED_AT)))


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield the conversations."""
    values = Values(recording, _SHAPE, {*_LISTS, *_NESTED}, _uses)
    return values.noted(_Reader(values).read_runs(), "no message in it could be read")


def _uses(value: _Value) -> Iterator[bool]:
    for record in value if isinstance(value, list) else [value]:
        if isinstance(record, list):
            yield from map(_has_content, record)
        elif record.messages is not None:
            yield from map(_has_content, record.messages)
        elif record.role and record.type not in _EVENTS:
            yield _has_content(record)
        else:
            around = (record.request, record.params, record.body, record.response, record.result, record.error)
            yield record.type in _EVENTS or any(field is not None for field in (record.results, *around))


def _has_content(message: Message) -> bool:
    return message.role in _ROLES and message.content is not None


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
            self.add_reply(read_message(message))
            self._add_results(block for block in blocks if block.type == "tool_result")
            return
        text = text_of(block for block in blocks if not block.type.endswith(RESULTS))
        has_results = self._add_results(block for block in blocks if block.type.endswith(RESULTS))
        if text or not has_results:
            of_program = has_results or message.role == "system" or is_notice(text)
            (self.run.system if of_program else self.run.user)(text)

    def add_reply(self, recorded_reply: RecordedReply[MessageReplyBuilder]) -> None:
        """Add a reply, with the results of the tools that the provider runs."""
        reply = recorded_reply.reply()
        self.ending = reply.finish_reason
        add_reply(self.run, reply)
        self._add_results(recorded_reply.builder.read_results(), hosted=True)

    def _add_results(self, results: Iterable[Block], *, hosted: bool = False) -> bool:
        """Add results of calls; False if there are none."""
        has_results = False
        for block in results:
            text = result_text(block.content)
            self.run.result(block.tool_use_id, text, status=status_of(block, text), hosted=hosted)
            has_results = True
        return has_results


class _Reader:
    """Makes runs of records. Messages of their own, and requests that continue one another, are joined."""

    def __init__(self, values: Values[_Value]) -> None:
        self._values = values
        self._own: _Chat | None = None
        self._logged: Joined[_Chat] = Joined()
        self._chats: list[_Chat] = []
        self._streamed: StreamedReply[MessageReplyBuilder] | None = None
        self._number = 0

    def read_runs(self) -> Iterator[Trajectory]:
        """Yield the conversations; at the end those that more records could have continued."""
        for value in self._values:
            yield from self._read_value(value)
        self._end_stream()
        for chat in self._chats:
            if chat.run.steps:
                yield chat.run.finish(ending=chat.ending)

    def _read_value(self, value: _Value) -> Iterator[Trajectory]:
        several = isinstance(value, list)
        for record in value if isinstance(value, list) else [value]:
            if isinstance(record, list):
                yield from self._read_whole(Record(messages=record), several=several)
            elif record.results is not None:
                for result in record.results:
                    yield from _read_evaluation(result, record.model)
            elif record.type in _EVENTS:
                self._add_event(record)
            elif record.role:
                self._find_own_chat(record.model).add(record)
            elif record.request or record.params or record.body or record.response or record.result or record.error:
                self._add_logged(record)
            else:
                yield from self._read_whole(record, several=several)

    def _find_own_chat(self, model: str | None) -> _Chat:
        self._own = self._own or self._begin_chat(model, None)
        return self._own

    def _add_event(self, event: Record) -> None:
        if event.type == _BEGUN:
            self._end_stream()
            self._streamed = StreamedReply(MessageReplyBuilder, self._values.unreadable_lines)
        if self._streamed is not None:
            fields = {name: getattr(event, name) for name in ("type", "index", "content_block", "delta", "usage")}
            message = None if event.message is None else fields_of(event.message)
            self._streamed.add_event({**fields, "message": message}, self._values.unreadable_lines)
        if event.type == "message_stop":
            self._end_stream()

    def _end_stream(self) -> None:
        stream, self._streamed = self._streamed, None
        if stream is not None:
            response = stream.reply().response
            self._find_own_chat(response.model if response else None).add_reply(stream)

    def _begin_chat(self, model: str | None, name: str | None, system: Content = None) -> _Chat:
        chat = _Chat(model, name, system)
        self._chats.append(chat)
        return chat

    def _read_whole(self, record: Record, *, several: bool) -> Iterator[Trajectory]:
        if not record.messages:
            return
        name = record.id or record.custom_id or (str(self._number) if several else None)
        self._number += 1
        chat = _Chat(record.model, name, record.system)
        for message in record.messages:
            chat.add(message)
        yield chat.run.finish(ending=chat.ending, success=record.success)

    def _add_logged(self, record: Record) -> None:
        request = record.request or record.params or record.body or Request()
        request = request.body or request
        messages = request.messages or record.messages or []
        continuation = self._logged.take(map(_key, messages))
        chat = continuation.conversation or self._begin_chat(
            request.model or record.model, record.custom_id, request.system or record.system
        )
        for message in messages[continuation.messages :]:
            chat.add(message)
        response = record.response or record.result
        reply = response and (response.body or response.message or response)
        if reply and reply.content is not None:  # a reply may be empty
            reply.role = "assistant"
            chat.add(reply)
            self._logged.keep(chat, continuation.digest, [_key(reply)])
            return
        if record.error or (response and response.error):
            chat.run.system(str(record.error or (response and response.error)), error=True)
        self._logged.keep(chat, continuation.digest)


def _read_evaluation(result: Result, model: str | None) -> Iterator[Trajectory]:
    """Yield the run of a result of bashkit's evaluation."""
    trace, task, score = result.trace or Trace(), result.task or Task(), result.score or Score()
    if not trace.messages:
        return
    chat = _Chat(model, task.id, task.system)
    for message in trace.messages:
        chat.add(message)
    is_rated = score.score is not None and score.max_score is not None
    yield chat.run.finish(
        ending=None if trace.natural_stop is None else "natural stop" if trace.natural_stop else "max turns",
        success=(score.score or 0) >= (score.max_score or 0) if is_rated else None,
        totals=StepMetrics(trace.total_input_tokens, trace.total_output_tokens),
    )


def _key(message: Message) -> tuple[object, ...]:
    """Return what two copies of a message have in common."""
    blocks = blocks_of(message.content)
    ids = tuple(block.id or block.tool_use_id for block in blocks if block.type not in ("text", "thinking"))
    return message.role, text_of(block for block in blocks if block.type == "text"), ids


def _messages(value: JsonValue) -> Iterator[Mapping[str, JsonValue]]:
    """Yield the messages in a value that has conversations, from its beginning."""
    objects = nested_objects(value, (*_LISTS, *_NESTED), lambda record: "role" in record)
    return (record for record in objects if "role" in record)


def _begins_stream(event: Mapping[str, JsonValue]) -> bool:
    message = event.get("message")
    return event.get("type") == _BEGUN and isinstance(message, Mapping) and message.get("type") == "message"


def _is_message(message: Mapping[str, JsonValue]) -> bool:
    if message.get("role") == "tool_result":
        return True
    content = message.get("content")
    if not isinstance(content, list):
        return False
    types = {str(part.get("type")) for part in content if isinstance(part, Mapping)}
    return bool(types & _BLOCKS) or (message.get("type") == "message" and str(message.get("stop_reason")) in _STOPS)
