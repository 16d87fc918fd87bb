"""Reads messages of OpenAI's chat completions.

A document is a list of messages, an object with `messages`, a response with `choices`, a pair of a request and its
response, or a list of these; so is each line of a file of JSON lines. Files with one message in each line are one
conversation, and the chunks of a stream are one reply. tau-bench's list of `traj` with `reward`, and tau2-bench's
`simulations`, are among them.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from msgspec import Struct
from pydantic import JsonValue

from turnwright.model.openai_chat.reply_builder import ReplyBuilder
from turnwright_audit.trajectories.atif import Trajectory
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.shapes import Shape, nested_objects
from turnwright_audit.trajectories.source import Recording
from turnwright_audit.trajectories.values import Values

from .chat_messages import SYSTEM_ROLES, Chat, Message, read_chat_usage, text_of
from .joined import Joined
from .model_replies import StreamedReply

NAME: Final = "openai-chat"
_CHUNK: Final = "chat.completion.chunk"
#: The fields of a choice that is complete, of chat completions and of the completions before them.
_WHOLE: Final = frozenset({"message", "text"})
_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_LISTS: Final = ("messages", "traj", "conversation", "simulations")
_NESTED: Final = ("request", "body", "response")
#: Types of parts in Anthropic's messages, which have the same roles.
_FOREIGN: Final = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"})
_LOOKED_AT: Final = 20
#: The keys of a file of simulations of tau2-bench.
_TAU2: Final = {"agent_info", "environment_info", "user_info"}
#: How tau-bench's simulated user ends a conversation, and the tool that hands it to a person.
_STOP: Final = "###STOP###"
_TRANSFER: Final = "transfer_to_human_agents"


class Response(Struct):
    """A response, or the HTTP response around it."""

    model: str | None = None
    choices: list[dict[str, Any]] | None = None
    usage: Any = None
    body: "Response | None" = None


class Request(Struct):
    """A request, or the HTTP request around it."""

    model: str | None = None
    messages: list[Message] | None = None
    body: "Request | None" = None


class Reward(Struct):
    """The reward of a simulation."""

    reward: float | None = None


class Record(Message):
    """A message, a record of a conversation, or a chunk of a reply."""

    object: str = ""
    model: str | None = None
    messages: list[Message] | None = None
    traj: list[Message] | None = None
    conversation: list[Message] | None = None
    choices: list[dict[str, Any]] | None = None
    request: Request | None = None
    body: Request | None = None
    response: Response | None = None
    simulations: "list[Record] | None" = None
    reward_info: Reward | None = None
    termination_reason: str | None = None
    task_id: str | int | None = None
    trial: int | None = None
    reward: float | None = None
    success: bool | None = None
    custom_id: str | None = None
    x_groq: Any = None

    @property
    def is_chunk(self) -> bool:
        """Whether it is a chunk of a stream. Some servers leave out its `object`, or send that of a whole reply."""
        if self.object == _CHUNK:
            return True
        choices = self.choices or ()
        return any("delta" in choice for choice in choices) or (
            self.choices is not None and self.error is None and all(_WHOLE.isdisjoint(choice) for choice in choices)
        )


_Value = Record | list[Record | list[Message]]
_MESSAGE: Final = Shape(Message)
_SHAPE: Final[Shape[_Value]] = Shape(_Value)  # type: ignore[arg-type]  # a union is not a class


def recognizes(recording: Recording) -> bool:
    """Whether the first messages have a role of chat completions, and no part that only Anthropic's have.

    The simulations of tau2-bench may come after megabytes of tasks.
    """
    first = recording.document
    info = first.get("info") if isinstance(first, Mapping) and "tasks" in first else None
    if isinstance(info, Mapping) and info.keys() >= _TAU2:
        return True
    if any(map(_is_chunk, recording.objects)):
        return True
    messages = list(islice(_messages(recording.document), _LOOKED_AT))
    if not messages and recording.is_sequence:
        messages = list(islice(_messages(list(recording.records)), _LOOKED_AT))
    return bool(messages) and all(map(_is_chat, messages))


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield the conversations."""
    values = Values(recording, _SHAPE, {*_LISTS, *_NESTED}, _uses)
    return values.noted(_Reader(values).read_runs(), "no message in it could be read")


