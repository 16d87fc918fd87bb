"""The cost of a turn by the formula is what the counters of the stores show."""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from bench.proxy import Proxy
from bench.scale.fill import Filling, PostgresFilling, Shape, SqliteFilling, copy, drive, time_queries
from tests.servers.postgres_server import PostgresServer

pytestmark = pytest.mark.anyio

SHAPES = (Shape(steps=0), Shape(steps=1, calls=8), Shape(steps=3, calls=9), Shape(steps=1, calls=32))


@pytest.fixture(params=["SQLite", pytest.param("PostgreSQL", marks=pytest.mark.slow)])
async def filling(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Filling]:
    """Yield a store whose counters count nothing but what a test does."""
    if request.param == "SQLite":
        yield SqliteFilling(tmp_path / "turns.db")
        return
    if reason := PostgresServer.reason_missing():
        pytest.skip(reason)
    with PostgresServer(fsync=False, settings={"autovacuum": "off"}) as server:
        address = server.new_database()
        parts = urlsplit(address)
        proxy = Proxy(str(parts.hostname), parts.port or 0)
        async with proxy.listening() as port:
            yield PostgresFilling(address, (proxy, port))


async def test_counters_of_a_store_equal_the_formula(filling: Filling) -> None:
    """Exactly, for turns that an engine drives: rows, commits, and round trips where there is a server."""
    for shape in SHAPES:
        _, counted, trips = await drive(filling, shape, turns=3)
        cost = shape.cost
        assert (counted.rows, counted.commits) == (3 * cost.rows, 3 * cost.commits), shape
        assert trips is None or trips == 3 * cost.trips, shape


async def test_copies_cost_a_store_as_much_as_driven_turns(filling: Filling) -> None:
    """And the queries of a filled store are timed: due turns among them, and deletions."""
    shape = Shape(steps=2)
    recorder, _, _ = await drive(filling, shape, turns=1)
    store = filling.opened()
    await store.turns(limit=1)
    with filling.holding_log():
        before = filling.count()
        await copy(recorder, store, 12, at_once=3)
        counted = filling.count() - before
    assert counted.rows == 12 * shape.cost.rows
    assert counted.commits is not None
    assert 0 < counted.commits <= 12 * shape.cost.commits  # SQLite commits together what is written at once
    assert len({row.id for row in await store.turns()}) == 1 + 2 + 12
    assert all(seconds > 0 for seconds in (await time_queries(recorder, store, 12)).values())
    await store.aclose()


async def test_turns_run_on_facts_that_are_partitioned_by_hash(filling: Filling) -> None:
    """As docs/scale.md says: the counters stay those of the formula."""
    if not isinstance(filling, PostgresFilling):
        pytest.skip("PostgreSQL has partitions")
    store = filling.opened()
    await store.migrate()
    await store.aclose()
    with psycopg.connect(filling.address, autocommit=True) as connection:
        connection.execute("ALTER TABLE turnwright_facts RENAME TO unpartitioned")
        connection.execute(
            "CREATE TABLE turnwright_facts (LIKE unpartitioned INCLUDING ALL) PARTITION BY HASH (turn_id)"
        )
        for place in range(4):
            connection.execute(
                f"CREATE TABLE turnwright_facts_{place} PARTITION OF turnwright_facts"
                f" FOR VALUES WITH (MODULUS 4, REMAINDER {place})".encode()
            )
        connection.execute("DROP TABLE unpartitioned")
    shape = Shape(steps=2)
    _, counted, trips = await drive(filling, shape, turns=6)
    assert (counted.rows, counted.commits, trips) == (6 * shape.cost.rows, 6 * shape.cost.commits, 6 * shape.cost.trips)
    store = filling.opened()
    newest = (await store.turns(limit=1))[0].id
    assert len(await store.facts(newest)) > shape.cost.commits
    assert await store.delete(newest) == 1
    await store.aclose()
