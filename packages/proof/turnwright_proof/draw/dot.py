"""The picture in DOT, the language of Graphviz.

Every arrow runs through a card: a node that holds the arrow's rows. Graphviz draws other lines over the labels of
edges, and places most of these labels side by side. Nodes are never covered, so the picture fits the width of a page.
Lines are horizontal and vertical, because curves between so many cards cannot be followed.
"""

from collections.abc import Iterator
from typing import Final

from .labels import NAME_SIZE, arrow_label, name_label, note_label, picture_label
from .layout_hints import COUNTED, HINTS, REVIEW, ArrowHint, LayoutHints
from .model import Arrow, NodeKind, Picture
from .overlay import Overlay
from .style import NAME, PAPER, QUIET, Style, style_of

FONT: Final = "Arial"
_MADE: Final = "// Made by `turnwright diagram` from the chart: edit the chart, not this file."


def to_dot(picture: Picture, hints: LayoutHints | None = None, *, overlay: Overlay | None = None) -> str:
    """Return the text of a DOT file, the same for the same picture, hints and overlay."""
    hints = hints or (REVIEW if picture.folded else HINTS if overlay is None else COUNTED)
    lines = _document(style_of(picture, hints, overlay), hints)
    return "\n".join((_MADE, "digraph turn {", *(f"  {line}" for line in lines), "}", ""))


def _document(style: Style, hints: LayoutHints) -> Iterator[str]:
    # A caption is read before the picture, and a legend after it.
    side = "t" if style.caption else "b"
    yield "graph [splines=ortho newrank=true]"
    yield f'graph [nodesep=0.07 ranksep=0.17 pad=0.15 bgcolor="{PAPER}" fontname="{FONT}" labelloc={side}]'
    yield f"graph [label={picture_label(style)}]"
    yield f'node [shape=box fontname="{FONT}" fontsize={NAME_SIZE}]'
    yield 'node [width=1.15 height=0.42 margin="0.1,0.05"]'
    yield "edge [arrowsize=0.65]"
    yield f'start [shape=point width=0.13 color="{NAME}"]'
    for node in style.picture.nodes:
        yield f"{node.state} [label={name_label(node, style.name(node))} {style.node(node)}]"
    yield from _sides(style.picture, hints)
    yield f"start -> {style.picture.initial} [weight=100 {style.start}]"
    # Graphviz lays out what it reads first as the straight line.
    for arrow in sorted(
        style.picture.arrows, key=lambda arrow_to_sort: not hints.straight((arrow_to_sort.source, arrow_to_sort.dest))
    ):
        yield from _arrow(arrow, style, hints)
    if style.picture.folded:
        yield from _note(style.picture, hints)


def _note(picture: Picture, hints: LayoutHints) -> Iterator[str]:
    """Yield the note, with a line to each state that only its rows reach."""
    yield f"note [shape=plain label={note_label(picture.folded, hints.note)}]"
    reached_states = {arrow.dest for arrow in picture.arrows}
    for dest in dict.fromkeys(rows.dest for rows in picture.folded if rows.dest and rows.dest not in reached_states):
        yield f'note -> {dest} [color="{QUIET}"]'


def _sides(picture: Picture, hints: LayoutHints) -> Iterator[str]:
    final = {node.state for node in picture.nodes if node.kind is NodeKind.FINAL}
    drawn_states = {node.state for node in picture.nodes}
    for states in hints.sides:
        side = [state for state in states if state in drawn_states]
        if not side:
            continue
        rank = "max" if final.issuperset(side) else "same"
        yield f"{{ rank={rank}; edge [style=invis]; {' -> '.join(side)} }}"


def _arrow(arrow: Arrow, style: Style, hints: LayoutHints) -> Iterator[str]:
    source, dest = pair = (arrow.source, arrow.dest)
    card = f'"{source} to {dest}"'
    hint = hints.arrows.get(pair, ArrowHint())
    before, after = 1 + hint.before, 1 + hint.after
    if source == dest:
        yield f"{{ rank=same; {source}; {card} }}"
        before = after = 4
    looks = f"weight=100 {style.edge(arrow)}" if hints.straight(pair) else style.edge(arrow)
    yield f"{card} [shape=plain label={arrow_label(arrow, style, hint.columns or hints.columns)}]"
    yield f"{source} -> {card} [dir=none minlen={before} {looks}]"
    yield f"{card} -> {dest} [minlen={after} {looks}]"
