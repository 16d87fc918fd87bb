"""The summaries of a SQLite file: deleted words, search without an index, damaged journals."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from turnwright.journal.summarize import summarize_turns
from turnwright.store import SqliteStore
from turnwright.store.sqlite.summaries import create_search, numbers_with
from turnwright.store.summaries import TurnFilter
from turnwright_testing.store_suite import Written

pytestmark = pytest.mark.anyio


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "turns.db", durability="normal")
    yield store
    await store.aclose()


async def ended(store: SqliteStore, turn_id: str, prompt: str) -> None:
    draft = Written(turn_id, prompt=prompt)
    claim = await draft.create(store)
    await store.append(claim, draft.answer(), draft.status)
    await store.release(claim)


async def summarized(store: SqliteStore) -> None:
    assert await summarize_turns(store, store, str, limit=100)


async def test_deleted_words_are_removed_from_the_file(store: SqliteStore) -> None:
    """Neither in the texts nor in the index."""
    await ended(store, "t1", "a zyzzyva creeps")
    await ended(store, "t2", "a weevil creeps")
    await summarized(store)
    assert await store.delete("t1") == 1
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = store.path.read_bytes()
    assert b"zyzzyva" not in data
    assert b"weevil" in data


async def test_search_without_a_full_text_index_reads_the_texts(store: SqliteStore) -> None:
    """Python's SQLite may be built without FTS5. Then a search finds parts of texts."""
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.executescript("DROP TABLE search; CREATE TABLE search (prompt TEXT, answer TEXT, text TEXT)")
    for turn_id, prompt in (("t1", "100% of it"), ("t2", "Weevils")):
        await ended(store, turn_id, prompt)
    await summarized(store)
    for text, expected in (("EVIL", ["t2"]), ("0% of", ["t1"]), ("done", ["t2", "t1"]), ("%", ["t1"])):
        summaries = await store.find(TurnFilter(text=text), limit=9)
        assert [summary.row.id for summary in summaries] == (expected if text != "%" else []), text


@pytest.mark.parametrize("indexed", [True, False])
def test_text_search_works_with_and_without_an_index(indexed: bool) -> None:
    with closing(sqlite3.connect("")) as db:
        if indexed:
            create_search(db)
        else:
            db.execute("CREATE TABLE search (prompt TEXT, answer TEXT, text TEXT)")
        db.executemany("INSERT INTO search (rowid, text) VALUES (?, ?)", [(3, "Look up alpha"), (7, "100% of beta")])
        matched_numbers = [list(numbers_with(db, text)) for text in ("ALPHA", "up al", "gamma", "*", "")]
    assert matched_numbers == [[3], [3], [], [], []]


async def test_damaged_journal_is_summarized_as_damaged(store: SqliteStore) -> None:
    """Once. Its turn stays in the list, and counts."""
    await ended(store, "t1", "one")
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("UPDATE facts SET payload = 'nonsense' WHERE seq = 1")
    await summarized(store)
    (summary,) = await store.find(TurnFilter(), limit=9)
    assert (summary.summarized, summary.usage.tokens, bool(summary.fault)) == (True, 0, True)
    assert (await store.totals(TurnFilter())).turns == 1
    assert await store.unsummarized(limit=9) == []
