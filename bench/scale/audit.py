"""Holds what a phase left behind against what must be so: the journals of its turns, and what its processes saw."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Final

from bench.scale.work import slow_tools

from turnwright_states import CallStatus, Cause
from turnwright_states import facts as f
from turnwright_states.verdict import Verdict
from turnwright_testing.behavior import Driven, Execution
from turnwright_testing.faults import Witness
from turnwright_testing.faults.watched import checksum
from turnwright_testing.faults.witness import Ran, WitnessLine, executions
from turnwright_testing.invariants import INVARIANTS, ends, follows, journals_before_it_runs, runs_once

Tale = Callable[["Turn"], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Written:
    """A fact in a journal: its place, and its writer's wall clock."""

    seq: int
    at: float
    fact: f.Fact


@dataclass(frozen=True, slots=True)
class Blow:
    """That a worker was killed (or, `stalled`, stopped for a while) at this time of the wall clock."""

    process: int
    at: float
    stalled: bool = False


@dataclass(frozen=True)
class Observation:
    """The record of a phase: the submitted ids, the journals by turn, and the witness's lines."""

    submitted: Sequence[str]
    journals: Mapping[str, Sequence[Written]]
    lines: Sequence[WitnessLine]
    blows: Sequence[Blow] = ()

    @cached_property
    def turns(self) -> "list[Turn]":
        """The turns, with what the witness saw of each."""
        lines: dict[str, list[WitnessLine]] = defaultdict(list)
        for line in self.lines:
            if line.words[0] in ("claimed", "held", "wrote", "released"):
                lines[line.words[1]].append(line)
            elif line.words[0] not in ("asked", "took"):
                lines[line.words[0]].append(line)
        thawed = frozenset(blow.process for blow in self.blows if blow.stalled)
        return [Turn(turn, self.journals.get(turn, ()), lines[turn], thawed) for turn in self.submitted]


@dataclass(frozen=True)
class Turn:
    """One turn. `thawed` are the processes that were stopped for a while."""

    id: str
    journal: Sequence[Written]
    lines: Sequence[WitnessLine]
    thawed: frozenset[int] = field(default_factory=frozenset)

    @cached_property
    def facts(self) -> dict[int, f.Fact]:
        """The facts, by place."""
        return {row.seq: row.fact for row in self.journal}

    @cached_property
    def turn_ended(self) -> f.TurnEnded | None:
        """Its end."""
        return next((fact for fact in self.facts.values() if isinstance(fact, f.TurnEnded)), None)

    @cached_property
    def ran(self) -> list[Ran]:
        """The executed calls."""
        return executions(list(self.lines))

    @property
    def claims(self) -> list[WitnessLine]:
        """The claims of those who drove it, which are all but that of who made it."""
        return [line for line in self.lines if line.words[0] == "claimed" and line.words[3] != "0"]

    @cached_property
    def driven(self) -> Driven:
        """The turn as the invariants see it."""
        names = {
            call.id: call.name
            for fact in self.facts.values()
            if isinstance(fact, f.ModelReplied)
            for call in fact.calls
        }
        return Driven(
            facts=list(self.facts.items()),
            executions=[Execution(run.turn, run.call, names.get(run.call, ""), run.attempt) for run in self.ran],
            tools={tool.name: tool for tool in slow_tools(Witness(Path()), 0.0)},
        )


def _unended(turn: Turn) -> Iterator[str]:
    if turn.turn_ended is None:
        yield f"it has {len(turn.facts)} facts, and no end"


def _lost(turn: Turn) -> Iterator[str]:
    for line in turn.lines:
        if line.words[0] == "wrote":
            _, _, _, seq, kind, sum_ = line.words
            fact = turn.facts.get(int(seq))
            if fact is None or (fact.kind, checksum(fact.payload())) != (kind, sum_):
                yield f"fact {seq}, {kind}, was acknowledged, and the journal has {fact.kind if fact else 'nothing'}"


def _late(turn: Turn) -> Iterator[tuple[int, str]]:
    """The calls that had started when the result was recorded, or when the turn had another owner; and the process."""
    settled = {fact.call: seq for seq, fact in turn.facts.items() if isinstance(fact, f.CallSettled)}
    epochs: dict[int, int] = {}
    last_seq = 0
    for line in turn.lines:
        if line.words[0] == "claimed":
            epochs[line.process] = int(line.words[2])
            last_seq = max(last_seq, int(line.words[3]))
        elif line.words[0] == "wrote":
            last_seq = max(last_seq, int(line.words[3]))
        elif line.words[3:] == ("start",):
            call = line.words[1]
            if settled.get(call, last_seq + 1) <= last_seq:
                yield line.process, f"{call} ran again when its result was fact {settled[call]}"
            elif epochs.get(line.process) != max(epochs.values(), default=0):
                yield line.process, f"{call} ran in a process that had lost the turn"


