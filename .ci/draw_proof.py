"""Draws how the checks relate to the one table: `docs/assets/proof.svg`.

    python .ci/draw_proof.py [--check]

Each box names a check of docs/evidence.md, and a test compares both. With `--check` it exits with 1 if it is stale.
"""

import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

PICTURE: Final = Path(__file__).parent.parent / "docs" / "assets" / "proof.svg"
TITLE: Final = "How the checks relate to the one table"
_WIDTH: Final = 900
_LEFT, _COLUMN, _GAP, _LINE, _BOX = 20, 200, 20, 17, 62

_STYLE: Final = """
  text { font: 13px system-ui, sans-serif; fill: #1c2430; }
  .title { font-weight: 600; font-size: 14px; }
  .for { fill: #4a5565; font-size: 12px; }
  .paper { fill: #ffffff; }
  .table { fill: #dbeafe; stroke: #2563eb; stroke-width: 2; }
  .box { fill: #eef3fa; stroke: #9db4d0; }
  .hand { fill: #fdf6e3; stroke: #b08a2e; stroke-dasharray: 5 3; }
  .arrow { stroke: #64748b; fill: none; stroke-width: 1.5; }
  .head { fill: #64748b; }
"""


class Box(NamedTuple):
    """A check: its name, its object, and whether it was written by hand, without the table."""

    name: str
    about: str
    by_hand: bool = False


class Column(NamedTuple):
    """Checks with one object."""

    arrow_text: str
    title: str
    boxes: tuple[Box, ...]


COLUMNS: Final = (
    Column(
        "is translated",
        "the table as formulas",
        (
            Box("lint", "rows: reachable, total, falling"),
            Box("SMT", "any limits, by induction"),
        ),
    ),
    Column(
        "runs",
        "the machine",
        (
            Box("walk", "every input, small limits"),
            Box("property tests", "large limits, long turns"),
            Box("replay", "any journal, fact by fact"),
            Box("mutants", "one change, one failing test"),
        ),
    ),
    Column(
        "decides for",
        "the engine and its stores",
        (
            Box("reference simulator", "whole turns, from the rules", by_hand=True),
            Box("simulation", "schedules, crashes, takeovers"),
            Box("histories", "concurrent calls of a store", by_hand=True),
            Box("kills", "kill -9, at every place"),
            Box("planted faults", "broken on purpose, noticed"),
        ),
    ),
    Column(
        "bounds",
        "your agents",
        (
            Box("fuzzer", "your tools, random models"),
            Box("seeded bugs", "38 agents, found by the fuzzer"),
            Box("certificate checker", "each bound, without our code", by_hand=True),
            Box("chart of an agent", "rows that it can take"),
        ),
    ),
)


def names() -> list[str]:
    """The checks in the picture."""
    return [box.name for column in COLUMNS for box in column.boxes]


def drawing() -> str:
    """The picture."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    most = max(len(column.boxes) for column in COLUMNS)
    bottom = 200 + most * (_BOX + 12)
    size = f'viewBox="0 0 {_WIDTH} {bottom + 40}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{TITLE}">'
    yield f"<title>{TITLE}</title>"
    yield f"<style>{_STYLE}</style>"
    yield f'<rect class="paper" width="{_WIDTH}" height="{bottom + 40}"/>'
    yield '<rect class="table" x="250" y="16" width="400" height="56" rx="8"/>'
    yield from _text(450, 39, "one table: chart.py", "title", middle=True)
    yield from _text(450, 59, "state, event, guard, next state, reason", "for", middle=True)
    for place, column in enumerate(COLUMNS):
        yield from _column(_LEFT + place * (_COLUMN + _GAP), column)
    yield f'<rect class="hand" x="{_LEFT}" y="{bottom + 8}" width="26" height="16" rx="4"/>'
    yield from _text(
        _LEFT + 36, bottom + 21, "written by hand from the rules, so that a fault is not made twice", "for"
    )
    yield "</svg>"


def _column(x: int, column: Column) -> Iterator[str]:
    middle = x + _COLUMN // 2
    start = min(max(middle, 270), 630)
    yield f'<path class="arrow" d="M{start} 72 C{start} 104 {middle} 90 {middle} 128"/>'
    yield f'<path class="head" d="M{middle - 5} 126 L{middle + 5} 126 L{middle} 136 Z"/>'
    yield from _text(middle + 16, 120, column.arrow_text, "for")
    yield from _text(middle, 158, column.title, "title", middle=True)
    for place, box in enumerate(column.boxes):
        top = 174 + place * (_BOX + 12)
        looks = "hand" if box.by_hand else "box"
        yield f'<rect class="{looks}" x="{x}" y="{top}" width="{_COLUMN}" height="{_BOX}" rx="8"/>'
        yield from _text(middle, top + 27, box.name, "title", middle=True)
        yield from _text(middle, top + 27 + _LINE, box.about, "for", middle=True)


def _text(x: int, y: int, words: str, looks: str, *, middle: bool = False) -> Iterator[str]:
    anchor = ' text-anchor="middle"' if middle else ""
    yield f'<text class="{looks}" x="{x}" y="{y}"{anchor}>{escape(words)}</text>'


def main() -> None:
    """Write the picture, or check it."""
    if "--check" in sys.argv[1:]:
        if not PICTURE.is_file() or PICTURE.read_text(encoding="utf-8") != drawing():
            raise SystemExit("docs/assets/proof.svg is stale: make diagrams")
        return
    PICTURE.write_text(drawing(), encoding="utf-8")


if __name__ == "__main__":
    main()
