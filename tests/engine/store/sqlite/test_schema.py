"""The schema of a SQLite store: an older file is migrated on command only, and loses nothing.

This release has version 1. The steps to later versions are invented.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import anyio
import pytest

from turnwright.errors import ConfigError, LeaseLostError, SessionBusyError, StoreError
from turnwright.store import Claim, InboxItem, InboxKind, NewTurn, SqliteStore
from turnwright.store.sqlite.owner_lock import OwnerLock
from turnwright.store.sqlite.schema import SCHEMA, Schema, create_store
from turnwright_testing.store_suite import Written

pytestmark = pytest.mark.anyio

_TABLES = ("turns", "facts", "inbox", "sessions")


def _label_turns(db: sqlite3.Connection) -> None:
    db.execute("UPDATE turns SET label = upper(turn_id)")


#: The schema of a later release, with two invented steps: statements, and a function.
_LATER_SCHEMA = Schema(
    create_store,
    "ALTER TABLE turns ADD COLUMN label TEXT; CREATE INDEX turns_by_label ON turns (label);",
    _label_turns,
)
OLDER, LATER = SCHEMA.version, _LATER_SCHEMA.version


class LaterStore(SqliteStore):
    """A store of that release."""

    _schema = _LATER_SCHEMA


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of this release: an ended turn, one with an inbox in a session, and one whose driver died."""
    path = tmp_path / "turns.db"
    anyio.run(_fill, path)
    return path


async def _fill(path: Path) -> None:
    store = SqliteStore(path, durability="normal")
    ended, waits = Written("ended"), Written("waits", session="s1")
    claim = await ended.create(store)
    await store.append(claim, ended.answer(), ended.status)
    await store.release(claim)
    await store.release(await waits.create(store))
    await store.post(InboxItem("waits", "b", InboxKind.STEER), InboxItem("waits", "a", InboxKind.STEER))
    await Written("crashed").create(store)
    await store.aclose()


@pytest.fixture
async def later(path: Path) -> AsyncIterator[LaterStore]:
    """The older file, opened by the later release."""
    store = LaterStore(path, durability="normal")
    yield store
    await store.aclose()


def dump(path: Path, *tables: str) -> list[tuple[object, ...]]:
    """All rows of these tables, and the version, as another program reads them."""
    with closing(sqlite3.connect(path)) as connection:
        rows = [row for table in tables for row in connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2")]  # noqa: S608
        return [*rows, *connection.execute("PRAGMA user_version")]


async def test_older_file_is_refused_before_migration(later: LaterStore, path: Path) -> None:
    """It can be opened; every other call names the command, and changes nothing."""
    before = dump(path, *_TABLES)
    for call in (
        Written().create(later),
        later.claim("crashed"),
        later.release(Claim("crashed", epoch=1, seq=3)),
        later.facts("ended"),
        later.claim_spans("ended"),
        later.get("ended"),
        later.turns(),
        later.is_driven("crashed"),
        later.post(InboxItem("waits", "abort", InboxKind.ABORT)),
        later.inbox("waits"),
        later.delete("ended"),
    ):
        needs = f"store {path}: schema {OLDER}, .* needs {LATER}: run `turnwright migrate --store"
        with pytest.raises(ConfigError, match=needs):
            await call
    assert dump(path, *_TABLES) == before


async def test_refusal_of_an_older_file_names_the_address(later: LaterStore, path: Path) -> None:
    """An absolute path has four slashes."""
    with pytest.raises(ConfigError) as refused:
        await later.turns()
    assert str(refused.value).endswith(f"`turnwright migrate --store sqlite:///{path}`")
    assert f"sqlite:////{path.name}" not in str(refused.value)


async def test_migration_keeps_every_row(later: LaterStore, path: Path) -> None:
    """It takes each step once, in order. Only the epochs of claimed turns change."""
    *turns, _ = dump(path, "turns")
    facts = dump(path, "facts", "inbox", "sessions")[:-1]
    assert await later.migrate() == (OLDER, LATER)
    assert dump(path, "facts", "inbox", "sessions") == [*facts, (LATER,)]
    *migrated, _ = dump(path, "turns")
    assert migrated == [
        (number, name, *rest, epoch + 1, owner, live, str(name).upper())
        for number, name, *rest, epoch, owner, live in turns
        if isinstance(epoch, int)
    ]
    assert [item.id for item in await later.inbox("waits")] == ["b", "a"]


async def test_migrated_store_continues(later: LaterStore) -> None:
    """The migration ended all claims. A crash is still noticed, a session is still busy, numbers continue."""
    await later.migrate()
    rested, crashed = await later.claim("waits"), await later.claim("crashed")
    assert (rested.epoch, rested.crashed) == (3, False)
    assert (crashed.epoch, crashed.crashed) == (3, True)
    with pytest.raises(SessionBusyError, match="waits"):
        await Written("new", session="s1").create(later)
    await Written("new").create(later)
    assert (await later.get("new")).number == 4


async def test_migrated_file_has_the_schema_of_a_new_file(later: LaterStore, path: Path) -> None:
    """Tables and indexes, to the letter."""
    await later.migrate()
    await LaterStore(path.with_name("new.db")).aclose()

    def schema(file: Path) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(file)) as connection:
            return sorted(connection.execute("SELECT type, name, ifnull(sql, '') FROM sqlite_master").fetchall())

    assert schema(path) == schema(path.with_name("new.db"))


