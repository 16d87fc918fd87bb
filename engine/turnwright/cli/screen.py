"""Text on a terminal, without foreign escape sequences: wrapped between words, one screen at a time, or in columns.

Rows in columns are fitted to the terminal without breaking a word, or aligned as plain text.
"""

import re
import sys
import termios
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, TextIO, cast

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from turnwright.privacy.invisible import escape_invisible

from .process import Terminal, echo

#: The start of a further row of foreign text, so that no such row looks like a line of ours.
_CONTINUED: Final = "> "
#: A line of a question or of arguments, which is foreign text, and the heading of one.
_FOREIGN: Final = re.compile(r" *\| |  \w[\w/-]*: ")
#: A command. It stays on one line, so that it can be copied. A remark may follow it.
_COMMAND: Final = re.compile(r"(?P<command> +turnwright .*?)(?P<remark> {4}\(or .*)?")
_MORE: Final = "-- Enter shows the next {rows} of {left} more lines, q leaves --"
# Between two columns.
_GAP: Final = "  "

Row = Sequence[str]


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
            yield segment if segment.control else Segment(escape_invisible(segment.text), segment.style)


class _EscapedStream:
    """Replaces a standard stream while a live screen is up. What others print appears above the screen, escaped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(escape_invisible(text))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def escape_prints() -> None:
    sys.stdout, sys.stderr = cast(TextIO, _EscapedStream(sys.stdout)), cast(TextIO, _EscapedStream(sys.stderr))


def style_text(text: str, style: str = "", *, cut: bool = False) -> Text:
    """Return text for a `Screen`. With `cut`, text that is too long is cut instead of wrapped.

    The text is escaped before its width is measured, and is shown as it is, without rich's markup.
    """
    return Text(escape_invisible(text), style=style, no_wrap=cut or None, overflow="ellipsis" if cut else None)


def fit_line(line: str, width: int, hang: int | None = None) -> list[str]:
    """Return a line as rows of a terminal, broken between words. Further rows are indented by `hang` (default: 2 more).

    A further row of foreign text begins with `> ` and keeps the blank where it was broken, so that the rows together
    are the line. A command is not broken.
    """
    line = escape_invisible(line)
    if cell_len(line) <= width:
        return [line]
    if command := _COMMAND.fullmatch(line):
        remark = fit_line(f"      {command['remark'].strip()}", width, 8) if command["remark"] else []
        return [command["command"], *remark]
    indent = len(line) - len(line.lstrip(" "))
    if foreign := _FOREIGN.match(line):
        lead = " " * (indent if line[indent] == "|" else 2 * indent)
        return _rows(line, width, foreign.end(), lead + _CONTINUED, exact=True)
    return _rows(line, width, indent, " " * (indent + 2 if hang is None else hang), exact=False)


def wrap_text(text: str, width: int, lead: str = "") -> list[str]:
    """Return a text as rows of at most `width` cells, broken between words. Further rows begin with `lead`."""
    return _rows(escape_invisible(text), max(width, 1), 0, lead, exact=False)


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


def _goes_on(rows: int, remaining: int) -> bool:
    try:
        # Keys that were typed before this line appeared are not an answer to it.
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        sys.stdout.write(_MORE.format(rows=rows, left=remaining))
        sys.stdout.flush()
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        echo()
        return False
    return answer.endswith("\n") and not answer.strip().lower().startswith("q")


def fit(lines: Iterable[str], hang: int | None = None) -> Iterator[str]:
    """Return lines as rows: fitted to the width on a terminal, unchanged elsewhere."""
    single_lines = (line for text in lines for line in text.replace("\r\n", "\n").split("\n"))
    if not sys.stdout.isatty():
        return single_lines
    width = Screen().width
    return (row for line in single_lines for row in fit_line(line, width, hang))


def print_columns(head: Row, rows: Sequence[Row], *, drops: Sequence[str] = ()) -> None:
    """Print rows below a head: fitted to a terminal, or as plain lines elsewhere. `drops`: see `Columns`."""
    console = Screen()
    if console.is_terminal:
        console.print(Columns(head, rows, drops), crop=False)
    else:
        echo(plain_columns(head, rows))


class Columns:
    """Rows that fit the width of the terminal.

    Cells are wrapped between words. With `drops` nothing is wrapped: the columns of these names are left out, in this
    order, until the rest fits. If a word is too long for its column, each row is printed with one field per line.
    """

    def __init__(self, head: Row, rows: Sequence[Row], drops: Sequence[str] = ()) -> None:
        self._lines = [[escape_invisible(cell) for cell in line] for line in (head, *rows)]
        self._drops = drops

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        lines = self._drop_columns(options.max_width) if self._drops else self._wrap_cells(options.max_width)
        for number, line in enumerate(lines):
            text = style_text(line, "bold" if not number else "")
            text.no_wrap, text.overflow = True, "ignore"
            yield text

    def _drop_columns(self, width: int) -> Iterator[str]:
        head, *_ = self._lines
        left_out: set[int] = set()
        for name in self._drops:
            if _total(_widths(self._lines, left_out)) <= width:
                break
            left_out.add(head.index(name))
        return _align(self._lines, left_out)

    def _wrap_cells(self, width: int) -> Iterator[str]:
        widths, least = (
            _widths(self._lines),
            _widths([[max(cell.split(" "), key=cell_len) for cell in line] for line in self._lines]),
        )
        while _total(widths) > width and widths != least:
            widest = max(range(len(widths)), key=lambda at: (widths[at] > least[at], widths[at]))
            widths[widest] -= 1
        if _total(widths) > width:
            yield from _records(self._lines, width)
            return
        for line in self._lines:
            cells = [wrap_text(cell, most) for cell, most in zip(line, widths, strict=True)]
            for number in range(max(map(len, cells))):
                yield _join_cells([cell[number] if number < len(cell) else "" for cell in cells], widths)


def plain_columns(head: Row, rows: Sequence[Row]) -> str:
    return "\n".join(_align([[escape_invisible(cell) for cell in line] for line in (head, *rows)]))


def _align(lines: Sequence[Row], left_out: Collection[int] = ()) -> Iterator[str]:
    widths = _widths(lines, left_out)
    for line in lines:
        yield _join_cells([cell for at, cell in enumerate(line) if at not in left_out], widths)


def _records(lines: Sequence[Row], width: int) -> Iterator[str]:
    head, *rows = lines
    for number, row in enumerate(rows):
        yield from [""] * (number > 0)
        for name, cell in zip(head, row, strict=True):
            if cell:
                yield from wrap_text(f"{name}: {cell}", width, "  ")


def _widths(lines: Sequence[Row], left_out: Collection[int] = ()) -> list[int]:
    columns = zip(*lines, strict=True)
    return [max(map(cell_len, column)) for at, column in enumerate(columns) if at not in left_out]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _join_cells(cells: Row, widths: Sequence[int]) -> str:
    padded_cells = (cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True))
    return _GAP.join(padded_cells).rstrip()
