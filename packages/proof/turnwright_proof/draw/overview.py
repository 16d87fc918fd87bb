"""The overview: the chart in at most 12 boxes and 16 arrows, for a first look.

The grouping is written here, and the arrows follow from the chart. Each state is in one box:

- the loop of a step: CHECK, STREAM, TOOL_EXEC and CONTINUE;
- beside the loop: PAUSED, REVIEW and COMPACT;
- the last reply without tools: CONCLUDE and TEXT_ONLY share a box;
- the endings, two in a box: an answer, a limit, and no answer.

One frame surrounds the loop with the states beside it, another all states of a turn that is not over. An arrow that
leaves a frame has rows of several states. Each row belongs to exactly one arrow: the one that joins its states
and has its event among its own. A row without such an arrow is an error, because its picture would be false.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from turnwright.errors import ConfigError
from turnwright_states.state import State, Trigger

from .model import NodeKind, Picture, TextLine


@dataclass(frozen=True, slots=True)
class Area:
    """States that are drawn as one box, or inside one frame, and what they are for."""

    states: tuple[State, ...]
    words: str

    @property
    def name(self) -> str:
        """The names of the states."""
        return ", ".join(self.states)


CHECK: Final = Area((State.CHECK,), "may a step start?")
STREAM: Final = Area((State.STREAM,), "the model replies")
TOOL_EXEC: Final = Area((State.TOOL_EXEC,), "tools run")
CONTINUE: Final = Area((State.CONTINUE,), "the step is over")
PAUSED: Final = Area((State.PAUSED,), "a person is asked")
REVIEW: Final = Area((State.REVIEW,), "the reply is checked")
COMPACT: Final = Area((State.COMPACT,), "history is shortened")
LAST_REPLY: Final = Area((State.CONCLUDE, State.TEXT_ONLY), "a last reply without tools")
ANSWERED: Final = Area((State.FINISHED, State.SYNTHESIS_DONE), "the answer")
LIMITED: Final = Area((State.CAP_HIT, State.DOOM_LOOP), "a limit, and a summary")
STOPPED: Final = Area((State.ABORTED, State.FAILED), "no answer")

#: The boxes. Each state of the chart is in one of them.
BOXES: Final = (
    *(CHECK, STREAM, TOOL_EXEC, CONTINUE, PAUSED, REVIEW, COMPACT),
    *(LAST_REPLY, ANSWERED, LIMITED, STOPPED),
)
#: The working states: the loop of a step, and the states beside it.
STEPS: Final = Area(tuple(state for box in BOXES[:7] for state in box.states), "the steps of a turn")
#: Every state of a turn that is not over.
TURN: Final = Area((*STEPS.states, *LAST_REPLY.states), "a turn that is not over")


@dataclass(frozen=True, slots=True)
class ArrowRule:
    """One arrow of the overview: the areas that it joins, the events of its rows, and its words.

    `back` and `back_words` are those of the rows in the other direction: the arrow then has two heads. An arrow from an
    area to itself has the rows that lead from a state back to the same state.
    """

    source: Area
    dest: Area
    events: frozenset[Trigger]
    words: str
    back: frozenset[Trigger] = frozenset()
    back_words: str = ""

    @property
    def ends(self) -> str:
        """The names of the areas that the arrow joins."""
        if self.source is self.dest:
            return "a state to itself"
        way = "to and from" if self.back else "to"
        return f"{_name(self.source)} {way} {_name(self.dest)}"

    @property
    def label(self) -> str:
        """The words of both directions."""
        return f"{self.words}; back: {self.back_words}" if self.back else self.words

    def fits(self, source: State, dest: State, event: Trigger) -> bool:
        """Whether a row with these states and this event belongs to the arrow."""
        if self.source is self.dest:
            return source is dest and source in self.source.states and event in self.events
        if source in self.source.states and dest in self.dest.states:
            return event in self.events
        return source in self.dest.states and dest in self.source.states and event in self.back


def _name(area: Area) -> str:
    """Return the states of a box, or the words of a frame."""
    return area.name if area in BOXES else area.words


def _events(*events: Trigger) -> frozenset[Trigger]:
    return frozenset(events)


RULES: Final = (
    ArrowRule(CHECK, STREAM, _events(Trigger.PROCEED), "a step starts"),
    ArrowRule(STREAM, TOOL_EXEC, _events(Trigger.REPLIED), "tool calls"),
    ArrowRule(TOOL_EXEC, CONTINUE, _events(Trigger.SETTLED), "all calls have results"),
    ArrowRule(CONTINUE, CHECK, _events(Trigger.PROCEED), "next step"),
    ArrowRule(STREAM, REVIEW, _events(Trigger.REPLIED), "to review"),
    ArrowRule(REVIEW, TOOL_EXEC, _events(Trigger.REVIEWED), "accepted calls"),
    ArrowRule(REVIEW, CONTINUE, _events(Trigger.REVIEWED), "refused: try again"),
    ArrowRule(
        STREAM,
        COMPACT,
        _events(Trigger.ATTEMPT_FAILED, Trigger.OVERSIZED),
        "too long",
        _events(Trigger.COMPACTED, Trigger.ATTEMPT_FAILED),
        "go on",
    ),
    ArrowRule(
        TOOL_EXEC, PAUSED, _events(Trigger.SETTLED), "a call needs a person", _events(Trigger.ANSWERED), "answered"
    ),
    ArrowRule(CHECK, PAUSED, _events(Trigger.PROCEED), "a doom loop", _events(Trigger.ANSWERED), "go on"),
    ArrowRule(
        STEPS,
        LAST_REPLY,
        _events(Trigger.PROCEED, Trigger.COMPACTED, Trigger.EXPIRE, Trigger.ANSWERED),
        "a limit or a doom loop; or no step is allowed",
    ),
    ArrowRule(
        TURN, TURN, _events(Trigger.ATTEMPT_FAILED, Trigger.ANSWERED, Trigger.CONCLUDED), "a retry, or one more answer"
    ),
    ArrowRule(
        TURN,
        ANSWERED,
        _events(Trigger.REPLIED, Trigger.REVIEWED, Trigger.SETTLED, Trigger.EXPIRE),
        "an answer",
    ),
    ArrowRule(
        LAST_REPLY, LIMITED, _events(Trigger.CONCLUDED, Trigger.ATTEMPT_FAILED, Trigger.EXPIRE), "stopped by a limit"
    ),
    ArrowRule(
        TURN,
        STOPPED,
        _events(
            Trigger.ABORT, Trigger.FAIL, Trigger.TRIPPED, Trigger.ATTEMPT_FAILED, Trigger.REPLIED, Trigger.REVIEWED
        ),
        "abort, failure, guardrail",
    ),
)


@dataclass(frozen=True, slots=True)
class OverviewArrow:
    """An arrow with its rows."""

    rule: ArrowRule
    lines: tuple[TextLine, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of its rows, ascending."""
        return tuple(sorted(line.number for line in self.lines))


