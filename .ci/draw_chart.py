"""Draws the chart of this release: `overview.svg`, `turn.*`, `turn-full.*` and `turn.md` in `diagrams/`.

    python .ci/draw_chart.py [--check]

`overview.svg` is for a first look, `turn.svg`, `.dot` and `.mmd` are for a review, and `turn-full.svg`, `.dot` and
`.mmd` show every arrow. `turn.md` has all three. `--check` writes nothing, needs no Graphviz, and exits with 1 when a
file is missing or stale.
"""

import sys
from pathlib import Path
from typing import Final

from turnwright.errors import ConfigError
from turnwright_proof.draw import (
    Picture,
    extract,
    extract_overview,
    fold_common_rows,
    overview_to_svg,
    to_dot,
    to_mermaid,
    to_page,
    to_svg,
)
from turnwright_proof.draw.svg import is_fresh
from turnwright_states.chart import CHART, Chart

FOLDER: Final = Path(__file__).parent.parent / "diagrams"


def stale(directory: Path, chart: Chart = CHART) -> dict[str, str]:
    """Return the files of a directory that do not show the chart: each name with `missing` or `stale`.

    Line ends are not compared, because a checkout may change them.
    """
    names: dict[str, str] = {}
    for name, text in _texts(chart).items():
        if (current_text := _read(directory / name)) != text:
            names[name] = "missing" if current_text is None else "stale"
    for view, picture in _views(chart).items():
        drawing = _read(directory / f"{view}.svg")
        if drawing is None or not is_fresh(drawing, to_dot(picture)):
            names[f"{view}.svg"] = "missing" if drawing is None else "stale"
    return names


def write(directory: Path) -> tuple[str, ...]:
    """Write the files that are missing or stale, the drawings last, and return their names.

    A fresh SVG is not drawn again, because another version of Graphviz would draw it differently. Raises
    `ConfigError`, after the text files are written, when an SVG has to be drawn and Graphviz is missing.
    """
    directory.mkdir(parents=True, exist_ok=True)
    names = stale(directory)
    for name, text in _texts(CHART).items():
        if name in names:
            (directory / name).write_text(text, encoding="utf-8")
    for view, picture in _views(CHART).items():
        if (name := f"{view}.svg") in names:
            try:
                drawing = to_svg(to_dot(picture))
            except ConfigError as error:
                raise ConfigError(f"{directory / name} was not written, the text files were: {error}") from None
            (directory / name).write_text(drawing, encoding="utf-8")
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


def _read(path: Path) -> str | None:
    """Return the text of a file with plain line ends, or None if there is no such file."""
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None


def main() -> None:
    """Write, or check."""
    if sys.argv[1:] not in ([], ["--check"]):
        raise SystemExit(__doc__)
    if not sys.argv[1:]:
        for name in write(FOLDER):
            print(f"wrote diagrams/{name}")
    elif names := stale(FOLDER):
        problems = ", ".join(f"{name} is {problem}" for name, problem in names.items())
        raise SystemExit(f"in diagrams, {problems}: make diagrams")


if __name__ == "__main__":
    main()
