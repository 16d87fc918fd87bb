"""The example of a runtime of one's own, held to a part of what every runtime is."""

import sys
from functools import partial
from pathlib import Path

import pytest
from tests.servers.postgres_server import PostgresServer

from turnwright_testing.runtime_suite import RuntimeBench
from turnwright_testing.runtime_suite.driving import DrivingFacts
from turnwright_testing.runtime_suite.sweeps import SweepFacts

pytest.importorskip("procrastinate", reason="needs procrastinate: pip install 'turnwright[examples]'")

# Where its workers' processes find it too.
sys.path.append(str(Path(__file__).parents[3] / "examples"))

from postgres_queue import PostgresQueue  # type: ignore[import-not-found]  # a program, in no package


@pytest.mark.anyio
class TestAQueueInADatabase(DrivingFacts, SweepFacts):
    @pytest.fixture
    async def bench(self, postgres: PostgresServer) -> RuntimeBench:
        address = postgres.new_database()
        queue = PostgresQueue(address)
        await queue.prepare()
        await queue.aclose()
        return RuntimeBench(address, partial(PostgresQueue, address, sweep=1.0, drain=1.5), patience=1.5)
