"""The theorems about every turn with any limits, as data: hypotheses, invariants, claims and bounds.

Each text is in the effects' language (`effects.py`). `turnwright verify --smt` proves that the invariants hold at the
start and that every move keeps them, so the bounds follow for all limits, not only for those that a walk can try.
`tests/proof/conformance.py` evaluates the invariants on the machine, on every edge of a walk (docs/evidence.md).
"""

from collections.abc import Iterator, Mapping
from itertools import takewhile
from typing import Final, NamedTuple

from turnwright_states.chart import Row
from turnwright_states.counters import BATCH, KEPT
from turnwright_states.guards import Guard
from turnwright_states.limits import MAX_ANSWERS, MAX_STEPS
from turnwright_states.reasons import REASONS, REASONS_OF, EndReason
from turnwright_states.state import FINAL, Outcome, State, Trigger

from .moves import OPEN, TOOLS, one_of

S, T = State, Trigger

#: Values that never change, the limits of the turn; and those that do, counters and ghosts (`moves.GHOSTS`).
CONSTANTS: Final = (
    *("allowance", "budgeted", "budget", "doom_asks", "idle_limit"),
    *("max_retries", "max_nudges", "max_refusals", "max_pauses", "max_compactions", "widest"),
)
CHANGING: Final = (
    *(name for name in KEPT if name not in CONSTANTS),
    *BATCH,
    *("prepared", "doom_waits", "nudges", "refusals", "pauses", "ran", "repeats", "credit", "model_calls", "reason"),
)
#: The hypotheses about the limits, which `limits.py` guarantees.
LIMITS: Final = (
    "allowance >= 0 and budget >= 0 and (budgeted or budget == 0) and max_retries >= 0 and max_nudges >= 0"
    " and max_refusals >= 0 and max_pauses >= 0 and max_compactions >= 0 and widest >= 1"
    " and idle_limit >= 0"
)
#: Names that are 0 in a turn that begins.
_GHOSTS: Final = ("doom_waits", "nudges", "refusals", "pauses", "ran", "repeats", "credit", "model_calls", "reason")
_ZERO: Final = ("steps", "calls", "waiting", "idle", *BATCH, *_GHOSTS)
#: The configuration of a turn that begins, in CHECK.
START: Final = (
    "nudges_left == max_nudges and output_retries_left == max_refusals and pauses_left == max_pauses"
    " and retries_left == max_retries and compactions_left == max_compactions and not prepared and not final"
    " and not carried_doom and not second_try and not doom and " + " and ".join(f"{name} == 0" for name in _ZERO)
)
#: The allowance of `Limits`, for the numbers that a user gives. `test_theorems.py` compares both.
ALLOWANCE: Final = "(cap if after or cap == 0 else cap - 1)"
CAP: Final = "(ceiling if no_steps or ceiling <= asked else asked)"
#: The most steps of any turn, as promised. It is written out, so that the proof fails with another `MAX_STEPS`.
PROMISED_STEPS: Final = 200
CEILING: Final = f"asked >= 0 and ceiling >= 0 and ceiling <= {MAX_STEPS}"


class Invariant(NamedTuple):
    """A text that holds in some states. `group` is its part of the proof: `credit` has products."""

    states: tuple[State, ...]
    text: str
    group: str = "keeps"


_EVERY: Final = tuple(State)
_BATCH_OPEN: Final = (S.TOOL_EXEC, S.PAUSED, S.REVIEW)


def _except(*states: State) -> tuple[State, ...]:
    return tuple(state for state in State if state not in states)


_DOOM, _CAP = REASONS_OF[Outcome.DOOM_LOOP], REASONS_OF[Outcome.CAP_HIT]

