"""Waits that end with time, and the sweep that notices it (docs/rules.md#waits)."""

import time
from pathlib import Path

import anyio
import pytest

from turnwright import Agent, ConfigError, Engine, TurnResult, tool, wait_tool
from turnwright.message import ToolResultPart
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import InboxItem, InboxKind, MemoryStore, SqliteStore, Store
from turnwright.store.protocol import NewTurn, Status
from turnwright_states import InterruptKind, Limits, StartedInput, State, TurnMachine

pytestmark = pytest.mark.anyio

AGENT = Agent(name="Waiter")
NOW = 1_795_892_400.0
MANY = 100_000


@tool(needs_approval=True, expires_in=60)
async def pay() -> str:
    """Pay."""
    return "paid"


def results_in(model: ScriptedModel) -> list[str]:
    parts = [part for message in model.requests[-1].messages for part in message.parts]
    return [part.text for part in parts if isinstance(part, ToolResultPart)]


async def test_model_waits_for_a_time() -> None:
    """Rules 4 and 5: the turn pauses, and a sweep resumes it when the time has passed."""
    now = [NOW]
    model = ScriptedModel(asks_for(("wait", {"seconds": 90})), "Done.")
    engine = Engine(model=model, tools=[wait_tool(most=7200)], now=lambda: now[0])
    turn: TurnResult = await engine.run(AGENT, "Wait.")
    (interrupt,) = turn.interrupts
    assert (interrupt.kind, interrupt.expires_at) == (InterruptKind.RESULT, NOW + 90)
    now[0] += 89
    assert await engine.recover() == []
    now[0] += 1
    (turn,) = await engine.recover()
    assert turn.text == "Done."
    assert results_in(model) == ["90 seconds have passed"]


async def test_wait_is_ended_early_by_its_key() -> None:
    """Rule 6: a wait of the model is a wait for a result."""
    model = ScriptedModel(asks_for(("wait", {"seconds": 90})), "Done.")
    engine = Engine(model=model, tools=[wait_tool()])
    turn: TurnResult = await engine.run(AGENT, "Wait.")
    await engine.settle(turn.interrupts[0].key, "wake up")
    assert (await engine.resume(turn.id)).text == "Done."
    assert results_in(model) == ["wake up"]


@pytest.mark.parametrize("seconds", [0, -1, 86_401, "5", True, None, 10**400])
async def test_wait_beyond_its_bounds_is_refused(seconds: object) -> None:
    """Rule 4: the model reads what the tool takes."""
    model = ScriptedModel(asks_for(("nap", {"seconds": seconds})), "Done.")  # type: ignore[dict-item]
    turn = await Engine(model=model, tools=[wait_tool(name="nap")]).run(AGENT, "Wait.")
    assert turn.text == "Done."
    assert "nap takes one argument, seconds: a number above 0, at most 86400" in results_in(model)[0]


@pytest.mark.parametrize("most", [0, -1, float("inf"), True, "1"])
def test_most_of_a_wait_is_checked(most: object) -> None:
    """Rule 4."""
    with pytest.raises(ConfigError, match="wait_tool: most must be a number of seconds above 0"):
        wait_tool(most=most)  # type: ignore[arg-type]


async def test_worker_fires_the_timer() -> None:
    """Rule 5: a worker's sweep notices that the time has passed."""
    model = ScriptedModel(asks_for(("wait", {"seconds": 0.05})), "Done.")
    async with Engine(model=model, tools=[wait_tool()]) as engine:
        turn: TurnResult = await engine.run(AGENT, "Wait.")
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(engine.run_worker)
                async for _ in engine.events(turn.id, wait=True):
                    pass
                while (await engine.get(turn.id)).outcome is None:  # noqa: ASYNC110 (a worker, as if in another process)
                    await anyio.sleep(0.01)
                group.cancel_scope.cancel()
        assert (await engine.get(turn.id)).text == "Done."


async def fill(store: Store) -> None:
    """Store many paused turns that expire much later, one that has expired, and one with an answer."""
    _, facts = TurnMachine.start(StartedInput(prompt="x", limits=Limits()))
    for number in range(MANY if isinstance(store, MemoryStore) else 3):
        expires_at = {0: NOW - 1, 1: None}.get(number, NOW + 1_000_000)
        new = NewTurn(f"t{number}", None, "A", "m", NOW - 10)
        await store.create(new, facts, Status(State.PAUSED, expires_at=expires_at), driven=False)
    await store.post(InboxItem("t1", "answer:approval-1", InboxKind.ANSWER))
    if isinstance(store, SqliteStore):
        columns = [str(row[1]) for row in store._db.execute("PRAGMA table_info(turns)")]  # noqa: SLF001 (many rows at once)
        copied = ", ".join({"turn_id": "'many' || n", "number": "n + 10"}.get(name, name) for name in columns)
        store._db.execute(  # noqa: SLF001 (likewise)
            f"WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < {MANY})"  # noqa: S608
            f" INSERT INTO turns ({', '.join(columns)}) SELECT {copied} FROM counted, turns WHERE turn_id = 't2'"
        )
        store._db.commit()  # noqa: SLF001 (likewise)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_sweep_reads_no_turn_that_only_waits(kind: str, tmp_path: Path) -> None:
    """Rule 5: over 100,000 paused turns, it takes less than 20 ms of CPU, also the first one."""
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "turns.db")
    await fill(store)
    seconds: list[float] = []
    for _ in range(3):
        start = time.process_time()
        due = await store.due(NOW)
        seconds.append(time.process_time() - start)
        assert [turn.row.id for turn in due] == ["t0", "t1"]
    assert min(seconds) < 0.02
    if isinstance(store, SqliteStore):
        await store.aclose()
