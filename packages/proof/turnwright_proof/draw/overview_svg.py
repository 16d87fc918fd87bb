"""The overview in SVG, drawn without Graphviz: eleven boxes fit a fixed layout, in which no lines cross.

Only the places are fixed. The arrows, and the rows in their titles, come from the chart.
"""

import textwrap
from collections.abc import Iterator, Mapping
from html import escape
from typing import Final, NamedTuple

from .model import NodeKind
from .overlay import number_ranges
from .overview import (
    ANSWERED,
    CHECK,
    COMPACT,
    CONTINUE,
    LAST_REPLY,
    LIMITED,
    PAUSED,
    REVIEW,
    STEPS,
    STOPPED,
    STREAM,
    TOOL_EXEC,
    TURN,
    Area,
    Overview,
    OverviewArrow,
)
from .style import DIM, INK, LINE, LOOKS, LOOP, NAME, PAPER, QUIET, RULE

_WIDTH, _HEIGHT = 700, 830
_FONTS: Final = "Arial, Helvetica, Liberation Sans, sans-serif"
_NAME_SIZE, _TEXT_SIZE = 15, 13
#: The distance of two lines of text.
_LEADING: Final = 16
#: The radius of a corner of an arrow.
_CORNER: Final = 8
#: The height of a box with all its names in a line.
_ROW: Final = 52
_TITLE: Final = "One turn of an agent, in an overview"
_MADE: Final = "Made by `turnwright diagram` from the chart: edit the chart, not this file."


class _Place(NamedTuple):
    """The left upper corner of an area, and its size."""

    x: int
    y: int
    width: int
    height: int


class _Label(NamedTuple):
    """The first baseline of an arrow's words, and the characters of a line."""

    x: int
    y: int
    anchor: str = "start"
    columns: int = 60


class _Route(NamedTuple):
    """The corners of an arrow from its source to its destination, and the places of its words."""

    points: tuple[tuple[int, int], ...]
    label: _Label
    back_label: _Label | None = None


_PLACES: Final[Mapping[Area, _Place]] = {
    TURN: _Place(10, 36, 646, 622),
    STEPS: _Place(22, 48, 622, 472),
    CHECK: _Place(273, 64, 150, 52),
    STREAM: _Place(273, 168, 150, 52),
    TOOL_EXEC: _Place(273, 328, 150, 52),
    CONTINUE: _Place(273, 444, 150, 52),
    PAUSED: _Place(54, 244, 150, 52),
    COMPACT: _Place(482, 168, 154, 52),
    REVIEW: _Place(482, 248, 154, 52),
    LAST_REPLY: _Place(243, 580, 210, 52),
    ANSWERED: _Place(10, 706, 210, 70),
    LIMITED: _Place(243, 706, 210, 70),
    STOPPED: _Place(476, 706, 210, 70),
}
_ROUTES: Final[Mapping[tuple[Area, Area], _Route]] = {
    (CHECK, STREAM): _Route(((348, 116), (348, 168)), _Label(356, 146)),
    (STREAM, TOOL_EXEC): _Route(((348, 220), (348, 328)), _Label(340, 278, "end")),
    (TOOL_EXEC, CONTINUE): _Route(((348, 380), (348, 444)), _Label(340, 416, "end")),
    (CONTINUE, CHECK): _Route(((273, 470), (38, 470), (38, 78), (273, 78)), _Label(50, 488)),
    (STREAM, REVIEW): _Route(((398, 220), (398, 274), (482, 274)), _Label(406, 266)),
    (REVIEW, TOOL_EXEC): _Route(((530, 300), (530, 354), (423, 354)), _Label(431, 346)),
    (REVIEW, CONTINUE): _Route(((600, 300), (600, 470), (423, 470)), _Label(431, 462)),
    (STREAM, COMPACT): _Route(((423, 194), (482, 194)), _Label(452, 184, "middle"), _Label(452, 211, "middle")),
    (TOOL_EXEC, PAUSED): _Route(
        ((273, 354), (129, 354), (129, 296)), _Label(137, 316, columns=12), _Label(265, 372, "end")
    ),
    (CHECK, PAUSED): _Route(((273, 102), (129, 102), (129, 244)), _Label(137, 230), _Label(265, 120, "end")),
    (STEPS, LAST_REPLY): _Route(((348, 520), (348, 580)), _Label(356, 548, columns=34)),
    (TURN, TURN): _Route(((656, 586), (682, 586), (682, 626), (656, 626)), _Label(646, 602, "end", 16)),
    (TURN, ANSWERED): _Route(((115, 658), (115, 706)), _Label(123, 688)),
    (LAST_REPLY, LIMITED): _Route(((348, 632), (348, 706)), _Label(340, 688, "end")),
    (TURN, STOPPED): _Route(((581, 658), (581, 706)), _Label(573, 688, "end")),
}
#: The arrows of the loop are drawn bold.
_LOOP_ARROWS: Final = frozenset({(CHECK, STREAM), (STREAM, TOOL_EXEC), (TOOL_EXEC, CONTINUE), (CONTINUE, CHECK)})


def overview_to_svg(overview: Overview) -> str:
    """Return the text of an SVG file, the same for the same overview."""
    return "\n".join((*_head(overview), *_frames(), *_start(overview), *_content(overview), *_legend(), "</svg>", ""))


