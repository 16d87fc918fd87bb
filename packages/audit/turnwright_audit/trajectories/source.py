"""A recording to read: a file, a member of an archive, or standard input."""

import io
import json
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property, partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import ijson
import msgspec
from ijson.common import JSONError
from pydantic import JsonValue

from turnwright.model.http.sse import MAX_LINES, EventReader

from .shapes import BROKEN, read_object

#: Bytes that are looked at to recognize a format.
HEAD: Final = 256 * 1024
#: A document up to this size is decoded whole, which is ten times faster than piece by piece.
WHOLE: Final = 256 * 1024**2
#: The first bytes of a SQLite database.
SQLITE: Final = b"SQLite format 3\x00"
_LINES_OF_HEAD: Final = 50
#: The fields of server-sent events, the data that ends a stream, and names that are the types of the data.
_EVENT_FIELDS: Final = (b"data:", b"event:", b"id:", b"retry:", b":")
_STREAM_ENDS: Final = b"[DONE]"
_NAMED_TYPES: Final = ("message_", "content_block_", "response.")
_LINE_END: Final = re.compile(rb"\r\n?")
_LONGEST_LINE: Final = 64 * 1024**2
#: Bytes that the parser gets at once. It begins a text that is longer anew with each piece, so they are many.
_PIECE: Final = 16 * 1024**2
#: Levels of nesting that are read of a document that is cut. Deeper ones end it.
_DEPTH: Final = 200
#: The errors of a parser for bytes that are not JSON; the last two for numbers that Python does not make.
_BROKEN: Final = (JSONError, UnicodeDecodeError, RecursionError, ArithmeticError, ValueError)
#: A number with more digits makes no number of Python.
_MOST_DIGITS: Final = 4000
_DECODER: Final = json.JSONDecoder(strict=False)
_SPACE: Final = re.compile(r"\s*")
#: Such a number at the beginning of a value, or right after another value. A text of digits alone is none.
_ENDLESS: Final = re.compile(rb"(?:(?<=[\[:,\s}\]el-])|(?<=[^\[{:,\s]\")|(?<=\")(?![0-9]*\"))[0-9]{%d}" % _MOST_DIGITS)


class UnreadableRecordingError(Exception):
    """A recording, or what is left of it, that no reader could read. The message says why, without its name."""


class EmptyRecordingError(UnreadableRecordingError):
    """A recording of a known format in which no run has begun."""


