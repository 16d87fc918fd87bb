"""Server-sent events out of bytes, wherever the bytes were cut. No I/O.

It frames and reads the fields in one: the decoder of `httpx_sse` wants a whole `httpx.Response` for every read, and to
make one costs several times what the chunk in it costs. What is here beyond the standard is what model servers need: a
bound on the size of an event, a last event without its blank line, and the lines that are no field at all, which is
how some servers report that they broke down.

An event ends at an empty line, and line ends are ASCII. Bytes are therefore cut only where no UTF-8 sequence can be
open, and the events are the same whatever the pieces were.
"""

import codecs
import io
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from .text_buffer import MAX_ARGUMENTS

#: The largest event, in bytes. The longest arguments of a call fit into one, at the four bytes that UTF-8 takes at
#: most, and so does a picture in base64; a server that never ends its line does not fill the memory.
MAX_EVENT: Final = 4 * MAX_ARGUMENTS
#: The most lines of an event, and the most chunks in one. Of the smallest chunks that servers send, so many do not fit
#: into `MAX_EVENT`; lines that hold next to nothing would keep the event loop busy for half a minute.
MAX_LINES: Final = 50_000

# An empty line: two line ends in a row, where CRLF is one. A LF that is left over when CRLF CRLF is cut after its
# second CR is an empty line before the next event, and means nothing.
_EMPTY_LINE: Final = re.compile(rb"[\r\n]\r|\n\n")

# No field of the format begins with one of these, but a line of bare JSON does. The format says to ignore it, and
# then a reply that broke down would look like one that was merely cut off.
_BARE_JSON: Final = frozenset('{}[]" \t')


class ServerSentEvent(NamedTuple):
    """One event: its name, `message` if it has none of its own, and its data."""

    name: str
    data: str


class EventTooLongError(ValueError):
    """An event is longer than the reader takes. The events before it have been given."""


class EventReader:
    """Takes bytes as they come, gives events as they become whole.

    `max_event` bounds one event, in bytes, and so what the reader holds; `MAX_LINES` bounds its lines. Ids are not
    read: nobody here resumes a stream.
    Source: the HTML standard, section 9.2.6 "Interpreting an event stream"; STREAMS.
    """

    def __init__(self, *, max_event: int = MAX_EVENT) -> None:
        self._max_event = max_event
        self._rest = bytearray()
        self._searched = 0
        self._at_start = True

    def feed(self, data: bytes) -> Iterator[ServerSentEvent]:
        """Give the events that `data` completes.

        The result must be iterated, and may be left early by who wants no more events at all.
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
        """Give the last event, if the bytes ended without the empty line that should end it."""
        rest = bytes(self._rest)
        self._rest.clear()
        self._searched = 0
        if rest:
            yield from self._decode(rest + b"\n\n")

    def _decode(self, events: bytes) -> Iterator[ServerSentEvent]:
        if self._at_start:
            self._at_start = False
            events = events.removeprefix(codecs.BOM_UTF8)
        name, lines = "", 0
        data: list[str] = []
        # Of all that Python takes for line ends, this knows just the three of the format.
        for ended in io.StringIO(events.decode("utf-8", "replace"), newline=None):
            line = ended.removesuffix("\n")
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
            # Older llama.cpp servers name the field after what happened.
            elif field == "error" and colon:
                name = "error"
                data.append(value)
