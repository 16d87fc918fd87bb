"""The runtime of one machine, with a store in a file and, for two machines that share a server, in a database."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest
from tests.servers.postgres_server import PostgresServer

from turnwright.runtime import Local
from turnwright_testing.runtime_suite import RuntimeBench, RuntimeSuite
from turnwright_testing.runtime_suite.deaths import DeathFacts
from turnwright_testing.runtime_suite.outages import OutageFacts

MAKE = partial(Local, every=0.1, drain=1.5)
PATIENT = partial(Local, every=0.1, drain=100)


class TestInAFile(RuntimeSuite):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> RuntimeBench:
        address = f"sqlite:///{tmp_path / 'turns.db'}?durability=normal"
        return RuntimeBench(address, MAKE, patience=0.5, make_patient=PATIENT)


@pytest.mark.slow
@pytest.mark.anyio
class TestInADatabase(DeathFacts, OutageFacts):
    """A store's way to detect a dead driver, and its server."""

    @pytest.fixture
    def bench(self, postgres: PostgresServer) -> Iterator[RuntimeBench]:
        async def restart() -> None:
            await anyio.to_thread.run_sync(postgres.restart)

        yield RuntimeBench(postgres.new_schema(), MAKE, patience=0.5, restart_store=restart, make_patient=PATIENT)
        postgres.start()
