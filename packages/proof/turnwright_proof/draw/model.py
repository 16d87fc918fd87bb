"""The picture, extracted from the chart: the content that every format draws, without its looks.

One table builds the machine, the diagrams and the documentation (docs/rules.md#chart). The formats receive the picture
and never the rows, so no format can omit a row.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from turnwright_proof.texts import describe_guard
from turnwright_states.chart import CHART, Chart, ReasonFrom, Row
from turnwright_states.counters import Counters
from turnwright_states.limits import Limits
from turnwright_states.reasons import Cause, EndReason
from turnwright_states.state import FINAL, LIVE, RESTING, TRANSIENT, State, Trigger

#: The events that may arrive from outside at any moment.
STOPS: Final = frozenset({Trigger.TRIPPED, Trigger.ABORT, Trigger.FAIL})
#: The guard of a row without one, where other rows are tried before it.
_OTHERWISE: Final = "otherwise"


class NodeKind(StrEnum):
    """The kinds of states, by what a turn does there."""

    TRANSIENT = "transient"
    LIVE = "live"
    RESTING = "resting"
    FINAL = "final"

    @property
    def means(self) -> str:
        """The kind in words, for a legend."""
        return _MEANS[self]


_MEANS: Final = {
    NodeKind.TRANSIENT: "passed through at once",
    NodeKind.LIVE: "the engine is at work",
    NodeKind.RESTING: "a person is asked",
    NodeKind.FINAL: "the turn is over",
}
_KINDS: Final = (
    (TRANSIENT, NodeKind.TRANSIENT),
    (LIVE, NodeKind.LIVE),
    (RESTING, NodeKind.RESTING),
    (FINAL, NodeKind.FINAL),
)


@dataclass(frozen=True, slots=True)
class Node:
    """One state. `reasons`: the reasons with which a turn can end here; empty unless the state is final."""

    state: State
    kind: NodeKind
    reasons: tuple[EndReason, ...] = ()


@dataclass(frozen=True, slots=True)
class TextLine:
    """One row of the chart, in words.

    `number` is its place in the chart, from 1. `guard` is empty where the row always holds, and `otherwise` where
    rows of the same state and event are tried before it. `reason` is empty where the row names none. `beside` are words
    about one agent, such as the names of tools.
    """

    number: int
    event: Trigger
    guard: str
    reason: str
    beside: str = ""

    @property
    def shown_reason(self) -> str:
        """The reason as an arrow shows it. An abort's is empty, because its destination lists both reasons."""
        return "" if self.reason == ReasonFrom.EVENT else self.reason


@dataclass(frozen=True, slots=True)
class Arrow:
    """All rows that lead from one state to another, in the chart's order."""

    source: State
    dest: State
    lines: tuple[TextLine, ...]

    @property
    def stops(self) -> bool:
        """Whether all rows of the arrow are guardrails, aborts or failures of the engine, so that it can be pale."""
        return all(line.event in STOPS for line in self.lines)


@dataclass(frozen=True, slots=True)
class FoldedRows:
    """Rows with the same event, guard, reason and destination, each from another state.

    `dest` is None if each leads back to its own state. One of the rows may be the fallback of its state, and another
    the only row for its event.
    """

    sources: tuple[State, ...]
    dest: State | None
    lines: tuple[TextLine, ...]

    @property
    def shown(self) -> TextLine:
        """The row as the note shows it: with the guard that all have."""
        first = self.lines[0]
        return first if len({line.guard for line in self.lines}) == 1 else replace(first, guard="")


@dataclass(frozen=True, slots=True)
class Picture:
    """The chart as nodes in the order of `State`, and arrows in the order of their first rows.

    `folded` are the rows in the note of the review drawing; the full chart has none. `defaults` are the limits of a
    turn where nobody sets them, in a sentence; empty for an agent, whose guards show its own.
    """

    initial: State
    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]
    folded: tuple[FoldedRows, ...] = ()
    defaults: str = ""


def extract(chart: Chart = CHART) -> Picture:
    """Return the picture of a chart. Only tests pass another chart."""
    reasons = _reasons_of_ends(chart.rows)
    arrows: dict[tuple[State, State], Arrow] = {}
    for number, row in enumerate(chart.rows, start=1):
        pair = (row.source, row.dest)
        arrow = arrows.get(pair, Arrow(*pair, lines=()))
        line = TextLine(number, row.trigger, describe_guard(row.guard) or _fallback(row, chart.rows), row.reason or "")
        arrows[pair] = replace(arrow, lines=(*arrow.lines, line))
    return Picture(
        initial=State[str(chart.machine.initial)],
        nodes=tuple(Node(state, _kind(state), reasons.get(state, ())) for state in State),
        arrows=tuple(arrows.values()),
        defaults=describe_defaults(Limits()),
    )


