"""The columns of a store say what the facts say; a changed one is named (`turnwright replay`)."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import structs
from tests.servers.postgres_server import PostgresServer

from turnwright import Agent, Engine, tool
from turnwright.model import ScriptedModel, asks_for
from turnwright.store import SqliteStore, Store, open_store
from turnwright.store.copies import AppendColumns, CopyingStore, TurnColumns, check_columns
from turnwright_states import InvalidJournalError
from turnwright_states.facts import Fact, StepStarted

pytestmark = pytest.mark.anyio


@tool(needs_approval=True)
def wipe(path: str) -> str:
    """Wipe a path."""
    return path


async def paused_and_resumed(store: Store) -> tuple[Sequence[tuple[int, Fact]], TurnColumns]:
    """The facts and the columns of a turn of two claims that ended."""
    await store.migrate()
    script = ScriptedModel(asks_for(("wipe", {"path": "a"})), "Done.")
    async with Engine(model=script, tools=[wipe], store=store) as engine:
        paused = await engine.run(Agent(name="Tidier"), "Tidy up")
        ended = await engine.resume(paused.id, {"approval-1": True})
        assert ended.reason == "answered"
        assert isinstance(store, CopyingStore)
        return await store.facts(ended.id), await store.columns(ended.id)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each store that has columns."""
    if request.param == "sqlite":
        return SqliteStore(tmp_path / "turns.db")
    if PostgresServer.reason_missing():
        pytest.skip("no PostgreSQL")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return open_store(server.new_database())


async def test_columns_of_a_resumed_turn_agree_with_the_facts(store: Store) -> None:
    facts, columns = await paused_and_resumed(store)
    check_columns(facts, columns)
    assert columns.appends[-1].last == len(facts)


async def test_each_changed_column_is_named(store: Store) -> None:
    """A store has some of these: state, reason, steps, calls, epoch, times."""
    facts, columns = await paused_and_resumed(store)
    other_values = {"state": "REVIEW", "reason": "aborted", "steps": 9, "tool_calls": 9, "epoch": -2, "due_at": 5.0}
    for name, value in columns.turn.items():
        changed = other_values.get(name, value - 60 if isinstance(value, float) else None)
        if name == "live":
            changed = not value
        with pytest.raises(InvalidJournalError, match=r"column|its time"):
            check_columns(facts, structs.replace(columns, turn={**columns.turn, name: changed}))
    for place, append in enumerate(columns.appends):
        for name, value in append.values.items():
            changed = other_values.get(name, value - 60 if isinstance(value, float) else None)
            if name == "epoch" and value is None:
                changed = 1
            values = {**append.values, name: changed}
            appends = [*columns.appends]
            appends[place] = AppendColumns(append.first, append.last, values)
            if append.values.get("state", "") is None:
                continue
            with pytest.raises(InvalidJournalError, match=r"column|its time"):
                check_columns(facts, structs.replace(columns, appends=appends))


async def test_step_that_began_on_no_date_is_named(tmp_path: Path) -> None:
    facts, columns = await paused_and_resumed(SqliteStore(tmp_path / "turns.db"))
    place, step = next(
        (seq, fact) for seq, fact in facts if isinstance(fact, StepStarted) and seq > columns.appends[0].last
    )
    forged = [*facts[: place - 1], (place, structs.replace(step, started_at="2026-99-99T00:00:00Z")), *facts[place:]]
    with pytest.raises(InvalidJournalError, match="its step began at '2026-99-99T00:00:00Z': month must be in"):
        check_columns(forged, columns)
