"""Replays a journal: does each of its facts follow from the ones before?

The fold trusts facts and asks no guard again, so that a new release cannot change the past. Replay does the opposite.
It reads out of the facts what happened (`infer_inputs.py`), feeds that to a machine on the chart that ships, and
compares what the machine says with what is written, field by field, the time, the state and the hash included. What
happened is taken from the journal, for nothing else has it; what was decided is not.

Nothing is done again: no model is called, no tool is run, nothing is written. To go on from a place in the past, with
everything that this does, is a fork (`turnwright.journal.fork`).

What cannot be seen: a text that decided nothing and was changed (a result, an answer, a prompt), and a journal that
stops after an event. The name and the arguments of a call are bound to its loop key. Where its tool gave that key, or
the call has none because its tool is exempt or no tool may run, they cannot be checked, and `Replayed.believed` names
the call. A forger who writes the hashes anew can also change what
came from outside to something that might have come instead, if nothing followed from it. Decision 15 has the list.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct, structs
from pydantic import BaseModel, ValidationError

from . import facts as f
from .chart import CHART, VERSION, Chart, Row
from .doom import call_key
from .errors import InvalidJournalError, MachineError
from .event_inference import infer_inputs, started_input
from .inputs import Input, ModelRepliedInput
from .machine import TurnMachine
from .state import FINAL, State, Trigger
from .turn import Turn
from .verdict import Check, Verdict

CLAIM: Final = "every fact follows from the ones before"

#: What a loop key looks like, whatever a tool made it from.
_KEY: Final = re.compile("[0-9a-f]{12}")
#: The fields that every fact has are compared after its own: a wrong count is worth more words than a wrong hash.
_LAST: Final = f.Fact.__struct_fields__
#: What the machine says of an event that it refuses, and what is no news here.
_NOTHING_CHANGED: Final = re.compile("[:;] nothing was changed$")
#: The longest value that a message quotes whole.
_QUOTED: Final = 120


@dataclass(frozen=True, slots=True)
class FactGroup:
    """The facts `first` to `last`, which were appended together, and the event from which they follow.

    `rows` are the rows of the chart that it took, `state` is where the turn stands after it. `believed` are the calls
    whose name and arguments cannot be checked: their loop keys were made by their tools, or they have none.
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
    """What came of a replay.

    `groups` are the events up to the first fault, or all; `machine` stands after the last of them, and is None where
    there is none. `fault` names the first fact that does not follow or cannot be read.
    """

    check: Check
    groups: tuple[FactGroup, ...]
    machine: TurnMachine | None
    fault: InvalidJournalError | None = None

    @property
    def facts(self) -> int:
        """How many facts follow."""
        return self.groups[-1].last if self.groups else 0

    @property
    def rows(self) -> Mapping[Row, int]:
        """How often the turn took each row that it took."""
        return Counter(row for group in self.groups for row in group.rows)

    @property
    def believed(self) -> tuple[str, ...]:
        """The calls whose name and arguments could not be checked against a loop key."""
        return tuple(call for group in self.groups for call in group.believed)


def replay(journal: Iterable[tuple[int, f.Fact]], *, chart: Chart = CHART) -> Replayed:
    """Check that each fact of a journal, as (seq, fact) from the first on, follows from the ones before.

    The verdict is `violated` if one does not, if one is missing, comes twice or comes after the end, if the journal
    breaks off inside an event, or if another chart made it. It is `inconclusive` for an empty journal, and for one
    that a later release wrote. A journal of a turn that has not ended holds.

    `InvalidJournalError`, raised by `journal` while it is read, is the fault of that fact: a file can be handed over
    line by line. `chart` is another one only when it is checked. Nothing is executed. Source: DESIGN 3.
    """
    facts, unread = _read(journal)
    course = _Course(facts, unread, _twin(chart.rows))
    fault, groups = course.run(), tuple(course.groups)
    machine = None if course.machine is None else TurnMachine(course.machine.turn, chart)
    return Replayed(_check(groups, machine, fault), groups, machine, fault)


