"""A sweep finds the turns that are due and that nobody drives, with few queries."""

import logging
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from turnwright import Agent, Engine, TurnNotFoundError, TurnResult, tool
from turnwright.driver.subagents import agent_tool
from turnwright.journal.answers import Answer, answer_item
from turnwright.journal.inbox import abort_item, steer_item
from turnwright.journal.recovery import Sweep, recover_turns
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import MemoryStore, SqliteStore, Store, TurnRow
from turnwright_states import Decision
from turnwright_states.facts import Fact
from turnwright_testing.faults import JumpingClock, StoreWrapper

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Tidier")
HELPER = Agent(name="Helper", description="Helps.")
MINUTE = 60.0


@tool(needs_approval=True)
async def burn() -> str:
    """Wait for leave, for as long as it takes."""
    return "burnt"


@tool(needs_approval=True, expires_in=MINUTE)
async def erase() -> str:
    """Wait for leave for a minute."""
    return "erased"


BURNS, ERASES = asks_for(("burn", {})), asks_for(("erase", {}))
HELPS = asks_for(("Helper", {"prompt": "hi"}))


class Watched(StoreWrapper):
    """Counts the queries of a store, and finds nothing for the turns that it is given."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.lookups: Counter[tuple[str, str]] = Counter()
        self.deleted: set[str] = set()

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        self.lookups["facts", turn_id] += 1
        return await super().facts(turn_id, after)

    async def is_driven(self, turn_id: str) -> bool:
        self.lookups["is_driven", turn_id] += 1
        if turn_id in self.deleted:
            raise TurnNotFoundError(turn_id)
        return await super().is_driven(turn_id)

    def times(self, method: str) -> int:
        return sum(count for (name, _), count in self.lookups.items() if name == method)


@pytest.fixture
def store() -> Watched:
    return Watched(MemoryStore())


def engine(store: Store, *lines: Line) -> Engine:
    return Engine(model=ScriptedModel(*lines), tools=[burn, erase, agent_tool(HELPER)], store=store)


async def submitted(store: Store) -> str:
    """A turn that was written, and that nobody drives yet."""
    return await engine(store).submit(AGENT, "hi")


async def paused(store: Store, *lines: Line) -> str:
    return (await engine(store, *lines).run(AGENT, "hi")).id


async def due(sweep: Sweep, idle: float = 0.0) -> list[str]:
    return [row.id for row in await sweep.due(idle=idle)]


async def test_undriven_runnable_turns_are_due_oldest_first(store: Watched) -> None:
    """Turns that have ended, and turns that wait for a person, are not due."""
    turns = [await submitted(store) for _ in range(3)]
    await engine(store, "Done.").run(AGENT, "hi")
    await paused(store, BURNS)
    assert await due(Sweep(store, time.time)) == turns


async def test_paused_turn_is_due_after_an_answer_or_abort(store: Watched) -> None:
    """A message to it is kept until it continues, and does not make it go on."""
    answered, aborted, messaged = [await paused(store, BURNS) for _ in range(3)]
    sweep = Sweep(store, time.time)
    await store.post(steer_item(messaged, "Look out."))
    assert await due(sweep) == []
    await store.post(answer_item(answered, "approval-1", Answer(Decision.APPROVE)))
    await store.post(abort_item(aborted))
    assert await due(sweep) == [answered, aborted]
    assert [await sweep.is_due(await store.get(turn)) for turn in (answered, aborted, messaged)] == [True, True, False]


async def test_ended_turn_is_never_due(store: Watched) -> None:
    turn = await engine(store, "Done.").run(AGENT, "hi")
    await store.post(abort_item(turn.id))
    sweep = Sweep(store, time.time)
    assert not await sweep.is_due(await store.get(turn.id))
    assert await due(sweep) == []


async def test_sub_agent_is_left_to_the_driver_of_the_parent(store: Watched) -> None:
    """Also where both were left behind, and where it is the sub-agent that was answered."""
    turn = await paused(store, HELPS, BURNS)
    child = f"{turn}:call00001"
    await store.post(answer_item(child, "approval-1", Answer(Decision.APPROVE)))
    assert await due(Sweep(store, time.time)) == []
    await store.post(answer_item(turn, "call00001/approval-1", Answer(Decision.APPROVE)))
    assert await due(Sweep(store, time.time)) == [turn]


async def test_recently_written_turn_is_not_due(store: Watched) -> None:
    """It may be about to be submitted. `idle` is how long that may take."""
    clock = JumpingClock()
    sweep = Sweep(store, clock)
    turn = await submitted(store)
    assert await due(sweep, idle=MINUTE) == []
    assert await due(sweep) == [turn]
    clock.jump(MINUTE)
    assert await due(sweep, idle=MINUTE) == [turn]


async def test_turn_is_due_when_the_time_to_answer_is_over(store: Watched) -> None:
    """Its journal is not read: the row has the time."""
    clock = JumpingClock()
    sweep = Sweep(store, clock)
    turn = await paused(store, ERASES, ERASES)
    store.lookups.clear()
    for _ in range(3):
        assert await due(sweep) == []
    clock.jump(MINUTE - 1)
    assert await due(sweep) == []
    assert store.lookups["facts", turn] == 0
    await engine(store, ERASES).resume(turn, {"approval-1": True})
    clock.jump(MINUTE + 1)
    assert await due(sweep) == [turn]
    store.lookups.clear()
    assert await due(sweep) == [turn]
    assert store.lookups["facts", turn] == 0


async def test_journal_of_an_endlessly_waiting_turn_is_not_read(store: Watched) -> None:
    turn = await paused(store, BURNS)
    sweep = Sweep(store, time.time)
    store.lookups.clear()
    for _ in range(3):
        assert await due(sweep) == []
    assert store.lookups["facts", turn] == 0


async def test_another_process_is_checked_for_life_once(tmp_path: Path) -> None:
    """Released turns need no query."""
    alive, store = SqliteStore(tmp_path / "turns.db"), Watched(SqliteStore(tmp_path / "turns.db"))
    free = [await submitted(store) for _ in range(3)]
    claimed = [await submitted(alive) for _ in range(3)]
    for turn in claimed:
        await alive.claim(turn)
    sweep = Sweep(store, time.time)
    assert await due(sweep) == free
    assert store.times("is_driven") == 1
    await alive.aclose()
    assert await due(sweep) == [*free, *claimed]
    assert store.times("is_driven") == 2
    await store.aclose()


async def test_own_process_is_asked_about_each_turn(tmp_path: Path) -> None:
    """It lives, and drives some of them; others it lost."""
    store = Watched(SqliteStore(tmp_path / "turns.db"))
    driven, queued = await submitted(store), await submitted(store)
    await store.claim(driven)
    sweep = Sweep(store, time.time)
    assert await due(sweep) == [queued]
    await store.claim(queued)
    store.lookups.clear()
    assert await due(sweep) == []
    assert store.times("is_driven") == 2
    await store.aclose()


async def test_turn_deleted_meanwhile_is_passed_over(tmp_path: Path) -> None:
    store = Watched(SqliteStore(tmp_path / "turns.db"))
    gone, there = await submitted(store), await submitted(store)
    await store.claim(gone)
    store.deleted.add(gone)
    assert await due(Sweep(store, time.time)) == [there]
    await store.aclose()


async def test_turn_driven_by_another_sweep_is_passed_over(store: Watched) -> None:
    """Both were due. While the first one is driven, somebody drives the second one to its end."""
    first, second = await submitted(store), await submitted(store)
    driven: list[str] = []

    async def drive(turn_id: str) -> TurnResult:
        driven.append(turn_id)
        await engine(store, "Done.").resume(second)
        return await engine(store, "Done.").resume(turn_id)

    recovered_turns = await recover_turns(store, drive, now=time.time, at_once=1)
    assert (driven, [turn.id for turn in recovered_turns]) == ([first], [first])


async def test_unexpected_error_of_a_turn_does_not_stop_the_others(
    store: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = await submitted(store), await submitted(store)

    async def drive(turn_id: str) -> TurnResult:
        if turn_id == first:
            raise KeyError("a mistake of ours")
        return await engine(store, "Done.").resume(turn_id)

    recovered_turns = await recover_turns(store, drive, now=time.time, at_once=2)
    assert [turn.id for turn in recovered_turns] == [second]
    assert f"turn {first} is skipped: this is a bug" in caplog.text


async def test_turn_is_idle_from_the_end_of_the_idle_time(store: Watched) -> None:
    turn = await submitted(store)
    updated_at = (await store.get(turn)).updated_at
    assert await due(Sweep(store, lambda: updated_at + MINUTE), idle=MINUTE) == [turn]


class Damaged(StoreWrapper):
    """A store in which the rows of some turns are damaged."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.damaged: set[str] = set()

    async def turns(
        self,
        *,
        session: str | None = None,
        live: bool | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[TurnRow]:
        rows = await super().turns(session=session, live=live, limit=limit, before=before)
        return [replace(row, fault="its state is torn") if row.id in self.damaged else row for row in rows]


async def test_damaged_turn_is_skipped_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The others are found all the same; and the damaged one too, once it can be read again."""
    store = Damaged(MemoryStore())
    sweep = Sweep(store, time.time)
    torn, fine = await submitted(store), await submitted(store)
    store.damaged.add(torn)
    with caplog.at_level(logging.WARNING, "turnwright"):
        for _ in range(3):
            assert await due(sweep) == [fine]
    (record,) = caplog.records
    assert record.getMessage().startswith(f"turn {torn} is skipped: turn {torn}: its state is torn")
    assert vars(record)["turn"] == torn
    store.damaged.clear()
    assert await due(sweep) == [torn, fine]