async def test_migration_runs_once(later: LaterStore, path: Path) -> None:
    """A handle that was opened before sees that another migrated, and there is nothing left to do."""
    other_store = LaterStore(path)
    assert await other_store.migrate() == (OLDER, LATER)
    rows = await other_store.turns()
    assert await later.turns() == rows
    assert await later.migrate() == (LATER, LATER)
    assert await later.turns() == rows
    await other_store.aclose()


async def test_migration_refuses_to_run_beside_a_driver(later: LaterStore, path: Path) -> None:
    """Its process has the older release. The error names the turn, and nothing changes until its release."""
    driver = OwnerLock(path)
    with closing(sqlite3.connect(path)) as older:
        older.execute("UPDATE turns SET owner = ? WHERE turn_id = 'waits'", (driver.take(),))
        older.commit()
    before = dump(path, *_TABLES)
    why = "turn waits is being driven by .*, a process of the older release: migrate when that process has ended$"
    with pytest.raises(ConfigError, match=why):
        await later.migrate()
    assert dump(path, *_TABLES) == before
    driver.release()
    assert await later.migrate() == (OLDER, LATER)


async def test_migration_fences_a_seemingly_dead_driver(path: Path) -> None:
    """Its next append fails. A turn that waits for its first driver keeps epoch 0."""
    older, later, draft = SqliteStore(path, durability="normal"), LaterStore(path), Written("driven")
    claim = await draft.create(older)
    queued = Written("queued")
    await older.create(NewTurn("queued", None, "Tidier", "scripted", 1.0), queued.facts, queued.status, driven=False)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE turns SET owner = '1-dead' WHERE turn_id = 'driven'")
        connection.commit()
    await later.migrate()
    assert {row.id: row.epoch for row in await later.turns(live=True)}["queued"] == 0
    with pytest.raises(LeaseLostError):
        await older.append(claim, draft.answer(), draft.status)
    with pytest.raises(ConfigError, match=r"newer release .*upgrade turnwright"):
        await older.facts("driven")
    await older.aclose()
    await later.aclose()


async def test_failed_migration_changes_nothing(later: LaterStore, path: Path) -> None:
    """It is one transaction: its first steps are undone with the one that failed."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE INDEX turns_by_label ON turns (agent)")
    before = dump(path, *_TABLES)
    with pytest.raises(StoreError, match=r"turns_by_label.*nothing was written"):
        await later.migrate()
    assert dump(path, *_TABLES) == before


async def test_newer_file_is_refused_by_every_call(path: Path) -> None:
    """By `migrate` too: only the newer release knows what is in it."""
    store = SqliteStore(path)
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 99")
    for call in (store.turns(), store.inbox("t1"), store.migrate(), Written().create(store)):
        with pytest.raises(ConfigError, match=rf"^store {path}: written by a newer release .*upgrade turnwright"):
            await call
    assert dump(path) == [(99,)]
    await store.aclose()


def test_newer_file_is_not_opened(tmp_path: Path) -> None:
    """Its bytes stay as they are."""
    with closing(sqlite3.connect(tmp_path / "turns.db")) as newer:
        newer.execute("PRAGMA user_version = 99")
    before = (tmp_path / "turns.db").read_bytes()
    with pytest.raises(ConfigError, match="newer release"):
        SqliteStore(tmp_path / "turns.db")
    assert (tmp_path / "turns.db").read_bytes() == before


def at_once(number: int, work: Callable[[], tuple[int, int]]) -> list[tuple[int, int]]:
    """Do the work in as many threads, which begin together."""
    barrier = Barrier(number)

    def begin(_: int) -> tuple[int, int]:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(number) as pool:
        return sorted(pool.map(begin, range(number)))


def migrate(path: Path) -> tuple[int, int]:
    """Open, migrate and close the store."""

    async def run() -> tuple[int, int]:
        store = LaterStore(path, durability="normal")
        try:
            return await store.migrate()
        finally:
            await store.aclose()

    return anyio.run(run)


def test_concurrent_migrations_run_the_steps_once(path: Path) -> None:
    """The others wait and find it done."""
    *rows, _ = dump(path, *_TABLES)
    assert at_once(4, lambda: migrate(path)) == [(OLDER, LATER), *[(LATER, LATER)] * 3]
    assert len(dump(path, *_TABLES)) == len(rows) + 1


@pytest.mark.parametrize("round_", range(5))
def test_new_file_may_be_opened_by_several_processes_at_once(tmp_path: Path, round_: int) -> None:
    """One process creates it, and none fails with a locked file."""
    assert at_once(6, lambda: migrate(tmp_path / f"{round_}.db")) == [(LATER, LATER)] * 6
