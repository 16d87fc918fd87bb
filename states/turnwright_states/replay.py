"""Replay of a journal: checks that each fact follows from the ones before (docs/rules.md#journal).

The fold trusts facts and evaluates no guard, so a new release cannot change the past. The replay does the opposite. It
infers the inputs from the facts (`event_inference.py`), feeds them to a machine on the shipped chart, and compares the
machine's facts with the journal, field by field, including time, state and hash. Only the inputs come from the journal.

No model is called, no tool runs, nothing is written. A fork continues from a place in the past instead
(`turnwright.journal.fork`).

The replay cannot detect a changed text that decided nothing (a result, an answer, a prompt), or a journal that stops
after an input. The name and the arguments of a call are bound to its loop key. They cannot be checked if its tool gave
that key, or if the call has none because its tool is exempt or tools are disabled; `Replayed.believed` names such
calls. A forger who recomputes the hashes can also replace an input by another possible one, if no decision depended on
it. docs/decisions/journal-and-recovery.md#15 has the list.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple

from msgspec import Struct, structs
from msgspec.structs import force_setattr
from pydantic import BaseModel

from . import facts as f
from .chart import CHART, VERSION, Chart, Row
from .construct import construct
from .doom import call_key
from .errors import InvalidInputError, InvalidJournalError, MachineError
from .event_inference import infer_inputs, only_input, started_input
from .inputs import Input, ModelRepliedInput, StartedInput
from .machine import TurnMachine
from .state import FINAL, State, Trigger
from .turn import Turn, fold
from .verdict import Check, Verdict

CLAIM: Final = "every fact follows from the ones before"

#: The form of every loop key.
_KEY: Final = re.compile("[0-9a-f]{12}")
#: The fields of every fact are compared after its own, because a wrong count is a better message than a wrong hash.
_LAST: Final = f.Fact.__struct_fields__
#: The end of the machine's messages about a refused input, which is left out here.
_NOTHING_CHANGED: Final = re.compile("[:;] nothing was changed$")
#: The longest value that a message quotes in full.
_QUOTED: Final = 120


# The garbage collector need not track these values, because their parts were made before them: no cycle is possible.
class FactGroup(Struct, frozen=True, gc=False):
    """The facts `first` to `last`, which were appended together, and the input from which they follow.

    `rows` are the rows of the chart that the input took, and `state` is the state after it. `believed` are the calls
    whose name and arguments cannot be checked, because their tools made their loop keys, or they have none.
    """

    event: Input
    first: int
    last: int
    state: State
    rows: tuple[Row, ...]
    believed: tuple[str, ...] = ()

    def __str__(self) -> str:
        places = f"fact {self.first}" if self.first == self.last else f"facts {self.first} to {self.last}"
        return f"{places}: {self.event.title()} -> {self.state}"


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay.

    `groups` are the inputs up to the first fault, or all. `machine` has applied the last of them; it is None without
    any. `fault` names the first fact that does not follow or cannot be read.
    """

    check: Check
    groups: tuple[FactGroup, ...]
    machine: TurnMachine | None
    fault: InvalidJournalError | None = None

    @property
    def facts(self) -> int:
        """The number of facts that follow."""
        return self.groups[-1].last if self.groups else 0

    @property
    def rows(self) -> Mapping[Row, int]:
        """The rows that the turn took, each with its count."""
        return Counter(row for group in self.groups for row in group.rows)

    @property
    def believed(self) -> tuple[str, ...]:
        """The calls whose name and arguments could not be compared with a loop key."""
        return tuple(call for group in self.groups for call in group.believed)