def _uses(value: _Value) -> Iterator[bool]:
    for record in value if isinstance(value, list) else [value]:
        if isinstance(record, list):
            yield from map(_has_content, record)
        elif messages := record.messages or record.traj or record.conversation:
            yield from map(_has_content, messages)
        elif record.role:
            yield _has_content(record)
        else:
            around = (record.simulations, record.choices, record.request, record.body, record.response, record.error)
            yield record.is_chunk or any(field is not None for field in around)


def _has_content(message: Message) -> bool:
    fields = (message.content, message.tool_calls, message.function_call, message.refusal, message.reasoning_content)
    return message.role in _ROLES and any(field is not None for field in fields)


class _Reader:
    """Makes runs of records. Messages of their own, and requests that continue one another, are joined."""

    def __init__(self, values: Values[_Value]) -> None:
        self._values = values
        self._own: Chat | None = None
        self._logged: Joined[Chat] = Joined()
        self._chats: list[Chat] = []
        self._streamed: StreamedReply[ReplyBuilder] | None = None
        self._chunk_id: str | None = None
        self._number = 0

    def read_runs(self) -> Iterator[Trajectory]:
        """Yield the conversations; at the end those that more records could have continued."""
        for value in self._values:
            yield from self._read_value(value)
        self._end_stream()
        for chat in self._chats:
            if chat.run.steps:
                yield chat.run.finish(ending=_stop_reason(chat))

    def _read_value(self, value: _Value) -> Iterator[Trajectory]:
        several = isinstance(value, list)
        for record in value if isinstance(value, list) else [value]:
            if isinstance(record, Record) and (record.is_chunk or self._ends_stream(record)):
                self._add_chunk(record)
                continue
            self._end_stream()
            if isinstance(record, list):
                yield from self._read_whole(Record(messages=record), several=several)
            elif record.simulations is not None:
                for simulation in record.simulations:
                    yield from self._read_whole(simulation, several=True)
            elif record.role:
                self._own = self._own or self._begin_chat(Record())
                self._own.add(record)
            elif record.choices or record.response or record.request or record.body or record.error:
                self._add_logged(record)
            else:
                yield from self._read_whole(record, several=several)

    def _add_chunk(self, chunk: Record) -> None:
        """Add a chunk. Some servers give the chunks of one reply several ids, or none."""
        reply, has_role = self._streamed, any(_has_role(choice) for choice in chunk.choices or ())
        is_another = chunk.id and self._chunk_id not in (None, chunk.id)
        if reply is None or (is_another and (reply.builder.finished or has_role)):
            self._end_stream()
            reply = self._streamed = StreamedReply(ReplyBuilder, self._values.unreadable_lines)
        self._chunk_id = chunk.id or self._chunk_id
        fields = {name: getattr(chunk, name) for name in ("id", "model", "choices", "usage", "x_groq")}
        reply.add_event(fields, self._values.unreadable_lines)

    def _ends_stream(self, record: Record) -> bool:
        """Whether it is the whole reply that some servers send behind the chunks of it."""
        return self._streamed is not None and bool(record.choices) and (record.id or None) == self._chunk_id

    def _end_stream(self) -> None:
        stream, self._streamed, self._chunk_id = self._streamed, None, None
        if stream is not None:
            reply = stream.reply()
            self._begin_chat(Record(model=reply.response.model if reply.response else None)).add_reply(reply)

    def _begin_chat(self, record: Record, name: str | None = None) -> Chat:
        model = record.request.model if record.request and not record.model else record.model
        chat = Chat(RunBuilder(NAME, agent="", model=model, run=name or record.id or record.custom_id))
        self._chats.append(chat)
        return chat

    def _read_whole(self, record: Record, *, several: bool) -> Iterator[Trajectory]:
        messages = record.messages or record.traj or record.conversation
        if not messages:
            return
        name = str(self._number) if several else None
        self._number += 1
        if record.task_id is not None:
            name = f"{record.task_id}" if record.trial is None else f"{record.task_id}.{record.trial}"
        is_tau = record.traj is not None and record.reward is not None
        agent = "tau-bench" if is_tau else "tau2-bench" if record.termination_reason else ""
        chat = Chat(RunBuilder(NAME, agent=agent, model=record.model, run=record.id or name))
        unreadable = sum(not chat.add(message) for message in messages)
        if not chat.run.steps:
            return
        reward = record.reward_info.reward if record.reward_info else record.reward
        success = record.success if reward is None else reward >= 1
        yield chat.run.finish(
            ending=_tau_ending(messages[-1], chat) if is_tau else record.termination_reason,
            success=success,
            unreadable_lines=unreadable,
            totals=read_chat_usage(record.usage),
        )

    def _add_logged(self, record: Record) -> None:
        request = record.request and (record.request.body or record.request)
        messages = (request and request.messages) or (record.body and record.body.messages) or record.messages or []
        response = record.response and (record.response.body or record.response)
        choices = (response and response.choices) or record.choices or [{}]
        reply, stop = _MESSAGE.convert(choices[0].get("message")), choices[0].get("finish_reason")
        continuation = self._logged.take(map(_key, messages))
        chat = continuation.conversation or self._begin_chat(record)
        for message in messages[continuation.messages :]:
            chat.add(message)
        if reply is not None:
            reply.role = "assistant"
            model, usage = (response and response.model) or record.model, (response and response.usage) or record.usage
            chat.add(reply, model=model, usage=usage, stop=stop)
            self._logged.keep(chat, continuation.digest, [_key(reply)])
            return
        if record.error:
            chat.run.system(str(record.error), error=True)
        self._logged.keep(chat, continuation.digest)


