"""The chart: every transition of a turn, and the machine that executes them.

Two rules hold this room together. Everything that moves a turn from state to state is a row of `ROWS`; nothing else
in the project decides where a turn goes. And nothing here knows what a row is for: no model, no tool, no journal, no
clock. The rows are tried in order, the first whose guard holds wins, and the row names the reason of an ending.

A line of the literal below may name several states from which its row leads; `ROWS` has each of them.

A turn is a loop: CHECK asks whether another step may start, STREAM has the model's reply, TOOL_EXEC runs what it
asked for, CONTINUE closes the step. The loop leaves through CONCLUDE when a limit was reached (one more model call,
tools disabled), through PAUSED while a person is asked, through TEXT_ONLY when no step was allowed at all, and
otherwise straight into a final state. Why it ends: every row lowers the rank (`turn.py`), and `verify/` walks the
machine to show it.

A pair of state and trigger that has no row is illegal: the trigger is refused and nothing changes. `ILLEGAL` declares
each such pair with the reason, so that a row that was forgotten is not taken for one that must not be. Each pair that
has rows ends in one without a guard, so that a legal trigger always finds its way. Final states have no rows at all.

A `transitions.Machine` holds the table while turns run, and its transitions are the ones that are taken: remove one
from the running machine, or add one, and the next trigger finds it so. It is driven from outside, one trigger after the
other, never from its own callbacks: chained triggers recurse, and die before a hundred steps. What chooses among its
transitions is our `FastEvent` (`fast_event.py`), for the stock `Event` spends ten microseconds on callbacks that we do
not have. `Chart(ROWS, event=transitions.Event)` runs the same machine on the stock one, and a test compares the two on
every row.
"""

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from transitions import Event as StockEvent
from transitions import Machine

from .counters import Counters
from .errors import IllegalInputError
from .fast_event import FastEvent, HasState
from .guards import Guard, first_of
from .reasons import EndReason
from .state import FINAL, State, Trigger

#: Changes whenever a row does: a journal names the chart that it was written under.
VERSION: Final = 2

CHECK, STREAM, TOOL_EXEC, CONTINUE = State.CHECK, State.STREAM, State.TOOL_EXEC, State.CONTINUE
PAUSED, CONCLUDE, TEXT_ONLY = State.PAUSED, State.CONCLUDE, State.TEXT_ONLY
FINISHED, SYNTHESIS_DONE, CAP_HIT = State.FINISHED, State.SYNTHESIS_DONE, State.CAP_HIT
DOOM_LOOP, ABORTED, FAILED = State.DOOM_LOOP, State.ABORTED, State.FAILED

PROCEED, REPLIED, ATTEMPT_FAILED, SETTLED = Trigger.PROCEED, Trigger.REPLIED, Trigger.ATTEMPT_FAILED, Trigger.SETTLED
ANSWERED, CONCLUDED, EXPIRE, ABORT, FAIL = (
    Trigger.ANSWERED,
    Trigger.CONCLUDED,
    Trigger.EXPIRE,
    Trigger.ABORT,
    Trigger.FAIL,
)


class ReasonFrom(StrEnum):
    """Where a row's reason comes from when it is not the row's own."""

    CARRIED = "carried"
    CAUSE = "the cause"
    EVENT = "aborted or superseded"


class Row(NamedTuple):
    """One transition."""

    source: State
    trigger: Trigger
    guard: Guard
    dest: State
    reason: EndReason | ReasonFrom | None = None

    @property
    def name(self) -> str:
        """The row, named so that a message can point at it."""
        guard = f" [{self.guard.text}]" if self.guard.text else ""
        return f"{self.source} --{self.trigger}{guard}--> {self.dest}"


def _rows(
    sources: str, trigger: Trigger, guard: str, dest: State, reason: EndReason | ReasonFrom | None = None
) -> tuple[Row, ...]:
    """One row for each of the states whose names stand in `sources`."""
    return tuple(Row(State[source], trigger, Guard(guard), dest, reason) for source in sources.split())


_R = EndReason
_CARRIED, _CAUSE, _EVENT = ReasonFrom.CARRIED, ReasonFrom.CAUSE, ReasonFrom.EVENT
_ASKS, _WORKS = "STREAM TEXT_ONLY", "STREAM TOOL_EXEC CONCLUDE TEXT_ONLY"