def replay(journal: Iterable[tuple[int, f.Fact]], *, chart: Chart = CHART) -> Replayed:
    """Check that each fact of a journal, given as (seq, fact) in order, follows from the ones before.

    The verdict is `violated` if a fact does not follow, is missing, comes twice or comes after the end, if the journal
    stops inside an input's facts, or if another chart made it. It is `inconclusive` for an empty journal, and for one
    of a later release. The journal of a turn that has not ended holds.

    An `InvalidJournalError` that iterating `journal` raises becomes the fault of that fact. Only checks pass another
    `chart`. Nothing is executed (docs/rules.md#journal).
    """
    facts, read_error = _read(journal)
    course = _Replay(facts, read_error, _twin(chart.rows))
    fault, groups = course.run(), tuple(course.groups)
    machine = None if course.machine is None else TurnMachine(course.machine.turn, chart)
    return Replayed(_check(groups, machine, fault), groups, machine, fault)


def _check(groups: tuple[FactGroup, ...], machine: TurnMachine | None, fault: InvalidJournalError | None) -> Check:
    if fault is not None:
        verdict = Verdict.INCONCLUSIVE if fault.newer else Verdict.VIOLATED
        return Check(CLAIM, verdict, str(fault), tuple(map(str, groups)))
    if machine is None:
        return Check(CLAIM, Verdict.INCONCLUSIVE, "the journal is empty")
    turn, last = machine.turn, groups[-1].last
    status = f"has not ended, and its state is {turn.state}"
    if turn.state.outcome is not None:
        status = f"ended: {turn.state.outcome}, {turn.reason}"
    return Check(CLAIM, Verdict.HOLDS, f"{last} facts, {len(groups)} events; the turn {status}")


def _read(journal: Iterable[tuple[int, f.Fact]]) -> tuple[list[f.Fact], InvalidJournalError | None]:
    """Return the facts up to the first that cannot be read or has a wrong number, and the fault of that fact."""
    facts: list[f.Fact] = []
    try:
        for expected_seq, (seq, fact) in enumerate(journal, start=1):
            if seq < expected_seq:
                return facts, InvalidJournalError(seq, f"it comes twice: again after fact {expected_seq - 1}")
            if seq > expected_seq:
                return facts, InvalidJournalError(expected_seq, f"it is missing: fact {seq} is in its place")
            facts.append(fact)
    except InvalidJournalError as unreadable:
        return facts, unreadable
    return facts, None


@lru_cache(maxsize=4)
def _twin(rows: tuple[Row, ...]) -> Chart:
    """Return a chart of the same rows, because a replay must not count in this process's `Chart.taken`."""
    return Chart(rows)


class _Witness(TurnMachine):
    """A machine that records its rows, and accepts the loop keys that tools gave.

    A tool may have made its key from data that is not in the journal. The hash still binds the rounds to it.
    The time at which a step started is the journal's too: a clock gave it.
    """

    __slots__ = ("_at", "_journal", "believed", "rows")

    def __init__(self, turn: Turn, chart: Chart, journal: Sequence[f.Fact], at: int) -> None:
        super().__init__(turn, chart)
        self._journal = journal
        self.begin_group(at)

    def begin_group(self, at: int) -> None:
        """Record the rows and the calls of the next input, whose facts begin at the index `at` of the journal."""
        self._at = at
        self.rows: list[Row] = []
        self.believed: list[str] = []

    def begin(self, event: StartedInput) -> list[f.Fact]:
        """Begin the turn."""
        return self._begin(event)

    def _emit_derived(self, fact: f.Fact) -> None:
        if type(fact) is f.StepStarted:
            place = self._at + len(self._out)
            if place < len(self._journal) and type(journal_fact := self._journal[place]) is f.StepStarted:
                force_setattr(fact, "started_at", journal_fact.started_at)
        super()._emit_derived(fact)

    def _fire(self, trigger: Trigger) -> Row:
        row = self._chart.fire(self, trigger, self.turn.counters)
        self.rows.append(row)
        return row

    def _decide(self, event: ModelRepliedInput) -> tuple[f.CallMade, ...]:
        calls, head = super()._decide(event), self._journal[self._at]
        for call in calls:
            if call.own_key or not call.key:
                keys = [call.key for call in head.calls] if isinstance(head, f.ModelReplied) else []
                return tuple(map(self._take_key, calls, keys))
        return calls

    def _take_key(self, call: f.CallMade, key: str) -> f.CallMade:
        """Return the call with the journal's key, if its tool may have made that key."""
        if not call.key:  # without a loop key nothing binds its arguments
            self.believed.append(call.id)
        if not call.own_key or not _KEY.fullmatch(key) or key == call_key(call.name, call.arguments, call.raw, None):
            return call
        self.believed.append(call.id)
        return structs.replace(call, key=key)


