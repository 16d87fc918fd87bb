"""The path of a turn through the chart: the states and rows that it takes, in the size of other text, and no others.

States are below each other, in the chart's order. A row to the next state goes straight down. A row that skips states
goes around them on the right, a row that leads back on the left, each in a lane that has its card. So nothing covers
anything else, and the picture is the same at every place of the turn.
"""

import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final
from xml.etree import ElementTree as ET

from markupsafe import Markup

from turnwright_proof.draw import TextLine, extract
from turnwright_proof.draw.style import LOOKS
from turnwright_states import State

from .chart_svg import Lit, highlight_path

#: Sizes in pixels: of a state, a card and its lines, and of the room between them.
_WIDE, _HIGH = 136.0, 34.0
_CARD: Final = 160.0
_LANE: Final = _CARD + 16.0
_LINE, _PAD, _NUMBER = 15.0, 6.0, 24.0
_ROOM, _ROUND, _HEAD, _MARGIN = 14.0, 8.0, 9.0, 14.0
#: The most characters of a line of a card.
_CHARACTERS: Final = 20
_KINDS: Final = {node.state: node.kind for node in extract().nodes}


def path_svg(lit: Lit, rows: Collection[int], address: Callable[[State], str]) -> Markup:
    """Return a drawing of these rows, by number, with those of `lit` highlighted. A state leads to its `address`."""
    drawing = _Drawing.of(lit.stands, rows)
    width, height = f"{drawing.width:g}", f"{drawing.height:g}"
    root = ET.Element("svg", {"width": width, "height": height, "viewBox": f"0 0 {width} {height}"})
    root.set("role", "group")
    root.set("aria-label", "The chart, with the path of the turn")
    root.extend(map(drawing.arrow, drawing.arcs))
    root.extend(map(drawing.state, range(len(drawing.states))))
    root.extend(map(drawing.card, drawing.arcs))
    return highlight_path(root, lit, address, "is-path")


@dataclass(slots=True)
class _Arc:
    """The rows from one state to another, by the places of both among the drawn ones.

    `side` is -1 on the left, 1 on the right, and 0 for the next state. `track` counts the lanes of a side from the
    middle, from 1.
    """

    source: int
    dest: int
    lines: Sequence[TextLine]
    side: int = 0
    track: int = 1

    @property
    def height(self) -> float:
        return 2 * _PAD + _LINE * sum(len(_words(line)) for line in self.lines)

    @property
    def gap(self) -> int:
        """The state below which the card is: beside the source."""
        return self.source - 1 if self.dest < self.source else self.source

    def overlaps(self, second: "_Arc") -> bool:
        low, high = sorted((self.source, self.dest))
        first, last = sorted((second.source, second.dest))
        return self.side == second.side and low < last and first < high


