"""The picture in Mermaid, which code hosts draw by themselves.

Mermaid accepts few layout hints, so only the order of the states is tuned: it keeps the labels apart. The text after
an arrow's colon may be anything except the characters of `_BREAKS`.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

from turnwright_states.state import State

from .edge_label import LabelRow, label_rows, note_rows
from .model import Arrow, NodeKind, Picture, TextLine
from .overlay import Overlay, OverlayKind, compact_count
from .style import FADED, FADED_LINE, HERE, LOOKS, NAME, NEVER, NEVER_ROW

_COLUMNS: Final = 18  # and the number before it
_NOTE_COLUMNS: Final = 60
#: Mermaid starts its search for few crossings from the order in which states are declared.
_ORDER: Final = (
    State.CHECK,
    State.STREAM,
    State.COMPACT,
    State.REVIEW,
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

#: An overlay adds two classes to those of the kinds: the turn's current state, and the states that were never reached.
#: Arrows have no classes in Mermaid, so only their counts show which were taken.
_HERE: Final = "here"
_UNREACHED: Final = "unreached"
_HERE_LOOKS: Final = f"fill:#ffedd5,stroke:{HERE},color:{NAME},stroke-width:5px"
_UNREACHED_LOOKS: Final = {
    OverlayKind.TURN: f"fill:#ffffff,stroke:{FADED_LINE},color:{FADED}",
    OverlayKind.COVERAGE: f"fill:{NEVER_ROW},stroke:{NEVER},color:{NEVER}",
}


def to_mermaid(picture: Picture, overlay: Overlay | None = None) -> str:
    """Return the text of a Mermaid file, the same for the same picture and overlay."""
    return "\n".join((*_title(overlay), *_document(picture, overlay), ""))


def _title(overlay: Overlay | None) -> Iterator[str]:
    """Yield the caption: its first line as the title, the others as comments, because a title cannot be wrapped."""
    if overlay is not None:
        title, *more_lines = overlay.caption
        yield from ("---", f"title: {json.dumps(title)}", "---")
        yield from (f"%% {' '.join(line.split())}" for line in more_lines)


def _document(picture: Picture, overlay: Overlay | None) -> Iterator[str]:
    yield "%% Made by `turnwright diagram` from the chart: edit the chart, not this file."
    yield "stateDiagram-v2"
    yield "    direction TB"
    yield from (f"    %% {line}" for line in picture.defaults.splitlines())
    drawn_states = {node.state for node in picture.nodes}
    yield from (f"    {state}" for state in _ORDER if state in drawn_states)
    for kind in NodeKind:
        yield f"    classDef {kind} {LOOKS[kind].mermaid}"
    if overlay is not None:
        yield f"    classDef {_UNREACHED} {_UNREACHED_LOOKS[overlay.kind]}"
        yield f"    classDef {_HERE} {_HERE_LOOKS}"
    yield f"    [*] --> {picture.initial}"
    for arrow in picture.arrows:
        yield f"    {arrow.source} --> {arrow.dest} : {_label(arrow, overlay)}"
    if picture.folded:
        yield f"    note right of {State.ABORTED}"
        for row in note_rows(picture.folded, _NOTE_COLUMNS):
            yield from (f"        {line}" for line in _lines(row, ""))
        yield "    end note"
    reached_states = None if overlay is None else overlay.reached(picture)
    for node in picture.nodes:
        if overlay is not None and node.state is overlay.stands:
            yield f"    class {node.state} {_HERE}"
        elif reached_states is not None and node.state not in reached_states:
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
    return map(mermaid_text, lines)


def mermaid_text(text: str) -> str:
    """Return a text without the characters that end a label, start a comment, or become an entity or a tag."""
    return _BREAKS.sub(" ", text)


def _count(overlay: Overlay | None, line: TextLine) -> str:
    """Return the count behind a row. For a turn, rows that it did not take have none."""
    if overlay is None:
        return ""
    count = overlay.of(line)
    if count:
        return f" (taken {compact_count(count)}x)"
    return " (NEVER TAKEN)" if overlay.kind is OverlayKind.COVERAGE else ""
