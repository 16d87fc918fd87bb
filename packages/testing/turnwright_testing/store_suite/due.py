"""The contract of a store for turns that are due: in the order of creation, each claimed by one driver."""

import time
from collections.abc import Sequence

import anyio

from turnwright.store import Claim, DueTurn, InboxItem, InboxKind, Store
from turnwright_states import CallWaitingInput, InterruptKind, ModelRepliedInput, ToolCall

from .bench import NOW, Bench, StoreFacts, Written

#: When the interrupts of these tests expire.
EXPIRY = NOW + 60.0


async def _queue(store: Store, *names: str) -> None:
    """Write turns that wait for their first driver."""
    for name in names:
        draft = Written(name)
        await store.create(draft.new, draft.facts, draft.status, driven=False)


async def _pause(store: Store, name: str, *expiries: float | None) -> Claim:
    """Write a paused turn with interrupts that expire at these times. It is not released."""
    draft = Written(name)
    claim = await draft.create(store)
    calls = tuple(ToolCall(name="delete_file", arguments={"n": n}) for n in range(len(expiries)))
    facts = list(draft.machine.feed(ModelRepliedInput(calls=calls, elapsed=0.5)))
    for call, expiry in zip([*draft.machine.turn.batch], expiries, strict=True):
        waiting = CallWaitingInput(call=call, interrupt_kind=InterruptKind.APPROVAL, expires_at=expiry)
        facts += draft.machine.feed(waiting)
    await store.append(claim, facts, draft.status)
    return claim


def _ids(due_turns: Sequence[DueTurn]) -> list[str]:
    return [turn.row.id for turn in due_turns]


