"""Random turns with rules, against definitions of the rules over traces that share no code with the monitors."""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from tests.proof.conformance import ConformingMachine

from turnwright_proof.verify import Case, Environment, WalkedMachine, walk
from turnwright_proof.verify.grid import RULE_SETS, grid
from turnwright_states import Halt, Limits, TurnMachine, facts
from turnwright_states.inputs import (
    AnsweredInput,
    CallSettledInput,
    CallStartedInput,
    CallWaitingInput,
    Input,
    ModelRepliedInput,
    RequestPreparedInput,
    ReviewedInput,
    SteeredInput,
    SynthesizedInput,
)

Rule = Mapping[str, Any]
#: The inputs with which a turn proceeds; all others end it soon.
_CALM = (
    *(AnsweredInput, CallSettledInput, CallStartedInput, CallWaitingInput, ModelRepliedInput, ReviewedInput),
    SynthesizedInput,
)
_ANSWERED = ("finished/answered", "finished/truncated", "synthesis_done/synthesized")
_LIMITS = Limits(
    steps=4, tool_calls=None, max_retries=0, max_pauses=2, output_retries=1, doom_threshold=None
).model_copy(update={"stall_errors": None, "stall_rounds": None, "idle_steps": None})


class Event(NamedTuple):
    """A part of a trace: a start, the status of a result, a question with its rules, an approval, an end."""

    kind: str
    tool: str = ""
    key: object = None
    call: str = ""
    rules: tuple[str, ...] = ()


def trace(journal: Sequence[facts.Fact]) -> Iterator[Event]:
    calls: dict[str, facts.CallMade] = {}
    for fact in journal:
        match fact:
            case facts.ModelReplied():
                calls |= {call.id: call for call in fact.calls}
            case facts.CallStarted(attempt=1, call=call):
                yield Event("start", calls[call].name, (calls[call].arguments or {}).get("k"), call)
            case facts.CallSettled(call=call):
                yield Event(str(fact.status), calls[call].name, (calls[call].arguments or {}).get("k"), call)
            case facts.CallWaiting(call=call):
                rules = tuple(verdict.rule for verdict in fact.interrupt.rules)
                yield Event(f"wait {fact.interrupt.id}", calls[call].name, None, call, rules)
            case facts.Answered(decision="approve"):
                yield Event(f"approve {fact.interrupt}")
            case facts.TurnEnded():
                yield Event("end", f"{fact.outcome}/{fact.reason}")


def faults(rules: Sequence[Rule], journal: Sequence[facts.Fact]) -> Iterator[str]:
    """The definitions, by brute force over all pairs of places of a trace."""
    events = list(trace(journal))
    approved = {
        (wait.call, rule)
        for place, wait in enumerate(events)
        for rule in wait.rules
        if any(event.kind == wait.kind.replace("wait", "approve") for event in events[place:])
    }
    started_ids = {event.call for event in events if event.kind == "start"}
    for rule in rules:
        for place, event in enumerate(events):
            before = events[:place]
            if event.kind == "start" and (event.call, rule["name"]) not in approved and rule.get("effect") != "report":
                yield from _faults_of_start(rule, event, before, started_ids)
            if event.kind == "end" and event.tool in _ANSWERED:
                yield from _faults_of_answer(rule, before, started_ids)


def _faults_of_start(rule: Rule, event: Event, before: Sequence[Event], started_ids: set[str]) -> Iterator[str]:
    name, call = rule["name"], event.call

    def equal(earlier: Event) -> bool:
        return not (rule.get("same") or rule.get("per")) or earlier.key == event.key

    starts = [(place, start) for place, start in enumerate(before) if start.kind == "start"]
    if rule.get("before") == event.tool:
        evidence = [
            place
            for place, earlier in enumerate(before)
            if (earlier.kind, earlier.tool) == ("ok", rule["need"]) and earlier.call in started_ids and equal(earlier)
        ]
        uses = [place for place, start in starts if start.tool == event.tool]
        if not evidence or (rule.get("once") and uses and uses[-1] > evidence[-1]):
            yield f"{name}: {call} without an earlier {rule['need']}"
    if "at_most" in rule and event.tool == rule["of"].split()[0]:
        failed_ids = {earlier.call for earlier in before if earlier.kind == "error" and "status" in rule["of"]}
        alike = [start for _, start in starts if start.tool == event.tool and equal(start)]
        if sum(start.call not in failed_ids for start in alike) >= rule["at_most"]:
            yield f"{name}: {call} is one too many"
    if rule.get("never") == event.tool and any(start.tool == rule["after"] and equal(start) for _, start in starts):
        yield f"{name}: {call} after {rule['after']}"
    pair = rule.get("not_both", ())
    if event.tool in pair and any(start.tool in pair and start.tool != event.tool for _, start in starts):
        yield f"{name}: {call} beside the other tool"


def _faults_of_answer(rule: Rule, before: Sequence[Event], started_ids: set[str]) -> Iterator[str]:
    starts = {event.call: place for place, event in enumerate(before) if event.kind == "start"}
    if "then" in rule:
        opened = [place for call, place in starts.items() if before[place].tool == rule["after"]]
        places = [
            starts[event.call]
            for event in before
            if (event.kind, event.tool) == ("ok", rule["then"]) and event.call in started_ids
        ]
        if opened and (not places or max(places) < max(opened)):
            yield f"{rule['name']}: answered without {rule['then']}"
    needed = rule["need"] if rule.get("before") == "@answer" else None
    met = [event for event in before if (event.kind, event.tool) == ("ok", needed) and event.call in started_ids]
    if needed is not None and not met:
        yield f"{rule['name']}: answered without {needed}"


def play(case: Case, seed: int) -> tuple[str, list[facts.Fact]]:
    """Play one random turn to its end, with crashes. Return its first fault, and its journal."""
    chance, around = random.Random(seed), Environment(case, reduced=False)  # noqa: S311 (a seeded test)
    machine, journal = WalkedMachine.start(case.started)
    while not isinstance(machine.action, Halt):
        moves = [
            event
            for event in around.moves(machine.turn, machine.action)
            if not isinstance(event, SteeredInput | RequestPreparedInput)
        ]
        calm: list[Input] = [event for event in moves if isinstance(event, _CALM)]
        journal += machine.feed(chance.choice(calm if calm and chance.random() < 0.95 else moves))
        if chance.random() < 0.1:
            again = TurnMachine.resume(journal)
            if again.turn.digest() != machine.turn.digest():
                return "a crash changed the state of the rules", journal
            machine = WalkedMachine(again.turn)
    return next(faults(case.rules, journal), ""), journal


@pytest.mark.parametrize("number", range(len(RULE_SETS)))
@pytest.mark.parametrize("kind", ["plain", "synthesis", "hooked"])
def test_random_turn_and_definitions_of_rules_agree(number: int, kind: str) -> None:
    """Meaning 2 to 13: no start and no answer that a rule forbids, and a crash changes nothing."""
    case = Case(_LIMITS, kind == "synthesis", 2, hooked=kind == "hooked", rules=RULE_SETS[number])
    for seed in range(40):
        fault, journal = play(case, seed)
        assert not fault, [*trace(journal)]


@pytest.mark.slow
def test_walk_with_rules_conforms_to_the_moves() -> None:
    """Each input of a turn with rules does what the moves of the proof say."""
    for case in [case for case in grid(1) if case.rules and case.synthesis]:
        assert walk(case, machine=ConformingMachine).cut == 0
