"""The store in a SQLite file, held against the suite of all stores, and what is its own."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from turnwright.errors import ConfigError, StoreError
from turnwright.store import SqliteStore, Store
from turnwright.testing.store_suite import StoreSuite, Written

pytestmark = pytest.mark.anyio


class SqliteBench:
    """One file. Each handle has a lock of its own, as each process has."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.opened: list[Store] = []

    async def open(self) -> Store:
        self.opened.append(SqliteStore(self.path, durability="normal"))
        return self.opened[-1]

    async def bury(self, store: Store) -> None:
        """Take away the files of the locks: their owner cannot be told from a dead one any more."""
        assert store in self.opened
        for lock in self.path.parent.glob(f"{self.path.name}-owner-*"):
            lock.unlink()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[SqliteBench]:
    bench = SqliteBench(tmp_path / "turns.db")
    yield bench
    for store in bench.opened:
        await store.aclose()


class TestSqliteStore(StoreSuite):
    """The suite, over the fixture `bench` above."""


async def test_others_may_write_to_it(bench: SqliteBench) -> None:
    """So whoever drives looks at the inbox now and then."""
    assert (await bench.open()).shared


async def test_a_closed_store_leaves_no_lock_behind(bench: SqliteBench) -> None:
    store = await bench.open()
    await Written().create(store)
    assert list(bench.path.parent.glob("*-owner-*"))
    await store.aclose()
    assert not list(bench.path.parent.glob("*-owner-*"))


async def test_closing_is_as_good_as_dying(bench: SqliteBench) -> None:
    """A turn that was not let go of looks crashed to the next process."""
    store = await bench.open()
    await Written().create(store)
    await store.aclose()
    assert (await (await bench.open()).claim("t1")).crashed


async def test_a_journal_outlives_its_process(bench: SqliteBench) -> None:
    store, written = await bench.open(), Written()
    claim = await written.create(store)
    await store.append(claim, written.answer(), written.status)
    await store.aclose()
    assert await (await bench.open()).facts("t1") == list(enumerate(written.facts, start=1))


async def test_a_closed_store_raises_its_own_error(bench: SqliteBench) -> None:
    store = await bench.open()
    await store.aclose()
    with pytest.raises(StoreError, match=r"turns\.db"):
        await store.turns()


@pytest.mark.parametrize("payload", ["no JSON", '{"v":99}', '{"v":1,"number":"many"}'])
async def test_a_fact_that_cannot_be_read_is_the_stores_error(bench: SqliteBench, payload: str) -> None:
    """`StoreError`, as for everything that cannot be read; it names the fact."""
    store = await bench.open()
    await Written().create(store)
    with closing(sqlite3.connect(bench.path)) as other:
        other.execute("UPDATE facts SET payload = ? WHERE seq = 2", (payload,))
        other.commit()
    with pytest.raises(StoreError, match="fact 2"):
        await store.facts("t1")


async def test_a_failed_append_writes_nothing(bench: SqliteBench) -> None:
    """Not the status either: it is one transaction."""
    store, written = await bench.open(), Written()
    claim = await written.create(store)
    before, status = list(written.facts), written.status
    with closing(sqlite3.connect(bench.path)) as other:
        other.execute("CREATE TRIGGER f BEFORE INSERT ON facts WHEN NEW.seq = 5 BEGIN SELECT RAISE(FAIL, 'full'); END")
        other.commit()
    with pytest.raises(StoreError, match="full"):
        await store.append(claim, written.answer(), written.status)
    assert await store.facts("t1") == list(enumerate(before, start=1))
    assert (await store.get("t1")).status == status
    assert claim.seq == len(before)


def test_a_place_that_cannot_be_used_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, whatever its name says. " * 50)
    for path in (tmp_path / "missing" / "turns.db", tmp_path, tmp_path / "text.db"):
        with pytest.raises(ConfigError, match=path.name):
            SqliteStore(path)


def test_a_file_of_a_newer_release_is_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "turns.db")) as newer:
        newer.execute("PRAGMA user_version = 99")
    with pytest.raises(ConfigError, match="newer release"):
        SqliteStore(tmp_path / "turns.db")


async def test_readers_need_not_wait_for_the_writer(bench: SqliteBench) -> None:
    """The file is in WAL mode, for every process that opens it."""
    await bench.open()
    with closing(sqlite3.connect(bench.path)) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
