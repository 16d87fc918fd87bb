"""Effects as data: the change of the counters by each kind of fact, and the rank.

An effect is written once, as texts in the guards' language with `+`, `-`, `*` and `a if c else b`. The function that
the fold runs (`turn.py`) and the formulas of the proof for all limits (`turnwright verify --smt`) are made from these
texts. A test and the proof compare them on every edge of a walk.

A text reads counters, and the values that the fact has (`Effect.reads`). All assignments of an effect are simultaneous.
Texts, money, ids and rounds are not counters: the fold keeps them in Python, and no guard reads them.
"""

import ast
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from .counters import BATCH, KEPT, PASSING, Counters
from .guards import GuardError
from .state import LIVE, STAGE, State


class Effect(NamedTuple):
    """The effect of a fact. `sets` are the assignments, by counter; `reads` are the fact's own values, in order."""

    sets: Mapping[str, str]
    reads: tuple[str, ...] = ()


_CLOSED: Final = dict.fromkeys(BATCH, "0")

#: The effect of each kind of fact; the kinds that are missing change no counter. A fact that reports usage may also set
#: `tokens_spent`, `cost_spent` and `time_spent`, which depend on numbers that are not counters, and never unsets them.
EFFECTS: Final[Mapping[str, Effect]] = {
    "step_started": Effect(
        {"steps": "number", "nudges_left": "nudges_left - nudge", "prepared": "False"}, ("number", "nudge")
    ),
    "request_prepared": Effect({"prepared": "True"}),
    # `runs` calls were accepted, and `answers` are typed answers, which never run. `lends`: the calls in all leases.
    # `loops`: the detector compares calls, and found a loop.
    "model_replied": Effect(
        _CLOSED | {"ready": "runs", "answering": "answers", "lent": "lends", "final": "False", "doom": "loops"},
        ("runs", "answers", "lends", "loops"),
    ),
    # `loops`: the detector compares results, and found a loop.
    # `idles`: the step had calls, and none of them ran.
    "step_finished": Effect({"doom": "doom or loops", "idle": "idle + (idles and idle_limit > 0)"}, ("loops", "idles")),
    "reviewed": Effect({"output_retries_left": "output_retries_left - retry"}, ("retry",)),
    "compaction_started": Effect({"compactions_left": "compactions_left - 1"}),
    # `silent`: the single reply of a turn without steps had no text, and is asked for again.
    "attempt_failed": Effect(
        {"retries_left": "retries_left - retry", "second_try": "second_try or silent"}, ("retry", "silent")
    ),
    # `again`: the call had started before, and its process died. `counted`: it has its place in the budget. `paid`: the
    # crash has taken its retry, for all the calls that it interrupted.
    "call_started": Effect(
        {
            "ready": "ready - (not counted)",
            "ready_counted": "ready_counted - (counted and not again)",
            "running": "running + (not again)",
            "crash_paid": "running - 1 if again and not paid else crash_paid - paid",
            "calls": "calls + (not counted)",
            "retries_left": "retries_left - (again and not paid)",
            "idle": "0",
        },
        ("again", "counted", "paid"),
    ),
    # The condition of the call before, its lease, the calls of it that were used, and whether it gives the answer.
    "call_settled": Effect(
        {
            "ready": "ready - (was_ready and not counted)",
            "ready_counted": "ready_counted - (was_ready and counted)",
            "running": "running - was_running",
            "crash_paid": "crash_paid - paid",
            "asking": "asking - (was_asking and not counted)",
            "asking_counted": "asking_counted - (was_asking and counted)",
            "answering": "answering - was_answering",
            "waiting": "waiting - owed",
            "calls": "calls + used",
            "lent": "lent - lease",
            "final": "final or gives",
        },
        (
            *("was_ready", "was_running", "was_asking", "was_answering", "counted", "paid", "used", "lease"),
            *("gives", "owed"),
        ),
    ),
    "call_waiting": Effect(
        {
            "ready": "ready - (was_ready and not counted)",
            "ready_counted": "ready_counted - (was_ready and counted)",
            "running": "running - (not was_ready)",
            "crash_paid": "crash_paid - paid",
            "asking": "asking + (not counted)",
            "asking_counted": "asking_counted + counted",
            "waiting": "waiting + owed",
        },
        ("was_ready", "counted", "paid", "owed"),
    ),
    # `asks`: the question of a doom loop. Those of calls were counted when they arrived.
    "paused": Effect({"pauses_left": "pauses_left - 1", "waiting": "waiting + asks"}, ("asks",)),
    # Of a call, which is ready again, or of a doom loop, which has no call. Nothing is read from `waiting`, because the
    # machine lowers it before the guards are asked.
    "answered": Effect(
        {
            "waiting": "left",
            "asking": "asking - (last and not counted)",
            "asking_counted": "asking_counted - (last and counted)",
            "ready": "ready + (last and not counted)",
            "ready_counted": "ready_counted + (last and counted)",
            "doom": "doom and not (doom_asked and go_on)",
            "idle": "0",
        },
        ("doom_asked", "go_on", "counted", "left", "last"),
    ),
    "message_added": Effect({"doom": "False", "idle": "0"}),
    "stopping": Effect({"carried_doom": "for_doom"}, ("for_doom",)),
    "concluded": Effect({"retries_left": "retries_left - retry", "second_try": "second_try or retry"}, ("retry",)),
    "turn_ended": Effect({"waiting": "0"}),
}


