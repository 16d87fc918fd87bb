"""The audit of a trial finds what is wrong with it: each fault is planted, and the audit reports exactly that one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from msgspec import structs
from tests.campaigns.faults.audit import CLAIMS, audit
from tests.campaigns.faults.plan import FEATURES, Plan
from tests.campaigns.faults.trial import Evidence
from tests.campaigns.faults.worker_process import Role, act

from turnwright.journal.answers import Answer
from turnwright.store import open_store
from turnwright_states import Decision
from turnwright_states import facts as f
from turnwright_testing.faults import Witness, WitnessLine

PLAN = Plan(seed=0, number=0, steps=((("send", 1), ("erase", 2)), (("put", 3),)), failures=(1,))
#: A process that was never there.
OTHER = 1


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return anyio.run(go_well, tmp_path)


async def go_well(tmp_path: Path, plan: Plan = PLAN) -> Evidence:
    """A trial that goes well. That of `PLAN`: a pause, an answer, a failed attempt, three executions."""
    address, witness = f"sqlite:///{tmp_path / 'turns.db'}?durability=normal", Witness(tmp_path / "witness")
    await act(Role(plan, address, witness.path))
    (turn,) = {line.words[1] for line in witness.lines() if line.words[0] == "claimed"}
    known_ids: list[str] = []
    while new := [
        interrupt
        for line in witness.lines()
        if line.words[0] == "pending" and (interrupt := line.words[1]) not in known_ids
    ]:
        known_ids += new
        await act(Role(plan, address, witness.path, turn, {interrupt: Answer(Decision.APPROVE) for interrupt in new}))
    store = open_store(address)
    facts = await store.facts(turn)
    await store.aclose()
    return Evidence(plan, turn, facts, witness.lines())


def faults(evidence: Evidence) -> dict[str, list[str]]:
    return {claim: claim_faults for claim, claim_faults in audit(evidence).faults.items() if claim_faults}


def with_lines(evidence: Evidence, *lines: tuple[object, ...], process: int | None = None) -> Evidence:
    """The same, and then a process wrote these lines."""
    writer = process or evidence.lines[-1].process
    return replace(evidence, lines=[*evidence.lines, *(WitnessLine(writer, tuple(map(str, line))) for line in lines)])


def first(evidence: Evidence, *words: str) -> Evidence:
    """The same, and before all else its process wrote this line."""
    return replace(evidence, lines=[WitnessLine(evidence.lines[0].process, words), *evidence.lines])


def place_of(evidence: Evidence, kind: type[f.Fact]) -> int:
    return next(place for place, (_, fact) in enumerate(evidence.facts) if isinstance(fact, kind))


def changed(evidence: Evidence, kind: type[f.Fact], **fields: object) -> Evidence:
    """The same, and the first fact of a kind is another."""
    facts, place = list(evidence.facts), place_of(evidence, kind)
    facts[place] = (facts[place][0], structs.replace(facts[place][1], **fields))
    return replace(evidence, facts=facts)


EVERYTHING = replace(PLAN, number=1, features=frozenset(FEATURES))


def test_sound_trial_with_every_feature_has_no_fault(tmp_path: Path) -> None:
    """Its hooks and guardrails are asked, its conversation is compacted, and it has a typed answer or none."""
    evidence = anyio.run(go_well, tmp_path, EVERYTHING)
    assert faults(evidence) == {}
    kinds = {fact.kind for _, fact in evidence.facts}
    assert kinds >= {"request_prepared", "reviewed", "compaction_started"}
    assert {line.words[1] for line in evidence.lines if line.words[0] == "consulted"} >= {
        *("before_model", "after_model", "before_tool", "after_tool"),
        *("input_guardrail", "output_guardrail", "tool_input_guardrail", "tool_output_guardrail"),
    }


def test_sound_trial_has_no_fault(evidence: Evidence) -> None:
    result = audit(evidence)
    assert faults(evidence) == {}
    assert (result.ending, result.executions, result.requests, result.answers) == ("finished/answered", 3, 4, 1)
    assert (result.kills, result.recoveries) == ([], 0)


LOST, AGAIN, UNCLAIMED, TWICE, NEITHER, UNPAIRED, ANSWERS, UNTOLD, OTHERS, WORDS = CLAIMS


@pytest.mark.parametrize(
    ("plant", "claims"),
    [
        (lambda evidence: replace(evidence, facts=evidence.facts[:-1]), {LOST, NEITHER, UNTOLD}),
        (lambda evidence: changed(evidence, f.CallSettled, result="changed"), {LOST, UNTOLD}),
        (lambda evidence: changed(evidence, f.StepFinished, number=7), {LOST, UNTOLD}),
        (lambda evidence: with_lines(evidence, (evidence.turn, "call00003", 1, "start")), {AGAIN, TWICE}),
        (
            lambda evidence: with_lines(
                evidence,
                ("claimed", evidence.turn, 3, len(evidence.facts)),
                (evidence.turn, "call00001", 2, "start"),
                process=OTHER,
            ),
            {AGAIN, UNCLAIMED, TWICE, OTHERS},
        ),
        (lambda evidence: replace(evidence, wrong="it hangs"), {NEITHER}),
        (lambda evidence: with_lines(evidence, ("asked", "unpaired")), {UNPAIRED}),
        (lambda evidence: replace(evidence, messages=["hello"]), {WORDS}),
        (lambda evidence: replace(evidence, aborted=True), {WORDS}),
        (lambda evidence: with_lines(evidence, ("posted", evidence.turn, "answer:lost-1", "approve")), {ANSWERS}),
        (lambda evidence: with_lines(evidence, ("consulted", "before_tool", "call00001", "asked")), {OTHERS}),
        (lambda evidence: first(evidence, "consulted", "output_guardrail", "1", "tripped"), {OTHERS}),
        (lambda evidence: changed(evidence, f.Answered, decision=Decision.REJECT), {LOST, ANSWERS, UNTOLD}),
        (lambda evidence: changed(evidence, f.Answered, interrupt="other-1"), {LOST, ANSWERS, UNTOLD, OTHERS}),
    ],
)
def test_planted_fault_is_detected(evidence: Evidence, plant: Callable[[Evidence], Evidence], claims: set[str]) -> None:
    assert faults(plant(evidence)).keys() == claims


def test_second_answer_to_an_interrupt_is_detected(evidence: Evidence) -> None:
    place = place_of(evidence, f.Answered)
    facts = [fact for _, fact in evidence.facts]
    facts.insert(place, facts[place])
    twice = replace(evidence, facts=list(enumerate(facts, start=1)))
    assert any("was answered 2 times" in fault for fault in faults(twice)[ANSWERS])


def test_driver_running_a_tool_without_the_claim_is_detected(evidence: Evidence) -> None:
    """Even if it had written the start to the journal before."""
    first = next(place for place, line in enumerate(evidence.lines) if line.words[3:] == ("start",))
    lines = list(evidence.lines)
    lines.insert(first, WitnessLine(OTHER, ("claimed", evidence.turn, "9", "2")))
    assert UNCLAIMED in faults(replace(evidence, lines=lines))
