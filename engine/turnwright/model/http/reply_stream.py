"""The base of all decoders: the bytes of one response in, its reply or an error out. No I/O.

A response is a stream of server-sent events, the single JSON body of a server that ignores `stream: true`, or something
else. The decoder of an API interprets events; this module decides when a response has ended, and why it is not a reply.

`sse` frames everything that the format allows, and `json_text` reads all JSON that servers send. Most events need
neither: a quick event is one line of small JSON behind a fixed prefix. Its data are cut out of the bytes, and the
builder of an API decodes the relevant fields (`Builder.add_quickly`). From any other event on, the plain path reads
the stream. Tests compare both paths for all kinds of events, and for recorded streams with changed bytes.
"""

import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import ClassVar, Final, Generic, Literal, TypedDict

import msgspec
from pydantic import JsonValue
from typing_extensions import TypeVar

from turnwright.model.protocol import Delta, ModelError, ModelResponse
from turnwright_states import Cause

from .error_body import understand
from .errors import NEXT_STEPS, excerpt, read_error, stream_failure, without_tags
from .json_text import DONE, MAX_DEPTH, read_json, split_objects
from .reply_builder import Builder
from .sse import MAX_EVENT, MAX_LINES, EventReader, EventTooLongError, ServerSentEvent
from .text_buffer import MAX_BYTES, MAX_CHUNKS, TooLargeError

#: The server's name in the errors of a decoder without one.
SERVER: Final = "the server"

#: The errors that the decoders of quick events raise for other events.
NOT_QUICK: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
#: The largest quick event, in bytes. It is below 4,300, the most digits of a number that Python parses.
MAX_QUICK: Final = 4096

# An object in an object takes at least five bytes, with its key, and a list two.
_OBJECT: Final = 5
_LIST: Final = 2
_CR: Final = 13
_LF: Final = 10
# The bytes of a body that are kept for an error, if it was not a reply.
_HEAD: Final = 4096
# The lines of an event of several chunks that may be no JSON.
_MOST_SKIPPED: Final = 16
# A retry would not shorten a response that is too long, and the server may be the right one.
_SHORTEN: Final = "Ask for a shorter reply."
# A field at the beginning of a line, also one that the end of the bytes cut off.
_FIELD: Final = re.compile(
    rb"(?:^|[\r\xbf])(?:data|event|id|retry|:|(?:d|da|dat|e|ev|eve|even|i|r|re|ret|retr)\Z)", re.MULTILINE
)


class StreamOptions(TypedDict, total=False):
    """The options of `ReplyStream`."""

    secrets: Collection[str]
    where: str
    max_event: int
    max_bytes: int
    max_chunks: int


B_co = TypeVar("B_co", bound=Builder, default=Builder, covariant=True)


