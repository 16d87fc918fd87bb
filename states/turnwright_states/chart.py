"""The chart: every transition of a turn, and the machine that executes them.

Two rules apply to this module. Every transition of a turn is a row of `ROWS`, and nothing else in the project decides
the next state. Nothing here depends on a model, a tool, a journal or a clock. The rows are tried in order, the first
whose guard holds is taken, and the row names the reason of an ending.

A line of the literal below may name several source states; `ROWS` has one row for each of them.

A turn is a loop: CHECK decides whether another step may start, STREAM receives the model's reply, TOOL_EXEC runs its
calls, CONTINUE closes the step. COMPACT makes a long conversation shorter before the model call, and REVIEW checks a
reply before anything of it runs. The loop leaves through CONCLUDE when a limit was reached (one more model call, tools
disabled), through PAUSED while a person is asked, through TEXT_ONLY when no step was allowed at all, and otherwise
directly into a final state. Every row lowers the rank of the turn, so every turn ends; `turnwright verify` walks
the machine to check it (docs/rules.md#termination).

A pair of state and trigger without a row is illegal: the trigger is refused and nothing changes. `ILLEGAL` declares
each such pair with the reason, so that a forgotten row is detected. Each pair with rows ends in one without a guard, so
that a legal trigger always finds a row. Final states have no rows at all.

A `transitions.Machine` holds the table while turns run, and executes its own transitions: after one is added to the
running machine or removed, the next trigger uses the change. Triggers come from outside, one after the other, never
from callbacks, because chained triggers recurse and fail before a hundred steps. `FastEvent` (`fast_event.py`) chooses
among the transitions, because the stock `Event` spends ten microseconds on callbacks that the chart does not have.
`Chart(ROWS, event=transitions.Event)` runs the same machine on the stock event, and a test compares the two on every
row.
"""

from collections.abc import Callable
from enum import StrEnum
from itertools import chain
from operator import methodcaller
from typing import Final, NamedTuple

from transitions import Event as StockEvent
from transitions import Machine

from .counters import Counters
from .errors import IllegalInputError
from .fast_event import FastEvent, HasState
from .guards import Guard, first_of
from .reasons import EndReason
from .state import FINAL, State, Trigger

#: Raise it with every change of a row: a journal names the chart that it was written under.
VERSION: Final = 4

CHECK, STREAM, TOOL_EXEC, CONTINUE = State.CHECK, State.STREAM, State.TOOL_EXEC, State.CONTINUE
COMPACT, REVIEW, PAUSED = State.COMPACT, State.REVIEW, State.PAUSED
CONCLUDE, TEXT_ONLY = State.CONCLUDE, State.TEXT_ONLY
FINISHED, SYNTHESIS_DONE, CAP_HIT = State.FINISHED, State.SYNTHESIS_DONE, State.CAP_HIT
DOOM_LOOP, ABORTED, FAILED = State.DOOM_LOOP, State.ABORTED, State.FAILED

PROCEED, REPLIED, ATTEMPT_FAILED, SETTLED = Trigger.PROCEED, Trigger.REPLIED, Trigger.ATTEMPT_FAILED, Trigger.SETTLED
REVIEWED, OVERSIZED, COMPACTED = Trigger.REVIEWED, Trigger.OVERSIZED, Trigger.COMPACTED
ANSWERED, CONCLUDED, TRIPPED, EXPIRE, ABORT, FAIL = (
    Trigger.ANSWERED,
    Trigger.CONCLUDED,
    Trigger.TRIPPED,
    Trigger.EXPIRE,
    Trigger.ABORT,
    Trigger.FAIL,
)


class ReasonFrom(StrEnum):
    """The source of a row's reason when the row does not name it."""

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
        """The row's name in messages."""
        guard = f" [{self.guard.text}]" if self.guard.text else ""
        return f"{self.source} --{self.trigger}{guard}--> {self.dest}"


def _rows(
    sources: str, trigger: Trigger, guard: str, dest: State, reason: EndReason | ReasonFrom | None = None
) -> tuple[Row, ...]:
    """Return one row for each of the states that `sources` names."""
    return tuple(Row(State[source], trigger, Guard(guard), dest, reason) for source in sources.split())


