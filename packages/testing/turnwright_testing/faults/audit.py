"""Check the journal of a turn against the witness of its processes."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

from turnwright_states import Decision, Outcome, State
from turnwright_states import facts as f
from turnwright_states.verdict import Verdict
from turnwright_testing.behavior import Driven, Execution
from turnwright_testing.hook_script import Consulted
from turnwright_testing.invariants import INVARIANTS, Invariant, ends, follows, raises_nothing, runs_once

from .watched import checksum, watched_tools
from .witness import Ran, Witness, WitnessLine, executions

F = TypeVar("F", bound=f.Fact)

#: Invariants that are claims of their own, or of which a witness knows nothing.
_APART: Final[frozenset[Invariant]] = frozenset({raises_nothing, ends, follows, runs_once})


@dataclass(frozen=True)
class WitnessedTurn:
    """A turn that has no driver: its journal, the witness's lines, and the ids that wait in its inbox.

    `consulted` are the questions to its hooks and guardrails, where a witness noted them.
    """

    id: str
    journal: Sequence[tuple[int, f.Fact]]
    lines: Sequence[WitnessLine]
    inbox: Collection[str] = ()
    consulted: Sequence[Consulted] | None = None

    def violations(self) -> dict[str, list[str]]:
        """Return the violations of each claim."""
        return {claim: list(find(self)) for claim, find in CLAIMS.items()}

    @cached_property
    def facts(self) -> dict[int, f.Fact]:
        """The facts, by place."""
        return dict(self.journal)

    @cached_property
    def ran(self) -> list[Ran]:
        """Every start of a tool."""
        return executions(list(self.lines))

    @cached_property
    def turn_ended(self) -> f.TurnEnded | None:
        """Its end."""
        return next(self.of(f.TurnEnded), None)

    @property
    def state(self) -> State | None:
        """Its last state."""
        return self.journal[-1][1].state if self.journal else None

    @cached_property
    def driven(self) -> Driven:
        """The turn as the invariants see it."""
        names = f.tool_names(self.facts.values())
        tools = {tool.name: tool for tool in watched_tools(Witness(Path()))}
        return Driven(
            facts=self.journal,
            consulted=self.consulted,
            executions=[Execution(ran.turn, ran.call, names.get(ran.call, ""), ran.attempt) for ran in self.ran],
            tools=tools,
        )

    def of(self, kind: type[F]) -> Iterator[F]:
        """Return the facts of a kind."""
        return (fact for fact in self.facts.values() if isinstance(fact, kind))


def _find_lost(turn: WitnessedTurn) -> Iterator[str]:
    for line in turn.lines:
        if line.words[0] == "wrote":
            _, _, _, seq, kind, sum_ = line.words
            fact = turn.facts.get(int(seq))
            if fact is None or (fact.kind, checksum(fact.payload())) != (kind, sum_):
                yield f"fact {seq}, {kind}, was acknowledged, and the journal has {fact.kind if fact else 'nothing'}"


def _run_again(turn: WitnessedTurn) -> Iterator[str]:
    results = {fact.call: seq for seq, fact in turn.journal if isinstance(fact, f.CallSettled)}
    result_seqs: dict[int, int] = {}
    last_seq = 0
    for line in turn.lines:
        if line.words[0] == "claimed":
            result_seqs[line.process] = int(line.words[3])
        elif line.words[0] == "wrote":
            last_seq = max(last_seq, int(line.words[3]))
        elif line.words[3:] == ("start",):
            settle_seq = results.get(line.words[1])
            if settle_seq is not None and settle_seq <= max(last_seq, result_seqs.get(line.process, 0)):
                yield f"{line.words[1]} ran again when its result was fact {settle_seq}"


def _run_without_claim(turn: WitnessedTurn) -> Iterator[str]:
    call_attempts: set[tuple[int, str, int]] = set()
    epochs: dict[int, int] = {}
    for line in turn.lines:
        if line.words[0] == "claimed":
            epochs[line.process] = int(line.words[2])
        elif line.words[0] == "wrote":
            fact = turn.facts.get(int(line.words[3]))
            if isinstance(fact, f.CallStarted):
                call_attempts.add((line.process, fact.call, fact.attempt))
        elif line.words[3:] == ("start",):
            _, call, attempt, _ = line.words
            if (line.process, call, int(attempt)) not in call_attempts:
                yield f"{call}, attempt {attempt}, ran in a process that had not recorded its start"
            if epochs.get(line.process) != max(epochs.values()):
                yield f"{call} ran in a process that had lost the turn"


def _run_twice(turn: WitnessedTurn) -> Iterator[str]:
    yield from runs_once(turn.driven).witness


def _find_open(turn: WitnessedTurn) -> Iterator[str]:
    if turn.state is None or (turn.turn_ended is None and turn.state is not State.PAUSED):
        yield f"it is in {turn.state}"


def _find_unpaired(turn: WitnessedTurn) -> Iterator[str]:
    number = 0
    for line in turn.lines:
        if line.words[0] == "asked":
            number += 1
            if line.words[1] != "paired":
                yield f"request {number} has a call without its result"


def _answers(turn: WitnessedTurn) -> Iterator[str]:
    """Each interrupt has one answer, or one of each approver, and these are the first that were acknowledged."""
    waits = Counter[str]()
    counts = Counter[tuple[str, int, str]]()
    journal_decisions: dict[str, list[str]] = {}
    needs_several, rejected_names = set[str](), set[str]()
    for fact in turn.facts.values():
        if isinstance(fact, f.CallWaiting):
            waits.update(interrupt.id for interrupt in fact.interrupts)
            needs_several |= {interrupt.id for interrupt in fact.interrupts if interrupt.approvals > 1}
        elif isinstance(fact, f.Answered):
            name = fact.interrupt
            person = fact.by if name in needs_several and fact.decision is Decision.APPROVE else ""
            counts[name, waits[name], person] += 1
            journal_decisions.setdefault(f"{name}/{fact.by}" if name in needs_several else name, []).append(
                fact.decision
            )
            if name in needs_several and fact.decision is not Decision.APPROVE:
                rejected_names.add(name)
    yield from (f"{name} was answered {count} times" for (name, _, _), count in counts.items() if count > 1)
    is_aborted = turn.turn_ended is not None and turn.turn_ended.outcome is Outcome.ABORTED
    for name, decisions in _list_accepted(turn).items():
        remaining = iter(journal_decisions.get(name, ()))
        for decision in decisions:
            if decision not in remaining and not is_aborted and f"answer:{name}" not in turn.inbox:
                if name.partition("/")[0] in rejected_names:
                    continue  # one rejection is enough
                yield f"the answer {decision} to {name} was lost: the journal has {journal_decisions.get(name)}"


def _list_accepted(turn: WitnessedTurn) -> dict[str, list[str]]:
    """Return the decisions that were acknowledged, by interrupt and approver. Posting the same again changes none."""
    accepted_decisions: dict[str, list[str]] = {}
    for line in turn.lines:
        if line.words[0] == "posted" and line.words[2].startswith("answer:"):
            decisions = accepted_decisions.setdefault(line.words[2].removeprefix("answer:"), [])
            if decisions[-1:] != [line.words[3]]:
                decisions.append(line.words[3])
    return accepted_decisions


def _untold(turn: WitnessedTurn) -> Iterator[str]:
    check = follows(turn.driven)
    if check.verdict is not Verdict.HOLDS:
        yield check.detail


def _check_others(turn: WitnessedTurn) -> Iterator[str]:
    for invariant in INVARIANTS:
        if invariant not in _APART:
            check = invariant(turn.driven)
            if check.verdict is Verdict.VIOLATED:
                yield f"{check.claim}: {check.detail}"


#: The claims, in the order of a report: nothing may violate them.
CLAIMS: Final[dict[str, Callable[[WitnessedTurn], Iterator[str]]]] = {
    "acknowledged facts lost or changed": _find_lost,
    "calls run again after their result was recorded": _run_again,
    "calls run without a journaled start, or without the lease": _run_without_claim,
    "calls run twice that are not idempotent, without a person's approval": _run_twice,
    "turns that neither ended nor paused": _find_open,
    "model requests with an unpaired call": _find_unpaired,
    "interrupts answered twice, or not as acknowledged": _answers,
    "journals with a fact that does not follow": _untold,
    "other invariants broken": _check_others,
}
