"""The store in memory: the suite of all stores."""

from collections.abc import Sequence

import pytest
from anyio.lowlevel import checkpoint

from turnwright.store import Claim, InboxItem, MemoryStore, Status, Store
from turnwright.testing.store_suite import Bench, StoreSuite
from turnwright_states.facts import Fact


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


class SlowToWrite(MemoryStore):
    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        await checkpoint()
        return await super().append(claim, facts, status, consumed)


class SlowToLook(MemoryStore):
    async def inbox(self, turn_id: str) -> list[InboxItem]:
        await checkpoint()
        return await super().inbox(turn_id)


def test_what_a_subclass_does_is_not_taken_for_inline() -> None:
    """It may suspend, as these do."""
    assert [store().inline for store in (MemoryStore, SlowToWrite, SlowToLook)] == [True, False, False]
