"""The servers that the tests of runtimes share."""

from collections.abc import Iterator

import pytest
from tests.servers.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server of their own, which some of them restart."""
    reason = PostgresServer.reason_missing()
    if reason is not None:
        pytest.skip(reason)
    with PostgresServer(fsync=False) as server:
        yield server
