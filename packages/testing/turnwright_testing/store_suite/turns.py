"""The contract of a store for turns: distinct, numbered, listed, and one live turn a session."""

import pytest

from turnwright.errors import SessionBusyError, TurnExistsError, TurnNotFoundError
from turnwright.store import InboxItem, InboxKind, Store

from .bench import StoreFacts, Written


class TurnFacts(StoreFacts):
    async def test_an_unknown_turn_is_said_to_be_unknown(self, store: Store) -> None:
        """Every method that needs the turn raises `TurnNotFoundError`."""
        for call in (store.get, store.facts, store.claim_spans, store.claim, store.is_driven, store.delete):
            with pytest.raises(TurnNotFoundError, match="nobody"):
                await call("nobody")
        with pytest.raises(TurnNotFoundError, match="nobody"):
            await store.post(InboxItem("nobody", "abort", InboxKind.ABORT))

    async def test_a_store_that_knows_at_once_whether_a_turn_is_there_says_so(
        self, store: Store, draft: Written
    ) -> None:
        """`has` returns the truth, or None."""
        await draft.create(store)
        assert store.has("t1") in (True, None)
        assert store.has("nobody") in (False, None)

    async def test_a_turn_is_written_once(self, store: Store, draft: Written) -> None:
        """An existing id is refused, and the first turn stays unchanged."""
        await draft.create(store)
        with pytest.raises(TurnExistsError, match="turn t1 already exists") as refusal:
            await Written(prompt="other").create(store)
        assert refusal.value.turn == "t1"
        assert await store.facts("t1") == list(enumerate(draft.facts, start=1))

    async def test_a_session_has_one_live_turn(self, store: Store, other_store: Store) -> None:
        """A second one is refused, by every handle, and leaves no trace."""
        draft = Written("t1", session="s1")
        claim = await draft.create(store)
        for handle in (store, other_store):
            with pytest.raises(SessionBusyError, match="t1") as busy:
                await Written("t2", session="s1").create(handle)
            assert (busy.value.session, busy.value.turn) == ("s1", "t1")
            with pytest.raises(TurnNotFoundError):
                await handle.get("t2")
        await Written("t3", session="s2").create(store)
        await store.append(claim, draft.answer(), draft.status)
        await Written("t4", session="s1").create(other_store)

    async def test_a_turn_at_rest_is_live(self, store: Store, other_store: Store) -> None:
        """The paused turn has not ended, so its session is busy, although no process drives it."""
        draft = Written("t1", session="s1")
        claim = await draft.create(store)
        await store.append(claim, draft.pause(), draft.status)
        await store.release(claim)
        for handle in (store, other_store):
            with pytest.raises(SessionBusyError, match="t1"):
                await Written("t2", session="s1").create(handle)
            assert [row.id for row in await handle.turns(live=True)] == ["t1"]

    async def test_an_ended_turn_is_not_created_in_a_busy_session(self, store: Store) -> None:
        """An imported turn would be the session's last one, before the turn that is open."""
        await Written("t1", session="s1").create(store)
        ended_turn = Written("t2", session="s1")
        ended_turn.abort()
        with pytest.raises(SessionBusyError, match="t1"):
            await ended_turn.create(store)

    async def test_turns_without_a_session_are_in_nobodys_way(self, store: Store) -> None:
        """Any number of turns without a session may be live."""
        for turn_id in ("t1", "t2"):
            await Written(turn_id).create(store)
        assert len(await store.turns(live=True)) == 2  # noqa: PLR2004 (both)

    async def test_turns_are_listed_newest_first(self, store: Store) -> None:
        """The order is that of creation, with any clock. Filters: session, live or ended, and a maximum."""
        for turn_id, session, age in (("old", "s1", 10), ("mid", "s1", 20), ("new", "s2", 30)):
            draft = Written(turn_id, session=session, age=age)
            claim = await draft.create(store)
            if turn_id != "new":
                await store.append(claim, draft.answer(), draft.status)

        async def list_ids(
            session: str | None = None, *, live: bool | None = None, limit: int | None = None
        ) -> list[str]:
            return [row.id for row in await store.turns(session=session, live=live, limit=limit)]

        assert await list_ids() == ["new", "mid", "old"]
        assert await list_ids("s1") == ["mid", "old"]
        assert await list_ids(live=True) == ["new"]
        assert await list_ids(live=False) == ["mid", "old"]
        assert await list_ids("s1", live=True) == []
        assert await list_ids(limit=1) == ["new"]
        assert await list_ids("s1", limit=1) == ["mid"]
        assert await list_ids(live=False, limit=1) == ["mid"]
        assert await list_ids("s1", live=False, limit=5) == ["mid", "old"]

    async def test_turns_are_listed_page_by_page(self, store: Store, other_store: Store) -> None:
        """The turns before the last one of a page are the next page: none is missing, none comes twice."""
        for n in range(7):
            draft = Written(f"t{n}", session=f"s{n % 2}", age=n * 60)
            claim = await draft.create(store)
            if n < 5:  # noqa: PLR2004 (the others live)
                await store.append(claim, draft.answer(), draft.status)
            await store.release(claim)

        async def list_pages(
            limit: int, session: str | None = None, *, live: bool | None = None, meanwhile: str = ""
        ) -> list[list[str]]:
            pages: list[list[str]] = []
            before: int | None = None
            while page := await other_store.turns(session=session, live=live, limit=limit, before=before):
                pages.append([row.id for row in page])
                before = page[-1].number
                if meanwhile and len(pages) == 1:
                    await Written(meanwhile).create(store)
                    await store.delete("t6")
            return pages

        assert await list_pages(3) == [["t6", "t5", "t4"], ["t3", "t2", "t1"], ["t0"]]
        assert await list_pages(2, "s1") == [["t5", "t3"], ["t1"]]
        assert await list_pages(1, live=True) == [["t6"], ["t5"]]
        assert await list_pages(2, "s0", live=False) == [["t4", "t2"], ["t0"]]
        first = (await other_store.get("t0")).number
        assert await other_store.turns(before=first) == []
        assert [row.id for row in await other_store.turns(before=first + 1)] == ["t0"]
        assert await list_pages(3, meanwhile="new") == [["t6", "t5", "t4"], ["t3", "t2", "t1"], ["t0"]]
        assert await list_pages(6) == [["new", "t5", "t4", "t3", "t2", "t1"], ["t0"]]

    async def test_turns_are_numbered_in_order_of_creation(self, store: Store, other_store: Store) -> None:
        """Numbers rise in the order of creation, from any process, even if the clock goes back; none is used again."""
        numbers: list[int] = []
        for age, handle in enumerate((store, other_store, store, other_store)):
            await store.release(await Written(f"t{age}", age=age * 3600).create(handle))
            numbers.append((await store.get(f"t{age}")).number)
            if age == 1:
                await store.delete("t1")
        assert numbers == sorted(set(numbers))
        assert [row.number for row in await other_store.turns()] == [numbers[3], numbers[2], numbers[0]]
