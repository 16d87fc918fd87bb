"""The reply of a chat completion out of the bytes of a response, wherever they were cut. No I/O.

The client feeds it what comes in, `turnwright decode` what was recorded: there is one decoder. It understands a
stream of server-sent events, and the one JSON body of a server that ignores `stream: true`.

    stream = ChatStream()
    for data in response:
        for delta in stream.feed(data): ...
        if stream.done: break
    for delta in stream.end(): ...
    reply = stream.reply()
"""

import codecs
import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final, Literal

from pydantic import JsonValue

from turnwright_states import Cause

from .failure import excerpt, stream_failure, understand, without_tags
from .json_text import read_json
from .openai_reply import Delta, ReplyBuilder
from .pieces import MAX_ARGUMENTS, MAX_REPLY, TooLarge
from .protocol import ModelError, Reply
from .sse import MAX_EVENT, EventReader, EventTooLong

if TYPE_CHECKING:
    from httpx_sse import ServerSentEvent

_DONE: Final = "[DONE]"
# How much of a body is kept to say what it was, if it was no reply at all.
_HEAD: Final = 4096
_FIELD: Final = re.compile(rb"(?:^|[\r\xbf])(?:data|event|id|retry|:)", re.MULTILINE)


class ChatStream:
    """Takes the bytes of one response, gives deltas, and in the end the reply or the reason why there is none.

    Nothing raises before `reply` does. Once `done`, what is fed is ignored. `secrets` are never quoted in an error.
    `max_event` bounds one event or one JSON body, in bytes; `max_reply` and `max_arguments` bound the reply and the
    arguments of one call, in characters.
    Source: STREAMS.
    """

    def __init__(
        self,
        *,
        secrets: Collection[str] = (),
        max_event: int = MAX_EVENT,
        max_reply: int = MAX_REPLY,
        max_arguments: int = MAX_ARGUMENTS,
    ) -> None:
        self._secrets = secrets
        self._max_event = max_event
        self._events = EventReader(max_event=max_event)
        self._builder = ReplyBuilder(max_reply=max_reply, max_arguments=max_arguments)
        self._error: ModelError | None = None
        self._kind: Literal["events", "body", "page"] | None = None
        self._head = bytearray()
        self._body = bytearray()
        self._understood = False
        self._whole = False
        self._ended = False

    def feed(self, data: bytes) -> list[Delta]:
        """Take bytes as they came; return what they added to the text and the reasoning."""
        if self.done:
            return []
        self._head += data[: _HEAD - len(self._head)]
        if self._kind is None:
            self._kind = _kind_of(self._head)
        if self._kind == "page":
            if len(self._head) == _HEAD:
                self._reject()
            return []
        if self._kind != "body":
            return self._take_all(self._events.feed(data))
        self._body += data
        if len(self._body) > self._max_event:
            self._fail(f"the reply is longer than {self._max_event:,} bytes", Cause.REJECTED)
        return []

    def end(self) -> list[Delta]:
        """Say that the bytes have ended; return what the last, unterminated event added."""
        if self._ended:
            return []
        deltas: list[Delta] = []
        if not self.done:
            if self._kind == "body":
                deltas += self._take_body()
            deltas += self._take_all(self._events.close())
        self._ended = True
        if self._error is None and not self.complete:
            self._explain()
        return deltas

    def reply(self) -> Reply:
        """Give the whole reply, ending the stream if `end` was not called.

        Raises `ModelError`, with what had arrived as its `partial`, if the provider reported an error, the stream
        ended before the reply did, it was no reply at all, or it passed a bound.
        """
        self.end()
        if self._error is not None:
            raise self._error
        return self._builder.reply()

    @property
    def done(self) -> bool:
        """Whether nothing more needs to be read: `[DONE]` or an error has come, or the bytes have ended."""
        return self._whole or self._error is not None or self._ended

    @property
    def complete(self) -> bool:
        """Whether the reply is whole: a finish reason or `[DONE]` has come, and no error."""
        return self._error is None and (self._whole or self._builder.finished)

    @property
    def error(self) -> ModelError | None:
        """What `reply` raises; None while there is nothing wrong."""
        return self._error

    @property
    def partial(self) -> Reply:
        """The reply as far as it has come, whole or not."""
        return self._builder.reply()

    @property
    def refusal(self) -> str:
        """What the model said in the field that some providers keep for refusing to answer; it is not in the text."""
        return self._builder.refusal

    def _take_all(self, events: "Iterable[ServerSentEvent]") -> list[Delta]:
        deltas: list[Delta] = []
        try:
            for event in events:
                deltas += self._take(event.event, event.data)
                if self.done:
                    break
        except (EventTooLong, TooLarge) as error:
            self._fail(str(error), Cause.REJECTED)
        return deltas

    def _take(self, kind: str, data: str) -> list[Delta]:
        data = data.strip()
        if kind == "error":
            self._report(_read_or_keep(data))
            return []
        if data.strip('"') == _DONE:
            self._whole = True
            return []
        try:
            chunk = read_json(data)
        except ValueError:
            deltas: list[Delta] = []
            # Servers that forget the empty lines make one event of many; each of its lines is then a chunk.
            for line in data.split("\n") if "\n" in data else ():
                deltas += [] if self.done else self._take(kind, line)
            return deltas
        return self._add(chunk)

    def _add(self, chunk: JsonValue) -> list[Delta]:
        if isinstance(chunk, list):
            return [delta for item in chunk if isinstance(item, dict) for delta in self._add(item)]
        if not isinstance(chunk, dict):
            return []
        self._understood = True
        deltas = self._builder.add(chunk)
        choices = chunk.get("choices")
        for source in (chunk, *(choices if isinstance(choices, list) else ())):
            if isinstance(source, dict) and self._error is None and _is_error(source):
                self._report(source)
        return deltas

    def _take_body(self) -> list[Delta]:
        """Take a body that began like JSON: one whole reply, or lines that only began so."""
        try:
            body = read_json(self._body.decode("utf-8-sig", "replace"))
        except ValueError:
            return self._take_all(self._events.feed(bytes(self._body)))
        first = body[0] if isinstance(body, list) and body else body
        if isinstance(first, dict) and (isinstance(first.get("choices"), list) or first.get("error")):
            try:
                deltas = self._add(body)
            except TooLarge as error:
                self._fail(str(error), Cause.REJECTED)
                return []
            self._whole = self._error is None
            return deltas
        self._fail(f"the server sent JSON that is no chat completion{self._quote(understand(first).words)}")
        return []

    def _explain(self) -> None:
        """Say why a stream that ended is no reply."""
        if self._understood or self._kind in {None, "body"} or not self._head.strip() or _FIELD.search(self._head):
            self._fail("the stream ended before the reply did: there was no finish reason", Cause.INTERRUPTED)
        else:
            self._reject()

    def _reject(self) -> None:
        text = without_tags(self._head.decode("utf-8-sig", "replace"))
        self._fail(f"the server sent something that is no chat completion{self._quote(text)}")

    def _quote(self, text: str) -> str:
        words = excerpt(text, self._secrets)
        return f": {words}" if words else ""

    def _report(self, error: JsonValue) -> None:
        self._error = stream_failure(error, partial=self.partial, secrets=self._secrets)

    def _fail(self, message: str, cause: Cause = Cause.REJECTED) -> None:
        self._error = ModelError(message, cause=cause, partial=self.partial)


def _kind_of(head: bytearray) -> Literal["events", "body", "page"] | None:
    """Tell what a response is from its first byte that is no blank; None while there is none."""
    first = head.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    if not first:
        return "events" if len(head) >= _HEAD else None
    if first in codecs.BOM_UTF8:
        return None if len(head) < len(codecs.BOM_UTF8) else "events"
    return "body" if first in b"{[" else "page" if first == b"<" else "events"


def _is_error(chunk: dict[str, JsonValue]) -> bool:
    return bool(chunk.get("error")) or chunk.get("object") == "error" or chunk.get("type") == "error"


def _read_or_keep(data: str) -> JsonValue:
    try:
        return read_json(data)
    except ValueError:
        return data