class _Fit(NamedTuple):
    """An input from which the next `fact_count` facts follow. `machine` has applied it."""

    event: Input
    machine: _Witness
    fact_count: int


class _Replay:
    """A running replay. `read_error` is the fault of the fact after the last of `facts`."""

    def __init__(self, facts: list[f.Fact], read_error: InvalidJournalError | None, chart: Chart) -> None:
        self.groups: list[FactGroup] = []
        self.machine: _Witness | None = None
        self._facts = facts
        # The input that ended the turn had them.
        self._undelivered = next((fact.undelivered for fact in facts if type(fact) is f.TurnEnded), ())
        self._read_error = read_error
        self._chart = chart

    def run(self) -> InvalidJournalError | None:
        """Feed one input after the other until none fits. Return the fault, or None."""
        at = 0
        while at < len(self._facts):
            followed_count = self._follow(at)
            if followed_count:
                at += followed_count
                continue
            trials = list(self._begin() if self.machine is None else self._go_on(self.machine, at))
            fits = [trial for trial in trials if isinstance(trial, _Fit)]
            if not fits:
                return self._choose_fault(trial for trial in trials if isinstance(trial, InvalidJournalError))
            # A stop that closes every call explains more facts than the end of a single call.
            event, self.machine, fact_count = max(fits, key=lambda fit: fit.fact_count)
            self._add_group(event, self.machine, at, fact_count)
            at += fact_count
        return self._read_error

    def _add_group(self, event: Input, machine: "_Witness", at: int, fact_count: int) -> None:
        rows, beliefs = tuple(machine.rows), tuple(machine.believed)
        self.groups.append(FactGroup(event, at + 1, at + fact_count, machine.state, rows, beliefs))

    def _follow(self, at: int) -> int:
        """Feed the machine itself with the only possible input of the group at the index `at`.

        Return the number of its facts, or 0 if the group needs a trial on a copy: several inputs are possible, or the
        facts differ. The machine is then as it was.
        """
        machine, head = self.machine, self._facts[at]
        if machine is None or machine.state in FINAL or not 0.0 <= head.elapsed < inf:
            return 0
        event = only_input(self._facts, at)
        if event is None:
            return 0
        machine.begin_group(at)
        try:
            facts = machine.feed(event)
        except MachineError:
            facts = []
        fact_count = len(facts)
        if not facts or facts != self._facts[at : at + fact_count]:
            self.machine = _Witness(fold(self._facts[:at]), self._chart, self._facts, at)
            return 0
        self._add_group(event, machine, at, fact_count)
        return fact_count

    def _choose_fault(self, faults: Iterable[InvalidJournalError]) -> InvalidJournalError:
        """Return the fault of the first fact that no input explains: the input with the most equal facts decides."""
        fault = max(faults, key=lambda candidate: candidate.seq)
        return self._read_error if self._read_error is not None and fault.seq > len(self._facts) else fault

    def _begin(self) -> Iterator[_Fit | InvalidJournalError]:
        head = self._facts[0]
        if not isinstance(head, f.TurnStarted):
            yield InvalidJournalError(1, f"{head.kind}: a journal begins with turn_started")
        elif head.chart != VERSION:
            yield InvalidJournalError(
                1, f"it was written under chart {head.chart}, and this release checks chart {VERSION}"
            )
        else:
            try:
                event = started_input(head)
            except InvalidInputError as error:
                yield InvalidJournalError(1, f"{head.kind}: {error.why}")
            else:
                machine = _Witness(Turn(event.limits), self._chart, self._facts, 0)
                facts = machine.begin(event)
                yield self._find_difference(facts, 0) or _Fit(event, machine, len(facts))

    def _go_on(self, machine: _Witness, at: int) -> Iterator[_Fit | InvalidJournalError]:
        """Try each possible input of the group that begins at the index `at`."""
        head = self._facts[at]
        if machine.state.outcome is not None:
            yield InvalidJournalError(at + 1, f"{head.kind}: the turn had already ended ({machine.state.outcome})")
            return
        try:
            for event in infer_inputs(self._facts, at, machine.turn):
                yield self._feed_copy(machine, event, at)
        except InvalidInputError as error:
            yield InvalidJournalError(at + 1, f"{head.kind}: {error.why}")
        yield InvalidJournalError(
            at + 1, f"{head.kind}: it does not follow from the facts before it, and no input gives it"
        )

    def _feed_copy(self, machine: _Witness, event: Input, at: int) -> _Fit | InvalidJournalError:
        head = self._facts[at]
        witness = _Witness(machine.turn.copy(), self._chart, self._facts, at)
        try:
            facts = witness.feed(event)
            if witness.state in FINAL and self._undelivered:
                event = construct(type(event), structs.asdict(event) | {"undelivered": self._undelivered})
                witness = _Witness(machine.turn.copy(), self._chart, self._facts, at)
                facts = witness.feed(event)
        except InvalidInputError:
            raise  # no input has such a value
        except MachineError as error:
            return InvalidJournalError(at + 1, f"{head.kind}: {_NOTHING_CHANGED.sub('', str(error))}")
        return self._find_difference(facts, at) or _Fit(event, witness, len(facts))

    def _find_difference(self, facts: Sequence[f.Fact], at: int) -> InvalidJournalError | None:
        """Return the first difference between the journal from the index `at` and the facts that follow, or None."""
        for seq, fact in enumerate(facts, start=at + 1):
            if seq > len(self._facts):
                return InvalidJournalError(seq, f"it is missing: {fact.kind} follows from the facts before it")
            why = _describe_difference(self._facts[seq - 1], fact)
            if why:
                return InvalidJournalError(seq, why)
        return None


