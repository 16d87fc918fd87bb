"""Decode a reply of the Responses API from the bytes of a response, wherever they were cut. No I/O.

The client and `turnwright decode` share this decoder. It reads a stream of server-sent events, and the single JSON body
of a server that ignores `stream: true`.
"""

from collections.abc import Iterable, Iterator
from typing import ClassVar, Unpack

from pydantic import JsonValue

from turnwright.model.http.reply_stream import ReplyStream, StreamOptions
from turnwright.model.protocol import Delta

from .reply_builder import ENDS, FAILED, PENDING, ResponseBuilder


class ResponsesStream(ReplyStream[ResponseBuilder]):
    """Decodes one response. See `ReplyStream`.

    The reply ends at `response.completed` or `response.incomplete`. Gateways append `[DONE]`, which ends no reply.
    Source: "Streaming events" of OpenAI's Responses API.
    """

    REPLY: ClassVar = "reply of the Responses API"
    REASON: ClassVar = "response.completed event"
    QUICK: ClassVar = b"event: response.output_text.delta\ndata: {"

    def __init__(self, builder: ResponseBuilder | None = None, **options: Unpack[StreamOptions]) -> None:
        super().__init__(builder or ResponseBuilder(), **options)

    def _put(self, event: str, chunk: dict[str, JsonValue]) -> list[Delta]:
        kind = chunk.get("type")
        # The data of an event may lack the type that its name says.
        has_event_name = not (isinstance(kind, str) and kind) and event.startswith("response.")
        deltas = self._builder.add({**chunk, "type": event} if has_event_name else chunk)
        self._whole = self._whole or self._builder.finished
        return deltas

    def _finish(self) -> None:
        # The API has no `[DONE]`. Gateways append it to broken replies too.
        self._whole = self._builder.finished

    def _is_reply(self, body: dict[str, JsonValue]) -> bool:
        status = body.get("status")
        pending = isinstance(status, str) and status in PENDING
        return isinstance(body.get("output"), list) and not pending

    def _is_event(self, body: dict[str, JsonValue]) -> bool:
        kind = body.get("type")
        return isinstance(kind, str) and kind.startswith("response.")

    def _sources(self, chunk: dict[str, JsonValue]) -> Iterable[JsonValue]:
        return (chunk, *_failures(chunk))


def _failures(chunk: dict[str, JsonValue]) -> Iterator[JsonValue]:
    """Return the error of a response that failed, in the form of an error event."""
    kind, inner = chunk.get("type"), chunk.get("response")
    response = inner if isinstance(inner, dict) else chunk
    status = response.get("status") if inner is not None or "output" in chunk else None
    has_failed = ENDS.get(kind) in FAILED if isinstance(kind, str) else False
    if has_failed or (isinstance(status, str) and status in FAILED):
        yield {"type": "error", "error": response.get("error") or {"message": f"the response is {status or 'failed'}"}}