@dataclass(frozen=True, slots=True)
class Overview:
    """The arrows that have rows, and the kind of each box."""

    initial: Area
    kinds: Mapping[Area, NodeKind]
    arrows: tuple[OverviewArrow, ...]


def extract_overview(picture: Picture) -> Overview:
    """Return the overview of the full chart.

    Raises `ConfigError` when a state is in no box or in two, or a row belongs to no arrow or to two.
    """
    kinds = {node.state: node.kind for node in picture.nodes}
    box_of: dict[State, Area] = {state: _only_box(state) for state in kinds}
    lines: dict[ArrowRule, list[TextLine]] = {rule: [] for rule in RULES}
    for arrow in picture.arrows:
        for line in arrow.lines:
            lines[_only_rule(arrow.source, arrow.dest, line)].append(line)
    return Overview(
        initial=box_of[picture.initial],
        kinds={box: kinds[box.states[0]] for box in BOXES},
        arrows=tuple(OverviewArrow(rule, tuple(rows)) for rule, rows in lines.items() if rows),
    )


def _only_box(state: State) -> Area:
    boxes = [box for box in BOXES if state in box.states]
    if len(boxes) != 1:
        raise ConfigError(f"state {state} is in {len(boxes)} boxes of the overview: put it in one ({__name__}.BOXES)")
    return boxes[0]


def _only_rule(source: State, dest: State, line: TextLine) -> ArrowRule:
    rules = [rule for rule in RULES if rule.fits(source, dest, line.event)]
    if len(rules) != 1:
        raise ConfigError(
            f"row {line.number} ({source} --{line.event}--> {dest}) belongs to {len(rules)} arrows of the overview: "
            f"give it one ({__name__}.RULES)"
        )
    return rules[0]
