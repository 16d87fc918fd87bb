"""The states of a turn, and the events of the chart.

Names only: which event leads where is the chart's business (`chart.py`).
"""

from enum import StrEnum
from typing import Final


class Outcome(StrEnum):
    """How a turn ended: the final state, as it is spelled in JSON."""

    FINISHED = "finished"
    SYNTHESIS_DONE = "synthesis_done"
    CAP_HIT = "cap_hit"
    DOOM_LOOP = "doom_loop"
    ABORTED = "aborted"
    FAILED = "failed"


class State(StrEnum):
    """Where a turn stands. The value is the name that diagrams, the journal and the model checker use."""

    CHECK = "CHECK"
    STREAM = "STREAM"
    TOOL_EXEC = "TOOL_EXEC"
    CONTINUE = "CONTINUE"
    PAUSED = "PAUSED"
    CONCLUDE = "CONCLUDE"
    TEXT_ONLY = "TEXT_ONLY"
    FINISHED = "FINISHED"
    SYNTHESIS_DONE = "SYNTHESIS_DONE"
    CAP_HIT = "CAP_HIT"
    DOOM_LOOP = "DOOM_LOOP"
    ABORTED = "ABORTED"
    FAILED = "FAILED"

    @property
    def outcome(self) -> Outcome | None:
        """The outcome that this state is, or None while the turn is not over."""
        return OUTCOMES.get(self)


class Trigger(StrEnum):
    """The events of the chart. What is fed from outside (`events.py`) is reduced to one of these."""

    PROCEED = "proceed"
    REPLIED = "replied"
    ATTEMPT_FAILED = "attempt_failed"
    SETTLED = "settled"
    ANSWERED = "answered"
    CONCLUDED = "concluded"
    EXPIRE = "expire"
    ABORT = "abort"
    FAIL = "fail"


OUTCOMES: Final[dict[State, Outcome]] = {State[outcome.name]: outcome for outcome in Outcome}

#: The machine runs through these by itself; nothing from outside arrives there.
TRANSIENT: Final = frozenset({State.CHECK, State.CONTINUE})
#: The turn rests here until a person answers.
RESTING: Final = frozenset({State.PAUSED})
#: The engine is doing something here: entering one sets the retries anew.
LIVE: Final = frozenset({State.STREAM, State.TOOL_EXEC, State.CONCLUDE, State.TEXT_ONLY})
#: The turn is over.
FINAL: Final = frozenset(OUTCOMES)
#: The stage of each state in the rank; the smaller, the nearer the end.
STAGE: Final = {
    State.PAUSED: 6,
    State.STREAM: 5,
    State.TOOL_EXEC: 4,
    State.CONTINUE: 3,
    State.CHECK: 2,
    State.CONCLUDE: 1,
    State.TEXT_ONLY: 1,
}