INVARIANTS: Final[Mapping[str, Invariant]] = {
    "steps are within the allowance": Invariant(_EVERY, "steps >= 0 and steps <= allowance"),
    "retries are in range": Invariant(_EVERY, "retries_left >= 0 and retries_left <= max_retries"),
    "pauses are counted": Invariant(_EVERY, "pauses_left >= 0 and pauses + pauses_left == max_pauses"),
    "nudges are counted": Invariant(_EVERY, "nudges_left >= 0 and nudges + nudges_left == max_nudges"),
    "refused replies are counted": Invariant(
        _EVERY, "output_retries_left >= 0 and refusals + output_retries_left == max_refusals"
    ),
    "a conclusion without text is asked for once more": Invariant(_EVERY, "repeats == second_try"),
    "tool calls are counted": Invariant(_EVERY, "ran == calls"),
    "compactions are in range": Invariant(_EVERY, "compactions_left >= 0 and compactions_left <= max_compactions"),
    "idle steps are within their limit": Invariant(
        _EVERY, "idle >= 0 and (idle <= idle_limit if idle_limit > 0 else idle == 0)"
    ),
    "a step begins only while an idle step is left": Invariant(
        _except(S.CHECK, S.CONCLUDE, S.TEXT_ONLY, *FINAL), "idle_limit == 0 or idle < idle_limit"
    ),
    "no count is negative": Invariant(
        _EVERY, " and ".join(f"{name} >= 0" for name in (*BATCH, "calls", "waiting", "doom_waits"))
    ),
    "a paid crash is one of a running call": Invariant(_EVERY, "crash_paid <= running"),
    "a batch is at most as wide as a step": Invariant(_EVERY, f"{TOOLS} <= widest"),
    "started and promised calls are within the budget": Invariant(
        _EVERY, "not budgeted or calls + ready + asking + lent <= budget"
    ),
    "only open calls lease, from a budget": Invariant(_EVERY, f"lent == 0 or budgeted and {TOOLS} > 0"),
    "each interrupt is a call's or a doom loop's": Invariant(
        _EVERY,
        "waiting >= asking + asking_counted + doom_waits"
        f" and waiting <= {MAX_ANSWERS} * (asking + asking_counted) + doom_waits",
    ),
    "a closed step has no open call": Invariant(_except(*_BATCH_OPEN), f"{OPEN} == 0 and waiting == 0"),
    "nothing of a reviewed reply has run": Invariant(
        (S.REVIEW,), "ready_counted + running == 0 and asking + asking_counted == 0 and doom_waits == 0"
    ),
    "a typed answer never runs": Invariant(_except(S.REVIEW), "answering == 0"),
    "a call that waits has a pause left": Invariant(
        (S.TOOL_EXEC,), "doom_waits == 0 and (waiting == 0 or pauses_left > 0)"
    ),
    "a pause waits and nothing runs": Invariant((S.PAUSED,), "waiting > 0 and running == 0"),
    "the question of a doom loop is alone": Invariant(
        (S.PAUSED,), f"doom_waits == 0 or doom_waits == 1 and {OPEN} == 0 and not final"
    ),
    "nothing follows an answer": Invariant(_except(S.TOOL_EXEC, S.PAUSED, *FINAL), "not final"),
    "no reason before a stop": Invariant(_except(S.CONCLUDE, *FINAL), "reason == 0", "reasons"),
    "a conclusion has its reason": Invariant(
        (S.CONCLUDE,), f"({one_of(_DOOM)} if carried_doom else {one_of(_CAP)})", "reasons"
    ),
    **{
        f"one reason of {state}": Invariant((state,), one_of(REASONS_OF[state.outcome]), "reasons")
        for state in State
        if state.outcome is not None
    },
    "model calls of a step": Invariant((S.STREAM,), "model_calls + retries_left <= credit", "credit"),
    "model calls of a compaction": Invariant((S.COMPACT,), "model_calls + retries_left < credit", "credit"),
    "model calls of closed attempts": Invariant(
        (S.REVIEW, S.TOOL_EXEC, S.CONTINUE, S.CHECK, S.PAUSED), "model_calls <= credit", "credit"
    ),
    "model calls of the conclusion": Invariant(
        (S.CONCLUDE, S.TEXT_ONLY), "model_calls + retries_left <= credit + 1 + max_retries", "credit"
    ),
    "model calls of the turn": Invariant(tuple(FINAL), "model_calls <= credit + 1 + max_retries", "credit"),
    "steps and compactions earn model calls": Invariant(
        _EVERY, "credit == steps * (1 + max_retries) + 2 * (max_compactions - compactions_left)", "credit"
    ),
}

#: The loop that closes a batch, one call after the other: its invariant, over the values now and before it (`_0`).
CLOSING_LOOP: Final[Mapping[str, str]] = {
    "no count is negative": " and ".join(f"{name} >= 0" for name in BATCH) + " and crash_paid <= running",
    "only open calls lease, from a budget": f"lent == 0 or budgeted and {TOOLS} > 0",
    "calls that wait are interrupts": "waiting >= asking + asking_counted and (asking + asking_counted > 0"
    " or waiting == (0 if asking_0 + asking_counted_0 > 0 else waiting_0))"
    " and asking + asking_counted <= asking_0 + asking_counted_0",
    "used calls were lent": "calls >= calls_0 and (not budgeted or calls + lent <= calls_0 + lent_0)",
}
#: The loop that settles the typed answers of an accepted reply. `answered`: whether one of them was the answer.
ANSWERING_LOOP: Final[Mapping[str, str]] = {
    "the answer is kept": "answering >= 0 and final == (final_0 or answered)",
}

