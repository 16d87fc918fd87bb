"""The contract of a store for inboxes: anybody posts, all of a post or nothing, and only the driver consumes."""

from collections.abc import Sequence
from dataclasses import replace

import anyio
import pytest

from turnwright.errors import TurnNotFoundError
from turnwright.store import Claim, InboxItem, InboxKind, Store

from .bench import Bench, StoreFacts, Written


def _answer(name: str, text: str = "yes", turn: str = "t1") -> InboxItem:
    return InboxItem(turn, name, InboxKind.ANSWER, f'{{"text": "{text}"}}')


class InboxFacts(StoreFacts):
    async def test_anybody_may_post_to_a_turn_that_is_driven(
        self, store: Store, other_store: Store, draft: Written, claim: Claim
    ) -> None:
        """A post needs no claim; each item stays until it is consumed, oldest first."""
        answer, abort = _answer("q-1", "é"), InboxItem("t1", "abort", InboxKind.ABORT)
        assert await other_store.post(answer) == ()
        assert await store.post(abort) == ()
        assert await store.inbox("t1") == [answer, abort]
        assert await store.append(claim, (), draft.status, ("q-1", "never posted")) == [abort]
        assert await other_store.inbox("t1") == [abort]
        assert claim.seq == len(draft.facts)

    async def test_an_inbox_that_was_empty_is_looked_at_again(
        self, store: Store, other_store: Store, draft: Written, claim: Claim
    ) -> None:
        """Each read returns the items that wait by then, from any sender and after any other write."""
        for handle in (store, other_store):
            assert await store.inbox("t1") == await store.inbox("t1") == []
            await handle.post(_answer("q-1"))
            assert await store.inbox("t1") == [_answer("q-1")]
            await store.append(claim, (), draft.status, ("q-1",))
        assert await store.inbox("t1") == []
        await store.release(claim)
        await store.delete("t1")
        await Written().create(other_store)
        await other_store.post(_answer("q-2"))
        assert await store.inbox("t1") == [_answer("q-2")]

    async def test_append_returns_the_waiting_items(
        self, store: Store, other_store: Store, draft: Written, claim: Claim
    ) -> None:
        """The append returns the waiting items of its own turn, oldest first, without those that it consumes."""
        await Written("t2").create(store)
        await other_store.post(_answer("q-2", turn="t2"))
        assert claim.waiting == await store.append(claim, draft.calls("read_file"), draft.status) == []
        await other_store.post(_answer("q-2", "é"))
        await store.post(_answer("q-1"))
        assert await store.append(claim, (), draft.status) == [_answer("q-2", "é"), _answer("q-1")]
        assert await store.append(claim, draft.abort(), draft.status, ("q-2",)) == [_answer("q-1")]
        assert await store.inbox("t1") == [_answer("q-1")]

    async def test_claim_has_the_waiting_items(self, store: Store, other_store: Store) -> None:
        """The claim has the waiting items, so that the new driver need not read the inbox."""
        await store.release(await Written().create(store))
        claim = await other_store.claim("t1")
        assert claim.waiting == []
        await other_store.release(claim)
        await store.post(_answer("q-2"), _answer("q-1"))
        assert (await other_store.claim("t1")).waiting == [_answer("q-2"), _answer("q-1")]

    async def test_the_same_item_is_there_once(self, store: Store, other_store: Store) -> None:
        """The same item can be posted repeatedly: it conflicts with nothing."""
        await Written().create(store)
        for handle in (store, other_store):
            assert await handle.post(_answer("q-1"), _answer("q-2"), _answer("q-1")) == ()
        assert await store.inbox("t1") == [_answer("q-1"), _answer("q-2")]

    async def test_the_inbox_outlives_its_driver(self, bench: Bench, store: Store, draft: Written) -> None:
        """The next driver receives an abort that was not consumed."""
        await draft.create(store)
        await store.post(InboxItem("t1", "abort", InboxKind.ABORT))
        await bench.bury(store)
        other_store = await bench.open()
        await other_store.claim("t1")
        assert [item.id for item in await other_store.inbox("t1")] == ["abort"]

    async def test_requests_are_found_by_kind(self, store: Store, other_store: Store) -> None:
        """The query takes one or several kinds, or none, and returns complete items that wait, of all turns."""
        draft = Written()
        claim = await draft.create(store)
        await Written("t2").create(store)
        assert await other_store.requests(InboxKind.ABORT) == []
        answers = [_answer("q-1"), _answer("q-2", "no", "t2")]
        steer = InboxItem("t2", "steer:1", InboxKind.STEER, "é")
        abort = InboxItem("t1", "abort", InboxKind.ABORT)
        for item in (*answers, steer, abort):
            await other_store.post(item)
        assert set(await store.requests(InboxKind.ANSWER)) == set(answers)
        assert await store.requests(InboxKind.STEER) == [steer]
        assert set(await store.requests(InboxKind.ABORT, InboxKind.ANSWER)) == {abort, *answers}
        assert len(await other_store.requests(*InboxKind)) == len([abort, steer, *answers])
        assert await store.requests() == []
        await other_store.post(replace(abort, turn="t2"))
        assert sorted(await store.requests(InboxKind.ABORT), key=lambda item: item.turn) == [
            abort,
            replace(abort, turn="t2"),
        ]
        await store.append(claim, (), draft.status, ("abort",))
        assert await store.requests(InboxKind.ABORT) == [replace(abort, turn="t2")]

    async def test_another_answer_gets_the_conflicting_item(self, store: Store, other_store: Store) -> None:
        """An item conflicts with one of the same id and another payload or kind; the first one stays."""
        await Written().create(store)
        first = _answer("q-1")
        await store.post(first)
        assert await other_store.post(_answer("q-1", "no")) == (first,)
        assert await store.post(InboxItem("t1", "q-1", InboxKind.STEER, first.payload)) == (first,)
        assert await other_store.inbox("t1") == [first]

    async def test_a_report_of_progress_replaces_the_earlier_one(self, store: Store, other_store: Store) -> None:
        """An item of the kind `progress` conflicts with none, and resumes no turn."""
        draft = Written()
        await store.release(await draft.create(store))
        for payload in ("1", "2", "2"):
            report = InboxItem("t1", "progress:result-1", InboxKind.PROGRESS, payload)
            assert await other_store.post(report, _answer("q-1"), report) == ()
            assert set(await store.inbox("t1")) == {report, _answer("q-1")}

    async def test_a_post_is_written_completely_or_not_at_all(self, store: Store) -> None:
        """One conflicting item keeps its whole post out."""
        await Written().create(store)
        first_item, two = _answer("q-1"), _answer("q-2")
        assert await store.post(first_item, two) == ()
        assert await store.post(_answer("q-0"), two, _answer("q-1", "no"), _answer("q-3")) == (first_item,)
        assert set(await store.post(_answer("q-0"), _answer("q-2", "no"), _answer("q-1", "no"))) == {first_item, two}
        assert await store.inbox("t1") == [first_item, two]
        assert await store.post(_answer("q-0"), two, _answer("q-3")) == ()
        assert await store.inbox("t1") == [first_item, two, _answer("q-0"), _answer("q-3")]

    @pytest.mark.parametrize("names", [("q-1",), ("q-1", "q-2")])
    async def test_of_two_posts_at_once_one_is_stored(self, bench: Bench, store: Store, names: Sequence[str]) -> None:
        """It is stored completely, even if the other has the opposite order; the error of the other shows it."""
        await Written().create(store)
        posts = [
            (store, tuple(_answer(name, "yes") for name in names)),
            (await bench.open(), tuple(_answer(name, "no") for name in reversed(names))),
        ]
        blocking_items: dict[tuple[InboxItem, ...], tuple[InboxItem, ...]] = {}

        async def post(handle: Store, items: tuple[InboxItem, ...]) -> None:
            blocking_items[items] = await handle.post(*items)

        async with anyio.create_task_group() as group:
            for handle, items in posts:
                group.start_soon(post, handle, items)
        (winner,) = (items for items, blocking in blocking_items.items() if not blocking)
        (loser,) = (items for items, blocking in blocking_items.items() if blocking)
        assert await store.inbox("t1") == list(winner)
        assert set(blocking_items[loser]) == set(winner)

    async def test_consumed_item_can_be_posted_again(self, store: Store, draft: Written, claim: Claim) -> None:
        """A consumed id accepts any payload: only waiting items are compared. The new item is last."""
        await store.post(_answer("q-1"), _answer("q-2"))
        await store.append(claim, (), draft.status, ("q-1",))
        assert await store.post(_answer("q-1", "no")) == ()
        assert await store.inbox("t1") == [_answer("q-2"), _answer("q-1", "no")]

    async def test_inbox_keeps_the_order_of_posts(self, store: Store, other_store: Store) -> None:
        """The order is that of the posts, for any ids and senders, in one post or in several."""
        await Written().create(store)
        items = [_answer(name) for name in ("z", "b", "a", "c", "Z", "10", "9", "é")]
        await store.post(items[0])
        await other_store.post(*items[1:4])
        await store.post(items[1], items[4])
        for item in items[5:]:
            await other_store.post(item)
        assert await store.inbox("t1") == items

    async def test_messages_to_a_running_turn_wait_in_line(self, store: Store) -> None:
        """Any number of messages wait beside answers and an abort; any text comes back."""
        await Written().create(store)
        items = [
            InboxItem("t1", "steer:1", InboxKind.STEER, "'\"\\ \u2028 é 漢 🙂\U0010ffff"),
            InboxItem("t1", "abort", InboxKind.ABORT),
            InboxItem("t1", "steer:2", InboxKind.STEER, "x" * 2**16),
        ]
        assert await store.post(*items) == ()
        assert await store.inbox("t1") == items

    async def test_a_post_of_nothing_does_nothing(self, store: Store) -> None:
        """An empty post has no conflict and no unknown turn."""
        assert await store.post() == ()

    async def test_a_post_is_for_one_turn(self, store: Store) -> None:
        """Items of two turns, or two that differ under one id, are a mistake of the program; nothing is written."""
        for turn_id in ("t1", "t2"):
            await Written(turn_id).create(store)
        for items in (
            (_answer("q-1"), _answer("q-1", turn="t2")),
            (_answer("q-1"), _answer("q-2"), _answer("q-1", "no")),
        ):
            with pytest.raises(ValueError, match=r"t1, t2|q-1"):
                await store.post(*items)
        assert await store.inbox("t1") == []
        assert await store.inbox("t2") == []

    async def test_nothing_is_posted_to_a_turn_that_is_not_there(self, store: Store) -> None:
        """The post raises `TurnNotFoundError`, and the inbox is empty."""
        with pytest.raises(TurnNotFoundError, match="nobody"):
            await store.post(_answer("q-1", turn="nobody"), _answer("q-2", turn="nobody"))
        assert await store.inbox("nobody") == []