def _check(groups: tuple[FactGroup, ...], machine: TurnMachine | None, fault: InvalidJournalError | None) -> Check:
    if fault is not None:
        verdict = Verdict.INCONCLUSIVE if fault.newer else Verdict.VIOLATED
        return Check(CLAIM, verdict, str(fault), tuple(map(str, groups)))
    if machine is None:
        return Check(CLAIM, Verdict.INCONCLUSIVE, "the journal is empty: there was nothing to check")
    turn, last = machine.turn, groups[-1].last
    stands = f"has not ended and stands in {turn.state}"
    if turn.state.outcome is not None:
        stands = f"ended: {turn.state.outcome}, {turn.reason}"
    return Check(CLAIM, Verdict.HOLDS, f"{last} facts, {len(groups)} events; the turn {stands}")


def _read(journal: Iterable[tuple[int, f.Fact]]) -> tuple[list[f.Fact], InvalidJournalError | None]:
    """The facts as far as they can be read and are numbered 1, 2, 3, and what is wrong with the next one."""
    facts: list[f.Fact] = []
    try:
        for due, (seq, fact) in enumerate(journal, start=1):
            if seq < due:
                return facts, InvalidJournalError(seq, f"it comes again, after fact {due - 1}")
            if seq > due:
                return facts, InvalidJournalError(due, f"it is missing: fact {seq} stands in its place")
            facts.append(fact)
    except InvalidJournalError as unreadable:
        return facts, unreadable
    return facts, None


@lru_cache(maxsize=4)
def _twin(rows: tuple[Row, ...]) -> Chart:
    """A chart of the same rows: what is only tried shall not count as taken by this process (`Chart.taken`)."""
    return Chart(rows)


class _Witness(TurnMachine):
    """A machine that notes which rows it takes, and believes the loop keys that tools gave.

    A tool may have made its key from something that is not written down. The hash still binds the rounds to it.
    """

    __slots__ = ("_keys", "believed", "rows")

    def __init__(self, turn: Turn, chart: Chart, keys: Sequence[str] = ()) -> None:
        super().__init__(turn, chart)
        self._keys = keys
        self.rows: list[Row] = []
        self.believed: list[str] = []

    def _fire(self, trigger: Trigger) -> Row:
        row = super()._fire(trigger)
        self.rows.append(row)
        return row

    def _decide(self, event: ModelRepliedInput) -> tuple[f.CallMade, ...]:
        return tuple(map(self._keyed, super()._decide(event), self._keys))

    def _keyed(self, made: f.CallMade, key: str) -> f.CallMade:
        """The call with the key that is written down, where that is said to be of its tool's making, and may be."""
        if not made.key:  # it takes no part in the detection of loops: nothing binds its arguments
            self.believed.append(made.id)
        if not made.own_key or not _KEY.fullmatch(key) or key == call_key(made.name, made.arguments, made.raw, None):
            return made
        self.believed.append(made.id)
        return structs.replace(made, key=key)


class _Fit(NamedTuple):
    """An event from which the next facts follow: `machine` has taken it in, and `made` is how many they are."""

    event: Input
    machine: _Witness
    made: int


