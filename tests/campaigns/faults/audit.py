"""Check one trial against the claims: its journal, its witness, and its model's requests."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from turnwright_states import CallStatus, Outcome
from turnwright_states import facts as f
from turnwright_testing.faults.audit import CLAIMS as TURN_CLAIMS
from turnwright_testing.faults.audit import WitnessedTurn
from turnwright_testing.faults.witness import WitnessLine
from turnwright_testing.hook_script import Consulted

from .app_code import CONSULTED, TRIPPED
from .plan import Kill, KillAfter, KillIn
from .trial import Evidence

#: Words after which the fourth one is a place in the journal.
_PLACED: Final = ("claimed", "wrote")
_ARTICLES: Final = {
    "create": "creating the turn",
    "claim": "a claim",
    "append": "an append",
    "release": "a release",
    "post": "a post",
}
_NEITHER: Final = "turns that neither ended nor paused"
_WORDS: Final = "acknowledged aborts, messages and results lost"
#: What a report counts, in its order: none of these may happen.
CLAIMS: Final = (*TURN_CLAIMS, _WORDS)


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


def audit(evidence: Evidence) -> Audit:
    turn, *below = _turns(evidence)
    faults = turn.violations() | {_WORDS: list(_words(evidence, [turn, *below]))}
    for sub_turn in below:
        for claim, claim_faults in sub_turn.violations().items():
            faults[claim] += [f"{sub_turn.id}: {fault}" for fault in claim_faults]
    if evidence.wrong:
        faults[_NEITHER] = [evidence.wrong]
    return Audit(
        number=evidence.plan.number,
        faults=faults,
        ending=_ending(turn),
        processes=len({line.process for line in evidence.lines}),
        kills=[(_how(kill), _left_by(process, turn)) for process, kill in evidence.killed],
        recoveries=sum(_claim_after(turn, process) is not None for process, _ in evidence.killed),
        missed=evidence.missed,
        facts=len(evidence.facts) + sum(map(len, evidence.below.values())),
        executions=sum(len(witnessed.ran) for witnessed in (turn, *below)),
        requests=sum(line.words[0] == "asked" for line in evidence.lines),
        answers=sum(isinstance(fact, f.Answered) for _, fact in evidence.facts),
        words=len(evidence.messages) + len(evidence.results) + evidence.aborted,
    )


def _turns(evidence: Evidence) -> list[WitnessedTurn]:
    """Return the turn of a trial, and those of its sub-agents, each with the lines of the witness about it."""
    journals = {evidence.turn: evidence.facts, **evidence.below}
    lines: dict[str, list[WitnessLine]] = {turn: [] for turn in journals}
    for line in evidence.lines:
        is_run = line.words[3:] in (("start",), ("end",))
        about = line.words[0] if is_run else "".join(line.words[1:2])
        lines[about if about in journals else evidence.turn].append(line)
    turns = [WitnessedTurn(turn, facts, lines[turn], evidence.inbox) for turn, facts in journals.items()]
    return [replace(turn, consulted=list(_list_consulted(turn))) for turn in turns]


def _claim_after(turn: WitnessedTurn, process: int) -> WitnessLine | None:
    """Return the next claim of the turn after the last line of a process."""
    last = max(place for place, line in enumerate(turn.lines) if line.process == process)
    return next((line for line in turn.lines[last + 1 :] if line.words[0] == "claimed"), None)


def _list_consulted(turn: WitnessedTurn) -> Iterator[Consulted]:
    """Return the questions to hooks and guardrails. Their process knew the facts that had been acknowledged."""
    claim_seqs: dict[int, int] = {}
    last_seq = 0
    for line in turn.lines:
        if line.words[0] == "claimed":
            claim_seqs[line.process] = int(line.words[3])
        elif line.words[0] == "wrote":
            last_seq = max(last_seq, int(line.words[3]))
        elif line.words[0] == CONSULTED:
            _, hook, about, decision = line.words
            facts = max(last_seq, claim_seqs.get(line.process, 0))
            object_ = int(about) if about.isdigit() else about
            following = _claim_after(turn, line.process)
            death = None if following is None else int(following.words[3])
            yield Consulted(turn.id, hook, object_, facts, tripped=decision == TRIPPED, died=death)


def _ending(turn: WitnessedTurn) -> str:
    if turn.turn_ended is not None:
        return f"{turn.turn_ended.outcome}/{turn.turn_ended.reason}"
    return str(turn.state).lower() if turn.state else "never begun"


def _left_by(process: int, turn: WitnessedTurn) -> str:
    """Return the kind of the last fact that a process that was killed left in the journal."""
    seqs = [int(line.words[3]) for line in turn.lines if line.process == process and line.words[0] in _PLACED]
    following = _claim_after(turn, process)
    seq = int(following.words[3]) if following else max(seqs)
    return turn.facts[seq].kind if seq in turn.facts else "none"


def _words(evidence: Evidence, turns: Sequence[WitnessedTurn]) -> Iterator[str]:
    """Every accepted item of the inbox took effect, or was returned."""
    turn = turns[0]
    if evidence.aborted and (turn.turn_ended is None or turn.turn_ended.outcome is not Outcome.ABORTED):
        yield f"it was aborted, and ended as {_ending(turn)}"
    added_texts = [fact.text for fact in turn.of(f.MessageAdded)]
    given_back = list(turn.turn_ended.undelivered) if turn.turn_ended else []
    for text in evidence.messages:
        times = added_texts.count(text) + given_back.count(text)
        if times > 1 or (times == 0 and turn.turn_ended is not None):
            yield f"{text} was taken in {times} times"

    yield from _results(evidence, {turn.id: turn for turn in turns})


def _results(evidence: Evidence, turns: Mapping[str, WitnessedTurn]) -> Iterator[str]:
    """Every accepted result was given to its call once, unless the turn stopped first, or had no pause left for it."""
    for key, result in evidence.results:
        turn_id, _, call = key.rpartition(":")
        turn = turns[turn_id]
        waits = {
            interrupt.id for fact in turn.of(f.CallWaiting) for interrupt in fact.interrupts if interrupt.call == call
        }
        times = sum(
            fact.interrupt in waits and fact.given is not None and fact.given.text == result
            for fact in turn.of(f.Answered)
        )
        settlement = next((fact for fact in turn.of(f.CallSettled) if fact.call == call), None)
        # The caller of a sub-agent that is paused has the result, and passes it on when it continues.
        is_with_caller = any(
            fact.given is not None and fact.given.text == result
            for caller in turns.values()
            if turn_id.startswith(f"{caller.id}:")
            for fact in caller.of(f.Answered)
        )
        is_open = settlement is None and (is_with_caller or any(call in item for item in evidence.inbox))
        is_cut_off = settlement is not None and settlement.status in {CallStatus.ABORTED, CallStatus.UNKNOWN}
        if times != 1 and not (times == 0 and (is_open or is_cut_off)):
            yield f"the result {result} of {key} was used {times} times"


def _how(kill: Kill) -> str:
    match kill:
        case KillAfter():
            return "at a random time"
        case KillIn(call=call):
            return f"during a {call} call"
        case _:
            return f"{'after' if kill.after else 'before'} {_ARTICLES[kill.what]}"
