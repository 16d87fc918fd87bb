"""The audit of the scale run sees what it looks for: each fault is planted here once."""

from collections.abc import Sequence

import anyio
import pytest
from bench.scale.audit import CLAIMS, UNPAIRED, Blow, Observation, Written, counts, endings, faults, recoveries
from bench.scale.work import AGENT, SlowModel, slow_tools

from turnwright import Engine
from turnwright.store import MemoryStore
from turnwright_testing.faults import Witness, WitnessLine
from turnwright_testing.faults.watched import NotingStore, checksum

LOST, AGAIN = list(CLAIMS)[1:3]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Observation:
    """A turn of one step, driven by this process, as a worker would have: under its second claim."""
    witness = Witness(tmp_path_factory.mktemp("scale") / "witness")
    return anyio.run(driven, witness)


async def driven(witness: Witness) -> Observation:
    store = NotingStore(MemoryStore(), witness)
    async with Engine(model=SlowModel(witness, 1, 0.0), tools=slow_tools(witness, 0.0), store=store) as engine:
        turn = await engine.submit(AGENT, "hi")
        await engine.resume(turn)
        facts = await store.facts(turn)
    return Observation([turn], {turn: [Written(seq, 100.0 + seq, fact) for seq, fact in facts]}, witness.lines())


def found(observed: Observation) -> list[str]:
    """The claims that do not hold."""
    return [claim for claim, claim_faults in faults(observed).items() if claim_faults]


def with_lines(observed: Observation, lines: Sequence[WitnessLine], blows: Sequence[Blow] = ()) -> Observation:
    return Observation(observed.submitted, observed.journals, lines, blows)


def test_sound_turn_has_no_fault(sound: Observation) -> None:
    assert found(sound) == []
    assert endings(sound) == {"finished/answered": 1}
    assert counts(sound)["tool executions"] == 2
    assert counts(sound)["takeovers"] == 0


def test_undriven_turn_has_no_outcome() -> None:
    assert "turns without an outcome" in found(Observation(["nobody's"], {}, []))


def test_acknowledged_fact_missing_from_the_journal_is_lost(sound: Observation) -> None:
    (turn,) = sound.submitted
    short = Observation([turn], {turn: sound.journals[turn][:-1]}, sound.lines)
    assert LOST in found(short)
    other_line = WitnessLine(7, ("wrote", turn, "2", "1", "turn_started", checksum("something else")))
    assert found(with_lines(sound, [*sound.lines, other_line])) == [LOST]


def test_call_started_after_the_recorded_result_ran_again(sound: Observation) -> None:
    start = next(line for line in sound.lines if line.words[3:] == ("start",))
    assert AGAIN in found(with_lines(sound, [*sound.lines, start]))


def test_late_start_by_a_resumed_worker_is_counted_separately(sound: Observation) -> None:
    """Its start was in the journal before it was stopped: nobody can keep it from that."""
    start = next(line for line in sound.lines if line.words[3:] == ("start",))
    observed = with_lines(sound, [*sound.lines, start], [Blow(start.process, 0.0, stalled=True)])
    assert AGAIN not in found(observed)
    assert counts(observed)["calls started by a resumed worker without the lease"] == 1


def test_request_with_an_unpaired_call_is_detected(sound: Observation) -> None:
    assert found(with_lines(sound, [*sound.lines, WitnessLine(7, ("asked", "unpaired"))])) == [UNPAIRED]


def test_recovery_lasts_from_the_death_to_the_next_fact(sound: Observation) -> None:
    """Two workers held the turn: the first from second 101 on, and the second wrote fact 6, at second 106."""
    (turn,) = sound.submitted
    lines = [
        WitnessLine(1, ("claimed", turn, "2", "2")),
        WitnessLine(1, ("held", turn, "2", "101.0")),
        WitnessLine(2, ("claimed", turn, "3", "5")),
        WitnessLine(2, ("held", turn, "3", "105.5")),
    ]
    died, idle = Blow(1, 103.5), Blow(3, 103.0)
    assert recoveries(with_lines(sound, lines, [died, idle])) == {died: [2.5], idle: []}
    before = Blow(1, 100.5)
    assert recoveries(with_lines(sound, lines, [before])) == {before: []}
