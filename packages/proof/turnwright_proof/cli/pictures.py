"""The formats of pictures, and what is said of their files."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from pathlib import Path

import typer

from turnwright.cli import codes
from turnwright.cli.process import echo
from turnwright_proof.draw import Overlay, Picture, to_dot, to_mermaid, to_page, to_svg, to_table


class Format(StrEnum):
    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"
    TABLE = "table"
    PAGE = "page"


def picture_text(form: Format, picture: Picture, overlay: Overlay | None = None) -> str:
    """Return a picture of the chart in a format."""
    match form:
        case Format.MERMAID:
            return to_mermaid(picture, overlay)
        case Format.DOT:
            return to_dot(picture, overlay=overlay)
        case Format.SVG:
            return to_svg(to_dot(picture, overlay=overlay), overlay)
        case Format.TABLE:
            return to_table(picture, overlay)
        case Format.PAGE:
            return to_page(picture)


def report_written(directory: Path, names: Collection[str]) -> None:
    """List the files that were written."""
    for name in names:
        echo(f"wrote {directory / name}")
    if not names:
        echo(f"{directory} is up to date")


def report_problems(directory: Path, problems: Mapping[str, str], remedy: str) -> None:
    """List the files that are missing or stale. Exits with 1 if there are any."""
    for name, problem in problems.items():
        echo(f"{directory / name} is {problem}")
    if problems:
        echo(f"to update them: {remedy}", err=True)
        raise typer.Exit(codes.FAILED)
