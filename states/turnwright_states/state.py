"""The names of a turn's outcomes, states, triggers and stalls. The transitions are in the chart (`chart.py`)."""

from enum import StrEnum
from typing import Final


class Outcome(StrEnum):
    """The outcome of a turn: its final state, as JSON spells it."""

    FINISHED = "finished"
    SYNTHESIS_DONE = "synthesis_done"
    CAP_HIT = "cap_hit"
    DOOM_LOOP = "doom_loop"
    ABORTED = "aborted"
    FAILED = "failed"


class State(StrEnum):
    """The state of a turn. Diagrams, the journal and the proof use the value as its name."""

    CHECK = "CHECK"
    STREAM = "STREAM"
    COMPACT = "COMPACT"
    REVIEW = "REVIEW"
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
    """The triggers of the chart. Each input (`inputs.py`) is mapped to one of them."""

    PROCEED = "proceed"
    REPLIED = "replied"
    REVIEWED = "reviewed"
    ATTEMPT_FAILED = "attempt_failed"
    OVERSIZED = "oversized"
    COMPACTED = "compacted"
    SETTLED = "settled"
    ANSWERED = "answered"
    CONCLUDED = "concluded"
    TRIPPED = "tripped"
    EXPIRE = "expire"
    ABORT = "abort"
    FAIL = "fail"


class Stall(StrEnum):
    """The kind of a stall, which decides the words of the hint."""

    SAME_ERROR = "same_error"
    NOTHING_NEW = "nothing_new"


OUTCOMES: Final[dict[State, Outcome]] = {State[outcome.name]: outcome for outcome in Outcome}

#: The machine leaves these by itself, so no input arrives there.
TRANSIENT: Final = frozenset({State.CHECK, State.CONTINUE})
#: The turn waits here until a person answers.
RESTING: Final = frozenset({State.PAUSED})
#: The engine works here. Entering one resets the retries, but a compaction shares those of its model call.
LIVE: Final = frozenset({State.STREAM, State.COMPACT, State.REVIEW, State.TOOL_EXEC, State.CONCLUDE, State.TEXT_ONLY})
#: The turn is over.
FINAL: Final = frozenset(OUTCOMES)
