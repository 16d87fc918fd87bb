"""Measurements report what happened: growth, counts, turns held in memory, and work that was not done."""

import gc
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from bench.bare import Bare, BareSqlite, bare
from bench.guard import calls_at_the_ends
from bench.measure import (
    GARBAGE,
    PLACES,
    RESULTS_KIB,
    flight,
    growth,
    max_calls_per_step,
    parts,
    session,
    stored,
    worker_garbage,
)
from bench.measure import results as cost_of_results
from bench.yardstick import FINAL, Looks, Script, Subject, current, run, sqlite_bytes

from turnwright.cli.worker import GC_THRESHOLDS


class Walking(Subject):
    """A loop that walks over what the turn has done so far."""

    name = "walking"

    async def turn(self, script: Script) -> str:
        """One turn."""
        while True:
            move = await script.reply()
            for _ in range(script.model_calls):
                abs(0)
            if not move.calls:
                return move.text


class Quitter(Subject):
    """A loop that ends before its model does."""

    name = "quitter"

    async def turn(self, script: Script) -> str:
        """One turn."""
        await script.reply()
        return FINAL


class Growing(Subject):
    """Stores what it stored before, once more in every step."""

    name = "growing"
    stored_calls = 0

    async def turn(self, script: Script) -> str:
        """One turn."""
        while (await script.reply()).calls:
            self.stored_calls += script.model_calls
        return FINAL

    def stored(self) -> int:
        """The bytes."""
        return self.stored_calls


def test_growth_is_the_ratio_of_the_last_to_the_first_fifty_steps() -> None:
    even = [step * 0.001 for step in range(200)]
    assert growth([even])["ratio"] == pytest.approx(1)
    # Each step costs one more than the one before: 149.5 to 198.5 over 0.5 to 49.5, about 174 over 25.
    rising = [step * step / 2 for step in range(200)]
    assert growth([rising])["ratio"] == pytest.approx(174 / 25)


def test_growth_is_the_median_of_the_runs() -> None:
    even, rising = [step * 0.001 for step in range(200)], [step * step / 2 for step in range(200)]
    assert growth([even, even, rising])["ratio"] == pytest.approx(1)


def test_cost_of_each_ten_steps_is_in_microseconds() -> None:
    tens = growth([[step * 0.001 for step in range(200)]])["by_ten_us"]
    assert tens == pytest.approx([1_000] * 20)


@pytest.mark.anyio
async def test_loop_walking_over_the_history_is_measured_as_growing() -> None:
    first, last, _ = await calls_at_the_ends(Walking())
    assert last / first > 3
    first, last, _ = await calls_at_the_ends(Bare())
    assert last / first == pytest.approx(1, abs=0.01)


def test_setup_cost_of_a_turn_is_not_counted_in_a_step() -> None:
    class Slow(Bare):
        """Begins slowly."""

        async def turn(self, script: Script) -> str:
            """One turn."""
            for _ in range(10_000):
                abs(0)
            return await bare(script)

    assert max_calls_per_step(Slow()) == pytest.approx(max_calls_per_step(Bare()), abs=1)


@pytest.mark.anyio
async def test_bytes_are_measured_for_the_first_and_last_steps() -> None:
    figures = (await stored(Growing()))["bytes"]
    assert (figures["first"], figures["last"]) == (25.5, 174.5)


@pytest.mark.anyio
async def test_subject_without_a_store_has_no_bytes() -> None:
    assert await stored(Bare()) == {"bytes": None}


@pytest.mark.anyio
async def test_turns_in_flight_are_held_until_all_are_there() -> None:
    at_once = 0
    most = 0

    class Watched(Bare):
        """Counts the turns that are in flight."""

        async def turn(self, script: Script) -> str:
            """One turn."""
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            text = await bare(script)
            at_once -= 1
            return text

    figures = (await flight(Watched(), 30, quick=True))["flight"]["30"]
    assert most == 30
    assert (figures["right"], figures["looks_missing"]) == (30, 0)


@pytest.mark.anyio
async def test_lost_turns_are_counted() -> None:
    class Careless(Bare):
        """Forgets the answer and a call when it is busy."""

        turns = 0

        async def turn(self, script: Script) -> str:
            """One turn."""
            self.turns += 1
            number = self.turns
            text = await bare(script)
            if number < 3:
                return text
            Looks.count -= 1
            return "?"

    figures = (await flight(Careless(), 3, quick=True))["flight"]["3"]
    assert (figures["right"], figures["looks_missing"]) == (1, 2)


