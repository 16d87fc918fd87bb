"""The picture as Markdown: tables of the overview, the rows and the reasons, and the page that holds them all."""

import textwrap
from collections.abc import Sequence
from typing import Final

from turnwright_states.reasons import REASONS
from turnwright_states.state import OUTCOMES

from .mermaid import to_mermaid
from .model import NodeKind, Picture, endings, fold_common_rows
from .overlay import Overlay, OverlayKind, number_ranges
from .overview import Overview, extract_overview

#: A column is padded up to this width. A longer cell sticks out, so that it does not widen every line.
_WIDEST: Final = 38
#: The count shown for a row that was not taken.
_NOT_TAKEN: Final = {OverlayKind.TURN: "", OverlayKind.COVERAGE: "**0**"}

_PAGE: Final = """\
# One turn

Made by `turnwright diagram --write` from `states/turnwright_states/chart.py`: edit the chart, not this page.
[overview.svg](overview.svg) is for a first look, [turn.svg](turn.svg) for a review, and
[turn-full.svg](turn-full.svg) shows the full chart.

## The overview

[![The overview](overview.svg)](overview.svg)

Each row of the chart belongs to one of these arrows:

{overview}

## The review drawing

```mermaid
{review}```

An arrow carries rows of the chart: number, `event [guard] / reason`. An event is not repeated on the lines below it.
The note holds the rows that stop a turn with the same event, guard and reason from two states or more.

{kinds}

## The full chart

```mermaid
{full}```

## Rows

The rows of a state are tried in this order, and the first whose guard holds is taken. An event that no row accepts is
refused, and changes nothing. The reason `carried` is the one with which the turn went to CONCLUDE.

{defaults}

{rows}

## Why a turn ends

{reasons}
"""


def to_table(picture: Picture, overlay: Overlay | None = None) -> str:
    """Return every row of the chart as a Markdown table, in the chart's order.

    With an overlay, its caption precedes the table, and each row has its count.
    """
    head: tuple[str, ...] = ("#", "from", "event", "guard", "to", "reason")
    rows: dict[int, tuple[str, ...]] = {
        line.number: (str(line.number), arrow.source, line.event, line.guard, arrow.dest, line.reason)
        for arrow in picture.arrows
        for line in arrow.lines
    }
    cells = [rows[number] for number in sorted(rows)]
    beside = {line.number: line.beside for arrow in picture.arrows for line in arrow.lines}
    if any(beside.values()):
        head, cells = (*head, "in this agent"), [(*row, beside[int(row[0])]) for row in cells]
    if overlay is None:
        return markdown_table(head, cells) + "\n"
    counts = [str(count) if count else _NOT_TAKEN[overlay.kind] for count in overlay.taken]
    counts_table = markdown_table(
        ("#", "taken", *head[1:]), [(row[0], count, *row[1:]) for row, count in zip(cells, counts, strict=True)]
    )
    title, *more_lines = overlay.caption
    return "\n\n".join((f"**{title}**", *more_lines, counts_table)) + "\n"


def overview_to_table(overview: Overview) -> str:
    """Return every arrow of the overview as a Markdown table, with the numbers of its rows."""
    rows = [(arrow.rule.ends, arrow.rule.label, number_ranges(arrow.numbers)) for arrow in overview.arrows]
    return markdown_table(("arrow", "means", "rows"), rows) + "\n"


def to_page(picture: Picture) -> str:
    """Return the page `turn.md`: the three views, the kinds of states, the rows, and the reasons."""
    kinds = [
        (kind, ", ".join(node.state for node in picture.nodes if node.kind is kind), kind.means) for kind in NodeKind
    ]
    reasons = [
        (
            f"`{reason}`",
            ", ".join(f"`{OUTCOMES[state]}`" for state in states),
            REASONS[reason].means,
            REASONS[reason].next,
        )
        for reason, states in endings(picture).items()
    ]
    return _PAGE.format(
        overview=overview_to_table(extract_overview(picture)).rstrip(),
        review=to_mermaid(fold_common_rows(picture)),
        full=to_mermaid(picture),
        kinds=markdown_table(("kind", "states", "means"), kinds),
        rows=to_table(picture).rstrip(),
        defaults="\n".join(textwrap.wrap(picture.defaults, 118)),
        reasons=markdown_table(("reason", "outcome", "means", "what to do next"), reasons),
    )


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, padded so that its text is legible too."""
    widths = [min(max(map(len, column)), _WIDEST) for column in zip(head, *rows, strict=True)]
    rule = ["-" * width for width in widths]
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |"
        for row in (head, rule, *rows)
    )