_R = EndReason
_CARRIED, _CAUSE, _EVENT = ReasonFrom.CARRIED, ReasonFrom.CAUSE, ReasonFrom.EVENT
_ASKS, _WORKS = "STREAM TEXT_ONLY", "STREAM COMPACT REVIEW TOOL_EXEC CONCLUDE TEXT_ONLY"

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
    _rows(CHECK, PROCEED, "idled", CONCLUDE, _R.NO_CALL_RAN),
    _rows(CHECK, PROCEED, "doom", PAUSED),
    _rows(CHECK, PROCEED, "", STREAM),
    # The model replies: in a step, or once and in text if no step is allowed.
    _rows(_ASKS, REPLIED, "filtered", FAILED, _R.CONTENT_FILTER),
    _rows(STREAM, REPLIED, "review", REVIEW),
    _rows(STREAM, REPLIED, "made > 0", TOOL_EXEC),
    _rows(STREAM, REPLIED, "truncated", FINISHED, _R.TRUNCATED),
    _rows(STREAM, REPLIED, "", FINISHED, _R.ANSWERED),
    _rows(TEXT_ONLY, REPLIED, "", FINISHED, _R.TEXT_ONLY),
    _rows(STREAM, ATTEMPT_FAILED, "retries_left > 0 and may_pass", STREAM),
    _rows(TEXT_ONLY, ATTEMPT_FAILED, "retries_left > 0 and may_pass", TEXT_ONLY),
    _rows(STREAM, ATTEMPT_FAILED, "overflow and compactions_left > 0", COMPACT),
    _rows(_ASKS, ATTEMPT_FAILED, "", FAILED, _CAUSE),
    # The conversation is too long for the next call. That call follows, whether the compaction succeeds or not.
    _rows(STREAM, OVERSIZED, "", COMPACT),
    _rows(COMPACT, COMPACTED, "tokens_spent", CONCLUDE, _R.TOKENS),
    _rows(COMPACT, COMPACTED, "cost_spent", CONCLUDE, _R.COST),
    _rows(COMPACT, COMPACTED, "", STREAM),
    _rows(COMPACT, ATTEMPT_FAILED, "retries_left > 0 and may_pass", COMPACT),
    _rows(COMPACT, ATTEMPT_FAILED, "", STREAM),
    # Hooks, the output type and guardrails check the reply. Nothing of it has run.
    _rows(REVIEW, REVIEWED, "refused and output_retries_left > 0", CONTINUE),
    _rows(REVIEW, REVIEWED, "refused", FAILED, _R.INVALID_OUTPUT),
    _rows(REVIEW, REVIEWED, "made > 0", TOOL_EXEC),
    _rows(REVIEW, REVIEWED, "truncated", FINISHED, _R.TRUNCATED),
    _rows(REVIEW, REVIEWED, "", FINISHED, _R.ANSWERED),
    _rows(REVIEW, ATTEMPT_FAILED, "retries_left > 0 and may_pass", REVIEW),
    _rows(REVIEW, ATTEMPT_FAILED, "", FAILED, _CAUSE),
    # Its calls run; `settled` comes when no call can run any more.
    _rows(TOOL_EXEC, SETTLED, "waiting > 0", PAUSED),
    _rows(TOOL_EXEC, SETTLED, "final", FINISHED, _R.ANSWERED),
    _rows(TOOL_EXEC, SETTLED, "synthesized", SYNTHESIS_DONE, _R.SYNTHESIZED),
    _rows(TOOL_EXEC, SETTLED, "", CONTINUE),
    # The step is over.
    _rows(CONTINUE, PROCEED, "", CHECK),
    # A person is asked. Paused time does not count, so a pause does not expire, and nothing runs that could fail.
    _rows(PAUSED, ANSWERED, "waiting > 0", PAUSED),
    _rows(PAUSED, ANSWERED, "doom_asked and go_on", CHECK),
    _rows(PAUSED, ANSWERED, "doom_asked", CONCLUDE, _R.DOOM_LOOP),
    _rows(PAUSED, ANSWERED, "", TOOL_EXEC),
    # A limit was reached, and the model sums up. Its failure never fails the turn. It is asked once more after a reply
    # without text.
    _rows(CONCLUDE, ATTEMPT_FAILED, "retries_left > 0 and may_pass", CONCLUDE, _CARRIED),
    _rows(CONCLUDE, ATTEMPT_FAILED, "carried_doom", DOOM_LOOP, _CARRIED),
    _rows(CONCLUDE, ATTEMPT_FAILED, "", CAP_HIT, _CARRIED),
    _rows(CONCLUDE, CONCLUDED, "no_text and retries_left > 0 and not second_try", CONCLUDE, _CARRIED),
    _rows(CONCLUDE, CONCLUDED, "carried_doom", DOOM_LOOP, _CARRIED),
    _rows(CONCLUDE, CONCLUDED, "", CAP_HIT, _CARRIED),
    # In several states: a guardrail trips, the time is up, somebody aborts the turn, the engine fails.
    _rows("STREAM REVIEW TOOL_EXEC CONCLUDE TEXT_ONLY", TRIPPED, "", FAILED, _R.GUARDRAIL),
    _rows(TOOL_EXEC, EXPIRE, "final", FINISHED, _R.ANSWERED),
    _rows("STREAM COMPACT REVIEW TOOL_EXEC", EXPIRE, "", CONCLUDE, _R.DEADLINE),
    _rows(TEXT_ONLY, EXPIRE, "", CAP_HIT, _R.DEADLINE),
    _rows("PAUSED " + _WORKS, ABORT, "", ABORTED, _EVENT),
    _rows(_WORKS, FAIL, "", FAILED, _R.ENGINE_ERROR),
    # FINISHED, SYNTHESIS_DONE, CAP_HIT, DOOM_LOOP, ABORTED, FAILED: no rows.
)
# fmt: on
#: One row for each state that a line names, by state: the order and the numbers that drawings and proofs use.
ROWS: Final = tuple(sorted(chain.from_iterable(_LINES), key=lambda row: list(State).index(row.source)))


