"""The overlay of one recorded turn: its path, how often it took each row, and its current state."""

from collections.abc import Sequence
from typing import Final

from turnwright._base.words import count
from turnwright_states.chart import CHART, Row
from turnwright_states.turn import Turn

from .overlay import Overlay, OverlayKind

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
