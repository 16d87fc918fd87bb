"""The difference of two texts, line by line, with long stretches of equal lines left out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Final

from turnwright.privacy.redaction import redactor

#: Equal lines that are shown before and after a difference.
_AROUND: Final = 3
#: The most lines between the first and the last difference that are compared: time grows with their square where lines
#: repeat.
_MOST: Final = 500


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
    left_lines, right_lines = (redactor().hide(text).splitlines() for text in (left, right))
    head = count_common(left_lines, right_lines)
    tail = count_common(reversed(left_lines[head:]), reversed(right_lines[head:]))
    inner, outer = left_lines[head : len(left_lines) - tail], right_lines[head : len(right_lines) - tail]
    cut_count = max(len(inner), len(outer)) - _MOST
    inner, outer = inner[:_MOST], outer[:_MOST]
    blocks = SequenceMatcher(None, inner, outer, autojunk=False).get_opcodes()
    lines = [*_equal(left_lines[:head], after=False, before=True)]
    lines += [line for block in blocks for line in _lines(inner, outer, block)]
    if cut_count > 0:
        lines.append(DiffLine("gap", f"{cut_count:,} more lines are not compared"))
    lines += _equal(left_lines[len(left_lines) - tail :], after=True, before=False)
    return tuple(lines)


def count_common(left: Iterable[object], right: Iterable[object]) -> int:
    """Return how many items both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


def _lines(
    left_lines: Sequence[str], right_lines: Sequence[str], block: tuple[str, int, int, int, int]
) -> Iterator[DiffLine]:
    kind, first, end, to_first, to_end = block
    if kind == "equal":
        yield from _equal(left_lines[first:end], after=True, before=True)
        return
    yield from (DiffLine("left", line) for line in left_lines[first:end])
    yield from (DiffLine("right", line) for line in right_lines[to_first:to_end])


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
