"""The runtime for many machines: Temporal's own server, and a database."""

import secrets
from collections.abc import Iterator
from functools import partial
from typing import Final

import anyio.to_thread
import pytest
from tests.servers.postgres_server import PostgresServer
from tests.servers.temporal_server import TemporalServer

from turnwright_testing.runtime_suite import RuntimeBench, RuntimeSuite

Temporal = pytest.importorskip("turnwright.runtime.temporal.runtime").Temporal

#: Seconds without a heartbeat after which a worker is given up.
PATIENCE: Final = 1.5


@pytest.fixture(scope="module")
def temporal() -> Iterator[TemporalServer]:
    """A server of their own, which some of these tests restart."""
    reason = TemporalServer.reason_missing()
    if reason is not None:
        pytest.skip(reason)
    with TemporalServer() as server:
        yield server


class TestTemporal(RuntimeSuite):
    @pytest.fixture
    def bench(self, postgres: PostgresServer, temporal: TemporalServer) -> Iterator[RuntimeBench]:
        async def restart_store() -> None:
            await anyio.to_thread.run_sync(postgres.restart)

        async def restart_service() -> None:
            await anyio.to_thread.run_sync(temporal.kill)
            await anyio.to_thread.run_sync(temporal.start)

        make = partial(
            Temporal,
            temporal.address,
            queue=f"queue-{secrets.token_hex(6)}",
            heartbeat=0.2,
            patience=PATIENCE,
            sweep=1.0,
            drain=1.5,
        )
        yield RuntimeBench(
            postgres.new_schema(),
            make,
            patience=PATIENCE,
            takes_over_zombies=True,
            restart_store=restart_store,
            restart_service=restart_service,
            make_patient=partial(make, drain=100),
        )
        postgres.start()
        temporal.start()
        temporal.delete_schedules()
