"""Server-sent events out of bytes, wherever the bytes were cut. No I/O.

`httpx_sse` decodes. Its public door is `EventSource`, which wants a whole `httpx.Response`; its decoders for text
are private. So this module only frames: it holds bytes back until an event is whole and hands whole events to
`EventSource` as a small response. What it adds is what model servers need and the library does not give: a bound on
the size of an event, a byte order mark, a last event without its blank line, an indifference to the content type,
and the lines that are no field at all, which is how some servers report that they broke down.

An event ends at an empty line, and line ends are ASCII. Bytes are therefore cut only where no UTF-8 sequence can be
open, and the events are the same whatever the pieces were.
"""

import codecs
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from httpx_sse import ServerSentEvent

#: The largest event, in bytes. A picture in base64 fits; a server that never ends its line does not fill the memory.
MAX_EVENT: Final = 16 * 1024 * 1024

# An empty line: two line ends in a row, where CRLF is one. A LF that is left over when CRLF CRLF is cut after its
# second CR is an empty line before the next event, and means nothing.
_EMPTY_LINE: Final = re.compile(rb"[\r\n]\r|\n\n")

# No field of the format begins with one of these, but a line of bare JSON does. The format says to ignore it, and
# then a reply that broke down would look like one that was merely cut off.
_BARE_JSON: Final = re.compile(rb"([\r\n])(?=[{}\[\]\" \t])")
# Older llama.cpp servers name the field after what happened.
_ERROR_FIELD: Final = re.compile(rb"([\r\n])error:")

_HEADERS: Final = {"content-type": "text/event-stream; charset=utf-8"}


class EventTooLong(ValueError):  # noqa: N818 (reads as what happened)
    """An event is longer than the reader takes. The events before it have been given."""


class EventReader:
    """Takes bytes as they come, gives events as they become whole.

    `max_event` bounds one event, in bytes, and so what the reader holds. Ids do not carry over from one event to the
    next: nobody here resumes a stream.
    Source: the HTML standard, section 9.2.6 "Interpreting an event stream"; STREAMS.
    """

    def __init__(self, *, max_event: int = MAX_EVENT) -> None:
        self._max_event = max_event
        self._rest = bytearray()
        self._searched = 0
        self._at_start = True

    def feed(self, data: bytes) -> Iterator["ServerSentEvent"]:
        """Give the events that `data` completes.

        The result must be iterated, and may be left early by who wants no more events at all.
        Raises `EventTooLong` after the last event that is not too long.
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
            raise EventTooLong(f"an event is longer than {self._max_event:,} bytes")

    def close(self) -> Iterator["ServerSentEvent"]:
        """Give the last event, if the bytes ended without the empty line that should end it."""
        rest = bytes(self._rest)
        self._rest.clear()
        self._searched = 0
        if rest:
            yield from self._decode(rest + b"\n\n")

    def _decode(self, events: bytes) -> Iterator["ServerSentEvent"]:
        # Importing httpx costs half of what importing all of turnwright may cost.
        import httpx  # noqa: PLC0415
        from httpx_sse import EventSource  # noqa: PLC0415

        if self._at_start:
            self._at_start = False
            events = events.removeprefix(codecs.BOM_UTF8)
        # After an empty line in front, every line of theirs follows a line end.
        events = _BARE_JSON.sub(rb"\1data: ", b"\n" + events)
        events = _ERROR_FIELD.sub(rb"\1event: error\ndata:", events)
        for event in EventSource(httpx.Response(200, headers=_HEADERS, content=events)).iter_sse():
            # Once there was an id, the library makes an event of every further empty line. The standard does not, and
            # where it stops doing so would depend on the cuts.
            if event.data or event.event != "message":
                yield event