#: The claims that follow from the invariants, in every state.
BOUNDS: Final[Mapping[str, str]] = {
    "steps <= allowance": "steps <= allowance",
    "tool calls <= budget": "not budgeted or ran <= budget",
    "model calls <= the formula": "model_calls <= (allowance + 1) * (1 + max_retries) + 2 * max_compactions",
    "pauses, nudges and refused replies <= their limits": (
        "pauses <= max_pauses and nudges <= max_nudges and refusals <= max_refusals"
    ),
}
#: What one less of each number allows: so many moves. Every move lowers `potential`, messages left out.
WORTH: Final[Mapping[str, str]] = {
    "allowance - steps": "2 * max_retries + max_retries * widest + 2 * widest + 6",
    "pauses_left": f"{MAX_ANSWERS + 2} * widest + max_retries * widest + 4",
    "compactions_left": "2",
}
_NOT_PREPARED: Final = "(0 if prepared else 1)"
_CALL_MOVES: Final = "2 * ready + 2 * ready_counted + running"
#: The moves that can follow in each state before one of these numbers falls.
HERE: Final[Mapping[State, str]] = {
    S.CHECK: "max_retries + 3",
    S.CONTINUE: "max_retries + 4",
    S.STREAM: f"retries_left + {_NOT_PREPARED} + 2 * max_retries + max_retries * widest + 2 * widest + 7",
    S.COMPACT: f"retries_left + {_NOT_PREPARED} + 2 * max_retries + max_retries * widest + 2 * widest + 8",
    S.REVIEW: "retries_left + 2 * ready + max_retries * widest + max_retries + 6",
    S.TOOL_EXEC: f"retries_left * widest + crash_paid + {_CALL_MOVES} + max_retries + 5",
    S.PAUSED: (f"waiting + 2 * asking + 2 * asking_counted + {_CALL_MOVES} + max_retries * widest + max_retries + 6"),
    S.CONCLUDE: "retries_left + 1",
    S.TEXT_ONLY: f"retries_left + {_NOT_PREPARED} + 1",
    **dict.fromkeys(FINAL, "0"),
}
#: The bound on the moves of a whole turn, messages left out.
EVENTS: Final = (
    "allowance * (2 * max_retries + max_retries * widest + 2 * widest + 6)"
    f" + max_pauses * ({MAX_ANSWERS + 2} * widest + max_retries * widest + 4)"
    " + 2 * max_compactions + max_retries + 3"
)


def potential(state: State) -> str:
    """Return the text of the moves that can still follow in a state, messages left out."""
    return " + ".join([*(f"({count}) * ({worth})" for count, worth in WORTH.items()), HERE[state]])


#: The reason of each stop from outside that has but one. An answer that a call gave comes before it.
_REASONS_OF_STOPS: Final[Mapping[Trigger, EndReason]] = {
    T.TRIPPED: EndReason.GUARDRAIL,
    T.EXPIRE: EndReason.DEADLINE,
    T.FAIL: EndReason.ENGINE_ERROR,
}


def claims_of(row: Row) -> Iterator[tuple[str, str]]:
    """Yield each claim about a row and its text, over the counters for which it is taken and the flags of its input."""
    if row.source is S.CHECK and row.dest is S.STREAM:
        yield "no step starts on a spent budget", f"not ({_expand('spent')})"
    if row.source is S.CHECK and row.dest is S.CONCLUDE and isinstance(row.reason, EndReason):
        earlier = [REASONS[reason].reached for reason in takewhile(lambda reason: reason is not row.reason, REASONS)]
        text = " and ".join(
            [
                f"({_expand(REASONS[row.reason].reached)})",
                *(f"not ({_expand(condition)})" for condition in earlier if condition),
            ]
        )
        yield "the first limit that is reached is the reason", text
    if row.trigger is T.REVIEWED and row.dest is not S.CONTINUE and row.dest not in FINAL:
        yield "no call of a refused reply runs", f"not refused or {OPEN} == 0"
    if row.source is S.TOOL_EXEC and row.trigger is T.SETTLED and row.dest is not S.PAUSED:
        yield "no question to a person is left open", "waiting == 0"
    if row.trigger in _REASONS_OF_STOPS:
        is_answered = row.reason is EndReason.ANSWERED
        yield "a stop has its reason", "final" if is_answered else str(row.reason is _REASONS_OF_STOPS[row.trigger])


def _expand(text: str) -> str:
    return Guard(text).expanded if text else "False"
