"""Decode a reply of the Messages API from the bytes of a response, wherever they were cut. No I/O.

The client and `turnwright decode` share this decoder. It reads a stream of server-sent events, and the single JSON body
of a server that ignores `stream: true`.
"""

import json
from typing import ClassVar, Final, Unpack

from pydantic import JsonValue
from typing_extensions import override

from turnwright.model.http.encoding import dump
from turnwright.model.http.reply_stream import ReplyStream, StreamOptions
from turnwright.model.protocol import Delta

from .reply_builder import MessageBuilder

_EVENTS: Final = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    }
)


class MessagesStream(ReplyStream[MessageBuilder]):
    """Decodes one response. See `ReplyStream`.

    The reply ends at `message_stop`. After a stop reason it also ends at the `[DONE]` that some gateways append.
    A paused reply continues in another response, whose decoder has the same `builder`.
    Source: "Streaming Messages" and "Server tools" of Anthropic's documentation.
    """

    REPLY: ClassVar = "reply of the Messages API"
    REASON: ClassVar = "stop reason"
    QUICK: ClassVar = b"event: content_block_delta\ndata: {"

    def __init__(self, builder: MessageBuilder | None = None, **options: Unpack[StreamOptions]) -> None:
        self._options = options
        super().__init__(builder or MessageBuilder(), **options)

    @override
    def continue_reply(self, body: bytes, /) -> "tuple[MessagesStream, bytes] | None":
        content = self._builder.resume() if self.complete else None
        if not content:
            return None
        request = json.loads(body)
        request["messages"].append({"role": "assistant", "content": content})
        return MessagesStream(self._builder, **self._options), dump(request)

    def _take(self, event: str, data: str) -> list[Delta]:
        # The data of an event may lack the type that its name says.
        return super()._take(event, data if data.strip() or event not in _EVENTS else "{}")

    def _put(self, event: str, chunk: dict[str, JsonValue]) -> list[Delta]:
        kind = chunk.get("type")
        deltas = self._builder.add(chunk if isinstance(kind, str) and kind else {**chunk, "type": event})
        self._whole = self._whole or self._builder.stopped
        return deltas

    def _finish(self) -> None:
        # The API has no `[DONE]`. Gateways append it to broken replies too.
        self._whole = self._builder.finished

    def _is_reply(self, body: dict[str, JsonValue]) -> bool:
        return body.get("type") == "message" or ("type" not in body and isinstance(body.get("content"), list))

    def _is_event(self, body: dict[str, JsonValue]) -> bool:
        kind = body.get("type")
        return isinstance(kind, str) and kind in _EVENTS
