"""The picture in DOT, the language of Graphviz.

Every arrow runs through a card: a node that holds the arrow's rows. Labels of edges would say the same, but Graphviz
lets other lines run through them and places most of them side by side; as nodes they are never covered, and the
picture fits the width of a page. Source: DESIGN 2 (guards printed as words), EXAMPLES 15.
"""

import textwrap
from collections.abc import Iterator
from html import escape
from itertools import groupby
from typing import Final

from .card import Part, Word, card_lines
from .hints import HINTS, Hints
from .model import Arrow, Kind, Node, Picture

FONT: Final = "Arial"
PAPER: Final = "#f8fafc"
_INK, _DIM, _REASON, _RULE = "#1f2937", "#5b6678", "#9a3412", "#dbe2ea"
_LINE, _QUIET, _LOOP = "#475569", "#8a97a8", "#1d4ed8"
_NAME, _TEXT, _NUMBER = 13, 11, 10

_LOOKS: Final = {
    Kind.TRANSIENT: 'style="rounded,filled,dashed" fillcolor="#ffffff" color="#64748b"',
    Kind.LIVE: 'style="rounded,filled" fillcolor="#dbeafe" color="#2563eb"',
    Kind.RESTING: 'style="rounded,filled" fillcolor="#fef3c7" color="#b45309" penwidth=1.6',
    Kind.FINAL: 'style="rounded,filled" fillcolor="#e5e7eb" color="#374151" peripheries=2',
}
#: The same looks for the cells of the legend, whose language has other words for them.
_SWATCHES: Final = {
    Kind.TRANSIENT: 'BORDER="1" STYLE="ROUNDED,DASHED" BGCOLOR="#ffffff" COLOR="#64748b"',
    Kind.LIVE: 'BORDER="1" STYLE="ROUNDED" BGCOLOR="#dbeafe" COLOR="#2563eb"',
    Kind.RESTING: 'BORDER="1" STYLE="ROUNDED" BGCOLOR="#fef3c7" COLOR="#b45309"',
    Kind.FINAL: 'BORDER="2" STYLE="ROUNDED" BGCOLOR="#e5e7eb" COLOR="#374151"',
}
_HOW_TO_READ: Final = (
    "A line on a card is a row of the chart: number, event [guard] / reason. An event is not said twice on a card.",
    "The rows of a state are tried in the order of their numbers. The loop of a step is drawn bold.",
)


def to_dot(picture: Picture, hints: Hints = HINTS) -> str:
    """The picture as the text of a DOT file, the same for the same picture and hints."""
    return "\n".join(
        (
            "// Made by `turnwright diagram --write` from the chart: edit the chart, not this file.",
            "digraph turn {",
            *_indented(_document(picture, hints)),
            "}",
            "",
        )
    )


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _document(picture: Picture, hints: Hints) -> Iterator[str]:
    yield f'graph [newrank=true nodesep=0.07 ranksep=0.17 pad=0.15 bgcolor="{PAPER}" fontname="{FONT}" labelloc=b]'
    yield f"graph [label={_legend()}]"
    yield f'node [shape=box fontname="{FONT}" fontsize={_NAME} fontcolor="#111827"]'
    yield 'node [width=1.15 height=0.42 margin="0.1,0.05"]'
    yield f'edge [color="{_LINE}" arrowsize=0.65]'
    yield 'start [shape=point width=0.13 color="#111827"]'
    for node in picture.nodes:
        yield f"{node.state} [label={_name(node)} {_LOOKS[node.kind]}]"
    yield from _sides(picture, hints)
    yield f"start -> {picture.initial} [weight=100]"
    for arrow in picture.arrows:
        yield from _arrow(arrow, hints)


def _sides(picture: Picture, hints: Hints) -> Iterator[str]:
    final = {node.state for node in picture.nodes if node.kind is Kind.FINAL}
    for side in hints.sides:
        rank = "max" if final.issuperset(side) else "same"
        yield f"{{ rank={rank}; edge [style=invis]; {' -> '.join(side)} }}"