def describe_defaults(limits: Limits) -> str:
    """Return the limits on which the guards depend, so that a changed default makes the drawings stale."""
    calls = [limits.for_tools(kind).tool_calls for kind in ("default", "writing", "read_only")]
    return (
        f"Defaults: {limits.cap} steps; {calls[0]} tool calls, {calls[1]} if a tool writes, {calls[2]} if tools only "
        f"read; {limits.doom_threshold} "
        f"equal rounds, then {limits.doom_response}; {limits.idle_steps} steps without a call; {limits.max_retries} "
        f"retries; {limits.output_retries} refused replies; {limits.max_pauses} pauses; {limits.nudges} nudges; "
        f"{limits.max_compactions} compactions."
    )


def fold_common_rows(picture: Picture) -> Picture:
    """Return the review drawing: stops and retries of several states become a note, so that the usual path is visible.

    A row is folded when it names a reason or leads back to its state, and another state has such a row with the same
    event, guard and reason.
    """
    alike: dict[tuple[str, ...], dict[State | None, list[tuple[State, TextLine]]]] = {}
    for arrow in picture.arrows:
        for line in arrow.lines:
            if line.reason or arrow.source is arrow.dest:
                guard = "" if line.guard == _OTHERWISE else line.guard
                to = alike.setdefault((line.event, guard, line.reason), {})
                dest = None if arrow.source is arrow.dest else arrow.dest
                to.setdefault(dest, []).append((arrow.source, line))
    folded_rows = tuple(
        FoldedRows(tuple(source for source, _ in rows), dest, tuple(line for _, line in rows))
        for to in alike.values()
        if sum(map(len, to.values())) > 1
        for dest, rows in to.items()
    )
    folded_lines = {line for rows in folded_rows for line in rows.lines}
    arrows = (
        replace(arrow, lines=tuple(line for line in arrow.lines if line not in folded_lines))
        for arrow in picture.arrows
    )
    return replace(picture, arrows=tuple(arrow for arrow in arrows if arrow.lines), folded=folded_rows)


def endings(picture: Picture) -> dict[EndReason, tuple[State, ...]]:
    """Return the final states in which a turn with each reason can end, in the order of `EndReason`."""
    return {reason: tuple(node.state for node in picture.nodes if reason in node.reasons) for reason in EndReason}


def _kind(state: State) -> NodeKind:
    return next(kind for states, kind in _KINDS if state in states)


def _fallback(row: Row, rows: tuple[Row, ...]) -> str:
    return _OTHERWISE if len(_list_tried(row, rows)) > 1 else ""


def _list_tried(row: Row, rows: tuple[Row, ...]) -> list[Row]:
    """Return the rows that are tried for the row's state and event."""
    return [row_tried for row_tried in rows if (row_tried.source, row_tried.trigger) == (row.source, row.trigger)]


def _reasons_of_ends(rows: tuple[Row, ...]) -> dict[State, tuple[EndReason, ...]]:
    """Return the reasons of each final state, in the order of `EndReason`."""
    reasons: dict[State, set[EndReason]] = {}
    for row in rows:
        if row.dest in FINAL:
            reasons.setdefault(row.dest, set()).update(_reasons(row, rows))
    return {state: tuple(reason for reason in EndReason if reason in reasons[state]) for state in reasons}


def _reasons(row: Row, rows: tuple[Row, ...]) -> set[EndReason]:
    match row.reason:
        case EndReason() as reason:
            return {reason}
        case ReasonFrom.CAUSE:
            return {cause.reason for cause in Cause}
        case ReasonFrom.EVENT:
            return {EndReason.ABORTED, EndReason.SUPERSEDED}
        case ReasonFrom.CARRIED:
            carried_reasons = {
                earlier_row.reason
                for earlier_row in rows
                if earlier_row.dest is row.source and isinstance(earlier_row.reason, EndReason)
            }
            return {reason for reason in carried_reasons if _taken(row, rows, reason)}
        case None:
            return set()


def _taken(row: Row, rows: tuple[Row, ...], carried_reason: EndReason) -> bool:
    """Whether a turn that carries this reason, and has no retry left, takes this row."""
    counters = Counters(Limits(max_retries=0))
    counters.carried_doom = carried_reason is EndReason.DOOM_LOOP
    return next(row_tried for row_tried in _list_tried(row, rows) if row_tried.guard.holds(counters)) is row
