"""The effect of each row on the rank, and the cycles of rows that need not end (docs/rules.md#termination).

The method is the classic one for lexicographic rankings. In each strongly connected part of the chart, some component
of the rank must be lowered by a row and raised by none. Such a row is taken only finitely often, because no component
goes below zero (the lint checks this too). It is removed, and the rest is split again. Rows that remain without such a
component are a cycle that need not end.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from turnwright_proof.rank import STAGE
from turnwright_states.chart import Row
from turnwright_states.state import LIVE, State, Trigger


class Placed(NamedTuple):
    """A row and its number in the chart, from 1."""

    number: int
    row: Row

    def __str__(self) -> str:
        return self.row.name


#: The components of the rank that rows can change, most significant first. The last three (calls without a result,
#: calls not started, an unprepared request) change only inside a state.
STEPS, PAUSES, STAGES, RETRIES, INTERRUPTS = "steps left", "pauses left", "stage", "retries left", "open interrupts"
REFUSALS, COMPACTIONS = "output retries left", "compactions left"
COMPONENTS: Final = (STEPS, REFUSALS, COMPACTIONS, PAUSES, STAGES, RETRIES, INTERRUPTS)
#: The components that only one way lowers, and none raises.
_COUNTED: Final = {
    STEPS: (State.CHECK, State.STREAM),
    REFUSALS: (State.REVIEW, State.CONTINUE),
    COMPACTIONS: (State.STREAM, State.COMPACT),
}
#: The triggers whose rows back to the same state take a retry.
_TRIED_AGAIN: Final = (Trigger.ATTEMPT_FAILED, Trigger.CONCLUDED)


def lowers(row: Row, component: str) -> bool:
    """Return whether the row always lowers this component of the rank."""
    return _change(row, component) < 0


def _change(row: Row, component: str) -> int:
    """Return a number below 0 if the row lowers the component, above 0 if it may raise it, else 0."""
    source, trigger, dest = row.source, row.trigger, row.dest
    is_entered = source is not dest
    if component in _COUNTED:
        return -((source, dest) == _COUNTED[component])
    if component == PAUSES:
        return -(is_entered and dest is State.PAUSED)
    if component == STAGES:
        return STAGE.get(dest, 0) - STAGE.get(source, 0)
    if component == RETRIES:  # reset on entering a state that does I/O; a compaction shares those of its model call
        is_shared = {source, dest} == {State.STREAM, State.COMPACT}
        return 1 if is_entered and dest in LIVE and not is_shared else -(not is_entered and trigger in _TRIED_AGAIN)
    # Open interrupts count only while the turn is paused.
    return (
        1 if is_entered and dest is State.PAUSED else -(row[:2] == (State.PAUSED, Trigger.ANSWERED) and not is_entered)
    )


def reachable(rows: Iterable[Placed], start: State) -> frozenset[State]:
    """Return the states that these rows reach from `start`, including `start`."""
    rows = tuple(rows)
    reached_states, news = {start}, [start]
    while news:
        state = news.pop()
        new = {placed_row.row.dest for placed_row in rows if placed_row.row.source is state} - reached_states
        reached_states |= new
        news += new
    return frozenset(reached_states)


def endless(rows: Sequence[Placed]) -> list[tuple[Placed, ...]]:
    """Return the cycles that need not end, one for each part of the chart that has any.

    Each has as few rows as possible, in the order of the chart: usually one cycle, else several that feed each other.
    """
    return [_core(part) for part in _find_unended(rows)]


def _find_unended(rows: Sequence[Placed]) -> list[tuple[Placed, ...]]:
    """Return the parts without a component that ends them, after the rows of all found components were removed."""
    open_parts: list[tuple[Placed, ...]] = []
    for part in cyclic(rows):
        ends = next((component for component in COMPONENTS if _ends(part, component)), None)
        open_parts += (
            [part]
            if ends is None
            else _find_unended([placed_row for placed_row in part if not lowers(placed_row.row, ends)])
        )
    return open_parts


def _core(part: tuple[Placed, ...]) -> tuple[Placed, ...]:
    """Remove every row from an endless part that is not needed to keep it endless."""
    for placed_row in part:
        fewer = tuple(other_placed for other_placed in part if other_placed != placed_row)
        if _find_unended(fewer):
            part = fewer
    return part


def _ends(part: Iterable[Placed], component: str) -> bool:
    """Return whether one of the rows lowers the component and none raises it."""
    changes = [_change(placed_row.row, component) for placed_row in part]
    return min(changes) < 0 and max(changes) <= 0


def cyclic(rows: Sequence[Placed]) -> list[tuple[Placed, ...]]:
    """Return the strongly connected parts of these rows: the rows on cycles, grouped by the states they connect."""
    after = {state: reachable(rows, state) for state in State}
    parts: dict[frozenset[State], list[Placed]] = {}
    for placed_row in rows:
        source, dest = placed_row.row.source, placed_row.row.dest
        if source in after[dest]:
            key = frozenset(state for state in after[source] if source in after[state])
            parts.setdefault(key, []).append(placed_row)
    return [tuple(part) for part in parts.values()]


def way(rows: Sequence[Placed], start: State, goal: State) -> tuple[Placed, ...]:
    """Return a shortest path from `start` to `goal` of at least one row. Empty without one."""
    ways = deque[tuple[Placed, ...]]([()])
    states: set[State] = set()
    while ways:
        path = ways.popleft()
        state = path[-1].row.dest if path else start
        if path and state is goal:
            return path
        if state in states:
            continue
        states.add(state)
        ways.extend((*path, placed_row) for placed_row in rows if placed_row.row.source is state)
    return ()