class DueFacts(StoreFacts):
    async def test_queued_turns_are_due_in_the_order_of_creation(self, store: Store, other_store: Store) -> None:
        """Ids and times do not matter. `limit` gives the oldest, and `skipped` makes room for those behind."""
        await _queue(store, "t3", "t1", "t2")
        for handle in (store, other_store):
            assert _ids(await handle.due(NOW)) == ["t3", "t1", "t2"]
            assert _ids(await handle.due(NOW, limit=2)) == ["t3", "t1"]
            assert _ids(await handle.due(NOW, limit=2, skipped=["t3", "t9"])) == ["t1", "t2"]
            assert _ids(await handle.due(NOW, limit=0)) == []
        assert [(turn.claim, turn.error) for turn in await store.due(NOW)] == [(None, None)] * 3
        assert [turn.row for turn in await store.due(NOW)] == [await store.get(name) for name in ("t3", "t1", "t2")]

    async def test_a_due_turn_is_claimed_by_one_driver(self, store: Store, other_store: Store) -> None:
        """The claim is that of `claim`, and a claimed turn is due to nobody."""
        await _queue(store, "t1", "t2", "t3")
        (first, second) = await store.due(NOW, limit=2, claim=True)
        assert _ids([first, second]) == ["t1", "t2"]
        assert _ids(await other_store.due(NOW, claim=True)) == ["t3"]
        for handle in (store, other_store):
            assert await handle.due(NOW) == await handle.due(NOW, claim=True) == []
        draft = Written("t1")
        assert first.claim is not None
        assert (first.claim.turn, first.claim.epoch, first.claim.seq) == ("t1", 1, len(draft.facts))
        assert (first.claim.crashed, first.claim.waiting) == (False, [])
        assert await store.is_driven("t1")
        assert await other_store.is_driven("t1")
        await store.append(first.claim, draft.answer(), draft.status)
        assert len(await other_store.facts("t1")) == len(draft.facts)
        assert [span.owner for span in await store.claim_spans("t1")][-1] == store.owner
        await store.release(first.claim)
        assert second.claim is not None
        await store.release(second.claim)
        assert _ids(await other_store.due(NOW)) == ["t2"]

    async def test_drivers_that_claim_at_once_share_the_due_turns(self, bench: Bench) -> None:
        """No turn is claimed twice, and none is left."""
        stores = [await bench.open() for _ in range(3)]
        names = [f"t{number:02}" for number in range(12)]
        await _queue(stores[0], *names)
        claimed_ids: list[str] = []

        async def work(store: Store) -> None:
            while due_turns := await store.due(NOW, limit=2, claim=True):
                assert all(turn.claim is not None for turn in due_turns)
                claimed_ids.extend(_ids(due_turns))
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as group:
            for store in stores:
                group.start_soon(work, store)
        assert sorted(claimed_ids) == names

    async def test_a_turn_of_a_dead_driver_is_due(self, bench: Bench, store: Store) -> None:
        """Its claim says that the driver crashed. A released turn is due too, and one that is driven is not."""
        await Written("t1").create(store)
        await store.release(await Written("t2").create(store))
        other_store = await bench.open()
        assert _ids(await other_store.due(NOW)) == ["t2"]
        await bench.bury(store)
        due_turns = await other_store.due(NOW, claim=True)
        assert _ids(due_turns) == ["t1", "t2"]
        assert [turn.claim and turn.claim.crashed for turn in due_turns] == [True, False]

    async def test_a_paused_turn_is_due_with_a_request_or_an_expiry(self, store: Store, other_store: Store) -> None:
        """An answer and an abort are requests, a message is none. The first expiry counts."""
        for name, expiries in {"t1": (None,), "t2": (None, EXPIRY, EXPIRY + 9), "t3": (None,), "t4": (None,)}.items():
            await store.release(await _pause(store, name, *expiries))
        assert (await other_store.get("t2")).status.expires_at == EXPIRY
        assert (await other_store.get("t1")).status.expires_at is None
        await _queue(store, "t5")
        assert _ids(await other_store.due(EXPIRY - 1)) == ["t5"]
        assert _ids(await other_store.due(EXPIRY)) == ["t2", "t5"]
        await store.post(InboxItem("t4", "abort", InboxKind.ABORT))
        await store.post(InboxItem("t3", "steer:1", InboxKind.STEER))
        await store.post(InboxItem("t1", "answer:1", InboxKind.ANSWER))
        await store.post(InboxItem("t1", "steer:1", InboxKind.STEER))
        assert _ids(await other_store.due(EXPIRY - 1)) == ["t1", "t4", "t5"]
        due_turns = await other_store.due(EXPIRY, limit=3, claim=True)
        assert _ids(due_turns) == ["t1", "t2", "t4"]
        assert [len(turn.claim.waiting) for turn in due_turns if turn.claim is not None] == [2, 0, 1]

    async def test_a_turn_is_due_again_after_its_pause(self, store: Store) -> None:
        """The row follows each append, also under another claim. An ended turn is never due."""
        draft = Written()
        claim = await draft.create(store)
        await store.append(claim, draft.pause(), draft.status)
        await store.release(claim)
        assert await store.due(NOW) == []
        claim = await store.claim("t1")
        await store.release(claim)
        assert await store.due(NOW) == []
        claim = await store.claim("t1")
        (interrupt,) = draft.machine.turn.interrupts
        await store.append(claim, draft.approve(interrupt), draft.status)
        await store.release(claim)
        assert _ids(await store.due(NOW)) == ["t1"]
        (due_turn,) = await store.due(NOW, claim=True)
        assert due_turn.claim is not None
        await store.append(due_turn.claim, draft.abort(), draft.status)
        await store.post(InboxItem("t1", "abort", InboxKind.ABORT))
        await store.release(due_turn.claim)
        assert await store.due(NOW) == await store.due(NOW, claim=True) == []

    async def test_sub_turns_are_not_due(self, store: Store) -> None:
        """The driver of the root turn drives them."""
        await _queue(store, "t1", "t1:call00001", "t1:call00001:call00001")
        await store.post(InboxItem("t1:call00001", "abort", InboxKind.ABORT))
        assert _ids(await store.due(NOW)) == _ids(await store.due(NOW, claim=True)) == ["t1"]

    async def test_a_turn_that_was_just_written_to_is_not_idle(self, store: Store) -> None:
        """`idle` is the time without writes."""
        await _queue(store, "t1")
        claim = await Written("t2").create(store)
        await store.append(claim, (), Written("t2").status)
        await store.release(claim)
        last_write = (await store.get("t1")).updated_at
        assert _ids(await store.due(last_write + 59, idle=60)) == []
        assert "t1" in _ids(await store.due(last_write + 60, idle=60))
        assert _ids(await store.due(time.time() + 61, idle=60, claim=True)) == ["t1", "t2"]
