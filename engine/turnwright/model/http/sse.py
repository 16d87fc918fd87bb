"""Decode server-sent events from bytes, wherever the bytes were cut. No I/O.

The decoder of `httpx_sse` needs an `httpx.Response` for every read, which costs several times the chunk in it. This one
also has what model servers need beyond the standard: a limit on the size of an event, a last event without its empty
line, and lines that are not fields, in which some servers report a failure.

An event ends at an empty line, and line ends are ASCII. So bytes are cut only where no UTF-8 sequence is open, and the
events do not depend on the pieces.
"""

import codecs
import io
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from .text_buffer import MAX_ARGUMENTS

#: The largest event, in bytes, so that a server that never ends a line does not fill the memory. The longest arguments
#: of a call fit, at four bytes a character in UTF-8, and so does a picture in base64.
MAX_EVENT: Final = 4 * MAX_ARGUMENTS
#: The most lines of an event, and the most chunks in one. More of the smallest chunks do not fit into `MAX_EVENT`; more
#: nearly empty lines would block the event loop for half a minute.
MAX_LINES: Final = 50_000

# An empty line: two adjacent line ends, where CRLF is one. If CRLF CRLF is cut after its second CR, the LF becomes an
# empty line before the next event, without effect.
_EMPTY_LINE: Final = re.compile(rb"[\r\n]\r|\n\n")

# The first characters of a line of bare JSON. The format ignores such a line, but then a failure would look like a
# stream that was cut off.
_BARE_JSON: Final = frozenset('{}[]" \t')


class ServerSentEvent(NamedTuple):
    """One event: its name, `message` if it has none of its own, and its data."""

    name: str
    data: str


class EventTooLongError(ValueError):
    """An event is longer than the reader accepts. The events before it were yielded."""


class EventReader:
    """Decodes bytes into events.

    `max_event` limits one event, in bytes, and so the reader's memory; `MAX_LINES` limits its lines. Ids are ignored,
    because streams are not resumed.
    Source: the HTML standard, section 9.2.6 "Interpreting an event stream".
    """

    def __init__(self, *, max_event: int = MAX_EVENT) -> None:
        self._max_event = max_event
        self._rest = bytearray()
        self._searched = 0
        self._at_start = True

    def feed(self, data: bytes) -> Iterator[ServerSentEvent]:
        """Yield the events that `data` completes.

        The result must be iterated to its end, unless no more events are needed at all.
        Raises `EventTooLongError` after the last event that is not too long.
        """
        self._rest += data
        end = 0
        for empty_line in _EMPTY_LINE.finditer(self._rest, self._searched):
            if empty_line.end() - end > self._max_event:
                break
            end = empty_line.end()
        whole = bytes(self._rest[:end])
        del self._rest[:end]
        self._searched = max(len(self._rest) - 1, 0)
        if whole:
            yield from self._decode(whole)
        if len(self._rest) > self._max_event:
            raise EventTooLongError(f"an event is longer than {self._max_event:,} bytes")

    @property
    def between(self) -> bool:
        """Whether the stream has begun and no event is open."""
        return not self._rest and not self._at_start

    def close(self) -> Iterator[ServerSentEvent]:
        """Yield the last event, if its empty line is missing."""
        tail = bytes(self._rest)
        self._rest.clear()
        self._searched = 0
        if tail:
            yield from self._decode(tail + b"\n\n")

    def _decode(self, events: bytes) -> Iterator[ServerSentEvent]:
        if self._at_start:
            self._at_start = False
            events = events.removeprefix(codecs.BOM_UTF8)
        name, lines = "", 0
        data: list[str] = []
        # The format has only three of Python's line ends.
        for raw_line in io.StringIO(events.decode("utf-8", "replace"), newline=None):
            line = raw_line.removesuffix("\n")
            if not line:
                event = ServerSentEvent(name or "message", "\n".join(data))
                if event.data or event.name != "message":
                    yield event
                name, data, lines = "", [], 0
                continue
            lines += 1
            if lines > MAX_LINES:
                raise EventTooLongError(f"an event has more than {MAX_LINES:,} lines")
            if line[0] in _BARE_JSON:
                data.append(line)
                continue
            field, colon, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                data.append(value)
            elif field == "event":
                name = value
            # Older llama.cpp servers send errors in a field named `error`.
            elif field == "error" and colon:
                name = "error"
                data.append(value)
