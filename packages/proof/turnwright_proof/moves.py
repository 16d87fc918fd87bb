"""Moves as data: everything that can happen to a turn, what it needs, and the facts that follow.

A move is one row of the chart, or one fact inside a state. `Move.assume` is what `TurnMachine.feed` and the decisions
of a batch guarantee: its precondition, as a text in the effects' language (`effects.py`). `facts_of` has the facts that
follow a row, with the values that their effects read. The proof for all limits (`turnwright verify --smt`) reads these
texts, and `tests/proof/conformance.py` holds the machine to them on every edge of a walk.

The values that a move chooses are `INPUTS`, and the flags of `counters.PASSING`. Calls of a batch are counted, and
their leases are added up.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Final, NamedTuple, TypeVar

from turnwright_proof.texts import FLAGS
from turnwright_states.chart import ReasonFrom, Row
from turnwright_states.counters import BATCH, PASSING
from turnwright_states.effects import EFFECTS, PHASE, REFILLS, Effect
from turnwright_states.limits import MAX_ANSWERS
from turnwright_states.reasons import REASONS, REASONS_OF, EndReason
from turnwright_states.state import FINAL, Outcome, State, Trigger

S, T = State, Trigger

#: The calls of the batch that are not typed answers and have no result, all without a result, and those that can run.
TOOLS: Final = "ready + ready_counted + running + asking + asking_counted"
OPEN: Final = f"{TOOLS} + answering"
RUNS: Final = "ready + ready_counted + running"

#: The values that a move chooses, beside the passing flags: the calls of a reply that run, its typed answers, the
#: calls in its leases; whether it, or the end of its step, closes a loop; whether none of the step's calls ran; whether
#: the single reply of a turn without steps had no text; whether a call has its place in the budget, whether an answer
#: settles it, its lease and the calls of it that were used; whether a result is the turn's answer; which budgets are
#: spent from now on; and the reason that an input brings.
INPUTS: Final = (
    *("runs", "answers", "lends", "loops", "idles", "silent", "counted", "settles", "lease", "used", "gives"),
    *("tokens_now", "cost_now", "time_now", "given"),
    *("owed", "closes", "last"),
)
INPUT_FLAGS: Final = frozenset(
    {"loops", "idles", "silent", "counted", "settles", "gives", "last", "tokens_now", "cost_now", "time_now"}
)

#: Numbers that only the proof needs, and their changes by the kind of fact: the interrupts of doom loops; the nudges,
#: refused replies, pauses, tool calls and repeated conclusions so far; the model calls that were allowed so far.
GHOSTS: Final[Mapping[str, Mapping[str, str]]] = {
    "step_started": {"credit": "credit + 1 + max_retries", "nudges": "nudges + nudge"},
    "reviewed": {"refusals": "refusals + retry"},
    "compaction_started": {"credit": "credit + 2"},
    "call_started": {"ran": "ran + (not counted)"},
    "call_settled": {"ran": "ran + used"},
    "closing": {"ran": "ran + used"},
    "paused": {"pauses": "pauses + 1", "doom_waits": "doom_waits + asks"},
    "answered": {"doom_waits": "doom_waits - doom_asked"},
    "concluded": {"repeats": "repeats + retry"},
    "attempt_failed": {"repeats": "repeats + (silent and not second_try)"},
    "turn_ended": {"doom_waits": "0"},
}
#: Each row into one of these states is followed by a model call, or by a compaction instead of it.
ASKS: Final = frozenset({S.STREAM, S.COMPACT, S.CONCLUDE, S.TEXT_ONLY})
#: The number of each reason in the proof; 0 is none.
NUMBER_OF: Final[Mapping[EndReason, int]] = {reason: number for number, reason in enumerate(EndReason, start=1)}

#: The results of all open calls at once, and those of the typed answers of an accepted reply. The proof derives both
#: from `call_settled` (`loops` in `packages/proof/turnwright_proof/smt/obligations.py`).
CLOSING: Final = Effect(
    dict.fromkeys(BATCH, "0") | {"waiting": "0 if asking + asking_counted > 0 else waiting", "calls": "calls + used"},
    ("used",),
)
ANSWERING: Final = Effect({"answering": "0", "final": "final or answering > 0"})
#: The effect of each kind of fact, and of these two.
APPLIED: Final[Mapping[str, Effect]] = {**EFFECTS, "closing": CLOSING, "answering": ANSWERING}
#: After each move: what was reported may spend a budget, and a spent budget stays spent.
SPENDING: Final[Mapping[str, str]] = {
    f"{name}_spent": f"{name}_spent or {name}_now" for name in ("tokens", "cost", "time")
}


def one_of(reasons: Iterable[EndReason], name: str = "reason") -> str:
    """Return the text that a reason's number is one of these."""
    return "(" + " or ".join(f"{name} == {number}" for number in sorted(NUMBER_OF[reason] for reason in reasons)) + ")"