# fmt: off
_LINES: Final = (
    # May another step start?
    _rows(CHECK, PROCEED, "allowance == 0 or no_calls", TEXT_ONLY),
    _rows(CHECK, PROCEED, "steps >= allowance", CONCLUDE, _R.STEP_CAP),
    _rows(CHECK, PROCEED, "doom and nudges_left > 0 and not spent", STREAM),
    _rows(CHECK, PROCEED, "doom and (not doom_asks or pauses_left == 0 or spent)", CONCLUDE, _R.DOOM_LOOP),
    _rows(CHECK, PROCEED, "calls_spent", CONCLUDE, _R.BUDGET),
    _rows(CHECK, PROCEED, "tokens_spent", CONCLUDE, _R.TOKENS),
    _rows(CHECK, PROCEED, "cost_spent", CONCLUDE, _R.COST),
    _rows(CHECK, PROCEED, "time_spent", CONCLUDE, _R.DEADLINE),
    _rows(CHECK, PROCEED, "doom", PAUSED),
    _rows(CHECK, PROCEED, "", STREAM),
    # The model replies: in a step, or, where no step is allowed, once and in text.
    _rows(_ASKS, REPLIED, "filtered", FAILED, _R.CONTENT_FILTER),
    _rows(STREAM, REPLIED, "made > 0", TOOL_EXEC),
    _rows(STREAM, REPLIED, "truncated", FINISHED, _R.TRUNCATED),
    _rows(STREAM, REPLIED, "", FINISHED, _R.ANSWERED),
    _rows(TEXT_ONLY, REPLIED, "", FINISHED, _R.TEXT_ONLY),
    _rows(STREAM, ATTEMPT_FAILED, "retries_left > 0 and may_pass", STREAM),
    _rows(TEXT_ONLY, ATTEMPT_FAILED, "retries_left > 0 and may_pass", TEXT_ONLY),
    _rows(_ASKS, ATTEMPT_FAILED, "", FAILED, _CAUSE),
    # Its calls run; `settled` comes once no call can run any more.
    _rows(TOOL_EXEC, SETTLED, "waiting > 0", PAUSED),
    _rows(TOOL_EXEC, SETTLED, "synthesized", SYNTHESIS_DONE, _R.SYNTHESIZED),
    _rows(TOOL_EXEC, SETTLED, "", CONTINUE),
    # The step is over.
    _rows(CONTINUE, PROCEED, "", CHECK),
    # A person is asked. Paused time is not the turn's, so a pause does not expire; and nothing runs that could fail.
    _rows(PAUSED, ANSWERED, "waiting > 0", PAUSED),
    _rows(PAUSED, ANSWERED, "doom_asked and go_on", CHECK),
    _rows(PAUSED, ANSWERED, "doom_asked", CONCLUDE, _R.DOOM_LOOP),
    _rows(PAUSED, ANSWERED, "", TOOL_EXEC),
    # A limit was reached; the model says what was done and what is left. Its failure never fails the turn. A reply
    # without text is asked for once more.
    _rows(CONCLUDE, ATTEMPT_FAILED, "retries_left > 0 and may_pass", CONCLUDE, _CARRIED),
    _rows(CONCLUDE, ATTEMPT_FAILED, "carried_doom", DOOM_LOOP, _CARRIED),
    _rows(CONCLUDE, ATTEMPT_FAILED, "", CAP_HIT, _CARRIED),
    _rows(CONCLUDE, CONCLUDED, "no_text and retries_left > 0 and not second_try", CONCLUDE, _CARRIED),
    _rows(CONCLUDE, CONCLUDED, "carried_doom", DOOM_LOOP, _CARRIED),
    _rows(CONCLUDE, CONCLUDED, "", CAP_HIT, _CARRIED),
    # Wherever it stands: its time is up, somebody stops it, the engine fails.
    _rows("STREAM TOOL_EXEC", EXPIRE, "", CONCLUDE, _R.DEADLINE),
    _rows(TEXT_ONLY, EXPIRE, "", CAP_HIT, _R.DEADLINE),
    _rows("PAUSED " + _WORKS, ABORT, "", ABORTED, _EVENT),
    _rows(_WORKS, FAIL, "", FAILED, _R.ENGINE_ERROR),
    # FINISHED, SYNTHESIS_DONE, CAP_HIT, DOOM_LOOP, ABORTED, FAILED: no rows.
)
# fmt: on
#: One row for each state that a line names, by state: the order and the numbers that drawings and proofs use.
ROWS: Final = tuple(sorted(chain.from_iterable(_LINES), key=lambda row: list(State).index(row.source)))


class Refused(NamedTuple):
    """The triggers that a state refuses, and why."""

    triggers: tuple[Trigger, ...]
    why: str