@dataclass
class _Drawing:
    states: Sequence[State]
    arcs: Sequence[_Arc]
    middles: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, stands: State, rows: Collection[int]) -> "_Drawing":
        arrows = [
            (arrow.source, arrow.dest, lines)
            for arrow in extract().arrows
            if (lines := [line for line in arrow.lines if line.number in rows])
        ]
        shown_states = {stands, *(state for source, dest, _ in arrows for state in (source, dest))}
        states = [state for state in State if state in shown_states]
        arcs = [_Arc(states.index(source), states.index(dest), lines) for source, dest, lines in arrows]
        _take_sides(arcs)
        drawing = cls(states, arcs)
        y = _MARGIN
        for place in range(len(states)):
            band = max([_HIGH, *(arc.height for arc in arcs if arc.source == arc.dest == place)])
            drawing.middles.append(y + band / 2)
            cards = [arc.height + 2 * _ROOM for arc in arcs if arc.source != arc.dest and arc.gap == place]
            y += band + max([_HIGH, *cards])
        return drawing

    @cached_property
    def center(self) -> float:
        return self._half(-1)

    @property
    def width(self) -> float:
        return self.center + self._half(1)

    @property
    def height(self) -> float:
        last = len(self.states) - 1
        loops = [arc.height for arc in self.arcs if arc.source == arc.dest == last]
        return self.middles[-1] + max([_HIGH, *loops]) / 2 + _MARGIN

    def _half(self, side: int) -> float:
        return _CARD / 2 + _MARGIN + _LANE * max((arc.track for arc in self.arcs if arc.side == side), default=0)

    def _lane(self, arc: _Arc) -> float:
        return self.center + arc.side * arc.track * _LANE

    def _port(self, arc: _Arc, place: int) -> float:
        """Return the place on a state's side where an arc meets it.

        Arcs from above are before those from below, and none crosses another.
        """
        if arc.source == arc.dest:
            return self.middles[place] - _HIGH / 4

        def order(other_arc: _Arc) -> tuple[bool, int]:
            below = max(other_arc.source, other_arc.dest) > place
            return below, -other_arc.track if below else other_arc.track

        ends = (
            other_arc
            for other_arc in self.arcs
            if other_arc.side == arc.side and (other_arc.source == place) != (other_arc.dest == place)
        )
        ports = sorted(ends, key=order)
        return self.middles[place] - _HIGH / 2 + _HIGH * (ports.index(arc) + 1) / (len(ports) + 1)

    def arrow(self, arc: _Arc) -> ET.Element:
        group = self._group("arrow", arc)
        edge = self.center + arc.side * _WIDE / 2
        start, end = self._port(arc, arc.source), self._port(arc, arc.dest)
        if not arc.side:
            top, low = self.middles[arc.source] + _HIGH / 2, self.middles[arc.dest] - _HIGH / 2
            d = f"M{edge:g},{top:g} L{edge:g},{low - _HEAD:g}"
            head = [(edge, low), (edge - _HEAD / 2, low - _HEAD), (edge + _HEAD / 2, low - _HEAD)]
        else:
            if arc.source == arc.dest:
                end = start + _HIGH / 2
            lane, down = self._lane(arc), _ROUND if end > start else -_ROUND
            near, tip = lane - arc.side * _ROUND, edge + arc.side * _HEAD
            d = (
                f"M{edge:g},{start:g} L{near:g},{start:g} Q{lane:g},{start:g} {lane:g},{start + down:g}"
                f" L{lane:g},{end - down:g} Q{lane:g},{end:g} {near:g},{end:g} L{tip:g},{end:g}"
            )
            head = [(edge, end), (tip, end - _HEAD / 2), (tip, end + _HEAD / 2)]
        ET.SubElement(group, "path", {"d": d, "fill": "none"})
        ET.SubElement(group, "polygon", {"points": " ".join(f"{x:g},{y:g}" for x, y in head)})
        ET.SubElement(group, "path", {"class": "reach", "d": d, "fill": "none"})
        return group

    def state(self, place: int) -> ET.Element:
        state, y = self.states[place], self.middles[place]
        kind = _KINDS[state]
        touching = sorted(line.number for arc in self.arcs if place in (arc.source, arc.dest) for line in arc.lines)
        outcome = f" is-{state.outcome}" if state.outcome else ""
        group = ET.Element("g", {"class": f"state kind-{kind}{outcome}", "id": f"path-{state}", "data-state": state})
        group.set("data-rows", " ".join(map(str, touching)))
        # The colors of the drawn chart, to which the style sheet gives those of the theme.
        looks = LOOKS[kind]
        box = _box(self.center - _WIDE / 2, y - _HIGH / 2, _WIDE, _HIGH)
        shape = {"d": box, "fill": looks.fill, "stroke": looks.line}
        ET.SubElement(group, "path", shape | ({"stroke-dasharray": "4 2"} if looks.dashed else {}))
        _text(group, self.center, y + 4, str(state), "#111827", **{"text-anchor": "middle"})
        return group

    def card(self, arc: _Arc) -> ET.Element:
        group = self._group("card", arc)
        left = (self._lane(arc) if arc.side else self.center) - _CARD / 2
        y = self.middles[arc.source] - arc.height / 2
        if arc.source != arc.dest:
            above, below = self.middles[arc.gap] + _HIGH / 2, self.middles[arc.gap + 1] - _HIGH / 2
            y = (above + below - arc.height) / 2
        box = _box(left, y, _CARD, arc.height)
        ET.SubElement(group, "path", {"class": "card-ground", "d": box, "fill": "#ffffff"})
        y += _PAD
        for line in arc.lines:
            words = _words(line)
            row = {"class": "line-of-card", "data-rows": str(line.number), "id": f"path-row-{line.number}"}
            part = ET.SubElement(group, "g", row)
            place = {
                "x": f"{left + 1:g}",
                "y": f"{y:g}",
                "width": f"{_CARD - 2:g}",
                "height": f"{_LINE * len(words):g}",
            }
            ET.SubElement(part, "rect", {"class": "ground", "rx": "3", **place})
            _text(part, left + 5, y + 11, str(line.number), "#5b6678", **{"font-size": "10"})
            for text, color in words:
                bold = {"font-weight": "600"} if color == "#1f2937" else {}
                _text(part, left + _NUMBER, y + 11, text, color, **bold)
                y += _LINE
        ET.SubElement(group, "path", {"class": "card-border", "d": box, "fill": "none"})
        return group

    def _group(self, kind: str, arc: _Arc) -> ET.Element:
        source, dest = self.states[arc.source], self.states[arc.dest]
        group = ET.Element("g", {"class": kind, "id": f"path-{kind}-{source}-{dest}"})
        group.set("data-from", source)
        group.set("data-to", dest)
        group.set("data-rows", " ".join(str(line.number) for line in arc.lines))
        return group


