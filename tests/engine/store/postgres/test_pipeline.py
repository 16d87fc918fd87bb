"""Statements that share a round trip."""

import json
from collections.abc import AsyncIterator

import psycopg
import pytest
from tests.servers.postgres_server import PostgresServer

from turnwright.store.postgres.pipeline import Statement, run_together
from turnwright.store.postgres.schema import Connection

pytestmark = pytest.mark.anyio

ECHO = Statement("echo", "SELECT %(text)s::text, array_to_json(%(texts)s::text[])::text, %(number)s::float8::text")
#: More than the buffers of a socket.
LONG = "x" * 2**24


@pytest.fixture
async def connection(postgres_server: PostgresServer) -> AsyncIterator[Connection]:
    raw_connection = await psycopg.AsyncConnection.connect(
        postgres_server.new_database(), autocommit=True, prepare_threshold=None
    )
    yield raw_connection
    await raw_connection.close()


@pytest.mark.parametrize("text", ["", "'\"\\,{}()$1 %(text)s\n\x1f\u2028 é 漢 🙂", LONG])
async def test_values_arrive_unchanged(connection: Connection, text: str) -> None:
    values = {"text": text, "texts": ["a", text], "number": 0.1}
    for _ in range(2):
        ((echoed,),) = await run_together(connection, (ECHO, values))
        assert (echoed[0], echoed[2]) == (text, "0.1")
        assert json.loads(echoed[1]) == ["a", text]


async def test_null_arrives_as_null(connection: Connection) -> None:
    rows = await run_together(connection, (ECHO, {"text": None, "texts": [], "number": None}))
    assert rows == [[(None, "[]", None)]]


async def test_text_with_nul_is_refused(connection: Connection) -> None:
    with pytest.raises(psycopg.DataError, match="0x00"):
        await run_together(connection, (ECHO, {"text": "cut\x00off", "texts": [], "number": 1}))


async def test_failing_statement_undoes_earlier_statements(connection: Connection) -> None:
    """They are one transaction."""
    await connection.execute("CREATE TABLE kept (n int PRIMARY KEY)")
    insert = Statement("insert", "INSERT INTO kept VALUES (%(n)s) RETURNING n::text")
    assert await run_together(connection, (insert, {"n": 1}), (insert, {"n": 2})) == [[("1",)], [("2",)]]
    with pytest.raises(psycopg.errors.UniqueViolation):
        await run_together(connection, (insert, {"n": 3}), (insert, {"n": 1}))