def _head(overview: Overview) -> Iterator[str]:
    yield f"<!-- {_MADE} -->"
    yield (
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="overview-title overview-description" '
        f'font-family="{_FONTS}" font-size="{_TEXT_SIZE}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}">'
    )
    yield f'<title id="overview-title">{_TITLE}</title>'
    sentences = " ".join(f"{arrow.rule.ends}: {arrow.rule.label}." for arrow in overview.arrows)
    yield f'<desc id="overview-description">{escape(sentences)}</desc>'
    yield "<defs>"
    for name, color in (("line", LINE), ("loop", LOOP)):
        yield (
            f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" '
            'markerUnits="userSpaceOnUse" orient="auto-start-reverse">'
            f'<path d="M0 1L10 5L0 9z" fill="{color}"/></marker>'
        )
    yield "</defs>"
    yield f'<rect width="100%" height="100%" rx="12" fill="{PAPER}"/>'


def _frames() -> Iterator[str]:
    for frame, fill, stroke in ((TURN, PAPER, QUIET), (STEPS, "#ffffff", RULE)):
        x, y, width, height = _PLACES[frame]
        yield f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="14" fill="{fill}" stroke="{stroke}"/>'
        # The corners that no arrow uses.
        yield _text(x + width - 10, y + (height - 10 if frame is TURN else 20), frame.words, DIM, "end")


def _start(overview: Overview) -> Iterator[str]:
    x, y, width, _ = _PLACES[overview.initial]
    x += width // 2
    yield f'<circle cx="{x}" cy="16" r="5" fill="{NAME}"/>'
    yield f'<path d="M{x} 21L{x} {y}" stroke="{LINE}" fill="none" marker-end="url(#line)"/>'


def _content(overview: Overview) -> Iterator[str]:
    for arrow in overview.arrows:
        yield from _arrow(arrow)
    for box, kind in overview.kinds.items():
        yield from _box(box, kind)


def _arrow(arrow: OverviewArrow) -> Iterator[str]:
    rule = arrow.rule
    pair = rule.source, rule.dest
    route = _ROUTES[pair]
    color, mark, width = (LOOP, "loop", 2.2) if pair in _LOOP_ARROWS else (LINE, "line", 1.2)
    start = f' marker-start="url(#{mark})"' if rule.back else ""
    yield f"<g><title>{rule.ends}: rows {number_ranges(arrow.numbers)}</title>"
    yield (
        f'<path d="{_path(route.points)}" fill="none" stroke="{color}" stroke-width="{width}"{start} '
        f'marker-end="url(#{mark})"/>'
    )
    yield from _wrap(rule.words, route.label)
    if route.back_label is not None:
        yield from _wrap(rule.back_words, route.back_label)
    yield "</g>"


def _box(box: Area, kind: NodeKind) -> Iterator[str]:
    (x, y, width, height), looks = _PLACES[box], LOOKS[kind]
    border = f' stroke-width="{1.6 if looks.thick else 1.2}"' + (' stroke-dasharray="5 3"' if looks.dashed else "")
    frame = f'fill="{looks.fill}" stroke="{looks.line}"{border}'
    yield f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="9" {frame}/>'
    if looks.double:
        yield f'<rect x="{x + 3}" y="{y + 3}" width="{width - 6}" height="{height - 6}" rx="6" {frame}/>'
    x, y = x + width // 2, y + 22
    for name in box.states if height > _ROW else (box.name,):
        yield f'<text x="{x}" y="{y}" text-anchor="middle" font-size="{_NAME_SIZE}" fill="{NAME}">{name}</text>'
        y += _LEADING + 1
    yield _text(x, y, box.words, DIM, "middle")


def _legend() -> Iterator[str]:
    x = 14
    for kind in NodeKind:
        looks = LOOKS[kind]
        dash = ' stroke-dasharray="4 2"' if looks.dashed else ""
        yield f'<rect x="{x}" y="795" width="20" height="14" rx="4" fill="{looks.fill}" stroke="{looks.line}"{dash}/>'
        yield _text(x + 27, 807, kind.means, INK)
        x += 38 + 7 * len(kind.means)


def _path(points: tuple[tuple[int, int], ...]) -> str:
    """Return the path through the points, with round corners."""
    parts = [f"M{points[0][0]} {points[0][1]}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        (x1, y1), (x2, y2) = _near(corner, before), _near(corner, after)
        parts.append(f"L{x1} {y1}Q{corner[0]} {corner[1]} {x2} {y2}")
    return "".join((*parts, f"L{points[-1][0]} {points[-1][1]}"))


def _near(corner: tuple[int, int], next_corner: tuple[int, int]) -> tuple[int, int]:
    """Return the point before a corner, on the line from the other point."""
    x, y = (end - start for start, end in zip(corner, next_corner, strict=True))
    return corner[0] + _CORNER * ((x > 0) - (x < 0)), corner[1] + _CORNER * ((y > 0) - (y < 0))


def _wrap(words: str, label: _Label) -> Iterator[str]:
    for number, line in enumerate(textwrap.wrap(words, label.columns)):
        yield _text(label.x, label.y + number * _LEADING, line, INK, label.anchor)


def _text(x: int, y: int, words: str, color: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{color}">{escape(words)}</text>'