def _key(message: Message) -> tuple[object, ...]:
    """Return what two copies of a message have in common. A prompt of the system may have the time in it."""
    if message.role in SYSTEM_ROLES:
        return (message.role,)
    calls = message.tool_calls if isinstance(message.tool_calls, list) else ()
    names = tuple(str(call.get("id") or call.get("function")) for call in calls if isinstance(call, Mapping))
    return message.role, text_of(message.content), names, message.tool_call_id, str(message.function_call)


def _stop_reason(chat: Chat) -> str | None:
    return chat.run.steps[-1].step_notes.stop_reason


def _tau_ending(last: Message, chat: Chat) -> str | None:
    if last.role == "user" and _STOP in text_of(last.content):
        return "user_stop"
    calls = [call for step in chat.run.steps[-2:] for call in step.tool_calls or ()]
    return "transfer" if last.role == "tool" and calls and calls[-1].function_name == _TRANSFER else None


def _messages(value: JsonValue) -> Iterator[Mapping[str, JsonValue]]:
    """Yield the messages in a value that has conversations, from its beginning."""
    for record in nested_objects(value, (*_LISTS, *_NESTED), lambda record: "role" in record):
        if "role" in record:
            yield record
            continue
        choices = record.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            message = choice.get("message") if isinstance(choice, Mapping) else None
            if isinstance(message, Mapping):
                yield message


def _is_chunk(value: Mapping[str, JsonValue]) -> bool:
    choices = value.get("choices")
    return value.get("object") == _CHUNK or (
        isinstance(choices, list)
        and any(isinstance(choice, Mapping) and isinstance(choice.get("delta"), Mapping) for choice in choices)
    )


def _has_role(choice: Mapping[str, JsonValue]) -> bool:
    delta = choice.get("delta")
    return isinstance(delta, Mapping) and bool(delta.get("role"))


def _is_chat(message: Mapping[str, JsonValue]) -> bool:
    content = message.get("content")
    parts: Iterable[JsonValue] = content if isinstance(content, list) else ()
    foreign = any(isinstance(part, Mapping) and str(part.get("type")) in _FOREIGN for part in parts)
    return str(message.get("role")) in _ROLES and not foreign
