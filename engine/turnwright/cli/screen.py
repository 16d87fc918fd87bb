"""Text on a terminal: wrapped between words, one screen at a time if needed, and without foreign escape sequences."""

import re
import sys
import termios
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TextIO, cast

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from turnwright.privacy.invisible import escaped

from .process import Terminal, echo

#: The start of a further row of foreign text, so that no such row looks like a line of ours.
_CONTINUED: Final = "> "
#: A line of a question or of arguments, which is foreign text, and the heading of one.
_FOREIGN: Final = re.compile(r" *\| |  \w[\w/-]*: ")
#: A command. It stays on one line, so that it can be copied. A remark may follow it.
_COMMAND: Final = re.compile(r"(?P<command> +turnwright .*?)(?P<remark> {4}\(or .*)?")
_MORE: Final = "-- Enter shows the next {rows} of {left} more lines, q leaves --"


class _UnescapedStream:
    """The stream of a `Screen`, which writes escape sequences unchanged."""

    def __init__(self, stream: Terminal) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, "styled" if name == "write" else name)


class Screen(Console):
    """A console of rich in which only our own styles and cursor moves make escape sequences."""

    def __init__(self, *, err: bool = False) -> None:
        stream = sys.stderr if err else sys.stdout
        super().__init__(file=cast(TextIO, _UnescapedStream(stream)) if isinstance(stream, Terminal) else stream)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """See `Console.render`. Everything that is printed passes through here in segments."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(escaped(segment.text), segment.style)


class _EscapedStream:
    """Replaces a standard stream while a live screen is up. What others print appears above the screen, escaped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(escaped(text))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def escape_prints() -> None:
    sys.stdout, sys.stderr = cast(TextIO, _EscapedStream(sys.stdout)), cast(TextIO, _EscapedStream(sys.stderr))


def styled(text: str, style: str = "", *, cut: bool = False) -> Text:
    """Return text for a `Screen`. With `cut`, text that is too long is cut instead of wrapped.

    The text is escaped before its width is measured, and is shown as it is, without rich's markup.
    """
    return Text(escaped(text), style=style, no_wrap=cut or None, overflow="ellipsis" if cut else None)


def fitted(line: str, width: int, hang: int | None = None) -> list[str]:
    """Return a line as rows of a terminal, broken between words. Further rows are indented by `hang` (default: 2 more).

    A further row of foreign text begins with `> ` and keeps the blank where it was broken, so that the rows together
    are the line. A command is not broken.
    """
    line = escaped(line)
    if cell_len(line) <= width:
        return [line]
    if command := _COMMAND.fullmatch(line):
        remark = fitted(f"      {command['remark'].strip()}", width, 8) if command["remark"] else []
        return [command["command"], *remark]
    indent = len(line) - len(line.lstrip(" "))
    if foreign := _FOREIGN.match(line):
        lead = " " * (indent if line[indent] == "|" else 2 * indent)
        return _rows(line, width, foreign.end(), lead + _CONTINUED, exact=True)
    return _rows(line, width, indent, " " * (indent + 2 if hang is None else hang), exact=False)


def wrapped(text: str, width: int, lead: str = "") -> list[str]:
    """Return a text as rows of at most `width` cells, broken between words. Further rows begin with `lead`."""
    return _rows(escaped(text), max(width, 1), 0, lead, exact=False)


def _rows(line: str, width: int, begin: int, lead: str, *, exact: bool) -> list[str]:
    """Return the rows of a line that is too long. The first row is not broken before `begin`."""
    lead = lead if len(lead) <= width // 2 else lead[-2:]
    rows: list[str] = []
    start, before = 0, ""
    while True:
        at, room = start, width - len(before)
        while at < len(line) and (room := room - cell_len(line[at])) >= 0:
            at += 1
        if at == len(line):
            return [*rows, before + line[start:]]
        floor = max(start, begin)
        # The blank may be just after the row.
        blank = line.rfind(" ", floor + 1, at + 1)
        at = blank if blank > floor else max(at, start + 1)
        rows.append(before + line[start:at])
        start, before = at, lead
        while not exact and start < len(line) and line[start] == " ":
            start += 1
        if start == len(line):
            return rows


def print_lines(lines: Iterable[str], hang: int | None = None) -> None:
    for row in fit(lines, hang):
        echo(row)


def somebody_types() -> bool:
    """Return whether a person can read and type here: input and output are terminals."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def print_to_the_end(lines: Sequence[str]) -> bool:
    """Print lines one screen at a time, and return whether the person has seen the last one.

    Where no person types, everything is printed at once.
    """
    rows = list(fit(lines, None))
    most = max(Screen().height - 1, 1) if somebody_types() else len(rows)
    for start in range(0, len(rows), most):
        if start and not _goes_on(min(most, len(rows) - start), len(rows) - start):
            return False
        for row in rows[start : start + most]:
            echo(row)
    return True


def _goes_on(rows: int, left: int) -> bool:
    try:
        # Keys that were typed before this line appeared are not an answer to it.
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        sys.stdout.write(_MORE.format(rows=rows, left=left))
        sys.stdout.flush()
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        echo()
        return False
    return answer.endswith("\n") and not answer.strip().lower().startswith("q")


def fit(lines: Iterable[str], hang: int | None = None) -> Iterator[str]:
    """Return lines as rows: `fitted` on a terminal, unchanged elsewhere."""
    each = (line for text in lines for line in text.replace("\r\n", "\n").split("\n"))
    if not sys.stdout.isatty():
        return each
    width = Screen().width
    return (row for line in each for row in fitted(line, width, hang))
