"""Overlays of the picture: how often one turn, or a run of tests, took each row of the chart.

An overlay hides nothing: rows that were not taken stay legible. The layout does not depend on the counts, so two
overlays can be compared side by side.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise
from typing import Final

from turnwright._base.words import count
from turnwright_states.chart import CHART, Row
from turnwright_states.reasons import EndReason
from turnwright_states.row_counts import RowCounts
from turnwright_states.state import State
from turnwright_states.turn import Turn

from .model import Arrow, Picture, TextLine


class OverlayKind(Enum):
    """The subject of an overlay."""

    #: The path of one recorded turn.
    TURN = auto()
    #: The rows that a run of tests took, and those that it never took.
    COVERAGE = auto()


@dataclass(frozen=True, slots=True)
class Overlay:
    """Counts for a picture. `taken` has one count a row, in the chart's order; `caption` has one line of text an item.

    `stands` is the turn's state at the end of its journal, and `reason` is why it ended, if it has. Both are None for a
    run of tests.
    """

    kind: OverlayKind
    taken: tuple[int, ...]
    caption: tuple[str, ...]
    stands: State | None = None
    reason: EndReason | None = None

    def of(self, line: TextLine) -> int:
        """Return how often a row was taken."""
        return self.taken[line.number - 1]

    def on(self, arrow: Arrow) -> int:
        """Return how often the rows of an arrow were taken, added up."""
        return sum(map(self.of, arrow.lines))

    def reached(self, picture: Picture) -> frozenset[State]:
        """Return the ends of every arrow that was taken, and the initial state."""
        touched_states = {state for arrow in picture.arrows if self.on(arrow) for state in (arrow.source, arrow.dest)}
        return frozenset(touched_states | {picture.initial})

    @property
    def here(self) -> str:
        """The label of the turn's last state."""
        return "now here" if self.reason is None else "ended here"


def coverage_overlay(counts: RowCounts) -> Overlay:
    """Return the overlay of a run of tests. Its caption counts the rows that were taken and lists the others."""
    never = [number for number, _ in counts.untaken]
    lines = [f"{counts.covered} of {len(counts.taken)} rows taken"]
    if never:
        lines.append(f"never taken: {number_ranges(never)}")
    return Overlay(OverlayKind.COVERAGE, counts.taken, tuple(lines))


#: The least count of each shade but the first, which means never. Powers of ten keep a shade's meaning the same in each
#: picture, and separate a row taken once from one taken a thousand times.
LEVELS: Final = (1, 10, 100, 1000, 10_000)


def level(count: int) -> int:
    """Return the shade of a count: 0 for never, then one more at each of `LEVELS`."""
    return sum(count >= least for least in LEVELS)


def level_words() -> tuple[str, ...]:
    """Return the counts of each level in words, the first being never."""
    spans = (f"{low}-{high - 1}" for low, high in pairwise(LEVELS))
    return ("never", *spans, f"{LEVELS[-1]} or more")


def compact_count(count: int) -> str:
    """Return a count in at most five characters, up to 10^12: 9999, 48k, 3210k, 32M."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if count >= 10 * size:
            return f"{count // size}{unit}"
    return str(count)


def number_ranges(numbers: Iterable[int]) -> str:
    """Return ascending numbers as ranges: `3, 5-9, 12`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


_PLACES: Final = {row: place for place, row in enumerate(CHART.rows)}


def turn_overlay(turn_id: str, turn: Turn, rows: Sequence[Row], *, path: str) -> Overlay:
    """Return the overlay of a turn.

    `turn` is the fold of its facts, and `rows` are the rows that it took, as a replay of the facts finds them
    (`turnwright_states.replay`). `path` is its path through the states in words, for the caption. Raises `ValueError`
    for a row of another chart.
    """
    counts = [0] * len(CHART.rows)
    for row in rows:
        if row not in _PLACES:
            raise ValueError(f"{row.name} is not a row of this chart")
        counts[_PLACES[row]] += 1
    kinds = sum(times > 0 for times in counts)
    figures = (
        count(turn.steps_taken, "step"),
        f"{count(turn.counters.calls, 'tool call')} run",
        f"{turn.elapsed:.1f} s of driving",
        f"{kinds} of {len(counts)} rows taken, {count(len(rows), 'time')} in all",
    )
    caption = (f"turn {turn_id}: {_standing(turn)}", ", ".join(figures), f"path: {path}")
    return Overlay(OverlayKind.TURN, tuple(counts), caption, turn.state, turn.reason)


def _standing(turn: Turn) -> str:
    if turn.state.outcome is None or turn.reason is None:
        waits = f", waits for {count(len(turn.interrupts), 'answer')}" if turn.interrupts else ""
        return f"not over: in {turn.state}{waits}"
    also = f" (also reached: {', '.join(turn.also_reached)})" if turn.also_reached else ""
    return f"{turn.state.outcome}: {turn.reason}{also}"