class ReplyStream(ABC, Generic[B_co]):
    """Decodes the bytes of one response into deltas, and at the end into the reply or an error.

        for data in response:
            for delta in stream.feed(data): ...
            if stream.done: break
        for delta in stream.end(): ...
        reply = stream.reply()

    Only `reply` raises. Once `done`, more bytes are ignored. Errors name the server `where`, and never quote `secrets`.
    `max_event` limits one event or one JSON body, in bytes; `max_bytes` and `max_chunks` limit the response. A reply
    that is complete when the response exceeds one of these two is kept.
    """

    #: The API's name for a reply.
    REPLY: ClassVar[str]
    #: The API's name for the finish reason.
    REASON: ClassVar[str]
    #: The prefix of its quick events, with the opening brace of their data.
    QUICK: ClassVar[bytes]

    def __init__(
        self,
        builder: B_co,
        *,
        secrets: Collection[str] = (),
        where: str = SERVER,
        max_event: int = MAX_EVENT,
        max_bytes: int = MAX_BYTES,
        max_chunks: int = MAX_CHUNKS,
    ) -> None:
        self._builder = builder
        self._add_quickly = builder.add_quickly
        self._secrets = secrets
        self._where = where
        self._max_event = max_event
        self._most = min(MAX_QUICK, max_event)
        self._max_bytes = self._bytes_left = max_bytes
        self._max_chunks = self._chunks_left = max_chunks
        self._events = EventReader(max_event=max_event)
        self._error: ModelError | None = None
        self._kind: Literal["events", "body", "page"] | None = None
        self._head = bytearray()
        self._body = bytearray()
        # The last chunk, or the data of a quick one.
        self._last: dict[str, JsonValue] | bytes | None = None
        self._whole = False
        self._has_ended = False
        #: Whether the reply is complete: the provider sent its end or its finish reason, and no error.
        self.complete = False
        # Whether the next event may be quick: the response is a stream of events, and no event is open.
        self._quick = False

    def feed(self, data: bytes) -> list[Delta]:
        """Decode the next bytes. Returns their deltas of text and reasoning."""
        deltas: list[Delta] = []
        self._bytes_left -= len(data)
        if self._bytes_left < 0:
            # The part within the limit counts, so that the result does not depend on how the bytes were cut.
            data = data[: self._bytes_left]
        if self._quick:
            data = self._take_quickly(data, deltas)
            if not data and self._bytes_left >= 0:
                return deltas
        if not self.done:
            deltas += self._feed(data)
            if self._bytes_left < 0 and not self.done:
                self._overflow(f"the response is longer than {self._max_bytes:,} bytes")
            self.complete = self._is_complete()
            self._quick = self._kind == "events" and self._events.between and not self.done
        return deltas

    def end(self) -> list[Delta]:
        """End the bytes. Returns the deltas of the last, unterminated event."""
        if self._has_ended:
            return []
        deltas: list[Delta] = []
        if not self.done:
            if self._kind == "body":
                deltas += self._take_body()
            deltas += self._take_all(self._events.close())
        self._has_ended = True
        self._quick = False
        if self._error is None and not self._is_complete():
            self._explain()
        self.complete = self._is_complete()
        return deltas

    def reply(self) -> ModelResponse:
        """Return the complete reply; ends the stream if `end` was not called.

        Raises `ModelError`, with any `partial` reply, if the provider reported an error, the stream ended early, the
        response was not a reply, or it exceeded a limit.
        """
        self.end()
        if self._error is not None:
            raise self._error
        return self._builder.reply()

    def continue_reply(self, _body: bytes, /) -> "tuple[ReplyStream, bytes] | None":
        """Return a decoder and a request body to continue a paused reply to `_body` with; None if it is not paused."""
        return None

    @property
    def done(self) -> bool:
        """Whether no more bytes are needed: the reply is complete, an error has come, or the bytes have ended."""
        return self._whole or self._error is not None or self._has_ended

    @property
    def progress(self) -> int:
        """See `Builder.progress`."""
        return self._builder.progress

    @property
    def error(self) -> ModelError | None:
        """The error that `reply` raises; None so far."""
        return self._error

    @property
    def partial(self) -> ModelResponse:
        """The reply so far, complete or not."""
        return self._builder.reply()

    @property
    def reported_usage(self) -> dict[str, int] | None:
        """See `Builder.reported`."""
        return self._builder.reported

    def _is_complete(self) -> bool:
        return self._error is None and (self._whole or self._builder.finished) and self._builder.broken is None

    @abstractmethod
    def _put(self, event: str, chunk: dict[str, JsonValue]) -> list[Delta]:
        """Pass one JSON object to the builder; `event` is the name of its event, `message` by default."""

    @abstractmethod
    def _finish(self) -> None:
        """Record `[DONE]`."""

    @abstractmethod
    def _is_reply(self, body: dict[str, JsonValue]) -> bool:
        """Whether a JSON body is a complete reply."""

    def _is_event(self, _body: dict[str, JsonValue]) -> bool:
        """Whether a JSON body should have been an event."""
        return False

    def _sources(self, chunk: dict[str, JsonValue]) -> Iterable[JsonValue]:
        """Return the values of a chunk that may be an error."""
        return (chunk,)

    def _take_quickly(self, data: bytes, deltas: list[Delta]) -> bytes:
        """Decode the quick events at the beginning of `data`, and append to `deltas`. Returns the rest."""
        if _CR in data:
            # Only the plain path knows whether it ends a line.
            return data
        head, at, begin = self.QUICK, 0, len(self.QUICK) - 1
        try:
            while data.startswith(head, at) and self._chunks_left:
                end = data.find(_LF, begin, at + self._most - 1)
                if end < 0 or not data.startswith(b"\n\n", end):
                    break
                event_data = data[begin:end]
                if not (is_flat(event_data) and self._add_quickly(event_data, deltas)):
                    break
                self._last = event_data
                self._chunks_left -= 1
                at = end + 2
                begin = at + len(head) - 1
        except NOT_QUICK:
            pass
        except TooLargeError as error:
            self._stop(str(error))
            self.complete = self._quick = False
            return b""
        return data[at:]

    def _feed(self, data: bytes) -> list[Delta]:
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
            self._stop(f"the reply is longer than {self._max_event:,} bytes")
        return []

    def _take_all(self, events: Iterable[ServerSentEvent]) -> list[Delta]:
        deltas: list[Delta] = []
        try:
            for event in events:
                deltas += self._take(event.name, event.data)
                if self.done:
                    break
        except (EventTooLongError, TooLargeError) as error:
            self._stop(str(error))
        return deltas

    def _take(self, event: str, data: str) -> list[Delta]:
        data = data.strip()
        if event == "error":
            self._report(_read_or_keep(data))
            return []
        if data.strip('"') == DONE:
            self._finish()
            return []
        try:
            chunk = read_json(data)
        except ValueError as error:
            if "\n" in data:
                return self._take_lines(event, data)
            if isinstance(error, TooLargeError):
                raise
            if data.startswith("{") and (objects := split_objects(data)):
                return self._take_lines(event, "\n".join(objects))
            # A lost chunk changes the reply: `{"n": 1` and `}` are complete arguments without the `000` between them.
            # An event that was never JSON is a keep-alive.
            if data.startswith("{") and not self._builder.finished:
                problem = f"a chunk of the stream from {self._where} is not complete JSON{self._quote(data)}"
                self._fail(problem, Cause.INTERRUPTED)
            return []
        return self._add(event, chunk)

    def _take_lines(self, event: str, data: str) -> list[Delta]:
        """Decode an event that is not JSON. Servers without empty lines send many chunks as one event, one per line."""
        deltas: list[Delta] = []
        skip_count = 0
        for line in filter(None, data.split("\n")):
            before = self._last
            deltas += self._take(event, line)
            skip_count += self._last is before
            if self.done or skip_count > _MOST_SKIPPED:
                break
        return deltas

    def _add(self, event: str, chunk: JsonValue) -> list[Delta]:
        if isinstance(chunk, list):
            if len(chunk) > MAX_LINES:
                raise TooLargeError(f"an event holds more than {MAX_LINES:,} chunks")
            deltas: list[Delta] = []
            for item in chunk:
                if isinstance(item, dict) and not self.done:
                    deltas += self._add(event, item)
            return deltas
        if not isinstance(chunk, dict):
            return []
        if not self._chunks_left:
            self._overflow(f"the response has more than {self._max_chunks:,} chunks")
            return []
        self._chunks_left -= 1
        self._last = chunk
        deltas = self._put(event, chunk)
        for source in self._sources(chunk):
            if isinstance(source, dict) and self._error is None and _is_error(source):
                self._report(source)
        return deltas

    def _take_body(self) -> list[Delta]:
        """Decode a body that began like JSON: one complete reply, or lines."""
        try:
            body = read_json(self._body.decode("utf-8-sig", "replace"))
        except ValueError:
            return self._take_all(self._events.feed(bytes(self._body)))
        first = body[0] if isinstance(body, list) and body else body
        if isinstance(first, dict) and (self._is_reply(first) or self._is_event(first) or first.get("error")):
            try:
                deltas = self._add("message", body)
            except TooLargeError as error:
                self._stop(str(error))
                return []
            self._whole = self._error is None and (self._whole or self._is_reply(first))
            return deltas
        self._fail(f"{self._where} sent JSON that is not a {self.REPLY}{self._quote(read_error(first).words)}")
        return []

    def _explain(self) -> None:
        if self._builder.broken is not None:
            reason = self._builder.reply().finish_reason
            self._fail(f"{self._where} broke its reply off: the {self.REASON} was {reason!r}", self._builder.broken)
        elif (
            self._last is not None
            or self._kind in {None, "body"}
            or not self._head.strip()
            or _FIELD.search(self._head)
        ):
            # Some failing servers send a message in a form of their own.
            last = read_json(self._last.decode("utf-8", "replace")) if isinstance(self._last, bytes) else self._last
            words = self._quote(understand(last).words)
            problem = f"the stream from {self._where} ended before the reply did: there was no {self.REASON}"
            self._fail(f"{problem}. Its last text{words}" if words else problem, Cause.INTERRUPTED)
        else:
            self._reject()

    def _reject(self) -> None:
        text = without_tags(self._head.decode("utf-8-sig", "replace"))
        self._fail(f"{self._where} sent something that is not a {self.REPLY}{self._quote(text)}")

    def _quote(self, text: str) -> str:
        words = excerpt(text, self._secrets)
        return f": {words}" if words else ""

    def _report(self, error: JsonValue) -> None:
        self._error = stream_failure(error, partial=self.partial, secrets=self._secrets)

    def _stop(self, bound: str) -> None:
        self._fail(f"{self._where} sent too much: {bound}", hint=_SHORTEN)

    def _overflow(self, bound: str) -> None:
        """End the response, because it exceeded a limit. A complete reply is kept."""
        if self._is_complete():
            self._whole = True
        else:
            self._stop(bound)

    def _fail(self, problem: str, cause: Cause = Cause.REJECTED, hint: str = "") -> None:
        message = f"{problem.rstrip('.')}. {hint or NEXT_STEPS[cause]}"
        self._error = ModelError(message, cause=cause, partial=self.partial)


