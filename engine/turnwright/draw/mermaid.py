"""The picture in Mermaid, which code hosts draw by themselves.

Its layout cannot be told much: the states are declared in an order that keeps the labels apart, and nothing else is
tuned. The text after the colon of an arrow is free up to the end of the line, except for the characters of `_BREAKS`.
"""

import re
from collections.abc import Iterator
from typing import Final

from turnwright_states.state import State

from .card import card_lines
from .model import Arrow, Kind, Picture

_COLUMNS: Final = 18  # and the number before it
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
    Kind.TRANSIENT: "fill:#ffffff,stroke:#64748b,color:#111827,stroke-dasharray:4",
    Kind.LIVE: "fill:#dbeafe,stroke:#2563eb,color:#111827",
    Kind.RESTING: "fill:#fef3c7,stroke:#b45309,color:#111827",
    Kind.FINAL: "fill:#e5e7eb,stroke:#374151,color:#111827,stroke-width:3px",
}


def to_mermaid(picture: Picture) -> str:
    """The picture as the text of a Mermaid file, the same for the same picture."""
    return "\n".join((*_document(picture), ""))


def _document(picture: Picture) -> Iterator[str]:
    yield "%% Made by `turnwright diagram --write` from the chart: edit the chart, not this file."
    yield "stateDiagram-v2"
    yield "    direction TB"
    for state in _ORDER:
        yield f"    {state}"
    for kind in Kind:
        yield f"    classDef {kind} {_LOOKS[kind]}"
    yield f"    [*] --> {picture.initial}"
    for arrow in picture.arrows:
        yield f"    {arrow.source} --> {arrow.dest} : {_label(arrow)}"
    for node in picture.nodes:
        yield f"    class {node.state} {node.kind}"


def _label(arrow: Arrow) -> str:
    lines = (
        " ".join((*(() if number is None else (str(number),)), *(word.text for word in words)))
        for number, words in card_lines(arrow, _COLUMNS)
    )
    return "<br/>".join(_BREAKS.sub(" ", line) for line in lines)
