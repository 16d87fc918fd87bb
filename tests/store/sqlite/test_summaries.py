"""The summaries of a SQLite file: those of older releases, and what a file without them or their words has."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from turnwright.journal.summarize import summarize_turns
from turnwright.store import SqliteStore
from turnwright.store.sqlite.schema import SCHEMA_VERSION
from turnwright.store.sqlite.summaries import create_search, numbers_with
from turnwright.store.summaries import TurnFilter
from turnwright.testing.store_suite import Written

pytestmark = pytest.mark.anyio

_PATH = Path(__file__)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "turns.db", durability="normal")
    yield store
    await store.aclose()


async def ended(store: SqliteStore, turn_id: str, prompt: str) -> None:
    written = Written(turn_id, prompt=prompt)
    claim = await written.create(store)
    await store.append(claim, written.answer(), written.status)
    await store.release(claim)


async def summarized(store: SqliteStore) -> None:
    assert await summarize_turns(store, store, str, limit=100)


@pytest.mark.parametrize("older", [1, 2, 3])
async def test_turns_of_an_older_release_are_summarized(tmp_path: Path, older: int) -> None:
    """After the migration they are in the list. One that runs, or whose driver died, has no totals yet."""
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as old:
        old.executescript(_PATH.with_name(f"schema_{older}.sql").read_text())
    store = SqliteStore(path)
    await store.migrate()
    assert [one.row.id for one in await store.find(TurnFilter(), limit=9)] == ["a-late", "t-b", "t-a"]
    await summarized(store)
    found = await store.find(TurnFilter(), limit=9)
    assert {one.row.id: one.summarized for one in found} == {"a-late": False, "t-b": True, "t-a": True}
    assert [one.ended for one in await store.unsummarized(limit=9)] == []
    await store.aclose()


async def test_names_with_secrets_of_an_older_release_are_written_again(store: SqliteStore) -> None:
    """Until then they are not compared."""
    await ended(store, "t1", "Hello")
    await summarized(store)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("UPDATE summaries SET agent = 'password=hunter22'")
        other.executescript(f"""
            DROP TABLE tools;
            DROP INDEX summaries_by_agent;
            CREATE INDEX summaries_by_agent ON summaries (agent);
            ALTER TABLE summaries RENAME COLUMN names TO turn_id;
            ALTER TABLE summaries DROP COLUMN measures;
            PRAGMA user_version = {SCHEMA_VERSION - 3};
        """)
    await store.migrate()
    for agent in ("hunter", "Tidier"):
        assert await store.find(TurnFilter(agent=agent), limit=9) == []
    await summarized(store)
    (one,) = await store.find(TurnFilter(agent="Tidier"), limit=9)
    assert (one.row.id, one.prompt) == ("t1", "Hello")


async def test_no_word_of_a_deleted_turn_stays_in_the_file(store: SqliteStore) -> None:
    """Neither in the texts nor in the index."""
    await ended(store, "t1", "a zyzzyva creeps")
    await ended(store, "t2", "a weevil creeps")
    await summarized(store)
    assert await store.delete("t1") == 1
    with closing(sqlite3.connect(store.path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = store.path.read_bytes()
    assert b"zyzzyva" not in data
    assert b"weevil" in data


async def test_without_a_full_text_index_a_search_reads_the_texts(store: SqliteStore) -> None:
    """Python's SQLite may be built without FTS5. Then a search finds parts of texts."""
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.executescript("DROP TABLE search; CREATE TABLE search (prompt TEXT, answer TEXT, text TEXT)")
    for turn_id, prompt in (("t1", "100% of it"), ("t2", "Weevils")):
        await ended(store, turn_id, prompt)
    await summarized(store)
    for text, expected in (("EVIL", ["t2"]), ("0% of", ["t1"]), ("done", ["t2", "t1"]), ("%", ["t1"])):
        found = await store.find(TurnFilter(text=text), limit=9)
        assert [one.row.id for one in found] == (expected if text != "%" else []), text


@pytest.mark.parametrize("indexed", [True, False])
def test_texts_alone_are_searched_with_and_without_an_index(indexed: bool) -> None:
    with closing(sqlite3.connect("")) as db:
        if indexed:
            create_search(db)
        else:
            db.execute("CREATE TABLE search (prompt TEXT, answer TEXT, text TEXT)")
        db.executemany("INSERT INTO search (rowid, text) VALUES (?, ?)", [(3, "Look up alpha"), (7, "100% of beta")])
        found = [list(numbers_with(db, text)) for text in ("ALPHA", "up al", "gamma", "*", "")]
    assert found == [[3], [3], [], [], []]


async def test_a_damaged_journal_is_summarized_as_such(store: SqliteStore) -> None:
    """Once. Its turn stays in the list, and counts."""
    await ended(store, "t1", "one")
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("UPDATE facts SET payload = 'nonsense' WHERE seq = 1")
    await summarized(store)
    (one,) = await store.find(TurnFilter(), limit=9)
    assert (one.summarized, one.usage.tokens, bool(one.fault)) == (True, 0, True)
    assert (await store.totals(TurnFilter())).turns == 1
    assert await store.unsummarized(limit=9) == []
