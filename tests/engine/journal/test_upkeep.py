"""Old turns are deleted page by page, because a store may have more of them than a process has memory."""

import pytest

from turnwright.journal.upkeep import prune_turns
from turnwright.store import MemoryStore, Store, TurnRow
from turnwright_testing.faults.wrapper import StoreWrapper
from turnwright_testing.store_suite import Written

pytestmark = pytest.mark.anyio


class ListedStore(StoreWrapper):
    """A store that keeps how many rows each list had."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.listed: list[int] = []

    async def turns(
        self,
        *,
        session: str | None = None,
        live: bool | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[TurnRow]:
        """See `Store.turns`."""
        rows = await super().turns(session=session, live=live, limit=limit, before=before)
        self.listed.append(len(rows))
        return rows


@pytest.mark.slow
async def test_old_turns_are_deleted_in_pages() -> None:
    """Also sub-turns that are on another page than their roots. The open turn stays."""
    store = ListedStore(MemoryStore())
    for number in range(700):
        draft = Written(f"t{number:04}" if number < 600 else f"t{number - 600:04}:call00001")
        claim = await draft.create(store)
        if number != 7:
            await store.append(claim, draft.answer(), draft.status)
        await store.release(claim)
    assert await prune_turns(store, -1) == 698
    assert {row.id for row in await store.inner.turns()} == {"t0007", "t0007:call00001"}
    assert max(store.listed) <= 500