class Refused(NamedTuple):
    """The triggers that a state refuses, and the reason."""

    triggers: tuple[Trigger, ...]
    why: str


#: The triggers of a review and of a compaction.
_BESIDE: Final = (REVIEWED, OVERSIZED, COMPACTED)
_PASSED_THROUGH: Final = Refused(
    tuple(trigger for trigger in Trigger if trigger is not PROCEED),
    "the machine leaves it by itself, so no input arrives here",
)

# fmt: off
#: The pairs of state and trigger that have no row on purpose. A final state refuses everything: the turn is over.
ILLEGAL: Final[dict[State, Refused]] = {
    CHECK: _PASSED_THROUGH,
    STREAM: Refused((PROCEED, SETTLED, ANSWERED, CONCLUDED, REVIEWED, COMPACTED), "only a step's model call is open"),
    COMPACT: Refused(
        (PROCEED, REPLIED, SETTLED, ANSWERED, CONCLUDED, REVIEWED, OVERSIZED, TRIPPED), "only a summary is being made"
    ),
    REVIEW: Refused(
        (PROCEED, REPLIED, SETTLED, ANSWERED, CONCLUDED, OVERSIZED, COMPACTED), "only a reply is being checked"
    ),
    TOOL_EXEC: Refused((PROCEED, REPLIED, ATTEMPT_FAILED, ANSWERED, CONCLUDED, *_BESIDE), "only a batch is open"),
    CONTINUE: _PASSED_THROUGH,
    PAUSED: Refused(
        (PROCEED, REPLIED, ATTEMPT_FAILED, SETTLED, CONCLUDED, TRIPPED, EXPIRE, FAIL, *_BESIDE),
        "only a person acts in it",
    ),
    CONCLUDE: Refused(
        (PROCEED, REPLIED, SETTLED, ANSWERED, EXPIRE, *_BESIDE), "the concluding call has its own timeout"
    ),
    TEXT_ONLY: Refused((PROCEED, SETTLED, ANSWERED, CONCLUDED, *_BESIDE), "only the turn's single model call is open"),
}
# fmt: on


class Chart:
    """A table of rows, and the `transitions.Machine` that executes it.

    `rows` are tried in order within each pair of state and trigger. `event` is the class of the machine's events: a
    test passes the stock one. `taken` counts how often this process took each row, for transition coverage. A later
    change of `machine` changes which transitions are taken. It does not change `rows`, which are drawn and proven.
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
            # Code of C, because it runs for each transition.
            note = methodcaller("__setattr__", "place", place)
            self.machine.add_transition(row.trigger, row.source, row.dest, conditions=guard, before=note)

    def accepts(self, state: State, trigger: Trigger) -> bool:
        """Whether the machine has a transition for this trigger in this state."""
        events = self.machine.events
        if trigger not in events or state not in events[trigger].transitions:
            return False
        return events[trigger].transitions[state] != []

    def row(self, state: State, trigger: Trigger | None, counters: Counters) -> Row | None:
        """Return the row that `fire` would take, or None if no row accepts the trigger. Nothing changes."""
        pair = state, trigger
        if pair not in self._ladders:
            rows = [row for row in self.rows if (row.source, row.trigger) == pair]
            self._ladders[pair] = rows, first_of([[(row.guard, True)] for row in rows])
        rows, place_of = self._ladders[pair]
        place = place_of(counters)
        return rows[place] if place >= 0 else None

    def fire(self, model: HasState, trigger: Trigger, counters: Counters) -> Row:
        """Move `model` along the first row whose guard holds, and return that row.

        A transition that was added to the machine later is not a row of the chart. It has the reason of the last row
        with the same source, trigger and destination, or none. Raises `IllegalInputError` when no row accepts the
        trigger; `model` is unchanged then.
        """
        events, source = self.machine.events, model.state
        has_row = trigger in events and source in events[trigger].transitions
        if not has_row or not events[trigger].trigger(model, counters):
            raise IllegalInputError(trigger, source)
        place, counters.place = counters.place, None
        if place is None:  # the transition was added later
            return self._find_added_row(source, trigger, model.state)
        self.taken[place] += 1
        return self.rows[place]

    def _find_added_row(self, source: State, trigger: Trigger, dest: State) -> Row:
        alike = [row for row in self.rows if (row.source, row.trigger, row.dest) == (source, trigger, dest)]
        return alike[-1] if alike else Row(source, trigger, Guard(""), dest)


CHART: Final = Chart(ROWS)