@pytest.mark.anyio
async def test_garbage_thresholds_of_a_worker_apply_to_turns_in_flight() -> None:
    seen_sizes = set[tuple[int, int, int]]()
    before = gc.get_threshold()

    class Noting(Bare):
        """Notes the collector's thresholds."""

        async def turn(self, script: Script) -> str:
            """One turn."""
            seen_sizes.add(gc.get_threshold())
            return await bare(script)

    await flight(Noting(), 3, quick=True)
    assert seen_sizes == {before, GARBAGE}  # the turn before them is not measured
    assert GARBAGE == GC_THRESHOLDS
    assert gc.get_threshold() == before


def test_frozen_objects_stay_frozen_and_others_do_not() -> None:
    assert gc.get_freeze_count(), "the tests freeze what they collect"
    with worker_garbage():
        pass
    assert gc.get_freeze_count()
    gc.unfreeze()
    try:
        with worker_garbage():
            pass
        assert not gc.get_freeze_count()
    finally:
        gc.freeze()


@pytest.mark.anyio
async def test_session_turns_are_measured_at_fixed_places() -> None:
    sessions: list[str | None] = []

    class Talking(Bare):
        """Notes the session."""

        has_sessions = True

        async def turn(self, script: Script) -> str:
            """One turn."""
            sessions.append(self.session)
            return await bare(script)

    turns_by_place = (await session(Talking(), 50))["session"]
    assert [*turns_by_place] == [str(place) for place in PLACES if place <= 50]
    assert all(turn["ratio"] > 0 for turn in turns_by_place.values())
    assert sessions == ["s"] * 55
    assert set(parts(Talking())) - set(parts(Bare())) == {"session"}


@pytest.mark.anyio
async def test_turn_without_the_expected_work_is_not_measured() -> None:
    with pytest.raises(RuntimeError, match="asked 1 times of 3"):
        await run(Quitter(), Script(3))


@pytest.mark.anyio
async def test_fake_reused_across_turns_gets_the_current_script() -> None:
    scripts: list[Script] = []

    class Looking(Bare):
        """Notes the script."""

        async def turn(self, script: Script) -> str:
            """One turn."""
            scripts.append(current())
            return await bare(script)

    script = Script(2)
    await run(Looking(), script)
    assert scripts == [script]


@pytest.mark.anyio
async def test_bare_loop_with_sqlite_stores_the_messages() -> None:
    subject = BareSqlite()
    async with subject.opened():
        before = subject.stored()
        await run(subject, Script(3))
        assert subject.stored() > before + 5 * len('{"role": "tool"}')


def test_database_bytes_equal_the_bytes_of_the_values(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table one (a text, b integer)")
        connection.execute("insert into one values ('é', 100), (null, null)")
        connection.commit()
    assert sqlite_bytes(path) == len("é".encode()) + len("100")


@pytest.mark.anyio
async def test_step_is_measured_with_results_of_each_size() -> None:
    lengths: set[int] = set()

    class Measuring(Bare):
        """Notes the length of what begins its results, and uses a server that takes a second a turn."""

        turns = 0

        async def turn(self, script: Script) -> str:
            """One turn."""
            self.turns += 1
            lengths.add(len(Looks.padding))
            return await bare(script)

        def server_cpu(self) -> float:
            """The CPU of the server."""
            return float(self.turns)

    figures = (await cost_of_results(Measuring(), quick=True))["results"]
    assert lengths == {kib * 1024 for kib in RESULTS_KIB}
    assert [*figures] == [str(kib) for kib in RESULTS_KIB]
    assert all(cost["server_ms"] == 50 and cost["cpu_ms"] > 0 for cost in figures.values())


@pytest.mark.anyio
async def test_turn_that_loses_a_call_has_no_cost_of_results() -> None:
    class Careless(Bare):
        """Forgets a call."""

        async def turn(self, script: Script) -> str:
            """One turn."""
            text = await bare(script)
            Looks.count -= 1
            return text

    with pytest.raises(RuntimeError, match="the tool ran 37 times"):
        await cost_of_results(Careless(), quick=True)
