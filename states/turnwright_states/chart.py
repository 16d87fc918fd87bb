"""The chart: every transition of a turn, and the machine that executes them.

Two rules hold this room together. Everything that moves a turn from state to state is a row of `ROWS`; nothing else
in the project decides where a turn goes. And nothing here knows what a row is for: no model, no tool, no journal, no
clock. The rows are tried in order, the first whose guard holds wins, and the row names the reason of an ending.

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

from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

from transitions import Event as StockEvent
from transitions import Machine

from .counters import Counters
from .errors import IllegalInputError
from .fast_event import FastEvent, HasState
from .guards import Guard
from .reasons import EndReason
from .state import State, Trigger

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


def _row(source: State, trigger: Trigger, guard: str, dest: State, reason: EndReason | ReasonFrom | None = None) -> Row:
    return Row(source, trigger, Guard(guard), dest, reason)


_R = EndReason
_CARRIED, _CAUSE, _EVENT = ReasonFrom.CARRIED, ReasonFrom.CAUSE, ReasonFrom.EVENT

# fmt: off
ROWS: Final[tuple[Row, ...]] = (
    # May another step start?
    _row(CHECK, PROCEED, "allowance == 0 or no_calls", TEXT_ONLY),
    _row(CHECK, PROCEED, "steps >= allowance", CONCLUDE, _R.STEP_CAP),
    _row(CHECK, PROCEED, "doom and nudges_left > 0 and not spent", STREAM),
    _row(CHECK, PROCEED, "doom and (not doom_asks or pauses_left == 0 or spent)", CONCLUDE, _R.DOOM_LOOP),
    _row(CHECK, PROCEED, "calls_spent", CONCLUDE, _R.BUDGET),
    _row(CHECK, PROCEED, "tokens_spent", CONCLUDE, _R.TOKENS),
    _row(CHECK, PROCEED, "cost_spent", CONCLUDE, _R.COST),
    _row(CHECK, PROCEED, "time_spent", CONCLUDE, _R.DEADLINE),
    _row(CHECK, PROCEED, "doom", PAUSED),
    _row(CHECK, PROCEED, "", STREAM),
    # The model replies.
    _row(STREAM, REPLIED, "filtered", FAILED, _R.CONTENT_FILTER),
    _row(STREAM, REPLIED, "made > 0", TOOL_EXEC),
    _row(STREAM, REPLIED, "truncated", FINISHED, _R.TRUNCATED),
    _row(STREAM, REPLIED, "", FINISHED, _R.ANSWERED),
    _row(STREAM, ATTEMPT_FAILED, "retries_left > 0 and may_pass", STREAM),
    _row(STREAM, ATTEMPT_FAILED, "", FAILED, _CAUSE),
    _row(STREAM, EXPIRE, "", CONCLUDE, _R.DEADLINE),
    _row(STREAM, ABORT, "", ABORTED, _EVENT),
    _row(STREAM, FAIL, "", FAILED, _R.ENGINE_ERROR),
    # Its calls run; `settled` comes once no call can run any more.
    _row(TOOL_EXEC, SETTLED, "waiting > 0", PAUSED),
    _row(TOOL_EXEC, SETTLED, "synthesized", SYNTHESIS_DONE, _R.SYNTHESIZED),
    _row(TOOL_EXEC, SETTLED, "", CONTINUE),
    _row(TOOL_EXEC, EXPIRE, "", CONCLUDE, _R.DEADLINE),
    _row(TOOL_EXEC, ABORT, "", ABORTED, _EVENT),
    _row(TOOL_EXEC, FAIL, "", FAILED, _R.ENGINE_ERROR),
    # The step is over.
    _row(CONTINUE, PROCEED, "", CHECK),
    # A person is asked. Paused time is not the turn's, so a pause does not expire; and nothing runs that could fail.
    _row(PAUSED, ANSWERED, "waiting > 0", PAUSED),
    _row(PAUSED, ANSWERED, "doom_asked and go_on", CHECK),
    _row(PAUSED, ANSWERED, "doom_asked", CONCLUDE, _R.DOOM_LOOP),
    _row(PAUSED, ANSWERED, "", TOOL_EXEC),
    _row(PAUSED, ABORT, "", ABORTED, _EVENT),
    # A limit was reached; the model says what was done and what is left. Its failure never fails the turn. A reply
    # without text is asked for once more.
    _row(CONCLUDE, ATTEMPT_FAILED, "retries_left > 0 and may_pass", CONCLUDE, _CARRIED),
    _row(CONCLUDE, ATTEMPT_FAILED, "carried_doom", DOOM_LOOP, _CARRIED),
    _row(CONCLUDE, ATTEMPT_FAILED, "", CAP_HIT, _CARRIED),
    _row(CONCLUDE, CONCLUDED, "no_text and retries_left > 0 and not second_try", CONCLUDE, _CARRIED),
    _row(CONCLUDE, CONCLUDED, "carried_doom", DOOM_LOOP, _CARRIED),
    _row(CONCLUDE, CONCLUDED, "", CAP_HIT, _CARRIED),
    _row(CONCLUDE, ABORT, "", ABORTED, _EVENT),
    _row(CONCLUDE, FAIL, "", FAILED, _R.ENGINE_ERROR),
    # No step is allowed: one call, answered in text.
    _row(TEXT_ONLY, REPLIED, "filtered", FAILED, _R.CONTENT_FILTER),
    _row(TEXT_ONLY, REPLIED, "", FINISHED, _R.TEXT_ONLY),
    _row(TEXT_ONLY, ATTEMPT_FAILED, "retries_left > 0 and may_pass", TEXT_ONLY),
    _row(TEXT_ONLY, ATTEMPT_FAILED, "", FAILED, _CAUSE),
    _row(TEXT_ONLY, EXPIRE, "", CAP_HIT, _R.DEADLINE),
    _row(TEXT_ONLY, ABORT, "", ABORTED, _EVENT),
    _row(TEXT_ONLY, FAIL, "", FAILED, _R.ENGINE_ERROR),
    # FINISHED, SYNTHESIS_DONE, CAP_HIT, DOOM_LOOP, ABORTED, FAILED: no rows.
)
# fmt: on


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