def _again(turn: Turn) -> Iterator[str]:
    yield from (words for process, words in _late(turn) if process not in turn.thawed)


def _violated(turn: Turn, *invariants: Callable[[Driven], object]) -> Iterator[str]:
    for invariant in INVARIANTS:
        if invariant in invariants:
            check = invariant(turn.driven)
            if check.verdict is Verdict.VIOLATED:
                yield f"{check.claim}: {check.detail}"


_APART: Final = (ends, follows, journals_before_it_runs, runs_once)

#: What is counted of turns, in the report's order: none of these may happen.
CLAIMS: Final[dict[str, Tale]] = {
    "turns without an outcome": _unended,
    "acknowledged facts lost or changed": _lost,
    "calls run again after their result was recorded, or without the lease": _again,
    "calls run without a journaled start": lambda turn: _violated(turn, journals_before_it_runs),
    "calls run twice that must not": lambda turn: _violated(turn, runs_once),
    "journals with a fact that does not follow": lambda turn: _violated(turn, follows),
    "other invariants broken": lambda turn: _violated(turn, *(set(INVARIANTS) - {*_APART})),
}
UNPAIRED: Final = "model requests with an unpaired call"


def faults(observed: Observation) -> dict[str, list[str]]:
    """Return the violations by claim: empty lists if there are none."""
    problems = {
        claim: [f"turn {turn.id}: {problem}" for turn in observed.turns for problem in tale(turn)]
        for claim, tale in CLAIMS.items()
    }
    unpaired = [line for line in observed.lines if line.words == ("asked", "unpaired")]
    problems[UNPAIRED] = [f"process {line.process} sent one" for line in unpaired]
    return problems


def counts(observed: Observation) -> dict[str, int]:
    """Return the examined amounts, and the cost of the kills."""
    facts = [fact for turn in observed.turns for fact in turn.facts.values()]
    settled = [fact for fact in facts if isinstance(fact, f.CallSettled)]
    drivers = [len(turn.claims) for turn in observed.turns]
    return {
        "turns": len(observed.turns),
        "facts": len(facts),
        "tool executions": sum(len(turn.ran) for turn in observed.turns),
        "model requests": sum(line.words[0] == "asked" for line in observed.lines),
        "turns taken over": sum(count > 1 for count in drivers),
        "takeovers": sum(max(count - 1, 0) for count in drivers),
        "takeovers of one turn at most": max(0, *(count - 1 for count in drivers)) if drivers else 0,
        "model calls repeated": sum(isinstance(fact, f.AttemptFailed) and fact.cause is Cause.CRASH for fact in facts),
        "idempotent calls interrupted and run again": sum(
            isinstance(fact, f.CallStarted) and fact.attempt > 1 for fact in facts
        ),
        "other calls interrupted, outcome `unknown`": sum(fact.status is CallStatus.UNKNOWN for fact in settled),
        "calls started by a resumed worker without the lease": sum(
            process in turn.thawed for turn in observed.turns for process, _ in _late(turn)
        ),
    }


def endings(observed: Observation) -> dict[str, int]:
    """Return the endings of the turns, the most frequent first."""
    ends = Counter(f"{turn.turn_ended.outcome}/{turn.turn_ended.reason}" for turn in observed.turns if turn.turn_ended)
    return dict(ends.most_common())


def recoveries(observed: Observation) -> dict[Blow, list[float]]:
    """For each blow, and each turn that its process drove then: the seconds until somebody else wrote its next fact."""
    delays: dict[Blow, list[float]] = {blow: [] for blow in observed.blows}
    for turn in observed.turns:
        written_at = {row.seq: row.at for row in turn.journal}
        since = {line.words[2]: float(line.words[3]) for line in turn.lines if line.words[0] == "held"}
        for claim, following in pairwise(turn.claims):
            again = written_at.get(int(following.words[3]) + 1)
            for blow in observed.blows:
                struck = claim.process == blow.process != following.process
                if struck and again is not None and since[claim.words[2]] < blow.at < again:
                    delays[blow].append(again - blow.at)
    return delays


def driven_for(turn: Turn) -> float | None:
    """The seconds from its first claim by a worker to its last fact; None for one that nobody claimed."""
    held_seconds = [float(line.words[3]) for line in turn.lines if line.words[0] == "held"]
    return turn.journal[-1].at - held_seconds[0] if held_seconds and turn.journal else None
