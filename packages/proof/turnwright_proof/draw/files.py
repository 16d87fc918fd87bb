"""The committed files of the chart: written from it, and compared with it.

`overview.svg` is for a first look, `turn.svg`, `.dot` and `.mmd` are for a review, and `turn-full.svg`, `.dot` and
`.mmd` show every arrow. `turn.md` has all three.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from turnwright._base.regular_files import read_regular, write_regular
from turnwright.errors import ConfigError
from turnwright_states.chart import CHART, Chart

from .dot import to_dot
from .mermaid import to_mermaid
from .model import Picture, extract, fold_common_rows
from .overview import extract_overview
from .overview_svg import overview_to_svg
from .svg import is_fresh, to_svg
from .table import to_page

_MAX_BYTES: Final = 16 * 1024 * 1024


def stale(directory: Path, chart: Chart = CHART) -> dict[str, str]:
    """Return the files of a directory that do not show the chart: each name with `missing` or `stale`.

    Only tests pass another `chart`. Graphviz is not needed. Line ends are not compared, because a checkout may change
    them. Raises `OSError` for a file that cannot be read.
    """
    problems = stale_texts(directory, _texts(chart))
    for view, picture in _views(chart).items():
        drawing = read_text(directory / f"{view}.svg")
        if drawing is None or not is_fresh(drawing, to_dot(picture)):
            problems[f"{view}.svg"] = "missing" if drawing is None else "stale"
    return problems


def stale_texts(directory: Path, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a directory that do not have their texts: each name with `missing` or `stale`."""
    current_texts = {name: read_text(directory / name) for name in texts}
    return {name: "missing" if text is None else "stale" for name, text in current_texts.items() if text != texts[name]}


def write(directory: Path, chart: Chart = CHART) -> tuple[str, ...]:
    """Write the files that are missing or stale, the drawings last, and return their names.

    The directory is made if needed. A fresh SVG is not drawn again, because another version of Graphviz would draw it
    differently. Raises `OSError` for a file that cannot be written. Raises `ConfigError`, after the text files are
    written, when an SVG has to be drawn and Graphviz is missing.
    """
    directory.mkdir(parents=True, exist_ok=True)
    names = stale(directory, chart)
    for name, text in _texts(chart).items():
        if name in names:
            write_regular(directory / name, text.encode())
    for view, picture in _views(chart).items():
        if (name := f"{view}.svg") in names:
            try:
                drawing = to_svg(to_dot(picture))
            except ConfigError as error:
                raise ConfigError(f"{directory / name} was not written, the text files were: {error}") from None
            write_regular(directory / name, drawing.encode())
    return tuple(names)


def _views(chart: Chart) -> dict[str, Picture]:
    """Return the views that Graphviz draws, by the names of their files."""
    full = extract(chart)
    return {"turn": fold_common_rows(full), "turn-full": full}


def _texts(chart: Chart) -> dict[str, str]:
    views = _views(chart)
    return {
        **{f"{view}.mmd": to_mermaid(picture) for view, picture in views.items()},
        **{f"{view}.dot": to_dot(picture) for view, picture in views.items()},
        "overview.svg": overview_to_svg(extract_overview(views["turn-full"])),
        "turn.md": to_page(views["turn-full"]),
    }


def read_text(path: Path) -> str | None:
    """Return the text of a file with plain line ends, or None if there is no such file."""
    try:
        text = read_regular(path, _MAX_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n")