_NONE: Final[Mapping[str, str]] = {}


class Follows(NamedTuple):
    """A fact that follows, by the kind of its effect, and the texts of the values that the effect reads."""

    kind: str
    values: Mapping[str, str] = _NONE


class Move(NamedTuple):
    """An event that can happen in some states, with its precondition.

    `trigger` is None inside a state; `facts` follow then. `before` are the counters that the input sets before the
    guards are asked. `example` are values of inputs for which it can happen, where they are not 0. `lowers`: whether it
    lowers the rank, as every move but a message does. `stops`: whether it stops a turn from outside, or only repeats.
    """

    name: str
    states: tuple[State, ...]
    trigger: Trigger | None = None
    assume: str = "True"
    facts: tuple[Follows, ...] = ()
    before: Mapping[str, str] = _NONE
    example: Mapping[str, str] = _NONE
    lowers: bool = True
    stops: bool = False


def _follow_settled(kind: str, *, counted: bool, paid: bool = False, gives: str = "False") -> Follows:
    was = {f"was_{state_name}": str(state_name == kind) for state_name in ("ready", "running", "asking", "answering")}
    of_call = {"counted": str(counted), "paid": str(paid), "used": "used", "lease": "lease", "gives": gives}
    return Follows("call_settled", {**was, **of_call, "owed": "owed" if kind == "asking" else "0"})


#: The lease of one open call: the last one has all that is lent.
LEASED: Final = f"lease >= 0 and lease <= lent and (lease == lent or {TOOLS} > 1)"
#: The answers that one waiting call still needs: the last one has all.
OWED: Final = (
    "owed >= 1 and (owed == waiting and asking + asking_counted == 1"
    " or asking + asking_counted > 1 and waiting - owed >= asking + asking_counted - 1)"
)
#: A sub-agent uses at most its lease; without a budget it has no lease of calls.
USED: Final = "used >= 0 and (used <= lease or not budgeted)"
_STOPPED: Final = "used >= 0 and (used <= lent or not budgeted)"
_OF_CAUSE: Final = one_of(
    (reason for reason, meaning in REASONS.items() if meaning.passing or meaning.lasting), "given"
)
_OF_ABORT: Final = one_of(REASONS_OF[Outcome.ABORTED], "given")
_REPLIED: Final = (
    "runs >= 0 and answers >= 0 and runs + answers <= made and runs <= widest"
    " and (not budgeted or runs == 0 or runs <= budget - calls) and (answers == 0 or review)"
    " and lends >= 0 and (lends == 0 or budgeted and runs > 0 and lends <= budget - calls - runs)"
)
_ANSWERED: Final = (
    "(doom_asked and doom_waits == 1 and not settles and not last and closes == 1"
    " or not doom_asked and (counted and asking_counted > 0 or not counted and asking > 0)"
    " and closes >= 1 and closes <= waiting and (last or not settles)"
    f" and (not last or waiting - closes <= {MAX_ANSWERS} * (asking + asking_counted - 1))"
    " and (last or waiting - closes >= asking + asking_counted)"
    " and (not last or closes == waiting and asking + asking_counted == 1"
    " or asking + asking_counted > 1 and waiting - closes >= asking + asking_counted - 1))"
    f" and (settles and {LEASED} or not settles and lease == 0) and used == (lease if settles and counted else 0)"
)
_LEASE_OF_ONE: Final[Mapping[str, str]] = {"lease": "lent"}
_ALL: Final = (S.STREAM, S.COMPACT, S.REVIEW, S.TOOL_EXEC, S.CONCLUDE, S.TEXT_ONLY)
#: The calls that can run: their name, count and kind, whether one has its place in the budget, and its crash a retry.
_CALLS: Final = (
    ("ready", "ready", "ready", False, False),
    ("ready_counted", "ready_counted", "ready", True, False),
    ("running", "running - crash_paid", "running", True, False),
    ("crash_paid", "crash_paid", "running", True, True),
)


