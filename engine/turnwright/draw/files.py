"""The committed files: written from the chart, and compared with it."""

from pathlib import Path
from typing import Final

from turnwright._base.regular_files import read_regular, write_regular
from turnwright.errors import ConfigError
from turnwright_states.chart import CHART, Chart

from .dot import to_dot
from .mermaid import to_mermaid
from .model import extract
from .promela import to_promela
from .svg import is_fresh, to_svg
from .table import to_page

_SVG: Final = "turn.svg"
_MAX_BYTES: Final = 16 * 1024 * 1024


def stale(directory: Path, chart: Chart = CHART) -> dict[str, str]:
    """The files of a directory that do not show the chart: each name with `missing` or `stale`.

    `chart` is another one than ours only in a test. Needs no Graphviz. Text is compared as text: a checkout that turned
    the line ends is not stale. Raises `OSError` when a file is there and cannot be read.
    """
    found: dict[str, str] = {}
    for name, text in _texts(chart).items():
        if (there := _read(directory / name)) != text:
            found[name] = "missing" if there is None else "stale"
    drawing = _read(directory / _SVG)
    if drawing is None or not is_fresh(drawing, to_dot(extract(chart))):
        found[_SVG] = "missing" if drawing is None else "stale"
    return found


def write(directory: Path, chart: Chart = CHART) -> tuple[str, ...]:
    """Write what is missing or stale, the SVG last, and return the names. The directory is made if need be.

    A fresh SVG is left alone: another version of Graphviz would only draw it differently. Raises `OSError` when a
    file cannot be written, and `ConfigError`, once the others are written, when the SVG has to be drawn and Graphviz
    is missing.
    """
    directory.mkdir(parents=True, exist_ok=True)
    names = stale(directory, chart)
    for name, text in _texts(chart).items():
        if name in names:
            write_regular(directory / name, text.encode())
    if _SVG in names:
        try:
            drawing = to_svg(to_dot(extract(chart)))
        except ConfigError as error:
            raise ConfigError(f"{directory / _SVG} was not written, the other files were: {error}") from None
        write_regular(directory / _SVG, drawing.encode())
    return tuple(names)


def _texts(chart: Chart) -> dict[str, str]:
    picture = extract(chart)
    return {
        "turn.mmd": to_mermaid(picture),
        "turn.dot": to_dot(picture),
        "turn.pml": to_promela(chart),
        "turn.md": to_page(picture),
    }


def _read(path: Path) -> str | None:
    """The text of a file, with plain line ends; None if there is no such file."""
    try:
        text = read_regular(path, _MAX_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n")
