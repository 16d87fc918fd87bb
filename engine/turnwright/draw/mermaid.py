"""The picture in Mermaid, which code hosts draw by themselves.

Its layout cannot be told much: the states are declared in an order that keeps the labels apart, and nothing else is
tuned. The text after the colon of an arrow is free up to the end of the line, except for the characters of `_BREAKS`.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

from turnwright_states.state import State

from .edge_label import LabelRow, label_rows, note_rows
from .model import Arrow, NodeKind, Picture, TextLine
from .overlay import Overlay, OverlayKind, compact_count

_COLUMNS: Final = 18  # and the number before it
_NOTE_COLUMNS: Final = 60
#: Mermaid starts its search for few crossings from the order in which states are declared.
_ORDER: Final = (
    State.CHECK,
    State.STREAM,
    State.TOOL_EXEC,
    State.CONTINUE,
    State.CAP_HIT,
    State.PAUSED,
    State.ABORTED,
    State.CONCLUDE,
    State.TEXT_ONLY,
    State.FAILED,
    State.SYNTHESIS_DONE,
    State.DOOM_LOOP,
    State.FINISHED,
)
#: Characters that end a label, start a comment, or become an entity or a tag.
_BREAKS: Final = re.compile(r"[:;#%<>{}\"\n]")

_LOOKS: Final = {
    NodeKind.TRANSIENT: "fill:#ffffff,stroke:#64748b,color:#111827,stroke-dasharray:4",
    NodeKind.LIVE: "fill:#dbeafe,stroke:#2563eb,color:#111827",
    NodeKind.RESTING: "fill:#fef3c7,stroke:#b45309,color:#111827",
    NodeKind.FINAL: "fill:#e5e7eb,stroke:#374151,color:#111827,stroke-width:3px",
}
#: Beside the kinds, for an overlay: where its turn stands, and what it, or the tests, never reached. Arrows have no
#: classes in this language, so that the counts on them are all that tells them apart.
_HERE: Final = "here"
_UNREACHED: Final = "unreached"
_HERE_LOOKS: Final = "fill:#ffedd5,stroke:#c2410c,color:#111827,stroke-width:5px"
_UNREACHED_LOOKS: Final = {
    OverlayKind.TURN: "fill:#ffffff,stroke:#c3cdd9,color:#6f7d91",
    OverlayKind.COVERAGE: "fill:#fef0f0,stroke:#b91c1c,color:#b91c1c",
}


def to_mermaid(picture: Picture, overlay: Overlay | None = None) -> str:
    """The picture as the text of a Mermaid file, the same for the same picture and overlay."""
    return "\n".join((*_title(overlay), *_document(picture, overlay), ""))


def _title(overlay: Overlay | None) -> Iterator[str]:
    """The caption: its first line as the title, the others as comments, since a title is never broken."""
    if overlay is not None:
        title, *more = overlay.caption
        yield from ("---", f"title: {json.dumps(title)}", "---")
        yield from (f"%% {' '.join(line.split())}" for line in more)


def _document(picture: Picture, overlay: Overlay | None) -> Iterator[str]:
    yield "%% Made by `turnwright diagram` from the chart: edit the chart, not this file."
    yield "stateDiagram-v2"
    yield "    direction TB"
    for state in _ORDER:
        yield f"    {state}"
    for kind in NodeKind:
        yield f"    classDef {kind} {_LOOKS[kind]}"
    if overlay is not None:
        yield f"    classDef {_UNREACHED} {_UNREACHED_LOOKS[overlay.kind]}"
        yield f"    classDef {_HERE} {_HERE_LOOKS}"
    yield f"    [*] --> {picture.initial}"
    for arrow in picture.arrows:
        yield f"    {arrow.source} --> {arrow.dest} : {_label(arrow, overlay)}"
    if picture.stops:
        yield f"    note right of {picture.stops[-1].dest}"
        for row in note_rows(picture.stops, _NOTE_COLUMNS):
            yield from (f"        {line}" for line in _lines(row, ""))
        yield "    end note"
    reached = None if overlay is None else overlay.reached(picture)
    for node in picture.nodes:
        if overlay is not None and node.state is overlay.stands:
            yield f"    class {node.state} {_HERE}"
        elif reached is not None and node.state not in reached:
            yield f"    class {node.state} {_UNREACHED}"
        else:
            yield f"    class {node.state} {node.kind}"


def _label(arrow: Arrow, overlay: Overlay | None) -> str:
    rows = label_rows(arrow, _COLUMNS)
    return "<br/>".join(line for row in rows for line in _lines(row, _count(overlay, row.rows[0])))


def _lines(row: LabelRow, count: str) -> Iterator[str]:
    lines = [" ".join(word.text for word in words) for words in row.lines]
    lines[0] = f"{row.numbers} {lines[0]}"
    lines[-1] += count
    return (_BREAKS.sub(" ", line) for line in lines)


def _count(overlay: Overlay | None, line: TextLine) -> str:
    """How often the row was taken, to stand behind it; of a turn, only what it took."""
    if overlay is None:
        return ""
    count = overlay.of(line)
    if count:
        return f" (taken {compact_count(count)}x)"
    return " (NEVER TAKEN)" if overlay.kind is OverlayKind.COVERAGE else ""
