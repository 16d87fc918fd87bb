"""The machine held to the moves as data: a machine for a walk, which checks itself on every edge.

`walk(case, machine=ConformingMachine)` compares, for each row and each fact, the counters with what the texts of
`moves.py` and `effects.py` say, and evaluates each move's precondition and every invariant (`theorems.py`). So the
formulas that are proven for all limits are those of the machine that ships. A walk without it is not slower.

A walk compares millions of configurations, so each is a flat tuple of values, and each move is compiled once from its
texts (`_compile_move`), by the same functions that make the formulas of the proof.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple, Self

from turnwright_proof.moves import (
    ALL_FLAGS,
    CHOSEN,
    INPUTS,
    MOVES,
    NUMBER_OF,
    SPENDING,
    Move,
    after_event,
    after_row,
    assign_all,
)
from turnwright_proof.texts import evaluate, names_in
from turnwright_proof.theorems import CHANGING, CONSTANTS, INVARIANTS
from turnwright_proof.verify import WalkedMachine
from turnwright_states import facts as f
from turnwright_states.call import CallState
from turnwright_states.chart import CHART, Chart, Row
from turnwright_states.counters import BATCH, PASSING, Counters
from turnwright_states.effects import EFFECTS
from turnwright_states.inputs import Input, StartedInput
from turnwright_states.limits import Limits
from turnwright_states.state import FINAL, State, Trigger
from turnwright_states.turn import Turn

Values = Mapping[str, int]
#: The values of a configuration, in the order of `_NAMES`.
_Snapshot = tuple[int, ...]
#: From the values before a move and those that it chooses: whether its precondition holds, and the values after its
#: input and after its facts.
_Moved = Callable[[_Snapshot, tuple[int, ...]], tuple[bool, _Snapshot, _Snapshot]]
#: The path to a configuration is not part of it, so a walk does not know the model calls so far.
_OF_PATHS: Final = "model_calls"
_NAMES: Final = (*CONSTANTS, *(name for name in CHANGING if name != _OF_PATHS))
_spent: Final[Callable[[_Snapshot], tuple[int, ...]]] = itemgetter(
    *(_NAMES.index(f"{name}_spent") for name in ("tokens", "cost", "time"))
)
_WAITING: Final = _NAMES.index("waiting")
_OF_ROWS: Final = {(state, move.trigger): move for move in MOVES if move.trigger for state in move.states}
_INSIDE: Final = {(state, move.name): move for move in MOVES if not move.trigger for state in move.states}
_CHECKED: Final = {
    state: tuple(
        (name, invariant.text)
        for name, invariant in INVARIANTS.items()
        if state in invariant.states and _OF_PATHS not in invariant.text
    )
    for state in State
}
_NAMED: Final = {
    f.CallStarted: ("a {} starts", "a call runs again"),
    f.CallSettled: ("a {} is settled", ""),
    f.CallWaiting: ("a {} waits", ""),
}


#: The facts after a row that show, by the counters that they change, what the move has chosen.
_SHOWING: Final = frozenset({f.ModelReplied, f.StepFinished, f.CallSettled, f.Answered, f.CallWaiting, f.AttemptFailed})


class ConformanceError(Exception):
    """The machine did something else than the moves as data say."""


class ConformingMachine(WalkedMachine):
    """A machine that raises `ConformanceError` when a row, a fact or a configuration differs from its texts."""

    __slots__ = ("_part", "_steps", "values")

    def __init__(self, turn: Turn, chart: Chart = CHART) -> None:
        super().__init__(turn, chart)
        #: The parts of the current input: facts before its first row, then each row with the facts that follow.
        self._steps: list[_Part] = []
        self._part: _Part | None = None
        #: The values after the last input.
        self.values = _read(turn)

    @classmethod
    def start(cls, event: StartedInput, *, chart: Chart = CHART) -> tuple[Self, list[f.Fact]]:
        """Begin a turn, and check its first configuration."""
        machine, facts = super().start(event, chart=chart)
        machine.values = _read(Turn(event.limits))
        _check_invariants(State.CHECK, machine.values)
        machine.check()
        return machine, facts

    def twin(self) -> Self:
        """Return a copy of the same class without recorded rows."""
        twin = super().twin()
        twin.values = self.values
        return twin

    def feed(self, event: Input) -> list[f.Fact]:
        """Feed an input, then compare what it did."""
        self._steps, self._part = [], None
        facts = super().feed(event)
        self.check()
        return facts

    def _fire(self, trigger: Trigger) -> Row:
        fired, passing, state = _read(self.turn), _passing(self.turn.counters), self.state
        row = super()._fire(trigger)
        self._part = _Part(state, fired, passing, row)
        self._steps.append(self._part)
        return row

    def _emit(self, fact: f.Fact) -> None:
        turn = self.turn
        if self._part is None:
            self._part = _Part(turn.state, _read(turn), _passing(turn.counters))
            self._steps.append(self._part)
        before = _watched(turn.counters)
        super()._emit(fact)
        self._part.add(fact, before, turn)

    _emit_derived = _emit  # a walk makes no hashes

    def check(self) -> None:
        """Check what the last input did, from the values before it."""
        now = self.values
        for part in self._steps:
            now = part.check(now, is_checked=now is self.values)
        _compare(now, _read(self.turn), "beside the facts")
        _check_invariants(self.turn.state, now)
        _check_batch(self.turn)
        self.values = now


class _Part:
    """A row with the facts that follow it, or the facts of an input before its first row."""

    __slots__ = ("after", "fired", "inputs", "name", "passing", "row", "state")

    def __init__(self, state: State, fired: _Snapshot, passing: tuple[int, ...], row: Row | None = None) -> None:
        self.state, self.fired, self.passing, self.row = state, fired, passing, row
        self.after = fired
        self.inputs = _NO_INPUTS.copy()
        self.name = ""

    def add(self, fact: f.Fact, watched: tuple[int, ...], turn: Turn) -> None:
        """Note a fact, with the watched values before it and the turn after it: the move's inputs follow from them."""
        self.after = _read(turn)
        if self.row is not None and type(fact) not in _SHOWING:
            if type(fact) is f.TurnEnded and self.row.trigger is Trigger.ABORT:
                self.inputs["given"] = NUMBER_OF[fact.reason]
            return
        inputs, before, after = self.inputs, _Watched(*watched), _Watched(*_watched(turn.counters))
        fell = after.names_below(before) if before != after else []
        match fact:
            case f.ModelReplied():
                inputs |= {"runs": after.ready, "answers": after.answering, "lends": after.lent}
                inputs["loops"] = after.doom
            case f.StepFinished():
                inputs["loops"] = inputs["loops"] or (after.doom and not before.doom)
                inputs["idles"] = after.idle > before.idle
            case f.CallSettled():
                inputs["used"] += after.calls - before.calls
                inputs["lease"] += before.lent - after.lent
                inputs["gives"] = after.final and not before.final
                inputs["settles"] = bool(fell)
            case f.Answered():
                inputs["counted"] = "asking_counted" in fell or (not fell and after.questions == 0)
                inputs["last"] = "asking" in fell or "asking_counted" in fell
            case f.CallWaiting():
                inputs["owed"] = after.waiting - before.waiting
            case f.AttemptFailed():
                inputs["silent"] = fact.retry and after.second_try
                inputs["given"] = NUMBER_OF[fact.cause.reason]
        if self.row is None and fact.kind in EFFECTS:
            self.name = _name_of(fact, fell)

    def check(self, now: _Snapshot, *, is_checked: bool) -> _Snapshot:
        """Check the part from the values before it. Return the values after it.

        `is_checked`: whether the values before it are known to satisfy the invariants.
        """
        inputs, row, after = self.inputs, self.row, self.after
        inputs["tokens_now"], inputs["cost_now"], inputs["time_now"] = _spent(after)
        if row is not None and row.trigger is Trigger.ANSWERED:
            inputs["closes"] = now[_WAITING] - self.fired[_WAITING]
        move, moved = self._move()
        chosen_values = (*self.passing, *inputs.values())
        holds, mid, expected = moved(now, chosen_values)
        if move is None:
            _compare(expected, after, "nothing happens")
            return after
        if not holds:
            known_values = {**dict(zip(_NAMES, now, strict=True)), **dict(zip(CHOSEN, chosen_values, strict=True))}
            raise ConformanceError(f"{move.name} in {self.state}, although not {move.assume}: {_shown(known_values)}")
        if row is None:
            _compare(expected, after, move.name)
            return after
        if mid != self.fired:
            _compare(mid, self.fired, f"before {row.name}")
        if not is_checked:
            _check_invariants(self.state, now)
        if expected != after:
            _compare(expected, after, row.name)
        return after

    def _move(self) -> tuple[Move | None, _Moved]:
        key = (self.state, self.name) if self.row is None else id(self.row)  # a row's hash is slow
        known_move = _MOVED.get(key)
        if known_move is None or known_move[0] is not self.row:
            move = _INSIDE[self.state, self.name] if self.name else None
            if self.row is not None:
                move = _OF_ROWS[self.row.source, self.row.trigger]
            known_move = _MOVED[key] = self.row, move, _compile_move(move, self.row)
        return known_move[1:]


