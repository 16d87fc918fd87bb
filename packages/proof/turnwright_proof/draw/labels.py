"""The labels of the DOT text: tables in Graphviz's own dialect of HTML.

They are the text of a state, the card of an arrow, the legend, and an overlay's caption.
"""

import re
import textwrap
from collections.abc import Iterable
from html import escape
from itertools import groupby
from typing import Final

from .edge_label import LabelPart, LabelRow, LabelWord, label_rows, note_rows
from .model import Arrow, FoldedRows, Node, NodeKind
from .style import DIM, INK, LOOKS, RULE, CountBadge, NameLook, RowLook, Style

NAME_SIZE: Final = 13
_TEXT, _NUMBER = 11, 10
#: The least width of the column of counts: four digits.
_COUNT_WIDTH: Final = 25
#: Characters in a line of a caption, and the most lines of one item.
_CAPTION_COLUMNS: Final = 125
_CAPTION_LINES: Final = 3
_NOTE: Final = "These rows are alike in several states:"


def name_label(node: Node, looks: NameLook) -> str:
    """Return a state's name. A final state also lists the reasons with which a turn may end there."""
    if not node.reasons and not looks.below:
        return _table(_cell(_font(node.state, looks.ink, NAME_SIZE)), 'BORDER="0" CELLPADDING="0"')
    lines = [_font(node.state, looks.ink, NAME_SIZE)]
    if looks.below:
        lines.append(f"<B>{_font(looks.below, looks.accent, _TEXT)}</B>")
    for line in textwrap.wrap(", ".join(node.reasons), width=17):
        marked_line = re.sub(rf"\b{looks.reason}\b", f'<FONT COLOR="{looks.accent}"><B>\\g<0></B></FONT>', line)
        lines.append(_font(marked_line if looks.reason else line, looks.reasons, _TEXT))
    return _table("".join(map(_cell, lines)), 'BORDER="0" CELLPADDING="0"')


def arrow_label(arrow: Arrow, style: Style, columns: int) -> str:
    """Return the card of an arrow: its rows, at most `columns` characters wide without numbers and counts."""
    rows = "".join(_row(row, style.row(arrow, row.rows[0])) for row in label_rows(arrow, columns))
    # A count fills the edge of its card, so it would stick out of a rounded corner.
    return _card(rows, "" if style.counts else ' STYLE="ROUNDED"')


def note_label(folded_rows: Iterable[FoldedRows], columns: int) -> str:
    """Return the note of the review drawing: the rows that are folded into it."""
    title = f'<TR><TD></TD><TD COLSPAN="4" ALIGN="LEFT"><B>{_font(_NOTE, INK, _TEXT)}</B></TD></TR>'
    return _card(title + "".join(_row(row, RowLook()) for row in note_rows(folded_rows, columns)), ' STYLE="ROUNDED"')


def picture_label(style: Style) -> str:
    """Return the text around the picture: the caption of an overlay, the keys of its counts, and the legend."""
    paragraphs = [textwrap.wrap(item, _CAPTION_COLUMNS, max_lines=_CAPTION_LINES) for item in style.caption]
    lines = [_font(escape(line), INK, _TEXT) for item in paragraphs for line in item]
    if lines:
        lines[0] = f"<B>{_font(escape(paragraphs[0][0]), INK, NAME_SIZE)}</B>"
    if style.keys:
        lines.append(_strip("".join(_key(mark, words) for mark, words in style.keys)))
    lines.append(_strip("".join(_kind(kind) for kind in NodeKind)))
    defaults = textwrap.wrap(style.picture.defaults, _CAPTION_COLUMNS)
    lines += [_font(escape(line), INK, _TEXT) for line in (*style.reading, *defaults)]
    return _table("".join(f'<TR><TD ALIGN="LEFT">{line}</TD></TR>' for line in lines), 'BORDER="0" CELLPADDING="2"')


def _card(rows: str, corners: str) -> str:
    # Graphviz places text too high in its line.
    above = '<TR><TD HEIGHT="2" CELLPADDING="0"></TD></TR>'
    return _table(above + rows, f'BORDER="1"{corners} COLOR="{RULE}" BGCOLOR="#ffffff" CELLPADDING="1"')


def _row(row: LabelRow, looks: RowLook) -> str:
    ground = f' BGCOLOR="{looks.ground}"' if looks.ground else ""
    # In some readers' fonts, long lists of numbers are wider than Graphviz assumed.
    gap = 2 * len(row.rows) - 1
    lines = []
    for place, words in enumerate(row.lines):
        number = "" if place else _font(row.numbers, DIM, _NUMBER)
        count = "" if place or looks.mark is None else _count(looks.mark, len(row.lines))
        lines.append(
            f'<TR><TD WIDTH="1"{ground}></TD><TD ALIGN="RIGHT"{ground}>{number}</TD><TD WIDTH="{gap}"{ground}></TD>'
            f'<TD ALIGN="LEFT"{ground}>{_font(_set(words, looks), looks.ink, _TEXT)}</TD>'
            f'<TD WIDTH="6"{ground}></TD>{count}</TR>'
        )
    return "".join(lines)


def _count(mark: CountBadge, lines: int) -> str:
    text = f"<B>{_font(mark.text, mark.ink, _NUMBER)}</B>" if mark.text else ""
    return f'<TD ROWSPAN="{lines}" WIDTH="{_COUNT_WIDTH}"{_ground(mark)}>{text}</TD>'


def _set(words: tuple[LabelWord, ...], looks: RowLook) -> str:
    runs = [
        (part, escape(" ".join(word.text for word in run))) for part, run in groupby(words, key=lambda word: word.part)
    ]
    # Graphviz drops a plain space at the edge of a tag.
    spaced_runs = [
        (part, text if place == len(runs) else f"{text}&#160;") for place, (part, text) in enumerate(runs, 1)
    ]
    return "".join(_tag(part, text, looks) for part, text in spaced_runs)


def _tag(part: LabelPart, text: str, looks: RowLook) -> str:
    match part:
        case LabelPart.EVENT:
            return f"<B>{text}</B>" if looks.loud else text
        case LabelPart.REASON:
            return f'<FONT COLOR="{looks.reason}">{text}</FONT>'
        case _:
            return text


def _key(mark: CountBadge, words: str) -> str:
    sample = f'<TD WIDTH="{_COUNT_WIDTH}"{_ground(mark)}><B>{_font(mark.text, mark.ink, _NUMBER)}</B></TD>'
    return f'{sample}<TD ALIGN="LEFT">{_font(words, INK, _TEXT)}</TD>' if words else sample


def _kind(kind: NodeKind) -> str:
    return (
        f'<TD {LOOKS[kind].swatch}>{_font(kind, INK, _TEXT)}</TD><TD ALIGN="LEFT">{_font(kind.means, INK, _TEXT)}</TD>'
    )


def _strip(cells: str) -> str:
    """Return the cells side by side."""
    return f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="4" CELLPADDING="3"><TR>{cells}</TR></TABLE>'


def _ground(mark: CountBadge) -> str:
    return f' BGCOLOR="{mark.ground}"' if mark.ground else ""


def _cell(text: str) -> str:
    return f"<TR><TD>{text}</TD></TR>"


def _font(text: str, color: str, size: int) -> str:
    return f'<FONT COLOR="{color}" POINT-SIZE="{size}">{text}</FONT>'


def _table(rows: str, attributes: str) -> str:
    return f'<<TABLE CELLBORDER="0" CELLSPACING="0" {attributes}>{rows}</TABLE>>'