def _describe_difference(fact: f.Fact, expected_fact: f.Fact) -> str:
    """Return a message about the first field that differs; empty if none does."""
    if fact == expected_fact:
        return ""
    if fact.kind != expected_fact.kind:
        return f"it is {fact.kind}, and {expected_fact.kind} follows from the facts before it"
    names = (*(name for name in expected_fact.__struct_fields__ if name not in _LAST), *_LAST)
    differ = filter(
        None, (_find_innermost_difference(name, getattr(fact, name), getattr(expected_fact, name)) for name in names)
    )
    return next(
        f"{fact.kind}: {field} is {_quote(is_)}, and {_quote(follows)} follows from the facts before it"
        for field, is_, follows in differ
    )


def _find_innermost_difference(name: str, value: object, expected_value: object) -> tuple[str, object, object] | None:
    """Return the innermost field in which two values differ, with both of its values, or None."""
    if value == expected_value:
        return None
    inner: Iterable[tuple[str, object, object]] = ()
    if isinstance(value, BaseModel | Struct) and type(value) is type(expected_value):
        names = value.__struct_fields__ if isinstance(value, Struct) else type(value).model_fields
        inner = ((field, getattr(value, field), getattr(expected_value, field)) for field in names)
    elif isinstance(value, tuple) and isinstance(expected_value, tuple) and len(value) == len(expected_value):
        inner = ((str(place), item, expected_value[place]) for place, item in enumerate(value))
    for field, inner_value, inner_expected in inner:
        difference = _find_innermost_difference(f"{name}.{field}", inner_value, inner_expected)
        if difference:
            return difference
    return name, value, expected_value


def _quote(value: object) -> str:
    text = str(value) if isinstance(value, StrEnum) else repr(value)
    return text if len(text) <= _QUOTED else f"{text[: _QUOTED - 3]}..."