def _compare(expected: _Snapshot, actual: _Snapshot, where: str) -> None:
    if expected != actual:
        differ = ", ".join(
            f"{name} is {int(is_)} and not {int(should)}"
            for name, is_, should in zip(_NAMES, actual, expected, strict=True)
            if is_ != should
        )
        raise ConformanceError(f"{where}: {differ}")


def _name_of(fact: f.Fact, fell: list[str]) -> str:
    match fact:
        case f.CallStarted() | f.CallSettled() | f.CallWaiting():
            field_names, again = _NAMED[type(fact)]
            if fell == ["crash_paid"] and isinstance(fact, f.CallStarted):
                return f"{again} without a retry"
            kind = "crash_paid" if "crash_paid" in fell else fell[0] if fell else ""
            return field_names.format(f"{kind} call") if kind else again
        case f.AttemptFailed():
            return "the synthesis is tried again" if fact.retry else ""
        case f.MessageAdded():
            return "a message comes"
        case _:
            return "the request is prepared"


#: The moves so far, compiled, by a row's identity or by the state and the name; each keeps its row.
_MOVED: Final[dict[int | tuple[State, str], tuple[Row | None, Move | None, _Moved]]] = {}


def _compile_move(move: Move | None, row: Row | None) -> _Moved:
    """Compile a move from its texts, or, without one, what an input changes in which nothing happens."""
    lines: list[str] = []

    def assign(name: str, text: str, variables: Mapping[str, str]) -> str:
        lines.append(f"{name}_{len(lines)} = {_with_names(text, variables, flag=name in ALL_FLAGS)}")
        return lines[-1].split(" ", 1)[0]

    start = {name: name for name in (*_NAMES, *CHOSEN)} | {_OF_PATHS: "0"}
    mid = start if move is None else assign_all(move.before, start, assign)
    if move is None:
        after = assign_all(SPENDING, mid, assign)
    else:
        after = after_event(move, mid, assign) if row is None else after_row(row, mid, assign)
    holds = "True" if move is None else _with_names(move.assume, start, flag=True)
    results = (f"({', '.join(variables[name] for name in _NAMES)})" for variables in (mid, after))
    body = (f"{', '.join(_NAMES)} = now", f"{', '.join(CHOSEN)} = chosen_values", *lines)
    code = "def moved(now, chosen_values):\n " + "\n ".join((*body, f"return {holds}, {', '.join(results)}"))
    namespace: dict[str, _Moved] = {}
    eval(compile(code, "<moves>", "exec"), {"__builtins__": {"bool": bool}}, namespace)  # noqa: S307 (the moves' texts)
    return namespace["moved"]