class _Course:
    """A replay on its way through the facts. `unread` is what is wrong with the fact after the last of them."""

    def __init__(self, facts: Sequence[f.Fact], unread: InvalidJournalError | None, chart: Chart) -> None:
        self.groups: list[FactGroup] = []
        self.machine: _Witness | None = None
        self._facts = facts
        # Whatever event ended the turn, they came with it.
        self._undelivered = next((fact.undelivered for fact in facts if isinstance(fact, f.TurnEnded)), ())
        self._unread = unread
        self._chart = chart

    def run(self) -> InvalidJournalError | None:
        """Go from event to event until none fits. Returns the fault, or None if there is none."""
        at = 0
        while at < len(self._facts):
            trials = list(self._begin() if self.machine is None else self._go_on(self.machine, at))
            fits = [trial for trial in trials if isinstance(trial, _Fit)]
            if not fits:
                return self._fault(trial for trial in trials if isinstance(trial, InvalidJournalError))
            # Where two fit, a stop that closes every call tells more than one call that was closed by itself.
            event, self.machine, made = max(fits, key=lambda fit: fit.made)
            rows, believed = tuple(self.machine.rows), tuple(self.machine.believed)
            self.groups.append(FactGroup(event, at + 1, at + made, self.machine.state, rows, believed))
            at += made
        return self._unread

    def _fault(self, faults: Iterable[InvalidJournalError]) -> InvalidJournalError:
        """The first fact that no event explains: as far as one of them agrees with the journal, nothing is wrong."""
        fault = max(faults, key=lambda one: one.seq)
        return self._unread if self._unread is not None and fault.seq > len(self._facts) else fault

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
            except ValidationError as error:
                yield _impossible(1, head, error)
            else:
                machine, made = _Witness.start(event, chart=self._chart)
                yield self._parting(made, 0) or _Fit(event, machine, len(made))

    def _go_on(self, machine: _Witness, at: int) -> Iterator[_Fit | InvalidJournalError]:
        """Try each event from which the group that begins at the index `at` may have come."""
        head = self._facts[at]
        if machine.state.outcome is not None:
            yield InvalidJournalError(at + 1, f"{head.kind}: the turn had already ended ({machine.state.outcome})")
            return
        try:
            for event in infer_inputs(self._facts, at, machine.turn):
                yield self._fed(machine, event, at)
        except ValidationError as error:
            yield _impossible(at + 1, head, error)
        yield InvalidJournalError(
            at + 1, f"{head.kind}: it does not follow from the facts before it, and begins nothing"
        )

    def _fed(self, machine: _Witness, event: Input, at: int) -> _Fit | InvalidJournalError:
        head = self._facts[at]
        keys = [made.key for made in head.calls] if isinstance(head, f.ModelReplied) else ()
        witness = _Witness(machine.turn.copy(), self._chart, keys)
        try:
            made = witness.feed(event)
            if witness.state in FINAL and self._undelivered:
                event = type(event).model_validate(dict(event) | {"undelivered": self._undelivered})
                witness = _Witness(machine.turn.copy(), self._chart, keys)
                made = witness.feed(event)
        except MachineError as error:
            return InvalidJournalError(at + 1, f"{head.kind}: {_NOTHING_CHANGED.sub('', str(error))}")
        return self._parting(made, at) or _Fit(event, witness, len(made))

    def _parting(self, made: Sequence[f.Fact], at: int) -> InvalidJournalError | None:
        """Where the facts from the index `at` on part from those that follow; None if they agree."""
        for seq, due in enumerate(made, start=at + 1):
            if seq > len(self._facts):
                return InvalidJournalError(
                    seq, f"it is missing: {due.kind} belongs to the event of the facts before it"
                )
            fact = self._facts[seq - 1]
            if isinstance(fact, f.StepStarted) and isinstance(due, f.StepStarted):
                due = structs.replace(due, started_at=fact.started_at)  # noqa: PLW2901 (a clock's, and not the machine's)
            why = _difference(fact, due)
            if why:
                return InvalidJournalError(seq, why)
        return None


def _impossible(seq: int, fact: f.Fact, error: ValidationError) -> InvalidJournalError:
    first = error.errors()[0]
    return InvalidJournalError(seq, f"{fact.kind}: {'.'.join(map(str, first['loc']))}: {first['msg']}")


def _difference(fact: f.Fact, due: f.Fact) -> str:
    """Which field of a fact is not what it must be, in words; empty if none is."""
    if fact == due:
        return ""
    if fact.kind != due.kind:
        return f"{fact.kind} stands where {due.kind} follows from the facts before it"
    names = (*(name for name in due.__struct_fields__ if name not in _LAST), *_LAST)
    differ = filter(None, (_apart(name, getattr(fact, name), getattr(due, name)) for name in names))
    return next(
        f"{fact.kind}: {field} is {_quoted(is_)}, and {_quoted(follows)} follows from the facts before it"
        for field, is_, follows in differ
    )


def _apart(name: str, one: object, other: object) -> tuple[str, object, object] | None:
    """The innermost field in which two values differ, with what stands there in each; None if they are the same."""
    if one == other:
        return None
    inner: Iterable[tuple[str, object, object]] = ()
    if isinstance(one, BaseModel | Struct) and type(one) is type(other):
        names = one.__struct_fields__ if isinstance(one, Struct) else type(one).model_fields
        inner = ((field, getattr(one, field), getattr(other, field)) for field in names)
    elif isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        inner = ((str(place), left, other[place]) for place, left in enumerate(one))
    for field, left, right in inner:
        found = _apart(f"{name}.{field}", left, right)
        if found:
            return found
    return name, one, other


def _quoted(value: object) -> str:
    text = str(value) if isinstance(value, StrEnum) else repr(value)
    return text if len(text) <= _QUOTED else f"{text[: _QUOTED - 3]}..."
