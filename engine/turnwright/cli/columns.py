"""Rows in columns: fitted to a terminal, or aligned in plain text where nothing may be cut off."""

from collections.abc import Sequence

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

Row = Sequence[str]


def print_columns(head: Row, rows: Sequence[Row]) -> None:
    """Print rows under a head: a table on a terminal, plain lines elsewhere."""
    console = Console()
    if console.is_terminal:
        console.print(table(head, rows))
    else:
        typer.echo(plain(head, rows))


def table(head: Row, rows: Sequence[Row]) -> Table:
    """The rows for a terminal, which gives the table its width."""
    shown = Table(*head, box=None, pad_edge=False)
    for row in rows:
        # Text, because rich would read the brackets of a bare string as markup.
        shown.add_row(*map(Text, row))
    return shown


def plain(head: Row, rows: Sequence[Row]) -> str:
    """The rows in aligned columns, nothing cut off: for pipes and files."""
    lines = [head, *rows]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(_filled, line, widths)).rstrip() for line in lines)


def _filled(cell: str, width: int) -> str:
    return cell + " " * (width - cell_len(cell))
