"""Two stores and a list of turns agree about sessions, whatever is created, ended, titled and deleted."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import anyio
from hypothesis import given
from hypothesis import strategies as st

from turnwright.errors import SessionBusyError, SessionNotFoundError, TurnNotFoundError
from turnwright.store import MemoryStore, SqliteStore, Store
from turnwright_testing.store_suite import Written

SESSIONS = st.sampled_from(["a", "b", "%", None])
TURNS = st.integers(0, 9).map(lambda number: f"t{number}")
#: What is done, with a session or a turn.
Deed: TypeAlias = tuple[str, str | None]
DEEDS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["end", "leave"]), SESSIONS),
        st.tuples(st.sampled_from(["title", "forget"]), SESSIONS.filter(bool)),
        st.tuples(st.just("delete"), TURNS),
    ),
    max_size=14,
)
#: The title and the turns of each session, the newest session first, and which turn is open.
Shown: TypeAlias = list[tuple[str, str, int, str | None]]


async def done(store: Store, deeds: list[Deed]) -> list[Shown]:
    """Do everything, and return the sessions after each deed."""
    rows: list[Shown] = []
    for number, (deed, name) in enumerate(deeds):
        try:
            if deed == "title":
                await store.set_title(name or "", f"title {number}")
            elif deed == "forget":
                await store.delete_session(name or "")
            elif deed == "delete":
                await store.delete(name or "")
            else:
                draft = Written(f"t{number}", session=name, title=f"prompt {number}")
                claim = await draft.create(store)
                if deed == "end":
                    await store.append(claim, draft.answer(), draft.status)
                await store.release(claim)
        except (SessionBusyError, SessionNotFoundError, TurnNotFoundError):
            pass
        rows.append(
            [(session.id, session.title, session.turns, session.open_turn) for session in await store.sessions()]
        )
    return rows


def expected(deeds: list[Deed]) -> list[Shown]:
    """Return the same from a list of turns: their number, their session, and whether they are open."""
    turns: list[tuple[int, str, bool]] = []
    titles: dict[str, str] = {}
    newest: dict[str, int] = {}
    rows: list[Shown] = []
    for number, (deed, name) in enumerate(deeds):
        if deed == "title" and name in titles:
            titles[name] = f"title {number}"
        elif deed == "forget":
            turns = [turn for turn in turns if turn[1] != name]
        elif deed == "delete":
            turns = [turn for turn in turns if f"t{turn[0]}" != name]
        elif deed in ("end", "leave") and name and not any(turn[1:] == (name, True) for turn in turns):
            turns.append((number, name, deed == "leave"))
            titles.setdefault(name, f"prompt {number}")
            newest[name] = number
        titles = {name: title for name, title in titles.items() if any(turn[1] == name for turn in turns)}
        rows.append(
            [
                (
                    name,
                    titles[name],
                    sum(turn[1] == name for turn in turns),
                    next((f"t{turn[0]}" for turn in turns if turn[1:] == (name, True)), None),
                )
                for name in sorted(titles, key=lambda name: -newest[name])
            ]
        )
    return rows


@given(DEEDS)
def test_every_store_lists_the_sessions_of_the_turns(deeds: list[Deed]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        makers: list[Callable[[], Store]] = [
            MemoryStore,
            lambda: SqliteStore(Path(folder) / "turns.db", durability="normal"),
        ]
        for make in makers:

            async def play(make: Callable[[], Store] = make) -> list[Shown]:
                store = make()
                rows = await done(store, deeds)
                await store.aclose()
                return rows

            assert anyio.run(play) == expected(deeds)