#: Every move. Any of them may report usage.
MOVES: Final = (
    Move("proceed", (S.CHECK, S.CONTINUE), T.PROCEED),
    Move("the model replies", (S.STREAM,), T.REPLIED, _REPLIED),
    Move("the model replies without tools", (S.TEXT_ONLY,), T.REPLIED, "runs == 0 and answers == 0 and lends == 0"),
    Move(
        "an attempt fails",
        (S.STREAM, S.COMPACT, S.REVIEW, S.CONCLUDE, S.TEXT_ONLY),
        T.ATTEMPT_FAILED,
        _OF_CAUSE,
        stops=True,
    ),
    Move("the request is too long", (S.STREAM,), T.OVERSIZED, "compactions_left > 0"),
    Move(
        "the summary is made",
        (S.COMPACT,),
        T.COMPACTED,
        before={name: SPENDING[name] for name in ("tokens_spent", "cost_spent")},
    ),
    Move(
        "the reply is reviewed",
        (S.REVIEW,),
        T.REVIEWED,
        "ready + answering <= made",
        example={"made": "ready + answering"},
    ),
    Move(
        "the batch is settled",
        (S.TOOL_EXEC,),
        T.SETTLED,
        f"{RUNS} == 0 and (not synthesized or waiting == 0 and not final)",
    ),
    Move(
        "a person answers",
        (S.PAUSED,),
        T.ANSWERED,
        _ANSWERED,
        before={"waiting": "waiting - closes"},
        example={
            "doom_asked": "doom_waits == 1",
            "counted": "asking_counted > 0",
            "closes": "waiting - (asking + asking_counted - (doom_waits == 0))",
            "last": "doom_waits == 0",
        },
    ),
    Move("the conclusion comes", (S.CONCLUDE,), T.CONCLUDED),
    Move(
        "a guardrail trips", (S.STREAM, S.REVIEW, S.TOOL_EXEC, S.CONCLUDE, S.TEXT_ONLY), T.TRIPPED, _STOPPED, stops=True
    ),
    Move("the time is up", (S.STREAM, S.COMPACT, S.REVIEW, S.TOOL_EXEC, S.TEXT_ONLY), T.EXPIRE, _STOPPED, stops=True),
    Move("somebody aborts", (*_ALL, S.PAUSED), T.ABORT, f"{_STOPPED} and {_OF_ABORT}", stops=True),
    Move("the engine fails", _ALL, T.FAIL, _STOPPED, stops=True),
    Move(
        "the request is prepared",
        (S.STREAM, S.TEXT_ONLY),
        None,
        "not prepared",
        (Follows("request_prepared"),),
        stops=True,
    ),
    Move(
        "a ready call starts",
        (S.TOOL_EXEC,),
        None,
        "ready > 0",
        (Follows("call_started", {"again": "False", "counted": "False", "paid": "False"}),),
    ),
    Move(
        "a ready_counted call starts",
        (S.TOOL_EXEC,),
        None,
        "ready_counted > 0",
        (Follows("call_started", {"again": "False", "counted": "True", "paid": "False"}),),
    ),
    Move(
        "a call runs again",
        (S.TOOL_EXEC,),
        None,
        "running > crash_paid and retries_left > 0",
        (Follows("call_started", {"again": "True", "counted": "True", "paid": "False"}),),
        stops=True,
    ),
    Move(
        "a call runs again without a retry",
        (S.TOOL_EXEC,),
        None,
        "crash_paid > 0",
        (Follows("call_started", {"again": "True", "counted": "True", "paid": "True"}),),
        stops=True,
    ),
    *(
        Move(
            f"a {name} call is settled",
            (S.TOOL_EXEC,),
            None,
            f"{count} > 0 and {LEASED} and {USED if is_counted else 'used == 0'}",
            (_follow_settled(kind, counted=is_counted, paid=is_paid, gives="gives" if is_counted else "False"),),
            example=_LEASE_OF_ONE,
        )
        for name, count, kind, is_counted, is_paid in _CALLS
    ),
    *(
        Move(
            f"a {name} call waits",
            (S.TOOL_EXEC,),
            None,
            f"{count} > 0 and pauses_left > 0 and owed >= 1 and owed <= {MAX_ANSWERS}",
            (
                Follows(
                    "call_waiting",
                    {
                        "was_ready": str(kind == "ready"),
                        "counted": str(is_counted),
                        "paid": str(is_paid),
                        "owed": "owed",
                    },
                ),
            ),
            example={"owed": "1"},
        )
        for name, count, kind, is_counted, is_paid in _CALLS
    ),
    Move(
        "the synthesis is tried again",
        (S.TOOL_EXEC,),
        None,
        f"{RUNS} == 0 and waiting == 0 and not final and retries_left > 0",
        (Follows("attempt_failed", {"retry": "True", "silent": "False"}),),
        stops=True,
    ),
    *(
        Move("a message comes", (state,), None, assume, (Follows("message_added"),), lowers=False, stops=True)
        for state, assume in (
            (S.STREAM, "not final"),
            (S.TOOL_EXEC, f"not final and {RUNS} > 0"),
            (S.PAUSED, "not final and doom_waits == 0"),
        )
    ),
)

