"""The audit of a trial finds what is wrong with it: each fault is planted, and the audit reports exactly that one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from msgspec import structs
from tests.campaigns.faults.audit import CLAIMS, audit
from tests.campaigns.faults.plan import FEATURES, Plan
from tests.campaigns.faults.trial import Seen
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
def seen(tmp_path: Path) -> Seen:
    return anyio.run(go_well, tmp_path)


async def go_well(tmp_path: Path, plan: Plan = PLAN) -> Seen:
    """A trial that goes well. That of `PLAN`: a pause, an answer, a failed attempt, three executions."""
    address, witness = f"sqlite:///{tmp_path / 'turns.db'}?durability=normal", Witness(tmp_path / "witness")
    await act(Role(plan, address, witness.path))
    (turn,) = {line.words[1] for line in witness.lines() if line.words[0] == "claimed"}
    asked: list[str] = []
    while new := [
        one for line in witness.lines() if line.words[0] == "pending" and (one := line.words[1]) not in asked
    ]:
        asked += new
        await act(Role(plan, address, witness.path, turn, {one: Answer(Decision.APPROVE) for one in new}))
    store = open_store(address)
    facts = await store.facts(turn)
    await store.aclose()
    return Seen(plan, turn, facts, witness.lines())


def faults(seen: Seen) -> dict[str, list[str]]:
    return {claim: found for claim, found in audit(seen).faults.items() if found}


def with_lines(seen: Seen, *lines: tuple[object, ...], process: int | None = None) -> Seen:
    """The same, and then a process wrote these lines."""
    who = process or seen.lines[-1].process
    return replace(seen, lines=[*seen.lines, *(WitnessLine(who, tuple(map(str, line))) for line in lines)])


def first(seen: Seen, *words: str) -> Seen:
    """The same, and before all else its process wrote this line."""
    return replace(seen, lines=[WitnessLine(seen.lines[0].process, words), *seen.lines])


def place_of(seen: Seen, kind: type[f.Fact]) -> int:
    return next(place for place, (_, fact) in enumerate(seen.facts) if isinstance(fact, kind))


def changed(seen: Seen, kind: type[f.Fact], **fields: object) -> Seen:
    """The same, and the first fact of a kind is another."""
    facts, place = list(seen.facts), place_of(seen, kind)
    facts[place] = (facts[place][0], structs.replace(facts[place][1], **fields))
    return replace(seen, facts=facts)


EVERYTHING = replace(PLAN, number=1, features=frozenset(FEATURES))


def test_sound_trial_with_every_feature_has_no_fault(tmp_path: Path) -> None:
    """Its hooks and guardrails are asked, its conversation is compacted, and it has a typed answer or none."""
    seen = anyio.run(go_well, tmp_path, EVERYTHING)
    assert faults(seen) == {}
    kinds = {fact.kind for _, fact in seen.facts}
    assert kinds >= {"request_prepared", "reviewed", "compaction_started"}
    assert {line.words[1] for line in seen.lines if line.words[0] == "consulted"} >= {
        *("before_model", "after_model", "before_tool", "after_tool"),
        *("input_guardrail", "output_guardrail", "tool_input_guardrail", "tool_output_guardrail"),
    }


def test_sound_trial_has_no_fault(seen: Seen) -> None:
    found = audit(seen)
    assert faults(seen) == {}
    assert (found.ending, found.executions, found.requests, found.answers) == ("finished/answered", 3, 4, 1)
    assert (found.kills, found.recoveries) == ([], 0)


LOST, AGAIN, UNCLAIMED, TWICE, NEITHER, UNPAIRED, ANSWERS, UNTOLD, OTHERS, WORDS = CLAIMS


@pytest.mark.parametrize(
    ("plant", "claims"),
    [
        (lambda seen: replace(seen, facts=seen.facts[:-1]), {LOST, NEITHER, UNTOLD}),
        (lambda seen: changed(seen, f.CallSettled, result="changed"), {LOST, UNTOLD}),
        (lambda seen: changed(seen, f.StepFinished, number=7), {LOST, UNTOLD}),
        (lambda seen: with_lines(seen, (seen.turn, "call00003", 1, "start")), {AGAIN, TWICE}),
        (
            lambda seen: with_lines(
                seen, ("claimed", seen.turn, 3, len(seen.facts)), (seen.turn, "call00001", 2, "start"), process=OTHER
            ),
            {AGAIN, UNCLAIMED, TWICE, OTHERS},
        ),
        (lambda seen: replace(seen, wrong="it hangs"), {NEITHER}),
        (lambda seen: with_lines(seen, ("asked", "unpaired")), {UNPAIRED}),
        (lambda seen: replace(seen, messages=["hello"]), {WORDS}),
        (lambda seen: replace(seen, aborted=True), {WORDS}),
        (lambda seen: with_lines(seen, ("posted", seen.turn, "answer:lost-1", "approve")), {ANSWERS}),
        (lambda seen: with_lines(seen, ("consulted", "before_tool", "call00001", "asked")), {OTHERS}),
        (lambda seen: first(seen, "consulted", "output_guardrail", "1", "tripped"), {OTHERS}),
        (lambda seen: changed(seen, f.Answered, decision=Decision.REJECT), {LOST, ANSWERS, UNTOLD}),
        (lambda seen: changed(seen, f.Answered, interrupt="other-1"), {LOST, ANSWERS, UNTOLD, OTHERS}),
    ],
)
def test_planted_fault_is_detected(seen: Seen, plant: Callable[[Seen], Seen], claims: set[str]) -> None:
    assert faults(plant(seen)).keys() == claims


def test_second_answer_to_an_interrupt_is_detected(seen: Seen) -> None:
    place = place_of(seen, f.Answered)
    facts = [fact for _, fact in seen.facts]
    facts.insert(place, facts[place])
    twice = replace(seen, facts=list(enumerate(facts, start=1)))
    assert any("was answered 2 times" in fault for fault in faults(twice)[ANSWERS])


def test_driver_running_a_tool_without_the_claim_is_detected(seen: Seen) -> None:
    """Even if it had written the start to the journal before."""
    first = next(place for place, line in enumerate(seen.lines) if line.words[3:] == ("start",))
    lines = list(seen.lines)
    lines.insert(first, WitnessLine(OTHER, ("claimed", seen.turn, "9", "2")))
    assert UNCLAIMED in faults(replace(seen, lines=lines))
