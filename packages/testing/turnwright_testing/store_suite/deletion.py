"""The contract of a store for deletion, and for migration to a newer schema."""

from typing import Final

import pytest

from turnwright.errors import LeaseLostError, StoreError, TurnBusyError, TurnNotFoundError
from turnwright.store import Claim, InboxItem, InboxKind, Store

from .bench import Bench, StoreFacts, Written

#: Turns and sub-turns. None but those of the first line are of the family of t_1.
_FAMILY: Final = ("t_1", "t_1:c1", "t_1:c1:c9", "t_1:z")
_OTHERS: Final = ("t_", "t_10", "t_1x", "t_1-", "t_1;", "tx1", "tx1:c1", "T_1:c1", "x:t_1:c1", "%")


async def _make(store: Store, *turn_ids: str) -> None:
    """Make turns that wait, each with something in its inbox."""
    for turn_id in turn_ids:
        await store.release(await Written(turn_id).create(store))
        await store.post(InboxItem(turn_id, "abort", InboxKind.ABORT))


async def _list_ids(store: Store) -> set[str]:
    return {row.id for row in await store.turns()}


class DeletionFacts(StoreFacts):
    async def test_a_deleted_turn_is_forgotten_with_its_sub_turns(self, store: Store, other_store: Store) -> None:
        """Rows, facts and inboxes, for every process; turns whose ids only look alike stay as they were."""
        await _make(store, *_FAMILY, *_OTHERS)
        assert await store.delete("t_1") == len(_FAMILY)
        assert await _list_ids(other_store) == set(_OTHERS)
        for turn_id in _FAMILY:
            for handle in (store, other_store):
                with pytest.raises(TurnNotFoundError):
                    await handle.facts(turn_id)
                assert await handle.inbox(turn_id) == []
        for turn_id in _OTHERS:
            assert await other_store.facts(turn_id) == list(enumerate(Written(turn_id).facts, start=1))
            assert [item.id for item in await other_store.inbox(turn_id)] == ["abort"]

    async def test_a_sub_turn_can_be_deleted_alone(self, store: Store) -> None:
        """Its own sub-turns are deleted too; its parent and its siblings stay."""
        await _make(store, *_FAMILY)
        assert await store.delete("t_1:c1") == len({"t_1:c1", "t_1:c1:c9"})
        assert await _list_ids(store) == {"t_1", "t_1:z"}

    async def test_a_driven_turn_is_not_deleted(self, store: Store, other_store: Store) -> None:
        """Neither a driven turn nor one with a driven sub-turn can be deleted by any process: both are busy."""
        await _make(store, *_FAMILY)
        for turn in ("t_1", "t_1:c1:c9"):
            claim = await store.claim(turn)
            for handle in (store, other_store):
                with pytest.raises(TurnBusyError) as busy:
                    await handle.delete("t_1")
                assert busy.value.turn == turn
                assert busy.value.owner
            assert await _list_ids(other_store) == set(_FAMILY)
            assert [item.id for item in await other_store.inbox("t_1")] == ["abort"]
            assert await other_store.facts("t_1") == list(enumerate(Written().facts, start=1))
            await store.release(claim)
        assert await other_store.delete("t_1") == len(_FAMILY)

    async def test_turn_of_a_dead_driver_can_be_deleted(
        self, bench: Bench, store: Store, draft: Written, claim: Claim
    ) -> None:
        """A driver that is still alive loses its claim."""
        await bench.bury(store)
        other_store = await bench.open()
        assert await other_store.delete("t1") == 1
        with pytest.raises(LeaseLostError, match="t1"):
            await store.append(claim, draft.answer(), draft.status)
        await store.release(claim)
        assert await _list_ids(other_store) == set()

    async def test_a_deleted_turn_can_be_made_anew(self, store: Store, other_store: Store) -> None:
        """The new turn starts from its first fact: nothing of the deleted one is left."""
        first = Written()
        claim = await first.create(store)
        await store.append(claim, first.calls("read_file"), first.status)
        await store.post(InboxItem("t1", "abort", InboxKind.ABORT))
        await store.release(claim)
        await store.delete("t1")
        again = Written(prompt="again")
        claim = await again.create(other_store)
        assert (claim.epoch, claim.seq) == (1, len(again.facts))
        await other_store.append(claim, again.answer(), again.status)
        assert await store.facts("t1") == list(enumerate(again.facts, start=1))
        assert await store.inbox("t1") == []

    async def test_driver_of_a_deleted_turn_writes_nothing_to_its_successor(
        self, store: Store, other_store: Store, draft: Written
    ) -> None:
        """Even where both have the same epoch."""
        loser = await draft.create(store)
        await store.append(loser, draft.calls("read_file"), draft.status)
        await store.release(loser)
        await store.delete("t1")
        anew = Written("t1")
        winner = await anew.create(other_store)
        before = await other_store.facts("t1")
        assert (winner.epoch, winner.seq) == (loser.epoch, len(before))
        with pytest.raises(StoreError):
            await store.append(loser, draft.abort(), draft.status)
        assert await other_store.facts("t1") == before
        await other_store.append(winner, anew.answer(), anew.status)

    async def test_a_session_is_free_when_its_live_turn_was_deleted(self, store: Store, other_store: Store) -> None:
        """A turn that nobody will resume need not block its session."""
        await store.release(await Written("t1", session="s1").create(store))
        await store.delete("t1")
        await Written("t2", session="s1").create(other_store)
        assert [row.id for row in await store.turns(session="s1", live=True)] == ["t2"]

    async def test_a_store_of_this_release_need_not_be_migrated(
        self, store: Store, other_store: Store, draft: Written, claim: Claim
    ) -> None:
        """Migration changes nothing, also while a turn is driven."""
        await store.post(InboxItem("t1", "abort", InboxKind.ABORT))
        row = await store.get("t1")
        before, after = await other_store.migrate()
        assert before == after > 0
        assert await other_store.migrate() == (before, after)
        assert await other_store.get("t1") == row
        assert await store.facts("t1") == list(enumerate(draft.facts, start=1))
        await store.append(claim, draft.abort(), draft.status, ("abort",))
        assert await other_store.inbox("t1") == []
