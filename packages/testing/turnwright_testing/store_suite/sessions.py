"""The contract of a store for sessions: listed with their titles, page by page, and deleted whole."""

from typing import Final

import pytest

from turnwright.errors import SessionNotFoundError, TurnBusyError, TurnNotFoundError
from turnwright.store import InboxItem, InboxKind, SessionInfo, Store

from .bench import NOW, StoreFacts, Written

_HOUR: Final = 3600


async def _write_ended(store: Store, turn_id: str, session: str | None, *, age: float = 0, title: str = "") -> None:
    """Write a turn that has ended."""
    draft = Written(turn_id, session=session, age=age, title=title)
    claim = await draft.create(store)
    await store.append(claim, draft.answer(), draft.status)
    await store.release(claim)


async def _write_paused(store: Store, turn_id: str, session: str | None) -> None:
    """Write a turn that waits, with something in its inbox."""
    draft = Written(turn_id, session=session)
    claim = await draft.create(store)
    await store.append(claim, draft.pause(), draft.status)
    await store.release(claim)
    await store.post(InboxItem(turn_id, "abort", InboxKind.ABORT))


async def _list_sessions(store: Store) -> list[str]:
    return [session.id for session in await store.sessions()]


class SessionFacts(StoreFacts):
    async def test_a_session_begins_with_its_first_turn_and_keeps_its_title(
        self, store: Store, other_store: Store
    ) -> None:
        """Times, turns and the open turn are those of its turns. Turns without a session are in no list."""
        assert await store.sessions() == []
        await _write_ended(store, "alone", None, title="Never shown")
        await _write_ended(store, "t1", "s1", age=_HOUR, title="The first prompt")
        await _write_paused(other_store, "t2", "s1")
        number = (await store.get("t2")).number
        updated_at = (await store.get("t2")).updated_at
        expected = SessionInfo("s1", "The first prompt", 2, NOW - _HOUR, updated_at, "t2", number)
        assert await store.sessions() == await other_store.sessions() == [expected]

    async def test_a_session_has_no_open_turn_once_its_last_turn_has_ended(self, store: Store) -> None:
        """The next turn is open from its creation, whether it is driven or not."""
        await _write_ended(store, "t1", "s1")
        assert [session.open_turn for session in await store.sessions()] == [None]
        draft = Written("t2", session="s1")
        await store.create(draft.new, draft.facts, draft.status, driven=False)
        assert [session.open_turn for session in await store.sessions()] == ["t2"]

    async def test_sub_turns_are_not_counted(self, store: Store) -> None:
        """They have no session of their own."""
        await _write_ended(store, "t1", "s1")
        await _write_ended(store, "t1:c1", None)
        assert [session.turns for session in await store.sessions()] == [1]

    async def test_a_title_can_be_replaced(self, store: Store, other_store: Store) -> None:
        """For all processes. A later turn does not change it."""
        await _write_ended(store, "t1", "s1", title="First")
        await other_store.set_title("s1", "Größe \N{GRINNING FACE} 'quoted' %s")
        await _write_ended(store, "t2", "s1", title="Second")
        assert [session.title for session in await store.sessions()] == ["Größe \N{GRINNING FACE} 'quoted' %s"]

    async def test_an_unknown_session_is_reported(self, store: Store) -> None:
        """A refused title is not kept for a later session of the name."""
        await _write_ended(store, "t1", "s1")
        for call in (store.set_title("s2", "Title"), store.delete_session("s2")):
            with pytest.raises(SessionNotFoundError, match="'s2'") as unknown:
                await call
            assert unknown.value.session == "s2"
        await _write_ended(store, "t2", "s2")
        assert {session.id: session.title for session in await store.sessions()} == {"s1": "", "s2": ""}

    async def test_sessions_are_listed_by_their_newest_turns_page_by_page(
        self, store: Store, other_store: Store
    ) -> None:
        """By the order of creation, not by the clock. Changes between two pages move only what changed."""
        for number in range(5):
            await _write_ended(store, f"t{number}", f"s{number}", age=number * _HOUR)
        await _write_ended(other_store, "again", "s1")
        assert await _list_sessions(other_store) == ["s1", "s4", "s3", "s2", "s0"]
        assert [session.id for session in await store.sessions(limit=2)] == ["s1", "s4"]
        pages: list[list[str]] = []
        before: int | None = None
        while page := await store.sessions(limit=2, before=before):
            pages.append([session.id for session in page])
            before = page[-1].number
            if len(pages) == 1:
                await _write_ended(other_store, "new", "s5")
                await other_store.delete("t2")
        assert pages == [["s1", "s4"], ["s3", "s0"]]
        assert await _list_sessions(store) == ["s5", "s1", "s4", "s3", "s0"]

    async def test_a_session_is_deleted_with_all_of_its_turns(self, store: Store, other_store: Store) -> None:
        """Sub-turns, facts, inboxes and the title are deleted too; turns of other sessions stay."""
        await _write_ended(store, "t1", "s1", title="Secret")
        await _write_ended(store, "t1:c1", None)
        await _write_paused(store, "t2", "s1")
        await _write_ended(store, "t10", "s10", title="Other")
        await _write_ended(store, "alone", None)
        assert await other_store.delete_session("s1") == 3  # noqa: PLR2004 (two turns and a sub-turn)
        assert {row.id for row in await store.turns()} == {"t10", "alone"}
        assert [session.title for session in await store.sessions()] == ["Other"]
        assert await store.inbox("t2") == []
        for handle in (store, other_store):
            with pytest.raises(TurnNotFoundError):
                await handle.facts("t1")
        await _write_ended(store, "t1", "s1", title="Anew")
        assert [(session.id, session.title, session.turns) for session in await other_store.sessions()][:1] == [
            ("s1", "Anew", 1)
        ]

    async def test_session_with_a_driven_turn_is_not_deleted(self, store: Store, other_store: Store) -> None:
        """Nothing of it is deleted, also while a sub-turn is driven."""
        await _write_ended(store, "t1", "s1", title="Kept")
        await _write_ended(store, "t1:c1", None)
        await _write_paused(store, "t2", "s1")
        for turn in ("t2", "t1:c1"):
            claim = await store.claim(turn)
            for handle in (store, other_store):
                with pytest.raises(TurnBusyError) as busy:
                    await handle.delete_session("s1")
                assert busy.value.turn == turn
            await store.release(claim)
        assert {row.id for row in await other_store.turns()} == {"t1", "t1:c1", "t2"}
        assert [(session.title, session.turns) for session in await other_store.sessions()] == [("Kept", 2)]
        assert await store.delete_session("s1") == 3  # noqa: PLR2004 (two turns and a sub-turn)

    async def test_a_session_ends_with_the_deletion_of_its_last_turn(self, store: Store, other_store: Store) -> None:
        """A turn that was deleted alone is not counted any more. The title is deleted with the last one."""
        await _write_ended(store, "t1", "s1", age=_HOUR, title="Title")
        await _write_ended(store, "t2", "s1")
        await _write_ended(store, "t2:c1", None)
        await other_store.delete("t1")
        assert [(session.title, session.turns, session.created_at) for session in await store.sessions()] == [
            ("Title", 1, NOW)
        ]
        assert await store.delete("t2") == 2  # noqa: PLR2004 (a turn and a sub-turn)
        assert await other_store.sessions() == []
        await _write_ended(other_store, "t3", "s1", title="Anew")
        assert [session.title for session in await store.sessions()] == ["Anew"]
