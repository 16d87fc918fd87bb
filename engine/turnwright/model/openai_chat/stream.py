"""Decode the reply of a chat completion from the bytes of a response, wherever they were cut. No I/O.

The client and `turnwright decode` share this decoder. It reads a stream of server-sent events, and the single JSON body
of a server that ignores `stream: true`.
"""

from collections.abc import Iterable, Iterator
from typing import ClassVar, Final, Unpack

from pydantic import JsonValue

from turnwright.model.http.error_body import understand
from turnwright.model.http.json_text import read_index
from turnwright.model.http.reply_stream import ReplyStream, StreamOptions
from turnwright.model.protocol import Delta, TextDelta

from .reply_builder import ReplyBuilder

# MiniMax reports errors by its own numbers, in replies with HTTP status 200. These are the HTTP equivalents.
_MINIMAX: Final[dict[int, JsonValue]] = {
    1001: 408,
    1002: 429,
    1004: 401,
    1008: 402,
    1026: "content_filter",
    1027: "content_filter",
    1039: 429,
    2013: 400,
    2049: 401,
    2056: 429,
}


class ChatStream(ReplyStream[ReplyBuilder]):
    """Decodes one response, up to `[DONE]`. See `ReplyStream`.

    A refusal in a field of its own becomes the text, if the reply has no other answer.
    """

    REPLY: ClassVar = "chat completion"
    REASON: ClassVar = "finish reason"
    QUICK: ClassVar = b"data: {"

    def __init__(self, builder: ReplyBuilder | None = None, **options: Unpack[StreamOptions]) -> None:
        super().__init__(builder or ReplyBuilder(), **options)

    def end(self) -> list[Delta]:
        """End the bytes. Returns the deltas of the last event, or the refusal that becomes the text."""
        if self._has_ended:
            return []
        deltas = super().end()
        return [*deltas, TextDelta(self._builder.refusal)] if self._builder.refusal else deltas

    def _put(self, event: str, chunk: dict[str, JsonValue]) -> list[Delta]:  # noqa: ARG002 (chunks have no kinds)
        return self._builder.add(chunk)

    def _finish(self) -> None:
        self._whole = True

    def _is_reply(self, body: dict[str, JsonValue]) -> bool:
        return isinstance(body.get("choices"), list)

    def _is_event(self, body: dict[str, JsonValue]) -> bool:
        return any(_faults(body))

    def _sources(self, chunk: dict[str, JsonValue]) -> Iterable[JsonValue]:
        choices = chunk.get("choices")
        return (chunk, *_faults(chunk), *(choices if isinstance(choices, list) else ()))


def _faults(chunk: dict[str, JsonValue]) -> Iterator[JsonValue]:
    """Return the errors of a chunk outside its `error` field, in the form of that field."""
    if not chunk:
        return
    groq, minimax, errors = chunk.get("x_groq"), chunk.get("base_resp"), chunk.get("errors")
    if isinstance(groq, dict) and groq.get("error"):
        yield groq
    if isinstance(minimax, dict) and (number := read_index(minimax.get("status_code"))):
        error: JsonValue = {"message": minimax.get("status_msg"), "code": _MINIMAX.get(number)}
        yield {"type": "error", "error": error}
    # A failing gateway reports its error in a form of its own, without choices.
    if "choices" not in chunk and not chunk.get("error"):
        if isinstance(errors, list) and errors:
            yield {"type": "error", "error": errors[0]}
        elif (body := understand(chunk)).words and body.status:
            yield {"type": "error", **chunk}
