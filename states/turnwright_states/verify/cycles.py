"""What each row does to the rank, and which cycles of rows nothing ends: why a turn ends, read off the table.

The method is the classic one for lexicographic rankings. In each strongly connected part of the chart some component
of the rank must be lowered by a row and raised by none: such a row is taken only finitely often, because no component
goes below nothing (the lint checks that too). So it is taken out, and what is left is split again. Rows that are left
when no component can be found are a cycle that need not end.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from turnwright_states.chart import Row
from turnwright_states.state import LIVE, STAGE, State, Trigger


class Placed(NamedTuple):
    """A row and its number in the chart, from 1."""

    number: int
    row: Row

    def __str__(self) -> str:
        return self.row.name


#: The components of `Turn.rank` that rows can change, most significant first. The last two of the rank, calls not
#: settled and calls not started, change only inside TOOL_EXEC.
STEPS, PAUSES, STAGES, RETRIES, INTERRUPTS = "steps left", "pauses left", "stage", "retries left", "open interrupts"
COMPONENTS: Final = (STEPS, PAUSES, STAGES, RETRIES, INTERRUPTS)


#: What leads back to its own state takes a retry.
_TRIED_AGAIN: Final = (Trigger.ATTEMPT_FAILED, Trigger.CONCLUDED)


def lowers(row: Row, component: str) -> bool:
    """Whether every taking of the row lowers this component of the rank."""
    return _change(row, component) < 0


def _change(row: Row, component: str) -> int:
    """Below 0 when the row lowers the component, above when it may raise it, else 0. Source: DESIGN 2."""
    source, trigger, dest = row.source, row.trigger, row.dest
    entered = source is not dest
    if component == STEPS:  # counted on entering STREAM from CHECK, nowhere else
        return -(source is State.CHECK and dest is State.STREAM)
    if component == PAUSES:
        return -(entered and dest is State.PAUSED)
    if component == STAGES:
        return STAGE.get(dest, 0) - STAGE.get(source, 0)
    if component == RETRIES:  # set anew on entering a state that does I/O
        return 1 if entered and dest in LIVE else -(not entered and trigger in _TRIED_AGAIN)
    # Open interrupts count while the turn is paused; leaving does not raise them.
    return 1 if entered and dest is State.PAUSED else -(row[:2] == (State.PAUSED, Trigger.ANSWERED) and not entered)


def reachable(rows: Iterable[Placed], start: State) -> frozenset[State]:
    """The states that these rows lead to from `start`, itself included."""
    rows = tuple(rows)
    found, news = {start}, [start]
    while news:
        state = news.pop()
        new = {placed.row.dest for placed in rows if placed.row.source is state} - found
        found |= new
        news += new
    return frozenset(found)


def endless(rows: Sequence[Placed]) -> list[tuple[Placed, ...]]:
    """The cycles that nothing ends, one of each part of the chart that has any. Empty when every cycle ends.

    Each is as few rows as will do, in the order of the chart: most often one cycle, else several that feed each other.
    """
    return [_core(part) for part in _unended(rows)]


def _unended(rows: Sequence[Placed]) -> list[tuple[Placed, ...]]:
    """The parts in which no component is found, after the rows of all that are found have been taken out."""
    left: list[tuple[Placed, ...]] = []
    for part in cyclic(rows):
        ends = next((one for one in COMPONENTS if _ends(part, one)), None)
        left += [part] if ends is None else _unended([placed for placed in part if not lowers(placed.row, ends)])
    return left


def _core(part: tuple[Placed, ...]) -> tuple[Placed, ...]:
    """What is left of an endless part when every row that can be spared is taken out."""
    for placed in part:
        fewer = tuple(other for other in part if other != placed)
        if _unended(fewer):
            part = fewer
    return part


def _ends(part: Iterable[Placed], component: str) -> bool:
    """Whether the component is lowered by one of the rows and raised by none."""
    changes = [_change(placed.row, component) for placed in part]
    return min(changes) < 0 and max(changes) <= 0


def cyclic(rows: Sequence[Placed]) -> list[tuple[Placed, ...]]:
    """The strongly connected parts of these rows: those that lie on a cycle, by the states that they connect."""
    after = {state: reachable(rows, state) for state in State}
    parts: dict[frozenset[State], list[Placed]] = {}
    for placed in rows:
        source, dest = placed.row.source, placed.row.dest
        if source in after[dest]:
            key = frozenset(state for state in after[source] if source in after[state])
            parts.setdefault(key, []).append(placed)
    return [tuple(part) for part in parts.values()]


def way(rows: Sequence[Placed], start: State, goal: State) -> tuple[Placed, ...]:
    """A shortest way from `start` to `goal`, of at least one row. Empty where there is none."""
    ways = deque[tuple[Placed, ...]]([()])
    seen: set[State] = set()
    while ways:
        done = ways.popleft()
        state = done[-1].row.dest if done else start
        if done and state is goal:
            return done
        if state in seen:
            continue
        seen.add(state)
        ways.extend((*done, placed) for placed in rows if placed.row.source is state)
    return ()
