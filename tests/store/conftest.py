"""What the tests of stores share: one PostgreSQL server for all of them."""

from collections.abc import Iterator

import pytest

from turnwright.testing.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server of their own. It is not stopped or killed by any test that shares it."""
    reason = PostgresServer.reason_missing()
    if reason is not None:
        pytest.skip(reason)
    with PostgresServer(fsync=False) as server:
        yield server
