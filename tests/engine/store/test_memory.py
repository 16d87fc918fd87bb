"""The store in memory: the suite of all stores."""

from collections.abc import Sequence

import pytest
from anyio.lowlevel import checkpoint
from tests.engine.store.outbox_facts import OutboxFacts
from tests.engine.store.summary_facts import SummaryFacts

from turnwright.store import Claim, InboxItem, MemoryStore, NewTurn, Status, Store
from turnwright.store.memory_summaries import summaries_of
from turnwright.store.summaries import TurnFilter
from turnwright_states import StartedInput, State, TurnMachine
from turnwright_states.facts import Fact
from turnwright_testing.store_suite import Bench, StoreSuite


class MemoryBench:
    """One store in memory: there is but one process."""

    def __init__(self) -> None:
        self._store = MemoryStore()

    async def open(self) -> Store:
        return self._store

    async def bury(self, store: Store) -> None:
        await store.aclose()


class TestMemoryStore(StoreSuite, SummaryFacts, OutboxFacts):
    @pytest.fixture
    def bench(self) -> Bench:
        return MemoryBench()


def test_memory_store_is_not_shared() -> None:
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


def test_subclass_methods_are_not_treated_as_inline() -> None:
    """It may suspend, as these do."""
    assert [store().inline for store in (MemoryStore, SlowToWrite, SlowToLook)] == [True, False, False]


@pytest.mark.anyio
async def test_forged_count_beyond_63_bits_hides_no_turn() -> None:
    """The summaries of this store are in SQLite, whose largest integer has 63 bits."""
    store, (_, facts) = MemoryStore(), TurnMachine.start(StartedInput(prompt="hi"))
    for name, count in (("sound", 1), ("forged", 2**63)):
        new = NewTurn(id=name, session=None, agent="A", model="m", created_at=0.0)
        await store.create(new, facts, Status(State.STREAM, steps=count, tool_calls=count), driven=False)
    summaries = await summaries_of(store).find(TurnFilter(), limit=9)
    assert [summary.row.id for summary in summaries] == ["forged", "sound"]


@pytest.mark.anyio
async def test_turn_that_replaces_a_deleted_one_is_counted_once() -> None:
    """It has the id of the deleted turn, which a copy of the rows has seen."""
    store, (_, facts) = MemoryStore(), TurnMachine.start(StartedInput(prompt="hi"))
    summaries = summaries_of(store)
    for _ in range(2):
        new = NewTurn(id="again", session=None, agent="A", model="m", created_at=0.0)
        await store.create(new, facts, Status(State.FINISHED), driven=False)
        assert (await summaries.totals(TurnFilter())).turns == 1
        await store.delete("again")
