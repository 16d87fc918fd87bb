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
        found = await journals(connection)
    assert [*found] == turns
    for turn, written in found.items():
        assert [(one.seq, one.fact) for one in written] == await store.facts(turn)
        times = [one.at for one in written]
        assert times == sorted(times)
    await engine.aclose()
    await store.aclose()