def _refills(before: State, after: State) -> bool:
    shared = after is State.COMPACT or (before is State.COMPACT and after is State.STREAM)
    return before is not after and after in LIVE and not shared


#: The pairs of states between which a phase begins, so that `PHASE` applies. A compaction and its model call share
#: their retries: their number bounds the calls of a step.
REFILLS: Final = frozenset((before, after) for before in State for after in State if _refills(before, after))
#: The effect of a fact that begins a phase, beside that of its kind.
PHASE: Final = Effect({"retries_left": "max_retries"}, ("max_retries",))

_CAN_RUN: Final = "ready + ready_counted + running + answering"
#: The rank, most significant first: the name and the text of each component (docs/rules.md#termination). `stage`,
#: `paused` and `asks_model` are those of the state (`rank_values`).
RANK: Final[Mapping[str, str]] = {
    "steps left": "allowance - steps",
    "output retries left": "output_retries_left",
    "compactions left": "compactions_left",
    "pauses left": "pauses_left",
    "stage": "stage",
    "retries left": "retries_left",
    "open interrupts": "waiting if paused else 0",
    "calls that can run": _CAN_RUN,
    "calls not started": "ready + ready_counted + answering",
    "calls that run again without a retry": "crash_paid",
    "request to prepare": "0 if prepared or not asks_model else 1",
}
_OF_STATE: Final = ("stage", "paused", "asks_model")


def rank_values(state: State) -> tuple[int, bool, bool]:
    """Return `stage`, `paused` and `asks_model` of a state: the values of the rank that are not counters."""
    return STAGE.get(state, 0), state is State.PAUSED, state is State.STREAM or state is State.TEXT_ONLY


_COUNTERS: Final = frozenset(Counters.__slots__) - {"place"}
_PARTS: Final = (
    ast.BoolOp,
    ast.UnaryOp,
    ast.Not,
    ast.And,
    ast.Or,
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.IfExp,
    ast.Compare,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.Name,
    ast.Load,
    ast.Constant,
)


@cache
def parsed(text: str) -> ast.expr:
    """Return the tree of a text in the effects' language. Raises `GuardError` for anything else.

    The trees are shared: do not change one.
    """
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise GuardError(f"effect {text!r}: {error.msg}") from None
    for node in ast.walk(tree):
        is_chained = isinstance(node, ast.Compare) and len(node.ops) > 1
        is_other_constant = isinstance(node, ast.Constant) and type(node.value) not in (int, bool)
        if is_chained or is_other_constant or not isinstance(node, _PARTS):
            raise GuardError(f"effect {text!r}: {ast.unparse(node)!r} is not in the effects' language")
    return tree


def names_in(text: str) -> frozenset[str]:
    """Return the names that a text reads."""
    return frozenset(node.id for node in ast.walk(parsed(text)) if isinstance(node, ast.Name))


def _on_counters(text: str, reads: tuple[str, ...]) -> str:
    counters = _COUNTERS.difference(reads)
    return re.sub(r"[a-z_]+", lambda name: f"c.{name[0]}" if name[0] in counters else name[0], text)


def _write_function(name: str, effect: Effect) -> str:
    """Return the source of the function of an effect. Flat code: the fold runs it for each fact."""
    targets = ", ".join(f"c.{counter}" for counter in effect.sets)
    values = ", ".join(_on_counters(text, effect.reads) for text in effect.sets.values())
    return f"def {name}({', '.join(('c', *effect.reads))}):\n {targets} = {values}\n"


def compile_effects(effects: Mapping[str, Effect]) -> dict[str, Callable[..., None]]:
    """Return the function of each effect: it takes the counters and the values of `reads`, in their order.

    The texts are those of this module, never input. They are not checked here, because each start would wait for it.
    """
    namespace: dict[str, Any] = {}
    eval(compile("".join(_write_function(*item) for item in effects.items()), "<effects>", "exec"), {}, namespace)  # noqa: S307
    return namespace


#: The functions that the fold runs, by kind of fact; `phase` is that of `PHASE`.
RUN: Final = compile_effects({**EFFECTS, "phase": PHASE})

_ranks: Final = ", ".join(_on_counters(text, _OF_STATE) for text in RANK.values())
_rank: Final[Callable[..., tuple[int, ...]]] = eval(  # noqa: S307 (the literals above)
    f"lambda c, {', '.join(_OF_STATE)}: ({_ranks})", {"__builtins__": {}}
)
_VALUES_OF: Final = {state: rank_values(state) for state in State}


def rank_of(counters: Counters, state: State) -> tuple[int, ...]:
    """Return the rank of these counters in this state, in the order of `RANK`."""
    return _rank(counters, *_VALUES_OF[state])


#: The counters with the values False and True; all others are integers.
FLAGS: Final = frozenset(
    {"budgeted", "prepared"}
    | {name for name, atoms in KEPT.items() if "" in atoms}
    | {name for name, (_, atoms) in PASSING.items() if "" in atoms}
)


def evaluate(text: str, values: Mapping[str, int]) -> int:
    """Return the value of a text for values of its names: the language's meaning, for tests and checks."""
    return int(_compile(text)(values))


@cache
def _compile(text: str) -> Callable[[Mapping[str, int]], int]:
    names = names_in(text)  # `parsed` has refused what is not in the language
    body = re.sub(r"\w+", lambda name: f"values[{name[0]!r}]" if name[0] in names else name[0], text)
    function: Callable[[Mapping[str, int]], int] = eval(f"lambda values: {body}", {"__builtins__": {}})  # noqa: S307
    return function