class Recording:
    """One file of recorded runs.

    `name` is shown to people: a path, or `ARCHIVE:MEMBER`. `open` returns a new stream of its bytes each time. `path`
    is its file, if it has one. `beside` returns the recording at a path relative to the folder of this one, in which
    `*` is any text, or None.
    """

    def __init__(self, name: str, open: Callable[[], BinaryIO]) -> None:  # noqa: A002 (the file's own verb)
        self.name = name
        self.open = open
        self.path: Path | None = None
        self.beside: Callable[[str], Recording | None] = lambda _relative: None
        #: The records that a reader looked at, and those of which it could use nothing. Not every reader counts them.
        self.records_read = self.unused_records = 0

    @classmethod
    def of(cls, data: bytes, name: str = "-") -> "Recording":
        """Return a recording of bytes in memory."""
        return cls(name, lambda: io.BytesIO(data.removeprefix(BOM_UTF8)))

    @cached_property
    def head(self) -> bytes:
        """The first 256 KiB."""
        with self.open() as stream:
            return stream.read(HEAD)

    @cached_property
    def document(self) -> JsonValue:
        """The beginning of the first JSON value, with what the head has of it; None if it is not JSON.

        The last list, object or text in it may be cut.
        """
        return self._documents[0] if self._documents else None

    @cached_property
    def _documents(self) -> list[JsonValue]:
        if len(self.head) < HEAD:
            with suppress(*BROKEN):
                value: JsonValue = msgspec.json.decode(self.head)
                return [value]
        return partial_documents(self.head).values

    @cached_property
    def records(self) -> list[dict[str, JsonValue]]:
        """The first JSON objects in lines, or else of several that follow one another, up to 50.

        Lines that cannot be read are left out.
        """
        several = self._documents[:_LINES_OF_HEAD] if len(self._documents) > 1 else []
        return self._in_lines or [value for value in several if isinstance(value, dict)]

    @cached_property
    def _in_lines(self) -> list[dict[str, JsonValue]]:
        """The first JSON objects in lines. In a list over lines only its last object has a line without a comma."""
        lines = [*islice(self._data_of(self.head.split(b"\n")), _LINES_OF_HEAD)]
        objects = [record for record in map(read_object, lines) if record is not None]
        is_list = isinstance(self.document, list) and not _is_json(lines[0])
        return [] if is_list and len(objects) == 1 else objects

    @cached_property
    def objects(self) -> list[dict[str, JsonValue]]:
        """The first JSON objects, in lines or in a list."""
        first = self.document
        first_values = first[:_LINES_OF_HEAD] if isinstance(first, list) else [first]
        return [*self.records, *(value for value in first_values if isinstance(value, dict))]

    @cached_property
    def is_lines(self) -> bool:
        """Whether it has a JSON value in each line, and not one document. So has a stream of server-sent events."""
        if self._is_stream:
            return True
        lines = self.lines()
        first, second = next(lines, b""), next(lines, None)
        if second is None or _is_json(first):
            return second is not None
        return first[-1:] not in {b"[", b"{", b","} and bool(self._in_lines)  # else a document continues

    @property
    def is_sequence(self) -> bool:
        """Whether it has several JSON values, in lines or one behind another."""
        return self.is_lines or len(self._documents) > 1

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that are not blank, without their ends; of a stream of events, the data."""
        yield from self._data_of(self.raw_lines())

    @property
    def _is_stream(self) -> bool:
        return self.head.lstrip().startswith(_EVENT_FIELDS)

    def _data_of(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        if self._is_stream:
            lines = (part for line in lines for part in _LINE_END.split(line.rstrip(b"\r\n")))
        yield from _values_of(map(bytes.strip, lines))

    def raw_lines(self) -> Iterator[bytes]:
        """Yield all lines with their ends. A longer one is cut after 64 MiB, so that none fills the memory."""
        with self.open() as stream:
            for line in iter(partial(stream.readline, _LONGEST_LINE), b""):
                piece = line
                while len(piece) == _LONGEST_LINE and not piece.endswith(b"\n"):
                    piece = stream.readline(_LONGEST_LINE)
                yield line + b"\n" if piece is not line and piece.endswith(b"\n") else line

    def record_lines(self) -> Iterator[bytes]:
        """Yield all lines with their ends; of a list, or of values that follow one another, each value as a line.

        Two programs that write at once may leave out the end between two lines, and a crash may leave zeros before
        one. A line without an end is the beginning of what is cut.
        """
        if self.is_lines or self._in_lines:
            for line in self.raw_lines():
                is_odd = (b"}{" in line and not _is_json(line)) or line.startswith(b"\0")
                yield from _split(line) if is_odd else [line]
            return
        items = self.items("item" if isinstance(self.document, list) else "")
        for item in items:
            yield msgspec.json.encode(item) + b"\n"
        if items.cut:
            yield b"{"

    def data(self) -> bytes | None:
        """Return all bytes; None if they are more than 256 MiB."""
        with self.open() as stream:
            data = stream.read(WHOLE + 1)
        return None if len(data) > WHOLE else data

    def items(self, path: str) -> "Items":
        """Return the items of a list in a document, read piece by piece: those of `results` for `results.item`."""
        return Items(self, path)


class Items:
    """The complete items at a path of a document, or of documents that follow one another.

    Once iterated, `cut` says whether the last one ended too early.
    """

    def __init__(self, recording: Recording, path: str) -> None:
        self._recording = recording
        self._path = path
        self.cut = False

    def __iter__(self) -> Iterator[JsonValue]:
        item_count = 0
        for exact in (False, True):
            with self._recording.open() as stream:
                try:
                    for number, item in enumerate(
                        ijson.items(
                            _Guarded(stream), self._path, use_float=not exact, buf_size=_PIECE, multiple_values=True
                        )
                    ):
                        if number >= item_count:
                            item_count += 1
                            yield _without_decimals(item) if exact else item
                except _BROKEN as error:
                    if _is_overflow(error) and not exact:
                        continue
                    self.cut = True
            return


class _Guarded:
    """A stream that ends before a whole number of thousands of digits, at which the parser would crash the process."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._before = b" "  # a number may be the first value
        self._ended = False

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes. Digits at the end are held back, since more of the number may follow."""
        while size and not self._ended:  # the parser asks for no bytes first, to see that they are bytes
            new = self._stream.read(size)
            data = self._before + new
            self._ended = not new
            # Samples first: a search through all bytes would take five times as long as parsing them.
            samples = (data[place : place + 100] for place in range(0, len(data), _MOST_DIGITS // 2))
            if any(map(bytes.isdigit, samples)) and (match := _ENDLESS.search(data)):
                self._ended = True
                return data[: match.start()]
            length = len(data) - len(data.rstrip(b"0123456789"))
            held_bytes = length + 1 if new and 0 < length < min(len(data), _MOST_DIGITS) else 0
            self._before = data[len(data) - held_bytes :]
            if len(data) > held_bytes:
                return data[: len(data) - held_bytes]
        return b""


def opener(path: Path) -> Callable[[], BinaryIO]:
    """Return a function that opens the file at a path, behind its byte order mark if it has one."""

    def open_stream() -> BinaryIO:
        stream = path.open("rb")
        try:
            if stream.peek(len(BOM_UTF8))[: len(BOM_UTF8)] == BOM_UTF8:
                stream.read(len(BOM_UTF8))
        except OSError:
            stream.close()
            raise
        return stream

    return open_stream


def may_hold_runs(head: bytes) -> bool:
    """Whether a file that begins so can be a recording: JSON, a recorded stream, or a store."""
    begin = head.lstrip(b" \t\r\n")
    return begin[:1] in (b"{", b"[") or begin.startswith((b"data:", b"event:", b": ", SQLITE))


def iso_time(seconds: float | None) -> str | None:
    """Return a time in seconds since 1970 as ISO 8601; None for 0 and for one that is unknown."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat() if seconds else None
    except (OverflowError, ValueError, OSError):
        return None