def _kind_of(head: bytearray) -> Literal["events", "body", "page"] | None:
    """Return the kind of a response by its first byte that is not whitespace; None without one."""
    first = head.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    if not first:
        return "events" if len(head) >= _HEAD else None
    if first in codecs.BOM_UTF8:
        return None if len(head) < len(codecs.BOM_UTF8) else "events"
    return "body" if first in b"{[" else "page" if first == b"<" else "events"


def _is_error(chunk: dict[str, JsonValue]) -> bool:
    error = chunk.get("error")
    # An `error` with only empty fields is none.
    has_error = any(error.values()) if isinstance(error, dict) else bool(error)
    return has_error or chunk.get("object") == "error" or chunk.get("type") == "error"


def _read_or_keep(data: str) -> JsonValue:
    try:
        return read_json(data)
    except ValueError:
        return data


def is_flat(data: bytes) -> bool:
    """Whether JSON is certainly not nested too deep. The decoders skip unknown fields at any depth.

    The depth is at most the number of lists, and of the objects that fit beside them. That is usually low enough, so
    that the objects need not be counted.
    """
    lists = data.count(b"[")
    most = lists + (len(data) - lists * _LIST) / _OBJECT
    return most <= MAX_DEPTH or lists + data.count(b"{") <= MAX_DEPTH
