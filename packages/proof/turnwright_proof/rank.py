"""The rank of a turn (docs/rules.md#termination).

Every event lowers it in lexicographic order, so the turn ends. It is written once, as texts in the effects' language:
the function that a walk calls, and the formulas of the proof for all limits, are made from these texts.
"""

from collections.abc import Callable, Mapping
from typing import Final

from turnwright_states.effects import on_counters
from turnwright_states.state import State
from turnwright_states.turn import Turn

Rank = tuple[int, ...]

#: The stage of each state in the rank: smaller is nearer to the end.
STAGE: Final = {
    State.PAUSED: 8,
    State.COMPACT: 7,
    State.STREAM: 6,
    State.REVIEW: 5,
    State.TOOL_EXEC: 4,
    State.CONTINUE: 3,
    State.CHECK: 2,
    State.CONCLUDE: 1,
    State.TEXT_ONLY: 1,
}
#: The rank, most significant first: the name and the text of each component. `stage`, `paused` and `asks_model` are
#: those of the state (`rank_values`).
RANK: Final[Mapping[str, str]] = {
    "steps left": "allowance - steps",
    "output retries left": "output_retries_left",
    "compactions left": "compactions_left",
    "pauses left": "pauses_left",
    "stage": "stage",
    "retries left": "retries_left",
    "open interrupts": "waiting if paused else 0",
    "calls that can run": "ready + ready_counted + running + answering",
    "calls not started": "ready + ready_counted + answering",
    "calls that run again without a retry": "crash_paid",
    "request to prepare": "0 if prepared or not asks_model else 1",
}
_OF_STATE: Final = ("stage", "paused", "asks_model")


def rank_values(state: State) -> tuple[int, bool, bool]:
    """Return `stage`, `paused` and `asks_model` of a state: the values of the rank that are not counters."""
    return STAGE.get(state, 0), state is State.PAUSED, state is State.STREAM or state is State.TEXT_ONLY


_texts: Final = ", ".join(map(on_counters, RANK.values()))
_rank: Final[Callable[..., Rank]] = eval(  # noqa: S307 (the literals above)
    f"lambda c, {', '.join(_OF_STATE)}: ({_texts})", {"__builtins__": {}}
)
_VALUES_OF: Final = {state: rank_values(state) for state in State}


def rank_of(turn: Turn) -> Rank:
    """Return the rank of a turn, in the order of `RANK`."""
    return _rank(turn.counters, *_VALUES_OF[turn.state])
