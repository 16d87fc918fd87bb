"""The journals that the scale run reads for its audit."""

import psycopg
import pytest
from bench.scale.run import journals
from tests.servers.postgres_server import PostgresServer

from turnwright import Agent, Engine
from turnwright.model.scripted import ScriptedModel
from turnwright.store.postgres.store import PostgresStore

pytestmark = pytest.mark.anyio


async def test_journals_are_read_fact_by_fact(postgres_server: PostgresServer) -> None:
    """Though the facts of an append are one row."""
    address = postgres_server.new_schema()
    store = PostgresStore(address)
    await store.migrate()
    engine = Engine(model=ScriptedModel("Hi.", "Ho."), store=store)
    turns = sorted([(await engine.run(Agent(name="Tidier"), "hi")).id for _ in range(2)])
    async with await psycopg.AsyncConnection.connect(address) as connection:
        rows_by_turn = await journals(connection)
    assert [*rows_by_turn] == turns
    for turn, rows in rows_by_turn.items():
        assert [(row.seq, row.fact) for row in rows] == await store.facts(turn)
        times = [row.at for row in rows]
        assert times == sorted(times)
    await engine.aclose()
    await store.aclose()