def seconds_of(timestamp: str | None) -> float | None:
    """Return a moment of a recording in seconds since the Unix epoch; None for one that nobody can read."""
    try:
        at = datetime.fromisoformat(timestamp) if timestamp else None
        return None if at is None else (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


class Documents(NamedTuple):
    """JSON values that follow one another. `cut`: more follows them, or belongs to the last one, and cannot be read."""

    values: list[JsonValue]
    cut: bool


def partial_documents(data: bytes | BinaryIO, records: Collection[str] | None = None) -> Documents:
    """Return the JSON values that these begin with, and of the last one what is complete.

    `records` are the names of the lists whose items make sense without one another: the messages, say. With them, the
    last item of a list is left out where it is cut, unless it has such a list itself, whose last item is left out then.
    """
    if isinstance(data, bytes):
        data = io.BytesIO(data.rstrip(b"+-.0123456789Ee"))  # a number at the cut may be the beginning of another one
    (roots, *stack), is_cut = _open_values(data)
    for outer, inner in pairwise(stack if records is not None else ()):
        if isinstance(outer, list) and not _has_records(inner, records or ()):
            outer.pop()
            break
    return Documents(roots, is_cut)


def _open_values(data: BinaryIO) -> tuple[list[Any], bool]:
    """Return a list of the values, the lists and objects in the last one that have no end, and whether it is cut."""
    stack: list[Any] = [[]]
    names: list[str] = [""]
    try:
        for event, scalar in ijson.basic_parse(_Guarded(data), buf_size=_PIECE, multiple_values=True):
            if event == "map_key":
                names[-1] = scalar
                continue
            if event in {"end_map", "end_array"}:
                stack.pop()
                names.pop()
                continue
            value: Any = float(scalar) if isinstance(scalar, Decimal) else scalar
            value = {} if event == "start_map" else [] if event == "start_array" else value
            if isinstance(stack[-1], list):
                stack[-1].append(value)
            else:
                stack[-1][names[-1]] = value
            if event in {"start_map", "start_array"}:
                stack.append(value)
                names.append("")
                if len(stack) > _DEPTH:
                    return stack, True
    except _BROKEN:
        return stack, True
    return stack, len(stack) > 1


def _has_records(value: JsonValue, names: Collection[str]) -> bool:
    return isinstance(value, dict) and any(isinstance(value.get(name), (dict, list)) for name in names)


def _split(line: bytes) -> Iterator[bytes]:
    """Yield the values at the beginning of a line as lines, and the rest of it. Zeros before them are a line too."""
    values = line.lstrip(b"\0")
    if values != line and values.strip():
        yield b"\0\n"
        line = values
    text, start = line.decode(errors="surrogateescape"), 0
    with suppress(*_BROKEN):
        while start < len(text):
            _, end = _DECODER.raw_decode(text, start)
            yield text[start:end].encode(errors="surrogateescape") + b"\n"
            start = _SPACE.match(text, end).end()  # type: ignore[union-attr] # it matches an empty text too
    if start < len(text):
        yield text[start:].encode(errors="surrogateescape")


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except BROKEN:
        return False
    return True


def _is_overflow(error: Exception) -> bool:
    return "integer overflow" in str(error)


def _without_decimals(value: JsonValue) -> JsonValue:
    """Return a value whose numbers were parsed exactly, with its fractions as usual."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return [_without_decimals(part) for part in value]
    if isinstance(value, dict):
        return {key: _without_decimals(part) for key, part in value.items()}
    return value


def _values_of(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines, and of server-sent events in them the data."""
    fields: list[bytes] = []
    for line in lines:
        is_field = line.startswith(_EVENT_FIELDS)
        if is_field:
            fields.append(line)
        if fields and (not is_field or len(fields) == MAX_LINES):
            yield from _event_data(fields)
            fields = []
        if line and not is_field:
            yield line
    yield from _event_data(fields)


def _event_data(lines: list[bytes]) -> Iterator[bytes]:
    """Yield the data of an event; of events that no empty line separates, those of each."""
    for event in EventReader(max_event=sys.maxsize).feed(b"\n".join(lines) + b"\n\n"):
        data = event.data.strip().encode()
        parts = [data] if b"\n" not in data or read_object(data) is not None else data.split(b"\n")
        for part in parts:
            if part and part != _STREAM_ENDS:
                yield _with_type(event.name, part)


def _with_type(name: str, data: bytes) -> bytes:
    """Return the data of an event with the type that its name says, if the data lacks it."""
    value = read_object(data) if name.startswith(_NAMED_TYPES) and b'"type"' not in data else None
    return data if value is None else msgspec.json.encode({"type": name, **value})
