"""What can be laid over the picture: how often each row of the chart was taken, by one turn or by a run of tests.

An overlay adds to the picture and hides nothing of it: the rows that were not taken stay legible, and the layout is
the same whatever was taken, so that two overlays can be compared side by side.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise
from typing import Final

from turnwright_states.reasons import EndReason
from turnwright_states.state import State

from .model import Arrow, Picture, TextLine
from .rows import RowCounts


class OverlayKind(Enum):
    """The subject of an overlay."""

    #: One recorded turn: where it went.
    TURN = auto()
    #: What tests took of the chart: what they left out.
    COVERAGE = auto()


@dataclass(frozen=True, slots=True)
class Overlay:
    """Counts for a picture. `taken` is by place, as the chart counts; `caption` is one line of text an item.

    `stands` is the state where the turn is at the end of its journal, and `reason` why it ended there, if it has. Both
    are None for what is no single turn.
    """

    kind: OverlayKind
    taken: tuple[int, ...]
    caption: tuple[str, ...]
    stands: State | None = None
    reason: EndReason | None = None

    def of(self, line: TextLine) -> int:
        """How often a row was taken."""
        return self.taken[line.number - 1]

    def on(self, arrow: Arrow) -> int:
        """How often the rows of an arrow were taken, together."""
        return sum(map(self.of, arrow.lines))

    def reached(self, picture: Picture) -> frozenset[State]:
        """The states that something taken touches, and the one where every turn begins."""
        touched = {state for arrow in picture.arrows if self.on(arrow) for state in (arrow.source, arrow.dest)}
        return frozenset(touched | {picture.initial})

    @property
    def here(self) -> str:
        """What is written on the state where the turn stands."""
        return "stands here" if self.reason is None else "ended here"


def coverage_overlay(counts: RowCounts) -> Overlay:
    """The overlay of a run of tests, which says how many rows it took, and which it never took."""
    never = [number for number, _ in counts.untaken]
    lines = [f"{counts.covered} of {len(counts.taken)} rows taken"]
    if never:
        lines.append(f"never taken: {number_ranges(never)}")
    return Overlay(OverlayKind.COVERAGE, counts.taken, tuple(lines))


#: The least count of each shade but the first, which is for what was never taken. By tens, so that the shade of a row
#: means the same in each picture, and a row taken once does not look like one taken a thousand times.
LEVELS: Final = (1, 10, 100, 1000, 10_000)


def level(count: int) -> int:
    """Return the shade of a count: 0 for never, then one more at each of `LEVELS`."""
    return sum(count >= least for least in LEVELS)


def level_words() -> tuple[str, ...]:
    """The counts that each level stands for, the first being never."""
    spans = (f"{low}-{high - 1}" for low, high in pairwise(LEVELS))
    return ("never", *spans, f"{LEVELS[-1]} or more")


def compact_count(count: int) -> str:
    """A count in at most five characters, up to a thousand milliards: 9999, 48k, 3210k, 32M."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if count >= 10 * size:
            return f"{count // size}{unit}"
    return str(count)


def number_ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers in few words: `3, 5-9, 12`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
