"""Reads OpenAI's responses.

A document is a list of items, a request with its input, a response, a pair of a request and its response, or a list of
these; so is each line of a file of JSON lines. The events of a stream are one response.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace
from pydantic import JsonValue

from turnwright.model.openai_responses.reply_builder import ENDS, ResponseBuilder
from turnwright.model.protocol import ModelResponse
from turnwright_audit.trajectories.atif import Trajectory
from turnwright_audit.trajectories.builder import RunBuilder
from turnwright_audit.trajectories.shapes import Shape, nested_objects
from turnwright_audit.trajectories.source import Recording, iso_time
from turnwright_audit.trajectories.values import Values

from .joined import Joined
from .model_replies import StreamedReply
from .response_items import Item, Items, read_response, readable_items

NAME: Final = "openai-responses"
_RESPONSE: Final = "response"
_BEGUN: Final = "response.created"
_ERROR: Final = "error"
#: The fields of events that the client reads.
_EVENT_FIELDS: Final = (
    *("type", "item", "item_id", "output_index", "content_index", "summary_index"),
    *("delta", "text", "part", "refusal", "arguments"),
)
_PARTS: Final = frozenset({"input_text", "output_text", "input_image"})
_NESTED: Final = ("request", "body", "response", "input", "output", "items")
_LOOKED_AT: Final = 20


class Details(Struct):
    """The reason of an incomplete response."""

    reason: str | None = None


class Response(Struct):
    """A response, or the HTTP response around it."""

    id: str | None = None
    model: str | None = None
    output: list[Item] | None = None
    usage: Any = None
    status: str | None = None
    incomplete_details: Details | None = None
    error: Any = None
    previous_response_id: str | None = None
    created_at: float | None = None
    body: "Response | None" = None


class Request(Struct):
    """A request, or the HTTP request around it."""

    model: str | None = None
    input: str | list[Item] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    body: "Request | None" = None


class Record(Item):
    """An item, a request, a response, or a pair of them."""

    object: str = ""
    model: str | None = None
    usage: Any = None
    incomplete_details: Details | None = None
    previous_response_id: str | None = None
    created_at: float | None = None
    instructions: Any = None
    request: Request | None = None
    body: Request | None = None
    response: Response | None = None
    items: list[Item] | None = None
    item: Any = None
    item_id: Any = None
    output_index: Any = None
    content_index: Any = None
    summary_index: Any = None
    delta: Any = None
    text: Any = None
    part: Any = None
    refusal: Any = None
    message: Any = None


_Value = Record | list[Record | list[Item]]
_SHAPE: Final[Shape[_Value]] = Shape(_Value)  # type: ignore[arg-type]  # a union is not a class
_ITEMS: Final = Shape(list[Item])
_REQUESTS: Final = Shape(Request)


def recognizes(recording: Recording) -> bool:
    """Whether one of the first items is of a type that only responses have."""
    objects = islice(_objects(recording.document), _LOOKED_AT)
    if any(map(_is_item, objects)):
        return True
    return recording.is_sequence and any(map(_is_item, islice(_objects([*recording.records]), _LOOKED_AT)))


def read(recording: Recording) -> Iterator[Trajectory]:
    """Yield the conversations."""
    values = Values(recording, _SHAPE, _NESTED, _uses)
    return values.noted(_Reader(values).read_runs(), "no item in it could be read")


def _uses(value: _Value) -> Iterator[bool]:
    for record in value if isinstance(value, list) else [value]:
        if isinstance(record, list):
            yield from map(_is_known, record)
        elif record.type or record.role:
            yield record.type.startswith("response.") or record.type == _ERROR or _is_known(record)
        else:
            around = (record.response, record.request, record.body, record.output, record.items, record.input)
            yield record.object == _RESPONSE or any(field is not None for field in around)


def _is_known(item: Item) -> bool:
    return bool(item.role) or item.is_of_model or item.type.endswith("_output") or item.type.startswith("mcp_approval_")


class _Conversation:
    def __init__(self, number: int) -> None:
        self.run = RunBuilder(NAME, agent="", run=str(number))
        self.items = Items(self.run)
        self.ending: str | None = None
        self.unreadable = 0

    def extend(self, items: list[Item]) -> None:
        self.unreadable += sum(not self.items.add(item) for item in items)

    def fail(self, error: object) -> None:
        """Add the error of a request."""
        self.items.flush()
        self.run.system(str(error), error=True)


class _Reader:
    """Makes conversations of records. Items of their own, and requests that continue one another, are joined."""

    def __init__(self, values: Values[_Value]) -> None:
        self._values = values
        self._own: _Conversation | None = None
        self._all: list[_Conversation] = []
        self._by_id: dict[str, _Conversation] = {}
        self._logged: Joined[_Conversation] = Joined()
        self._streamed: StreamedReply[ResponseBuilder] | None = None
        #: The latest response in the events.
        self._response = Response()

    def _add(self, value: _Value) -> None:
        if isinstance(value, list):
            self._own = None
        for record in value if isinstance(value, list) else [value]:
            if isinstance(record, list):
                self._begin_conversation().extend(record)
            elif record.type.startswith("response."):
                self._add_event(record)
            elif record.type == _ERROR:
                self._end_stream()
                conversation = self._all[-1] if self._all else self._begin_conversation()
                conversation.fail(record.error or record.message)
            elif record.response is not None or record.request is not None or record.body is not None:
                self._add_logged(record.request or record.body or Request(), record.response)
            elif record.type or (record.role and record.object != _RESPONSE):
                self._own = self._own or self._begin_conversation()
                self._own.extend([record])
            else:
                self._add_fields(record)

    def _add_event(self, event: Record) -> None:
        """Add an event of a stream."""
        if event.type == _BEGUN:
            self._end_stream()
        if self._streamed is None:
            self._streamed = StreamedReply(ResponseBuilder, self._values.unreadable_lines, is_repeated=True)
        fields = {name: getattr(event, name) for name in _EVENT_FIELDS}
        if event.response is not None:
            self._response = event.response
            fields["response"] = _fields_of(event.response)
        self._streamed.add_event(fields, self._values.unreadable_lines)
        if event.type in ENDS:
            self._end_stream()

    def _end_stream(self) -> None:
        stream, self._streamed = self._streamed, None
        response, self._response = self._response, Response()
        if stream is not None:
            self._add_logged(Request(), response, stream.reply())

    def _add_fields(self, record: Record) -> None:
        if record.object == _RESPONSE or isinstance(record.output, list):
            self._add_logged(Request() if record.object == _RESPONSE else _request_of(record), _response_of(record))
        elif record.items is not None:
            self._begin_conversation().extend(record.items)
        elif record.input is not None:
            self._add_logged(_request_of(record), None)

    def read_runs(self) -> Iterator[Trajectory]:
        """Yield the conversations."""
        for value in self._values:
            self._add(value)
        self._end_stream()
        for conversation in self._all:
            conversation.items.flush()
        several = len(self._all) > 1
        for conversation in self._all:
            if conversation.run.steps:
                conversation.run.notes.run = conversation.run.notes.run if several else None
                yield conversation.run.finish(ending=conversation.ending, unreadable_lines=conversation.unreadable)

    def _begin_conversation(self) -> _Conversation:
        conversation = _Conversation(len(self._all))
        self._all.append(conversation)
        return conversation

    def _add_logged(
        self, request: Request, response: Response | None, stream_response: ModelResponse | None = None
    ) -> None:
        request = request.body or request
        response = response and (response.body or response)
        request_input = request.input
        items = [Item(role="user", content=request_input)] if isinstance(request_input, str) else request_input or []
        previous_id = request.previous_response_id or (response and response.previous_response_id)
        continuation = self._logged.take(key for item in items if (key := item.key))
        conversation = self._by_id.get(previous_id or "")
        if conversation is None:
            conversation = continuation.conversation
            items = _skip_items(items, continuation.messages)
        if conversation is None:
            conversation = self._begin_conversation()
            conversation.run.trajectory.agent.model_name = request.model or (response.model if response else None)
            if request.instructions:
                conversation.run.system(request.instructions)
        conversation.extend(items)
        output = (response and response.output) or []
        if response is not None:
            _add_response(conversation, response, stream_response or read_response(_fields_of(response)))
            self._by_id[response.id or ""] = conversation
            self._by_id.pop("", None)
        self._logged.keep(conversation, continuation.digest, (key for item in output if (key := item.key)))


def _fields_of(response: Response) -> dict[str, Any]:
    """Return the fields of a response as the client reads them."""
    details = response.incomplete_details
    return {
        "id": response.id,
        "model": response.model,
        "usage": response.usage,
        "status": response.status,
        "incomplete_details": details and {"reason": details.reason},
        "output": readable_items(response.output or ()),
    }


def _add_response(conversation: _Conversation, response: Response, reply: ModelResponse) -> None:
    reply = reply if reply.finish_reason else replace(reply, finish_reason=response.status)
    conversation.ending = reply.finish_reason
    if response.error is not None and not (reply.text or reply.calls or reply.reasoning or reply.reasoning_details):
        conversation.fail(response.error)
        return
    conversation.items.add_reply(reply, at=iso_time(response.created_at))


def _skip_items(items: list[Item], count: int) -> list[Item]:
    """Return the items after the first ones that have a key, so many of them."""
    for number, item in enumerate(items):
        if count == 0:
            return items[number:]
        count -= item.key is not None
    return []


def _request_of(record: Record) -> Request:
    fields = {"input": record.input, "model": record.model, "instructions": record.instructions}
    return _REQUESTS.convert(fields) or Request()


def _response_of(record: Record) -> Response:
    return Response(
        id=record.id,
        model=record.model,
        output=_ITEMS.convert(record.output),
        usage=record.usage,
        status=record.status,
        incomplete_details=record.incomplete_details,
        error=record.error,
        previous_response_id=record.previous_response_id,
        created_at=record.created_at,
    )


def _objects(value: JsonValue) -> Iterator[Mapping[str, JsonValue]]:
    """Yield the objects in a value that may be items or responses, from its beginning."""
    calls = ("_call", "_call_output")
    return nested_objects(value, _NESTED, lambda item: "role" in item or str(item.get("type")).endswith(calls))


def _is_item(value: Mapping[str, JsonValue]) -> bool:
    kind = str(value.get("type"))
    if value.get("object") == _RESPONSE or kind in ENDS:
        return True
    if kind.endswith(("_call", "_call_output")):
        return "call_id" in value or "id" in value
    if kind == "reasoning":
        return "summary" in value
    content = value.get("content")
    parts = content if isinstance(content, list) else []
    return "role" in value and any(isinstance(part, Mapping) and str(part.get("type")) in _PARTS for part in parts)
