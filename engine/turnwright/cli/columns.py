"""Prints rows in columns: fitted to the terminal without breaking a word, or aligned as plain text."""

from collections.abc import Collection, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from turnwright.privacy.invisible import escaped

from .process import echo
from .screen import Screen, styled, wrapped

Row = Sequence[str]

_GAP = "  "


def print_columns(head: Row, rows: Sequence[Row], *, drops: Sequence[str] = ()) -> None:
    """Print rows below a head: fitted to a terminal, or as plain lines elsewhere. `drops`: see `Columns`."""
    console = Screen()
    if console.is_terminal:
        console.print(Columns(head, rows, drops), crop=False)
    else:
        echo(plain(head, rows))


class Columns:
    """Rows that fit the width of the terminal.

    Cells are wrapped between words. With `drops` nothing is wrapped: the columns of these names are left out, in this
    order, until the rest fits. If a word is too long for its column, each row is printed with one field per line.
    """

    def __init__(self, head: Row, rows: Sequence[Row], drops: Sequence[str] = ()) -> None:
        self._lines = [[escaped(cell) for cell in line] for line in (head, *rows)]
        self._drops = drops

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        shown = self._dropped(options.max_width) if self._drops else self._wrapped(options.max_width)
        for number, line in enumerate(shown):
            text = styled(line, "bold" if not number else "")
            text.no_wrap, text.overflow = True, "ignore"
            yield text

    def _dropped(self, width: int) -> Iterator[str]:
        head, *_ = self._lines
        left_out: set[int] = set()
        for name in self._drops:
            if _total(_widths(self._lines, left_out)) <= width:
                break
            left_out.add(head.index(name))
        return _aligned(self._lines, left_out)

    def _wrapped(self, width: int) -> Iterator[str]:
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
            cells = [wrapped(cell, most) for cell, most in zip(line, widths, strict=True)]
            for number in range(max(map(len, cells))):
                yield _joined([cell[number] if number < len(cell) else "" for cell in cells], widths)


def plain(head: Row, rows: Sequence[Row]) -> str:
    return "\n".join(_aligned([[escaped(cell) for cell in line] for line in (head, *rows)]))


def _aligned(lines: Sequence[Row], left_out: Collection[int] = ()) -> Iterator[str]:
    widths = _widths(lines, left_out)
    for line in lines:
        yield _joined([cell for at, cell in enumerate(line) if at not in left_out], widths)


def _records(lines: Sequence[Row], width: int) -> Iterator[str]:
    head, *rows = lines
    for number, row in enumerate(rows):
        yield from [""] * (number > 0)
        for name, cell in zip(head, row, strict=True):
            if cell:
                yield from wrapped(f"{name}: {cell}", width, "  ")


def _widths(lines: Sequence[Row], left_out: Collection[int] = ()) -> list[int]:
    columns = zip(*lines, strict=True)
    return [max(map(cell_len, column)) for at, column in enumerate(columns) if at not in left_out]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _joined(cells: Row, widths: Sequence[int]) -> str:
    filled = (cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True))
    return _GAP.join(filled).rstrip()
