"""`turnwright diagram`: the chart, drawn."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from turnwright.draw import extract, stale, to_dot, to_mermaid, to_svg, to_table, write
from turnwright.errors import ConfigError


class Format(StrEnum):
    """How the picture is printed."""

    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"
    TABLE = "table"


def diagram(
    *,
    form: Annotated[
        Format | None,
        typer.Option("--format", help="How to print it: mermaid, unless said otherwise.", show_default=False),
    ] = None,
    write_to: Annotated[
        Path | None,
        typer.Option("--write", metavar="DIR", help="Write turn.mmd, turn.dot, turn.md and turn.svg there."),
    ] = None,
    check: Annotated[
        Path | None, typer.Option("--check", metavar="DIR", help="Name the files there that are stale or missing.")
    ] = None,
) -> None:
    """Draw the states of a turn, and the rows of the chart that lead from one to the next.

    Everything is taken from the chart that runs. Without options it is printed as Mermaid. SVG needs Graphviz's
    `dot` on PATH, and the other formats nothing.
    --check exits with 1 if a file is stale or missing, and needs no Graphviz.
    """
    if sum(option is not None for option in (form, write_to, check)) > 1:
        _refuse("--format, --write and --check are three different things to do: give one of them")
    try:
        if write_to is not None:
            _write(write_to)
        elif check is not None:
            _check(check)
        else:
            typer.echo(_text(form or Format.MERMAID), nl=False)
    except (ConfigError, OSError) as error:
        _refuse(str(error))


def _text(form: Format) -> str:
    picture = extract()
    match form:
        case Format.MERMAID:
            return to_mermaid(picture)
        case Format.DOT:
            return to_dot(picture)
        case Format.SVG:
            return to_svg(to_dot(picture))
        case Format.TABLE:
            return to_table(picture)


def _write(directory: Path) -> None:
    names = write(extract(), directory)
    for name in names:
        typer.echo(f"wrote {directory / name}")
    if not names:
        typer.echo(f"{directory} is up to date")


def _check(directory: Path) -> None:
    found = stale(extract(), directory)
    for name, what in found.items():
        typer.echo(f"{directory / name} is {what}")
    if found:
        typer.echo(f"write them anew with `turnwright diagram --write {directory}`", err=True)
        raise typer.Exit(1)


def _refuse(message: str) -> NoReturn:
    typer.echo(f"turnwright diagram: {message}", err=True)
    raise typer.Exit(2)
