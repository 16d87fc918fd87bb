"""A database server for the tests of this folder."""

from collections.abc import Callable, Iterator

import anyio
import pytest
from tests.servers.postgres_server import PostgresServer

from turnwright.store import open_store


@pytest.fixture(scope="session")
def need_server() -> None:
    """Skip where no PostgreSQL server can be had."""
    reason = PostgresServer.reason_missing()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def server(need_server: None) -> Iterator[PostgresServer]:  # noqa: ARG001 (it skips)
    """A PostgreSQL server, shared by tests that leave it running."""
    with PostgresServer(fsync=False) as server:
        yield server


@pytest.fixture(scope="session")
def new_database(server: PostgresServer) -> Callable[[], str]:
    """Makes databases that are ready for turns, and returns their addresses."""

    def make() -> str:
        address = server.new_database()
        anyio.run(migrate, address)
        return address

    return make


async def migrate(address: str) -> None:
    store = open_store(address)
    await store.migrate()
    await store.aclose()