def _take_sides(arcs: Sequence[_Arc]) -> None:
    """Give each arc its side and its lane: an arc is outside those that it goes around."""
    for arc in arcs:
        if arc.source != arc.dest:
            arc.side = -1 if arc.dest < arc.source else int(arc.dest > arc.source + 1)
    for arc in arcs:
        if arc.source == arc.dest:
            right = any(
                second.side > 0 and arc.source in (second.source, second.dest) for second in arcs if second is not arc
            )
            arc.side = -1 if right else 1
    placed_arcs: list[_Arc] = []
    for arc in sorted((second for second in arcs if second.side), key=lambda second: abs(second.source - second.dest)):
        arc.track = 1 + max((second.track for second in placed_arcs if arc.overlaps(second)), default=0)
        placed_arcs.append(arc)


def _words(line: TextLine) -> list[tuple[str, str]]:
    """The lines of a row on its card, each with its color."""
    guard = "" if line.guard in ("", "otherwise") else f"[{line.guard}]"
    return [
        (line.event.replace("_", " "), "#1f2937"),
        *((text, "#374151") for text in textwrap.wrap(guard, _CHARACTERS)),
        *((text, "#9a3412") for text in textwrap.wrap(f"/ {line.reason}" if line.reason else "", _CHARACTERS)),
    ]


def _box(left: float, top: float, width: float, height: float) -> str:
    """The path of a box with round corners."""
    right, low, r = left + width, top + height, 6.0
    return (
        f"M{left + r:g},{top:g} L{right - r:g},{top:g} Q{right:g},{top:g} {right:g},{top + r:g} L{right:g},{low - r:g}"
        f" Q{right:g},{low:g} {right - r:g},{low:g} L{left + r:g},{low:g} Q{left:g},{low:g} {left:g},{low - r:g}"
        f" L{left:g},{top + r:g} Q{left:g},{top:g} {left + r:g},{top:g} Z"
    )


def _text(group: ET.Element, x: float, y: float, text: str, color: str, **attributes: str) -> None:
    ET.SubElement(
        group, "text", {"x": f"{x:g}", "y": f"{y:g}", "fill": color, "font-size": "12", **attributes}
    ).text = text
