"""The machine held to the moves as data: a machine for a walk, which checks itself on every edge.

`walk(case, machine=ConformingMachine)` compares, for each row and each fact, the counters with what the texts of
`moves.py` and `effects.py` say, and evaluates each move's precondition and every invariant (`theorems.py`). So the
formulas that are proven for all limits are those of the machine that ships. A walk without it is not slower.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter, itemgetter
from typing import Final, Self

from turnwright_proof.moves import (
    ALL_FLAGS,
    CHOSEN,
    MOVES,
    NUMBER_OF,
    SPENDING,
    Move,
    after_event,
    after_row,
    assigned,
)
from turnwright_proof.texts import evaluate
from turnwright_proof.theorems import CHANGING, CONSTANTS, INVARIANTS
from turnwright_states import facts as f
from turnwright_states.call import CallState
from turnwright_states.chart import CHART, Chart, Row
from turnwright_states.counters import BATCH, PASSING, Counters
from turnwright_states.effects import EFFECTS
from turnwright_states.inputs import Input, StartedInput
from turnwright_states.limits import Limits
from turnwright_states.state import FINAL, State, Trigger
from turnwright_states.turn import Turn

from .configuration import WalkedMachine

Values = Mapping[str, int]
#: The path to a configuration is not part of it, so a walk does not know the model calls so far.
_OF_PATHS: Final = "model_calls"
_KEPT: Final = tuple(name for name in CHANGING if name != _OF_PATHS)
_kept_values: Final[Callable[[Values], tuple[int, ...]]] = itemgetter(*_KEPT)
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
#: The conjunction of them: one text is evaluated faster.
_ALL: Final = {state: " and ".join(f"({text})" for _, text in texts) for state, texts in _CHECKED.items()}
_NAMED: Final = {
    f.CallStarted: ("a {} starts", "a call runs again"),
    f.CallSettled: ("a {} is settled", ""),
    f.CallWaiting: ("a {} waits", ""),
}


class ConformanceError(Exception):
    """The machine did something else than the moves as data say."""


class ConformingMachine(WalkedMachine):
    """A machine that raises `ConformanceError` when a row, a fact or a configuration differs from its texts."""

    __slots__ = ("_part", "_steps")

    def __init__(self, turn: Turn, chart: Chart = CHART) -> None:
        super().__init__(turn, chart)
        #: The parts of the current input: facts before its first row, then each row with the facts that follow.
        self._steps: list[_Part] = []
        self._part: _Part | None = None

    @classmethod
    def start(cls, event: StartedInput, *, chart: Chart = CHART) -> tuple[Self, list[f.Fact]]:
        """Begin a turn, and check its first configuration."""
        machine, facts = super().start(event, chart=chart)
        machine.check(values_of(Turn(event.limits)))
        return machine, facts

    def feed(self, event: Input) -> list[f.Fact]:
        """Feed an input, then compare what it did."""
        self._steps, self._part, now = [], None, values_of(self.turn)
        facts = super().feed(event)
        self.check(now)
        return facts

    def _fire(self, trigger: Trigger) -> Row:
        fired, state = values_of(self.turn) | passing_of(self.turn), self.state
        row = super()._fire(trigger)
        self._part = _Part(state, fired, row)
        self._steps.append(self._part)
        return row

    def _emit(self, fact: f.Fact) -> None:
        if self._part is None:
            self._part = _Part(self.turn.state, values_of(self.turn) | passing_of(self.turn))
            self._steps.append(self._part)
        before = values_of(self.turn)
        super()._emit(fact)
        self._part.add(fact, before, values_of(self.turn))

    _emit_derived = _emit  # a walk makes no hashes

    def check(self, now: Values) -> None:
        """Check what the last input did, from the values before it."""
        for part in self._steps:
            now = part.check(now)
        _compare(now, values_of(self.turn), "beside the facts")
        _check_invariants(self.turn.state, now)
        _check_batch(self.turn)


class _Part:
    """A row with the facts that follow it, or the facts of an input before its first row."""

    def __init__(self, state: State, fired: Values, row: Row | None = None) -> None:
        self.state, self.fired, self.row = state, fired, row
        self.facts: list[f.Fact] = []
        self.after = fired
        self.inputs: dict[str, int] = dict.fromkeys(CHOSEN, 0)
        self.name = ""

    def add(self, fact: f.Fact, before: Values, after: Values) -> None:
        """Note a fact, with the values before and after it: the inputs of the move follow from them."""
        self.facts.append(fact)
        self.after = after
        inputs, fell = self.inputs, [name for name in BATCH[:-1] if after[name] < before[name]]
        match fact:
            case f.ModelReplied():
                inputs |= {"runs": after["ready"], "answers": after["answering"], "lends": after["lent"]}
                inputs["loops"] = after["doom"]
            case f.StepFinished():
                inputs["loops"] = inputs["loops"] or (after["doom"] and not before["doom"])
                inputs["idles"] = after["idle"] > before["idle"]
            case f.CallSettled():
                inputs["used"] += after["calls"] - before["calls"]
                inputs["lease"] += before["lent"] - after["lent"]
                inputs["gives"] = after["final"] and not before["final"]
                inputs["settles"] = bool(fell)
            case f.Answered():
                inputs["counted"] = "asking_counted" in fell or (not fell and after["asking"] == 0)
                inputs["last"] = "asking" in fell or "asking_counted" in fell
            case f.CallWaiting():
                inputs["owed"] = after["waiting"] - before["waiting"]
            case f.AttemptFailed():
                inputs["silent"] = fact.retry and after["second_try"]
                inputs["given"] = NUMBER_OF[fact.cause.reason]
            case f.TurnEnded() if self.row is not None and self.row.trigger is Trigger.ABORT:
                inputs["given"] = NUMBER_OF[fact.reason]
        if self.row is None and fact.kind in EFFECTS:
            self.name = _name_of(fact, fell)

    def check(self, now: Values) -> Values:
        """Check the part from the values before it. Return the values after it."""
        inputs = self.inputs | {name: self.fired[name] for name in PASSING}
        inputs |= {f"{name}_now": self.after[f"{name}_spent"] for name in ("tokens", "cost", "time")}
        if self.row is not None and self.row.trigger is Trigger.ANSWERED:
            inputs["closes"] = now["waiting"] - self.fired["waiting"]
        move = self._move()
        if move is None:
            _compare(assigned(SPENDING, {**now, **inputs}, _value), self.after, "nothing happens")
            return self.after
        known_values = {**now, "model_calls": 0, **inputs}
        if not evaluate(move.assume, known_values):
            raise ConformanceError(f"{move.name} in {self.state}, although not {move.assume}: {_shown(known_values)}")
        mid = assigned(move.before, known_values, _value)
        if self.row is None:
            after = after_event(move, mid, _value)
        else:
            _compare(mid, self.fired, f"before {self.row.name}")
            _check_invariants(self.state, now)
            after = after_row(self.row, mid, _value)
        _compare(after, self.after, self.row.name if self.row is not None else move.name)
        return self.after

    def _move(self) -> Move | None:
        if self.row is not None:
            return _OF_ROWS[self.row.source, self.row.trigger]
        return _INSIDE[self.state, self.name] if self.name else None


def _compare(expected: Values, actual: Values, where: str) -> None:
    if _kept_values(expected) != _kept_values(actual):
        names = [name for name in _KEPT if expected[name] != actual[name]]
        differ = ", ".join(f"{name} is {int(actual[name])} and not {int(expected[name])}" for name in names)
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


def _value(name: str, text: str, values: Values) -> int:
    value = evaluate(text, values)
    return bool(value) if name in ALL_FLAGS else value


def values_of(turn: Turn) -> dict[str, int]:
    """Return the values of a configuration: its limits, counters, and what the proof counts, but no model calls."""
    values = _values(turn.counters, turn.limits)
    values["doom_waits"] = sum([not interrupt.call for interrupt in turn.interrupts.values()]) if turn.interrupts else 0
    reason = turn.reason if turn.state in FINAL else turn.carried if turn.state is State.CONCLUDE else None
    values["reason"] = 0 if reason is None else NUMBER_OF[reason]
    return values


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
    "credit": "c.steps * (1 + limits.max_retries) + 2 * (limits.max_compactions - c.compactions_left)",
}
_OF_COUNTERS: Final = {name: f"c.{name}" for name in (*CONSTANTS, *CHANGING) if name in Counters.__slots__}
# One flat function, because half the time of a walk is in it.
_values: Final[Callable[[Counters, Limits], dict[str, int]]] = eval(  # noqa: S307 (the literals above)
    f"lambda c, limits: {{{', '.join(f'{name!r}: {text}' for name, text in (_OF_COUNTERS | _COUNTED).items())}}}"
)
_passing: Final[Callable[[Counters], tuple[int, ...]]] = attrgetter(*PASSING)


def passing_of(turn: Turn) -> dict[str, int]:
    """Return the flags that the current input has set."""
    return dict(zip(PASSING, _passing(turn.counters), strict=True))


def _check_invariants(state: State, values: Values) -> None:
    if evaluate(_ALL[state], values):
        return
    name, text = next((name, text) for name, text in _CHECKED[state] if not evaluate(text, values))
    raise ConformanceError(f"{name}: in {state} with {_shown(values)}, although {text}")


def _check_batch(turn: Turn) -> None:
    """Compare the counts of the batch with its calls."""
    counts: dict[str, int] = dict.fromkeys(BATCH, 0)
    for call in turn.open_calls():
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
    counted: dict[str, int] = {name: getattr(turn.counters, name) for name in BATCH}
    if counts != counted:
        raise ConformanceError(f"the batch has {_shown(counts)}, and the counters say {_shown(counted)}")


def _shown(values: Values) -> str:
    return ", ".join(f"{name} = {int(value)}" for name, value in values.items() if value) or "nothing"