#: The steps of the loop that closes a batch: one open call gets its result.
CLOSES: Final = tuple(
    Move(
        f"a {name} call is closed",
        (),
        None,
        f"{count} > 0 and {LEASED if name != 'answering' else 'lease == 0'} and {USED if counted else 'used == 0'}"
        f"{f' and {OWED}' if kind == 'asking' else ''}",
        (_follow_settled(kind, counted=counted, paid=paid),),
    )
    for name, count, kind, counted, paid in (
        *_CALLS,
        ("asking", "asking", "asking", False, False),
        ("asking_counted", "asking_counted", "asking", True, False),
        ("answering", "answering", "answering", False, False),
    )
)
#: The result of a call that was refused when its reply arrived.
REFUSED_CALL: Final = Follows(
    "call_settled",
    dict.fromkeys(("was_ready", "was_running", "was_asking", "was_answering", "counted", "paid", "gives"), "False")
    | {"used": "0", "lease": "0", "owed": "0"},
)

_FOLLOWS: Final[Mapping[Trigger, tuple[Follows, ...]]] = {
    T.REPLIED: (Follows("model_replied", {name: name for name in ("runs", "answers", "lends", "loops")}),),
    T.ANSWERED: (
        Follows("answered", {"left": "waiting"} | {name: name for name in ("doom_asked", "go_on", "counted", "last")}),
        Follows(
            "call_settled",
            {"was_ready": "settles", "was_running": "False", "was_asking": "False", "was_answering": "False"}
            | {"counted": "counted", "paid": "False", "used": "used", "lease": "lease", "gives": "False", "owed": "0"},
        ),
    ),
}
_OUTSIDE: Final = frozenset({T.TRIPPED, T.EXPIRE, T.ABORT, T.FAIL})


@cache
def facts_of(row: Row) -> tuple[Follows, ...]:
    """Return the facts that follow a row, in order. They depend only on its trigger, its states and its reason."""
    return tuple(_facts_of(row))