def _with_names(text: str, variables: Mapping[str, str], *, flag: bool = False) -> str:
    """Return a text's expression with these variables for its names."""
    names = names_in(text)  # refuses what is not in the language
    code = re.sub(r"\w+", lambda name: variables[name[0]] if name[0] in names else name[0], text)
    return f"bool({code})" if flag else code


def values_of(turn: Turn) -> dict[str, int]:
    """Return the values of a configuration: its limits, counters, and what the proof counts, but no model calls."""
    return dict(zip(_NAMES, _read(turn), strict=True))


def _read(turn: Turn) -> _Snapshot:
    waits = sum([not interrupt.call for interrupt in turn.interrupts.values()]) if turn.interrupts else 0
    reason = turn.reason if turn.state in FINAL else turn.carried if turn.state is State.CONCLUDE else None
    return _values(turn.counters, turn.limits, waits, 0 if reason is None else NUMBER_OF[reason])


#: The texts of values that are not counters: `c` has the counters and `limits` the limits.
_COUNTED: Final = {
    "max_retries": "limits.max_retries",
    "max_nudges": "limits.nudges",
    "max_refusals": "limits.output_retries",
    "max_pauses": "limits.max_pauses",
    "max_compactions": "limits.max_compactions",
    "widest": "limits.max_calls_per_step",
    "pauses": "limits.max_pauses - c.pauses_left",
    "nudges": "limits.nudges - c.nudges_left",
    "refusals": "limits.output_retries - c.output_retries_left",
    "ran": "c.calls",
    "repeats": "int(c.second_try)",
    "doom_waits": "doom_waits",
    "reason": "reason",
    "credit": "c.steps * (1 + limits.max_retries) + 2 * (limits.max_compactions - c.compactions_left)",
}
# One flat function, because a large part of the time of a walk is in it.
_values: Final[Callable[[Counters, Limits, int, int], _Snapshot]] = eval(  # noqa: S307 (the literals above)
    f"lambda c, limits, doom_waits, reason: ({', '.join(_COUNTED.get(name, f'c.{name}') for name in _NAMES)})"
)
_passing: Final[Callable[[Counters], tuple[int, ...]]] = attrgetter(*PASSING)
_NO_INPUTS: Final = dict.fromkeys(INPUTS, 0)


