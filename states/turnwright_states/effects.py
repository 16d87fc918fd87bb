"""Effects as data: the change of the counters by each kind of fact.

An effect is written once, as texts in the guards' language with `+`, `-`, `*` and `a if c else b`. The function that
the fold runs (`turn.py`) and the formulas of the proof for all limits (`turnwright verify --smt`) are made from these
texts. A test and the proof compare them on every edge of a walk.

A text reads counters, and the values that the fact has (`Effect.reads`). All assignments of an effect are simultaneous.
Texts, money, ids and rounds are not counters: the fold keeps them in Python, and no guard reads them.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from .counters import BATCH, Counters
from .state import LIVE, State


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
    is_shared = after is State.COMPACT or (before is State.COMPACT and after is State.STREAM)
    return before is not after and after in LIVE and not is_shared


#: The pairs of states between which a phase begins, so that `PHASE` applies. A compaction and its model call share
#: their retries: their number bounds the calls of a step.
REFILLS: Final = frozenset((before, after) for before in State for after in State if _refills(before, after))
#: The effect of a fact that begins a phase, beside that of its kind.
PHASE: Final = Effect({"retries_left": "max_retries"}, ("max_retries",))

_COUNTERS: Final = frozenset(Counters.__slots__) - {"place"}


def on_counters(text: str, reads: tuple[str, ...] = ()) -> str:
    """Return the text with each counter read from `c`. `reads` are other values, which hide counters of their names."""
    counters = _COUNTERS.difference(reads)
    return re.sub(r"[a-z_]+", lambda name: f"c.{name[0]}" if name[0] in counters else name[0], text)


def _write_function(name: str, effect: Effect) -> str:
    """Return the source of the function of an effect. Flat code: the fold runs it for each fact."""
    targets = ", ".join(f"c.{counter}" for counter in effect.sets)
    values = ", ".join(on_counters(text, effect.reads) for text in effect.sets.values())
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
