"""Check one trial against the claims: its journal, its witness, and its model's requests."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, TypeVar

from turnwright_states import Decision, Outcome, State
from turnwright_states import facts as f
from turnwright_states.verdict import Verdict
from turnwright_testing.behavior import Execution
from turnwright_testing.hook_script import Consulted
from turnwright_testing.invariants import INVARIANTS, Invariant, ends, follows, raises_nothing, runs_once
from turnwright_testing.play import Driven

from .app_code import CONSULTED, TRIPPED
from .plan import Kill, KillAfter, KillIn
from .trial import Seen
from .witness import Witness, WitnessLine, executions
from .worker_process import checksum, tools_of

F = TypeVar("F", bound=f.Fact)

#: Words after which the fourth one is a place in the journal.
_PLACED: Final = ("claimed", "wrote")
_ARTICLES: Final = {"create": "creating the turn", "claim": "a claim", "append": "an append", "release": "a release"}
#: Invariants that have a line of their own in the report, or of which a trial knows nothing.
_APART: Final[frozenset[Invariant]] = frozenset({raises_nothing, ends, follows, runs_once})


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of one trial. `faults` are violations, by claim; all other fields count the examined items."""

    number: int
    faults: dict[str, list[str]]
    ending: str
    processes: int
    kills: list[tuple[str, str]] = field(default_factory=list)
    """Each kill that hit a living driver: its kind, and the kind of the journal's last fact."""
    recoveries: int = 0
    """The kills after which another process resumed the turn."""
    missed: int = 0
    facts: int = 0
    executions: int = 0
    requests: int = 0
    answers: int = 0
    words: int = 0


def audit(seen: Seen) -> Audit:
    trial = _Trial(seen)
    kills = [(_how(kill), trial.left_by(process)) for process, kill in seen.killed]
    return Audit(
        number=seen.plan.number,
        faults={claim: list(find(trial)) for claim, find in CLAIMS.items()},
        ending=trial.ending,
        processes=len({line.process for line in seen.lines}),
        kills=kills,
        recoveries=sum(trial.taken_up_after(process) for process, _ in seen.killed),
        missed=seen.missed,
        facts=len(seen.facts),
        executions=len(trial.ran),
        requests=sum(line.words[0] == "asked" for line in seen.lines),
        answers=sum(isinstance(fact, f.Answered) for _, fact in seen.facts),
        words=len(seen.messages) + seen.aborted,
    )