class _Watched(NamedTuple):
    """The counters whose changes by a fact show what the move has chosen. Those of `BATCH` come first."""

    ready: int
    ready_counted: int
    running: int
    crash_paid: int
    questions: int
    questions_counted: int
    answering: int
    lent: int
    calls: int
    waiting: int
    idle: int
    doom: int
    second_try: int
    final: int

    def names_below(self, before: "_Watched") -> list[str]:
        """Return the counts of calls, but `lent`, that are lower than before."""
        return [name for name, old, new in zip(_OF_CALLS, before, self, strict=False) if new < old]


_watched: Final[Callable[[Counters], tuple[int, ...]]] = attrgetter(*BATCH, *_Watched._fields[len(BATCH) :])
_batch_counts: Final[Callable[[Counters], tuple[int, ...]]] = attrgetter(*BATCH)
_OF_CALLS: Final = BATCH[:-1]
_NO_CALLS: Final = (0,) * len(BATCH)


@cache
def _compile_invariants(state: State) -> Callable[[_Snapshot], int]:
    """Compile the conjunction of a state's invariants: one function is faster than many."""
    variables = {name: f"now[{place}]" for place, name in enumerate(_NAMES)}
    text = " and ".join(f"({text})" for _, text in _CHECKED[state]) or "True"
    compiled: Callable[[_Snapshot], int] = eval(  # noqa: S307 (the invariants' texts)
        f"lambda now: {_with_names(text, variables)}", {"__builtins__": {}}
    )
    return compiled


def _check_invariants(state: State, now: _Snapshot) -> None:
    if _compile_invariants(state)(now):
        return
    values = dict(zip(_NAMES, now, strict=True))
    name, text = next((name, text) for name, text in _CHECKED[state] if not evaluate(text, values))
    raise ConformanceError(f"{name}: in {state} with {_shown(values)}, although {text}")


def _check_batch(turn: Turn) -> None:
    """Compare the counts of the batch with its calls."""
    calls = turn.open_calls() if turn.batch else ()
    if not calls and _batch_counts(turn.counters) == _NO_CALLS:
        return
    counts: dict[str, int] = dict.fromkeys(BATCH, 0)
    for call in calls:
        lease = call.made.lease
        counts["lent"] += 0 if lease is None else lease.calls or 0
        match call.state:
            case CallState.READY if call.made.output:
                counts["answering"] += 1
            case CallState.READY:
                counts["ready_counted" if call.counted else "ready"] += 1
            case CallState.STARTED:
                counts["running"] += 1
                counts["crash_paid"] += call.crash_paid
            case _:
                counts["asking_counted" if call.counted else "asking"] += 1
    counted: Values = dict(zip(BATCH, _batch_counts(turn.counters), strict=True))
    if counts != counted:
        raise ConformanceError(f"the batch has {_shown(counts)}, and the counters say {_shown(counted)}")


def _shown(values: Values) -> str:
    return ", ".join(f"{name} = {int(value)}" for name, value in values.items() if value) or "nothing"
