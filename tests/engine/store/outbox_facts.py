"""The contract of the outbox, for a store that has one."""

import pytest

from turnwright.errors import LeaseLostError
from turnwright.store import Claim, Store
from turnwright.store.outbox import NoticeRow, OutboxStore
from turnwright_testing.store_suite.bench import StoreFacts, Written


class OutboxFacts(StoreFacts):
    @pytest.fixture
    async def outbox(self, store: Store) -> OutboxStore:
        if not isinstance(store, OutboxStore):
            pytest.skip("the store has no outbox")
        for name in ("a", "b"):  # of an earlier test, if the tests share their store
            await store.unsubscribe(name)
        return store

    async def test_notices_are_written_with_their_facts(
        self, store: Store, outbox: OutboxStore, draft: Written, claim: Claim
    ) -> None:
        """A notice of each subscription, for a pause and for an end, and none without a subscription."""
        await store.append(claim, draft.pause(), draft.status)
        assert await outbox.notices() == []
        await outbox.subscribe(["b", "a"])
        await outbox.subscribe(["a"])
        await store.append(claim, draft.abort(), draft.status)
        rows = await outbox.notices()
        assert [(row.name, row.turn, row.seq, row.kind, row.tries) for row in rows] == [
            ("a", "t1", claim.seq, "ended", 0),
            ("b", "t1", claim.seq, "ended", 0),
        ]

    async def test_notices_are_written_with_a_new_turn(self, store: Store, outbox: OutboxStore, draft: Written) -> None:
        """A copy of a turn, or an imported one, is created with facts that subscribers are notified of."""
        await outbox.subscribe(["a"])
        draft.abort()
        claim = await draft.create(store)
        rows = await outbox.notices()
        assert [(row.name, row.turn, row.seq, row.kind) for row in rows] == [("a", "t1", claim.seq, "ended")]

    async def test_notice_is_leased_to_one_worker(
        self, store: Store, other_store: Store, outbox: OutboxStore, draft: Written, claim: Claim
    ) -> None:
        """Until its time has passed; a failure has a time of its own, and a delivery deletes it."""
        assert isinstance(other_store, OutboxStore)
        await outbox.subscribe(["a"])
        await store.append(claim, draft.abort(), draft.status)
        assert await outbox.lease_notices(["b"], 10.0, 70.0, 9) == []
        (row,) = await outbox.lease_notices(["a", "b"], 10.0, 70.0, 9)
        assert await other_store.lease_notices(["a"], 10.0, 70.0, 9) == []
        assert len(await other_store.lease_notices(["a"], 70.0, 130.0, 9)) == 1
        await outbox.failed(row, "é failed", 200.0)
        assert await outbox.lease_notices(["a"], 199.0, 300.0, 9) == []
        (again,) = await outbox.lease_notices(["a"], 200.0, 300.0, 9)
        assert (again.tries, again.error, again.id) == (1, "é failed", row.id)
        assert await outbox.count_notices() == (1, 0)
        await outbox.failed(again, "given up", None)
        assert await outbox.count_notices() == (0, 1)
        assert await outbox.lease_notices(["a"], 10.0**9, 10.0**10, 9) == []
        assert await outbox.retry_notices() == 1
        (last,) = await outbox.lease_notices(["a"], 0.0, 1.0, 9)
        await outbox.delivered(last)
        assert await outbox.notices() == []

    async def test_notices_go_with_their_turn_and_their_subscription(self, store: Store, outbox: OutboxStore) -> None:
        """Deleting a turn, or a subscription, deletes its notices."""
        await outbox.subscribe(["a", "b"])
        for turn in ("t1", "t2"):
            draft = Written(turn)
            claim = await draft.create(store)
            await store.append(claim, draft.abort(), draft.status)
            await store.release(claim)
        await store.delete("t1")
        assert {row.turn for row in await outbox.notices()} == {"t2"}
        assert await outbox.unsubscribe("a")
        assert [row.name for row in await outbox.notices()] == ["b"]
        assert not await outbox.unsubscribe("a")

    async def test_lost_claim_writes_no_notice(
        self, store: Store, outbox: OutboxStore, draft: Written, claim: Claim
    ) -> None:
        """The notices are in the transaction of the facts."""
        await outbox.subscribe(["a"])
        await store.release(claim)
        await store.claim("t1")
        with pytest.raises(LeaseLostError):
            await store.append(claim, draft.abort(), draft.status)
        assert await outbox.notices() == []
        assert NoticeRow("a", "t1", 3, "ended", 0.0).id == "t1/3/a"
