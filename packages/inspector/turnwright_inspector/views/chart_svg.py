"""The committed drawing of the chart, split into parts so that a turn's path can be highlighted.

Graphviz names what it draws: a state by its name, the card of an arrow `STREAM to FAILED`, and the two halves of the
arrow `STREAM->STREAM to FAILED` and `STREAM to FAILED->FAILED`. Each gets the numbers of its rows in the chart. Colors
stay as they are drawn; the style sheet gives them those of the theme.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from markupsafe import Markup

from turnwright_proof.draw import NodeKind, extract
from turnwright_states import State

#: The drawing of every row.
FILE: Final = Path(__file__).parents[1] / "static" / "turn-full.svg"

_NAMESPACE: Final = re.compile(r"^\{[^}]*\}")
_POINT: Final = re.compile(r"(-?[\d.]+),(-?[\d.]+)")
#: A card numbers its rows in this size, and nothing else.
_NUMBER_SIZE: Final = "10.00"
#: How far above and below the baseline of its text the ground of a row reaches.
_ABOVE, _BELOW = 10.6, 3.6


@dataclass(frozen=True, slots=True)
class Lit:
    """The highlighted parts: the count of each row, the rows of the chosen step, and the turn's state.

    `chosen` is None without a chosen step. `ended` is whether that state is final.
    """

    counts: Mapping[int, int]
    chosen: Collection[int] | None
    stands: State
    ended: bool


def chart_svg(lit: Lit, address: Callable[[State], str]) -> Markup:
    """Return the drawing of the chart with a turn's rows highlighted, for a page. A state leads to its `address`."""
    return highlight_path(deepcopy(_drawing()), lit, address, "is-full")


def highlight_path(root: ET.Element, lit: Lit, address: Callable[[State], str], kind: str) -> Markup:
    """Highlight what the turn took of a drawing, and return it as the text of a page."""
    root.set("class", f"chart-picture {kind}" + (" has-chosen" if lit.chosen is not None else ""))
    counts = [count for element in list(root.iter("g")) if (count := _light(element, lit, address)) is not None]
    # Above all else: what is drawn later lies on top.
    ET.SubElement(root, "g").extend(counts)
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704 (our own drawing: nothing in it came from a turn)


def _light(element: ET.Element, lit: Lit, address: Callable[[State], str]) -> ET.Element | None:
    """Highlight an element if the turn took one of its rows. Returns the counts of a card."""
    rows = [int(number) for number in element.get("data-rows", "").split()]
    count = sum(lit.counts.get(row, 0) for row in rows)
    classes = element.get("class", "").split()
    state = element.get("data-state")
    here = state == lit.stands
    if count or here:
        classes.append("taken")
    if lit.chosen is not None and set(rows) & set(lit.chosen):
        classes.append("chosen")
    if here:
        classes += ["here", "ended"] if lit.ended else ["here"]
    element.set("class", " ".join(classes))
    if (count or here) and ("card" in classes or state is not None):
        element.set("aria-label", _words(element, count, here=here, ended=lit.ended))
        if state is not None:
            element.tag = "a"
            element.set("href", address(State(state)))
        else:
            element.set("tabindex", "0")
            element.set("role", "img")
    return _draw_count(element, count) if "card" in classes and count else None


def _words(element: ET.Element, count: int, *, here: bool, ended: bool) -> str:
    if "data-state" in element.attrib:
        standing = (" The turn ended here." if ended else " The turn is here.") if here else ""
        return f"Facts in {element.get('data-state')}.{standing}"
    return f"{element.get('data-from')} to {element.get('data-to')}, taken {count} times"


def _draw_count(card: ET.Element, count: int) -> ET.Element:
    """A count for the card's corner."""
    _, top, right, _ = _box(card)
    text = f"{count}×"  # noqa: RUF001 (the sign of multiplication is meant)
    width = 9 + 6.2 * len(text)
    mark = ET.Element("g", {"class": "times", "aria-hidden": "true"})
    left = right - width / 2
    place = {"x": f"{left:g}", "y": f"{top - 13:g}", "width": f"{width:g}", "height": "16", "rx": "8"}
    ET.SubElement(mark, "rect", place)
    middle = {"x": f"{right:g}", "y": f"{top - 1.4:g}", "text-anchor": "middle", "font-size": "10"}
    ET.SubElement(mark, "text", middle).text = text
    return mark