class _Trial:
    """One trial, with the data that several claims need."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.lines = seen.lines
        self.facts = dict(seen.facts)
        self.ran = executions(seen.lines)
        self.settled = {fact.call: seq for seq, fact in seen.facts if isinstance(fact, f.CallSettled)}
        self.turn_ended = next((fact for fact in self.facts.values() if isinstance(fact, f.TurnEnded)), None)

    @cached_property
    def state(self) -> State | None:
        return self.seen.facts[-1][1].state if self.seen.facts else None

    @property
    def ending(self) -> str:
        if self.turn_ended is not None:
            return f"{self.turn_ended.outcome}/{self.turn_ended.reason}"
        return str(self.state).lower() if self.state else "never begun"

    @cached_property
    def driven(self) -> Driven:
        """The turn as the invariants see it."""
        names = f.tool_names(self.facts.values())
        tools = {tool.name: tool for tool in tools_of(Witness(Path()), None)}
        return Driven(
            facts=self.seen.facts,
            consulted=list(self._consulted()),
            executions=[Execution(one.turn, one.call, names.get(one.call, ""), one.attempt) for one in self.ran],
            tools=tools,
        )

    def _consulted(self) -> Iterator[Consulted]:
        """Return the questions to hooks and guardrails. Their process knew the facts that had been acknowledged."""
        claimed: dict[int, int] = {}
        known = 0
        for line in self.lines:
            if line.words[0] == "claimed":
                claimed[line.process] = int(line.words[3])
            elif line.words[0] == "wrote":
                known = max(known, int(line.words[3]))
            elif line.words[0] == CONSULTED:
                _, on, about, said = line.words
                facts = max(known, claimed.get(line.process, 0))
                object_ = int(about) if about.isdigit() else about
                following = self._claim_after(line.process)
                died = None if following is None else int(following.words[3])
                yield Consulted(self.seen.turn, on, object_, facts, tripped=said == TRIPPED, died=died)

    def of(self, kind: type[F]) -> Iterator[F]:
        return (fact for fact in self.facts.values() if isinstance(fact, kind))

    def left_by(self, process: int) -> str:
        """The kind of the last fact that a process that was killed left in the journal."""
        seqs = [int(line.words[3]) for line in self.lines if line.process == process and line.words[0] in _PLACED]
        following = self._claim_after(process)
        seq = int(following.words[3]) if following else max(seqs)
        return self.facts[seq].kind if seq in self.facts else "none"

    def taken_up_after(self, process: int) -> bool:
        """Whether another process claimed the turn when this one was dead."""
        return self._claim_after(process) is not None

    def _claim_after(self, process: int) -> WitnessLine | None:
        last = max(place for place, line in enumerate(self.lines) if line.process == process)
        return next((line for line in self.lines[last + 1 :] if line.words[0] == "claimed"), None)


def _lost(trial: _Trial) -> Iterator[str]:
    for line in trial.lines:
        if line.words[0] == "wrote":
            _, _, _, seq, kind, sum_ = line.words
            fact = trial.facts.get(int(seq))
            if fact is None or (fact.kind, checksum(fact.payload())) != (kind, sum_):
                yield f"fact {seq}, {kind}, was acknowledged, and the journal has {fact.kind if fact else 'nothing'}"


def _run_again(trial: _Trial) -> Iterator[str]:
    recorded: dict[int, int] = {}
    known = 0
    for line in trial.lines:
        if line.words[0] == "claimed":
            recorded[line.process] = int(line.words[3])
        elif line.words[0] == "wrote":
            known = max(known, int(line.words[3]))
        elif line.words[3:] == ("start",):
            settled = trial.settled.get(line.words[1])
            if settled is not None and settled <= max(known, recorded.get(line.process, 0)):
                yield f"{line.words[1]} ran again when its result was fact {settled}"


def _run_without_claim(trial: _Trial) -> Iterator[str]:
    allowed: set[tuple[int, str, int]] = set()
    epochs: dict[int, int] = {}
    for line in trial.lines:
        if line.words[0] == "claimed":
            epochs[line.process] = int(line.words[2])
        elif line.words[0] == "wrote":
            fact = trial.facts.get(int(line.words[3]))
            if isinstance(fact, f.CallStarted):
                allowed.add((line.process, fact.call, fact.attempt))
        elif line.words[3:] == ("start",):
            _, call, attempt, _ = line.words
            if (line.process, call, int(attempt)) not in allowed:
                yield f"{call}, attempt {attempt}, ran in a process that had not recorded its start"
            if epochs.get(line.process) != max(epochs.values()):
                yield f"{call} ran in a process that had lost the turn"


def _run_twice(trial: _Trial) -> Iterator[str]:
    yield from runs_once(trial.driven).witness


def _neither(trial: _Trial) -> Iterator[str]:
    if trial.seen.wrong:
        yield trial.seen.wrong
    elif trial.state is None or (trial.turn_ended is None and trial.state is not State.PAUSED):
        yield f"it is in {trial.state}"


def _unpaired(trial: _Trial) -> Iterator[str]:
    number = 0
    for line in trial.lines:
        if line.words[0] == "asked":
            number += 1
            if line.words[1] != "paired":
                yield f"request {number} has a call without its result"


def _answers(trial: _Trial) -> Iterator[str]:
    """Each interrupt has one answer, and it is the first that was acknowledged."""
    answered = Counter(fact.interrupt for fact in trial.of(f.Answered))
    yield from (f"{one} was answered {count} times" for one, count in answered.items() if count > 1)
    accepted: dict[str, str] = {}
    for line in trial.lines:
        if line.words[0] == "posted" and line.words[2].startswith("answer:"):
            accepted.setdefault(line.words[2].removeprefix("answer:"), line.words[3])
    decided = {fact.interrupt: fact.decision for fact in trial.of(f.Answered)}
    aborted = trial.turn_ended is not None and trial.turn_ended.outcome is Outcome.ABORTED
    for interrupt, decision in accepted.items():
        if interrupt in decided and decided[interrupt] != Decision(decision):
            yield f"{interrupt} was answered with {decision}, and the journal says {decided[interrupt]}"
        if interrupt not in decided and not aborted and f"answer:{interrupt}" not in trial.seen.inbox:
            yield f"the answer to {interrupt} was lost"


def _words(trial: _Trial) -> Iterator[str]:
    """Every accepted item of the inbox took effect, or was returned."""
    if trial.seen.aborted and (trial.turn_ended is None or trial.turn_ended.outcome is not Outcome.ABORTED):
        yield f"it was aborted, and ended as {trial.ending}"
    taken = [fact.text for fact in trial.of(f.MessageAdded)]
    given_back = list(trial.turn_ended.undelivered) if trial.turn_ended else []
    for text in trial.seen.messages:
        times = taken.count(text) + given_back.count(text)
        if times > 1 or (times == 0 and trial.turn_ended is not None):
            yield f"{text} was taken in {times} times"


def _untold(trial: _Trial) -> Iterator[str]:
    check = follows(trial.driven)
    if check.verdict is not Verdict.HOLDS:
        yield check.detail


def _other(trial: _Trial) -> Iterator[str]:
    for invariant in INVARIANTS:
        if invariant not in _APART:
            check = invariant(trial.driven)
            if check.verdict is Verdict.VIOLATED:
                yield f"{check.claim}: {check.detail}"


#: What a report counts, in its order: none of these may happen.
CLAIMS: Final[dict[str, Callable[[_Trial], Iterator[str]]]] = {
    "acknowledged facts lost or changed": _lost,
    "calls run again after their result was recorded": _run_again,
    "calls run without a journaled start, or without the lease": _run_without_claim,
    "calls run twice that are not idempotent, without a person's approval": _run_twice,
    "turns that neither ended nor paused": _neither,
    "model requests with an unpaired call": _unpaired,
    "interrupts answered twice, or not as acknowledged": _answers,
    "acknowledged aborts and messages lost": _words,
    "journals with a fact that does not follow": _untold,
    "other invariants broken": _other,
}


def _how(kill: Kill) -> str:
    match kill:
        case KillAfter():
            return "at a random time"
        case KillIn(what=what):
            return f"during a {what} call"
        case _:
            return f"{'after' if kill.after else 'before'} {_ARTICLES[kill.what]}"
