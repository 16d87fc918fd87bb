"""The difference of two texts, line by line, with long stretches of equal lines left out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from turnwright.privacy.redaction import redactor

#: Equal lines that are shown before and after a difference.
_AROUND: Final = 3
#: The most lines of a text that are compared: time grows with their square where lines repeat.
_MOST: Final = 1500


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a difference: `same`, `left`, `right`, or `gap` for equal lines that are left out."""

    kind: str
    text: str


def text_diff(left: str, right: str) -> tuple[DiffLine, ...]:
    """Return the lines in which two texts differ, with some equal lines around them; none for equal texts.

    Secrets are hidden first, because one may have several lines.
    """
    if left == right:
        return ()
    one, other = (redactor().hide(text).splitlines() for text in (left, right))
    cut = max(len(one), len(other)) - _MOST
    one, other = one[:_MOST], other[:_MOST]
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    lines = [line for block in blocks for line in _lines(one, other, block, last=block is blocks[-1])]
    if cut > 0:
        lines.append(DiffLine("gap", f"{cut:,} more lines are not compared"))
    return tuple(lines)


def _lines(
    one: Sequence[str], other: Sequence[str], block: tuple[str, int, int, int, int], *, last: bool
) -> Iterator[DiffLine]:
    kind, first, end, to_first, to_end = block
    if kind == "equal":
        yield from _equal(one[first:end], after=first > 0 or to_first > 0, before=not last)
        return
    yield from (DiffLine("left", line) for line in one[first:end])
    yield from (DiffLine("right", line) for line in other[to_first:to_end])


def _equal(lines: Sequence[str], *, after: bool, before: bool) -> Iterator[DiffLine]:
    """Yield the equal lines next to a difference: the first ones `after` one, and the last ones `before` one."""
    head, tail = _AROUND * after, _AROUND * before
    left_out = len(lines) - head - tail
    if left_out <= 1:
        yield from (DiffLine("same", line) for line in lines)
        return
    yield from (DiffLine("same", line) for line in lines[:head])
    yield DiffLine("gap", f"{left_out:,} equal lines")
    yield from (DiffLine("same", line) for line in lines[len(lines) - tail :])
