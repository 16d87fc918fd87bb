"""Text on a terminal: wrapped between words, one screen at a time where that matters, and free of foreign escapes."""

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

#: What stands before the next row of a line that somebody else wrote, so that no such row passes for a line of ours.
_CONTINUED: Final = "> "
#: A line of a question or of arguments, and the heading of one: its first row, and how far it is indented.
_FOREIGN: Final = re.compile(r" *\| |  \w[\w/-]*: ")
#: A command: it is to be copied, so it stays one line. A remark may follow it.
_COMMAND: Final = re.compile(r"(?P<command> +turnwright .*?)(?P<remark> {4}\(or .*)?")
_MORE: Final = "-- Enter shows the next {rows} of {left} more lines, q leaves --"


class _Styled:
    """The stream of a `Screen`: it takes escape sequences as they are."""

    def __init__(self, stream: Terminal) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, "styled" if name == "write" else name)


class Screen(Console):
    """A console of rich in which only styles and the cursor of ours make escape sequences."""

    def __init__(self, *, err: bool = False) -> None:
        stream = sys.stderr if err else sys.stdout
        super().__init__(file=cast(TextIO, _Styled(stream)) if isinstance(stream, Terminal) else stream)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """See `Console.render`. All that is printed comes through here, cut into segments."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(escaped(segment.text), segment.style)


class _Printed:
    """What takes the place of a standard stream while a live screen is up: what others print stands above it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(escaped(text))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def escape_prints() -> None:
    sys.stdout, sys.stderr = cast(TextIO, _Printed(sys.stdout)), cast(TextIO, _Printed(sys.stderr))


def styled(text: str, style: str = "", *, cut: bool = False) -> Text:
    """Return text for a `Screen`, `cut` where it is longer than its place instead of wrapped.

    It is escaped before it is laid out, and rich drops nothing of it.
    """
    return Text(escaped(text), style=style, no_wrap=cut or None, overflow="ellipsis" if cut else None)


def fitted(line: str, width: int, hang: int | None = None) -> list[str]:
    """Return a line as rows of a terminal, broken between words, the later ones indented by `hang` (default: 2 more).

    A row that goes on with what somebody else wrote begins with `> `, and has the blank at which it was broken: so the
    rows together are the line. A command stays in one piece.
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
    """Return a text as rows of at most `width` cells, broken between words; all but the first begin with `lead`."""
    return _rows(escaped(text), max(width, 1), 0, lead, exact=False)


def _rows(line: str, width: int, begin: int, lead: str, *, exact: bool) -> list[str]:
    """Return the rows of a line that is too long, the first of which is not broken before `begin`."""
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
        # A blank right behind the row is a place between words too.
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


def print_paged(lines: Sequence[str], unfinished: str) -> None:
    """Print lines that a person must read to the end before the last ones count, one screen at a time.

    Where nobody sits at a terminal all of it is printed at once. Whoever leaves is told what is `unfinished`.
    """
    rows = list(fit(lines, None))
    somebody_types = sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
    most = max(Screen().height - 1, 1) if somebody_types else len(rows)
    for start in range(0, len(rows), most):
        if start and not _goes_on(min(most, len(rows) - start), len(rows) - start):
            echo(unfinished)
            return
        for row in rows[start : start + most]:
            echo(row)


def _goes_on(rows: int, left: int) -> bool:
    try:
        # What was typed before the question stands there is no answer to it.
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        sys.stdout.write(_MORE.format(rows=rows, left=left))
        sys.stdout.flush()
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        echo()
        return False
    return answer.endswith("\n") and not answer.strip().lower().startswith("q")


def fit(lines: Iterable[str], hang: int | None = None) -> Iterator[str]:
    """Return lines as rows: `fitted` on a terminal, as they are elsewhere."""
    each = (line for text in lines for line in text.replace("\r\n", "\n").split("\n"))
    if not sys.stdout.isatty():
        return each
    width = Screen().width
    return (row for line in each for row in fitted(line, width, hang))