def _arrow(arrow: Arrow, hints: Hints) -> Iterator[str]:
    source, dest = pair = (arrow.source, arrow.dest)
    card = f'"{source} to {dest}"'
    color = f' color="{_QUIET}"' if arrow.stops else f' color="{_LOOP}" penwidth=2' if hints.looping(pair) else ""
    before, after = (1 + more for more in hints.stretch.get(pair, (0, 0)))
    if source == dest:
        yield f"{{ rank=same; {source}; {card} }}"
        before = after = 4
    weight = " weight=100" if hints.straight(pair) else ""
    yield f"{card} [shape=plain label={_card(arrow, hints.wide.get(pair, hints.columns))}]"
    yield f"{source} -> {card} [dir=none minlen={before}{weight}{color}]"
    yield f"{card} -> {dest} [minlen={after}{weight}{color}]"


def _name(node: Node) -> str:
    """A state's name; below that of a final one, the reasons with which a turn may end there."""
    if not node.reasons:
        return f'"{node.state}"'
    reasons = textwrap.wrap(", ".join(node.reasons), width=17)
    rows = (node.state, *(_font(reason, _REASON, _TEXT) for reason in reasons))
    return _table("".join(f"<TR><TD>{row}</TD></TR>" for row in rows), 'BORDER="0" CELLPADDING="0"')


def _card(arrow: Arrow, columns: int) -> str:
    ink = _DIM if arrow.stops else _INK
    rows = "".join(
        f'<TR><TD WIDTH="1"></TD><TD ALIGN="RIGHT">{"" if number is None else _font(str(number), _DIM, _NUMBER)}</TD>'
        f'<TD WIDTH="1"></TD><TD ALIGN="LEFT">{_font(_set(words, quiet=arrow.stops), ink, _TEXT)}</TD>'
        '<TD WIDTH="4"></TD></TR>'
        for number, words in card_lines(arrow, columns)
    )
    return _table(rows, f'BORDER="1" STYLE="ROUNDED" COLOR="{_RULE}" BGCOLOR="#ffffff" CELLPADDING="1"')


def _set(words: tuple[Word, ...], *, quiet: bool) -> str:
    runs = [
        (part, escape(" ".join(word.text for word in run))) for part, run in groupby(words, key=lambda word: word.part)
    ]
    # Graphviz drops a plain space at the edge of a tag.
    spaced = [(part, text if place == len(runs) else f"{text}&#160;") for place, (part, text) in enumerate(runs, 1)]
    return "".join(_tagged(part, text, quiet=quiet) for part, text in spaced)


def _tagged(part: Part, text: str, *, quiet: bool) -> str:
    match part:
        case Part.EVENT:
            return text if quiet else f"<B>{text}</B>"
        case Part.GUARD:
            return text
        case Part.REASON:
            return f'<FONT COLOR="{_REASON}">{text}</FONT>'


def _font(text: str, color: str, size: int) -> str:
    return f'<FONT COLOR="{color}" POINT-SIZE="{size}">{text}</FONT>'


def _table(rows: str, attributes: str) -> str:
    return f'<<TABLE CELLBORDER="0" CELLSPACING="0" {attributes}>{rows}</TABLE>>'


def _legend() -> str:
    kinds = "".join(
        f'<TD {_SWATCHES[kind]} CELLPADDING="3">{_font(kind, _INK, _TEXT)}</TD>'
        f'<TD ALIGN="LEFT">{_font(kind.means, _INK, _TEXT)}</TD><TD WIDTH="6"></TD>'
        for kind in Kind
    )
    reading = "".join(
        f'<TR><TD COLSPAN="{3 * len(Kind)}" ALIGN="LEFT">{_font(line, _INK, _TEXT)}</TD></TR>' for line in _HOW_TO_READ
    )
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="4" CELLPADDING="1"><TR>{kinds}</TR>{reading}</TABLE>>'
