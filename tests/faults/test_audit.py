"""The audit of a trial finds what is wrong with it: each fault is planted, and the audit reports exactly that one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from msgspec import structs

from turnwright.journal.answers import Answer
from turnwright.store import open_store
from turnwright.testing.faults import Witness, WitnessLine
from turnwright.testing.faults.audit import CLAIMS, audit
from turnwright.testing.faults.plan import Plan
from turnwright.testing.faults.trial import Seen
from turnwright.testing.faults.worker_process import Role, act
from turnwright_states import Decision
from turnwright_states import facts as f

PLAN = Plan(seed=0, number=0, steps=((("send", 1), ("erase", 2)), (("put", 3),)), failures=(1,))
#: A process that was never there.
OTHER = 1


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return anyio.run(go_well, tmp_path)


async def go_well(tmp_path: Path) -> Seen:
    """A trial that goes well: a pause, an answer, a failed attempt, three executions."""
    address, witness = f"sqlite:///{tmp_path / 'turns.db'}?durability=normal", Witness(tmp_path / "witness")
    await act(Role(PLAN, address, witness.path))
    (turn,) = {line.words[1] for line in witness.lines() if line.words[0] == "claimed"}
    (asked,) = (line.words[1] for line in witness.lines() if line.words[0] == "pending")
    await act(Role(PLAN, address, witness.path, turn, {asked: Answer(Decision.APPROVE)}))
    store = open_store(address)
    facts = await store.facts(turn)
    await store.aclose()
    return Seen(PLAN, turn, facts, witness.lines())


def faults(seen: Seen) -> dict[str, list[str]]:
    return {claim: found for claim, found in audit(seen).faults.items() if found}


def with_lines(seen: Seen, *lines: tuple[object, ...], process: int | None = None) -> Seen:
    """The same, and then a process wrote these lines."""
    who = process or seen.lines[-1].process
    return replace(seen, lines=[*seen.lines, *(WitnessLine(who, tuple(map(str, line))) for line in lines)])


def place_of(seen: Seen, kind: type[f.Fact]) -> int:
    return next(place for place, (_, fact) in enumerate(seen.facts) if isinstance(fact, kind))


def changed(seen: Seen, kind: type[f.Fact], **fields: object) -> Seen:
    """The same, and the first fact of a kind is another."""
    facts, place = list(seen.facts), place_of(seen, kind)
    facts[place] = (facts[place][0], structs.replace(facts[place][1], **fields))
    return replace(seen, facts=facts)


def test_a_trial_that_went_well_has_no_fault(seen: Seen) -> None:
    found = audit(seen)
    assert faults(seen) == {}
    assert (found.ending, found.executions, found.requests, found.answers) == ("finished/answered", 3, 4, 1)
    assert (found.kills, found.recoveries) == ([], 0)


LOST, AGAIN, UNCLAIMED, TWICE, NEITHER, UNPAIRED, ANSWERS, WORDS, UNTOLD, OTHERS = CLAIMS


@pytest.mark.parametrize(
    ("plant", "claims"),
    [
        (lambda seen: replace(seen, facts=seen.facts[:-1]), {LOST, NEITHER, UNTOLD}),
        (lambda seen: changed(seen, f.CallSettled, result="changed"), {LOST}),
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
        (lambda seen: changed(seen, f.Answered, decision=Decision.REJECT), {LOST, ANSWERS, UNTOLD}),
        (lambda seen: changed(seen, f.Answered, interrupt="other-1"), {LOST, ANSWERS, UNTOLD, OTHERS}),
    ],
)
def test_a_planted_fault_is_found(seen: Seen, plant: Callable[[Seen], Seen], claims: set[str]) -> None:
    assert faults(plant(seen)).keys() == claims


def test_a_second_answer_to_one_interrupt_is_found(seen: Seen) -> None:
    place = place_of(seen, f.Answered)
    facts = [fact for _, fact in seen.facts]
    facts.insert(place, facts[place])
    twice = replace(seen, facts=list(enumerate(facts, start=1)))
    assert any("was answered 2 times" in fault for fault in faults(twice)[ANSWERS])


def test_a_driver_that_runs_a_tool_when_another_has_the_turn_is_found(seen: Seen) -> None:
    """Even if it had written the start to the journal before."""
    first = next(place for place, line in enumerate(seen.lines) if line.words[3:] == ("start",))
    lines = list(seen.lines)
    lines.insert(first, WitnessLine(OTHER, ("claimed", seen.turn, "9", "2")))
    assert UNCLAIMED in faults(replace(seen, lines=lines))