def _facts_of(row: Row) -> Iterator[Follows]:  # noqa: C901 (one case a fact: flat)
    source, trigger, dest = row.source, row.trigger, row.dest
    yield from _FOLLOWS.get(trigger, ())
    if trigger is T.REVIEWED:
        yield Follows("reviewed", {"retry": str(dest is S.CONTINUE)})
    if trigger is T.ATTEMPT_FAILED or trigger is T.CONCLUDED:
        silent = {"silent": "silent" if source is dest is S.TEXT_ONLY else "False"}
        retry = {"retry": str(dest is source)}
        yield Follows("attempt_failed", retry | silent) if trigger is T.ATTEMPT_FAILED else Follows("concluded", retry)
    if dest in FINAL or trigger in _OUTSIDE or (trigger is T.REVIEWED and dest is S.CONTINUE):
        yield Follows("closing", {"used": "used" if trigger in _OUTSIDE else "0"})
    if trigger is T.REVIEWED and dest is S.TOOL_EXEC:
        yield Follows("answering")
    if source is S.CONTINUE and dest is S.CHECK:
        yield Follows("step_finished", {"loops": "loops", "idles": "idles"})
    if dest is S.STREAM and source is S.CHECK:
        yield Follows("step_started", {"number": "steps + 1", "nudge": "doom"})
    elif dest is S.PAUSED and source is not S.PAUSED:
        yield Follows("paused", {"asks": str(source is S.CHECK)})
    elif dest is S.COMPACT and source is not S.COMPACT:
        yield Follows("compaction_started")
    elif dest is S.CONCLUDE and source is not S.CONCLUDE:
        yield Follows("stopping", {"for_doom": str(row.reason is EndReason.DOOM_LOOP)})
    elif dest in FINAL:
        yield Follows("turn_ended")


def reason_after(row: Row) -> str:
    """Return the text of the reason's number after a row: its own, the carried one, or that of the input."""
    match row.reason:
        case EndReason() as reason:
            return str(NUMBER_OF[reason])
        case ReasonFrom.CARRIED:
            return "reason"
        case ReasonFrom.CAUSE if row.trigger is T.ATTEMPT_FAILED:
            return "given"
        case ReasonFrom.EVENT if row.trigger is T.ABORT:
            return "given"
        case _:
            return "0"


_Value = TypeVar("_Value")
#: Gives the value of a text over an environment: a number for a walk, a term for a proof. The first argument is the
#: counter that it is for.
ValueOf = Callable[[str, str, Mapping[str, _Value]], _Value]


def assign_all(sets: Mapping[str, str], values: Mapping[str, _Value], value_of: ValueOf[_Value]) -> dict[str, _Value]:
    """Return `values` after assignments that happen at the same time."""
    return {**values, **{name: value_of(name, text, values) for name, text in sets.items()}}


def follow_fact(
    fact: Follows, values: Mapping[str, _Value], value_of: ValueOf[_Value], effects: Mapping[str, Effect] = APPLIED
) -> dict[str, _Value]:
    """Return `values` after a fact: its effect, and what the proof counts of it."""
    reads = {name: value_of(name, text, values) for name, text in fact.values.items()}
    effect = effects.get(fact.kind)
    sets = {**(effect.sets if effect is not None else {}), **GHOSTS.get(fact.kind, {})}
    after = assign_all(sets, {**values, **reads}, value_of)
    return {**values, **{name: after[name] for name in sets}}


def after_row(
    row: Row, values: Mapping[str, _Value], value_of: ValueOf[_Value], effects: Mapping[str, Effect] = APPLIED
) -> dict[str, _Value]:
    """Return `values` after a row was taken: its facts, the retries of a new phase, usage, a model call, the reason."""
    reason = reason_after(row)
    for fact in facts_of(row):
        values = follow_fact(fact, values, value_of, effects)
    sets = dict(SPENDING) | {"reason": reason}
    if (row.source, row.dest) in REFILLS:
        sets |= PHASE.sets
    if row.dest in ASKS:
        sets["model_calls"] = "model_calls + 1"
    return assign_all(sets, values, value_of)


def after_event(
    move: Move, values: Mapping[str, _Value], value_of: ValueOf[_Value], effects: Mapping[str, Effect] = APPLIED
) -> dict[str, _Value]:
    """Return `values` after a move inside a state."""
    for fact in move.facts:
        values = follow_fact(fact, values, value_of, effects)
    return assign_all(SPENDING, values, value_of)


#: All names with the values False and True; all others are integers.
ALL_FLAGS: Final = FLAGS | INPUT_FLAGS
#: Everything that a move chooses.
CHOSEN: Final = (*PASSING, *INPUTS)