@cache
def _drawing() -> ET.Element:
    """The drawing with classes and row numbers, as each turn's begins."""
    root = ET.parse(FILE).getroot()  # noqa: S314 (our own file)
    for element in root.iter():
        element.tag = _NAMESPACE.sub("", element.tag)
        element.tail = None
        if "id" in element.attrib:
            element.set("id", f"chart-{element.get('id')}")
    # A picture with parts that can be reached by keyboard is a group to a screen reader.
    root.set("role", "group")
    root.set("aria-labelledby", "chart-turn-title")
    _child(root, "title").text = "The chart, with the path of the turn highlighted"
    _child(root, "rect").set("class", "paper")
    for element in root.iter("g"):
        title = element.find("title")
        if title is not None and element.get("class") in ("node", "edge"):
            _name(element, title.text or "")
            element.remove(title)
    graph = _child(root, "g")
    graph.remove(_child(graph, "title"))
    return root


def _name(element: ET.Element, name: str) -> None:
    """Give an element its accessible name."""
    if name in State.__members__:
        state = State[name]
        at_state = (arrow.lines for arrow in extract().arrows if state in (arrow.source, arrow.dest))
        numbers = [line.number for lines in at_state for line in lines]
        kind = next(node.kind for node in extract().nodes if node.state is state)
        element.set("class", f"state {_KINDS[kind]}" + (f" is-{state.outcome}" if state.outcome else ""))
        element.set("data-state", state)
    elif " to " in name:
        source, _, dest = _card_of(name).partition(" to ")
        (lines,) = (arrow.lines for arrow in extract().arrows if (arrow.source, arrow.dest) == (source, dest))
        numbers = [line.number for line in lines]
        element.set("data-from", source)
        element.set("data-to", dest)
        if "->" in name:
            element.set("class", "arrow")
            _widen(element)
        else:
            element.set("class", "card")
            _set_rows(element, numbers)
    else:
        element.set("class", "start")
        return
    element.set("data-rows", " ".join(map(str, sorted(numbers))))


_KINDS: Final = {kind: f"kind-{kind}" for kind in NodeKind}


def _card_of(name: str) -> str:
    return next(part for part in name.split("->") if " to " in part)


def _widen(arrow: ET.Element) -> None:
    """Cover an arrow's path with a wide invisible one: a thin one is hard to point at."""
    path = _child(arrow, "path")
    ET.SubElement(arrow, "path", {"class": "reach", "d": path.get("d", ""), "fill": "none"})


def _set_rows(card: ET.Element, rows: Sequence[int]) -> None:
    """Put the text of each row of a card into a group that can be highlighted."""
    left, _, right, _ = _box(card)
    ground, *texts, border = card.findall("path")[:1] + card.findall("text") + card.findall("path")[1:]
    for text in texts:
        card.remove(text)
    card.remove(border)
    heading, *groups = _by_row(texts)
    card.extend(heading)
    for number, texts in zip(rows, groups, strict=True):
        row = {"class": "line-of-card", "data-rows": str(number), "id": f"chart-row-{number}"}
        group = ET.SubElement(card, "g", row)
        heights = [float(text.get("y", "0")) for text in texts]
        top, low = min(heights) - _ABOVE, max(heights) + _BELOW
        place = {"x": f"{left + 1:g}", "y": f"{top:g}", "width": f"{right - left - 2:g}", "height": f"{low - top:g}"}
        ET.SubElement(group, "rect", {"class": "ground", "rx": "3", **place})
        group.extend(texts)
    ground.set("class", "card-ground")
    border.set("class", "card-border")
    card.append(border)


def _by_row(texts: Sequence[ET.Element]) -> Iterator[list[ET.Element]]:
    """The texts before the first number, then those of each row."""
    row: list[ET.Element] = []
    for text in texts:
        if text.get("font-size") == _NUMBER_SIZE:
            yield row
            row = []
        row.append(text)
    yield row


def _box(element: ET.Element) -> tuple[float, float, float, float]:
    """Return the left, top, right and bottom edge of an element's first path."""
    points = [(float(x), float(y)) for x, y in _POINT.findall(_child(element, "path").get("d", ""))]
    return min(x for x, _ in points), min(y for _, y in points), max(x for x, _ in points), max(y for _, y in points)


def _child(element: ET.Element, tag: str) -> ET.Element:
    child = element.find(tag)
    if child is None:
        raise ValueError(
            f"the drawing of the chart: a {element.tag} has no {tag}: draw it anew with `turnwright diagram`"
        )
    return child
