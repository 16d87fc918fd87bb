"""The store in memory, held against the suite of all stores."""

import pytest

from turnwright.store import MemoryStore, Store
from turnwright.testing.store_suite import Bench, StoreSuite


class MemoryBench:
    """One store in memory: there is but one process."""

    def __init__(self) -> None:
        self._store = MemoryStore()

    async def open(self) -> Store:
        return self._store

    async def bury(self, store: Store) -> None:
        await store.aclose()


class TestMemoryStore(StoreSuite):
    @pytest.fixture
    def bench(self) -> Bench:
        return MemoryBench()


def test_nobody_else_can_write_to_it() -> None:
    """So nobody has to look at its inboxes now and then."""
    assert not MemoryStore().shared