_PASSED_THROUGH: Final = Refused(
    (REPLIED, ATTEMPT_FAILED, SETTLED, ANSWERED, CONCLUDED, EXPIRE, ABORT, FAIL),
    "the machine runs through it by itself: nothing from outside arrives",
)

# fmt: off
#: The pairs of state and trigger that have no row on purpose. A final state refuses everything: the turn is over.
ILLEGAL: Final[dict[State, Refused]] = {
    CHECK: _PASSED_THROUGH,
    STREAM: Refused((PROCEED, SETTLED, ANSWERED, CONCLUDED), "a step's model call is open, and nothing else"),
    TOOL_EXEC: Refused((PROCEED, REPLIED, ATTEMPT_FAILED, ANSWERED, CONCLUDED), "a batch is open, and no model call"),
    CONTINUE: _PASSED_THROUGH,
    PAUSED: Refused((PROCEED, REPLIED, ATTEMPT_FAILED, SETTLED, CONCLUDED, EXPIRE, FAIL), "only a person acts here"),
    CONCLUDE: Refused((PROCEED, REPLIED, SETTLED, ANSWERED, EXPIRE), "the last call is open; its time-out is its own"),
    TEXT_ONLY: Refused((PROCEED, SETTLED, ANSWERED, CONCLUDED), "the turn's one model call is open, and nothing else"),
}
# fmt: on


class Chart:
    """A table of rows, and the `transitions.Machine` that is made of it and executes it.

    `rows` are tried in order within each pair of state and trigger. `event` is the class of the machine's events: a
    test passes the stock one. `taken` counts, for each row by its place, how often this process took it: that is what
    transition coverage reads. What is changed in `machine` later changes what is taken, and not `rows`, which are what
    is drawn and proven.
    """

    def __init__(self, rows: tuple[Row, ...], event: type[StockEvent] = FastEvent) -> None:
        self.rows = rows
        self.taken = [0] * len(rows)
        #: The pairs of state and trigger with a row that ends the turn.
        self.ending = frozenset((row.source, row.trigger) for row in rows if row.dest in FINAL)
        self._ladders: dict[tuple[State, Trigger | None], tuple[list[Row], Callable[[Counters], int]]] = {}
        executor = type("TurnMachine", (Machine,), {"event_cls": event})
        self.machine: Machine = executor(
            model=None, states=list(State), initial=State.CHECK, auto_transitions=False, send_event=False
        )
        for place, row in enumerate(rows):
            guard = row.guard if row.guard.text else None
            note = partial(self._note, place, row)
            self.machine.add_transition(row.trigger, row.source, row.dest, conditions=guard, before=note)

    def accepts(self, state: State, trigger: Trigger) -> bool:
        """Whether the machine has a transition for this trigger in this state."""
        events = self.machine.events
        if trigger not in events or state not in events[trigger].transitions:
            return False
        return events[trigger].transitions[state] != []

    def row(self, state: State, trigger: Trigger | None, counters: Counters) -> Row | None:
        """The row that `fire` would take, or None where no row accepts the trigger. Asking changes nothing."""
        pair = state, trigger
        if pair not in self._ladders:
            rows = [row for row in self.rows if (row.source, row.trigger) == pair]
            self._ladders[pair] = rows, first_of([[(row.guard, True)] for row in rows])
        rows, place_of = self._ladders[pair]
        place = place_of(counters)
        return rows[place] if place >= 0 else None

    def fire(self, model: HasState, trigger: Trigger, counters: Counters) -> Row:
        """Move `model` along the first row that holds, and return that row.

        A transition that the machine was given later is no row of the chart: it has the reason of the last row that
        leads the same way, or none. Raises `IllegalInputError`, and leaves `model` as it was, when no row accepts the
        trigger.
        """
        events, source = self.machine.events, model.state
        accepted = trigger in events and source in events[trigger].transitions
        if not accepted or not events[trigger].trigger(model, counters):
            raise IllegalInputError(trigger, source)
        # The note of a row has written it. Whatever was added to the machine has no note.
        row, counters.row = counters.row, None
        return self._added(source, trigger, model.state) if row is None else row  # type: ignore[return-value]

    def _added(self, source: State, trigger: Trigger, dest: State) -> Row:
        alike = [row for row in self.rows if (row.source, row.trigger, row.dest) == (source, trigger, dest)]
        return alike[-1] if alike else Row(source, trigger, Guard(""), dest)

    def _note(self, place: int, row: Row, counters: Counters) -> None:
        counters.row = row
        self.taken[place] += 1


CHART: Final = Chart(ROWS)
