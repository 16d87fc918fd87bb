"""The schema of a SQLite store: a file of an older release is migrated when somebody says so, and loses nothing."""

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import anyio
import pytest

from turnwright.errors import ConfigError, LeaseLostError, SessionBusyError, StoreError
from turnwright.store import Claim, InboxItem, InboxKind, SqliteStore
from turnwright.store.sqlite.owner_lock import OwnerLock
from turnwright.store.sqlite.schema import SCHEMA_VERSION
from turnwright.testing.store_suite import Written
from turnwright_states import State
from turnwright_states.facts import Notice

pytestmark = pytest.mark.anyio

#: What the releases of older schemas wrote: an ended turn, a paused one with answers in its inbox, and one whose driver
#: died. In schema 2 a fourth one was deleted, in schema 3 a fifth one too.
_OLDER = (1, 2, 3)
#: The first one that keeps times and statuses with the facts.
_LEAN = 3


@pytest.fixture(params=_OLDER)
def older(request: pytest.FixtureRequest) -> int:
    """An older schema."""
    version: int = request.param
    return version


@pytest.fixture
def path(tmp_path: Path, older: int) -> Path:
    """A file of that schema."""
    path = tmp_path / "turns.db"
    with closing(sqlite3.connect(path)) as old:
        old.execute("PRAGMA journal_mode=WAL")
        old.executescript(Path(__file__).with_name(f"schema_{older}.sql").read_text())
    return path


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """The older file, opened by this release."""
    store = SqliteStore(path, durability="normal")
    yield store
    anyio.run(store.aclose)


def dump(path: Path, *tables: str) -> list[tuple[object, ...]]:
    """All rows of these tables, and the version, as another program reads them."""
    with closing(sqlite3.connect(path)) as other:
        rows = [row for table in tables for row in other.execute(f"SELECT * FROM {table} ORDER BY 1, 2")]  # noqa: S608
        return [*rows, *other.execute("PRAGMA user_version")]


async def test_an_older_file_is_not_used_before_it_is_migrated(store: SqliteStore, path: Path, older: int) -> None:
    """It can be opened; all else says what to run, and changes nothing. An append needs a claim, which is refused."""
    before = dump(path, "turns", "facts", "inbox")
    written, claim = Written(), Claim("a-late", epoch=1, seq=3)
    for call in (
        written.create(store),
        store.claim("a-late"),
        store.release(claim),
        store.facts("t-a"),
        store.claim_spans("t-a"),
        store.get("t-a"),
        store.turns(),
        store.is_driven("a-late"),
        store.post(InboxItem("t-a", "abort", InboxKind.ABORT)),
        store.inbox("t-a"),
        store.delete("t-b"),
    ):
        with pytest.raises(
            ConfigError,
            match=f"store {path}: schema {older}, .* needs {SCHEMA_VERSION}: run `turnwright migrate --store",
        ):
            await call
    assert dump(path, "turns", "facts", "inbox") == before


def test_the_command_that_is_named_can_be_run(path: Path) -> None:
    """The address in it is that of this file: an absolute path has four slashes."""
    store = SqliteStore(path)
    with pytest.raises(ConfigError) as refused:
        anyio.run(store.turns)
    assert str(refused.value).endswith(f"`turnwright migrate --store sqlite:///{path}`")
    assert f"sqlite:////{path.name}" not in str(refused.value)
    anyio.run(store.aclose)


_TURNS = (
    "SELECT turn_id, session, agent, model, created_at, turns.owner, state, reason, steps, tool_calls, live FROM turns"
)
_ITEMS = "SELECT turn_id, id, kind, payload, at FROM inbox"
_FACTS = "SELECT turn_id, seq, kind, payload, at FROM facts"
_LEAN_TURNS = f"{_TURNS} JOIN facts ON turn = number WHERE seq = (SELECT max(seq) FROM facts WHERE turn = number)"  # noqa: S608 (constant)
_LEAN_FACTS = f"{_FACTS} JOIN turns ON turn = number"


def rows(path: Path, *queries: str) -> list[tuple[object, ...]]:
    """Return the sorted rows of these queries."""
    with closing(sqlite3.connect(path)) as other:
        return sorted((row for query in queries for row in other.execute(query)), key=repr)


#: The words of older journals, and those of today.
_WORDS = {
    '"history":[': '"message_history":[',
    '"continues":': '"continue_from":',
    '"context":{': '"metadata":{',
    '"calls_a_step":': '"max_calls_per_step":',
    '"decision":"grant"': '"decision":"approve"',
    '"status":"denied"': '"status":"rejected"',
    "halted": "turn_ended",
}


def in_words_of_today(value: object) -> object:
    """A column of a row, in the words of today."""
    for old, new in _WORDS.items():
        value = value.replace(old, new) if isinstance(value, str) else value
    return value


async def test_a_migration_keeps_everything(store: SqliteStore, path: Path, older: int) -> None:
    """Every row, fact and item of an inbox, in the words of today.

    Turns and items are numbered by their time, then by their id.
    """
    lean = (_LEAN_TURNS, _LEAN_FACTS, _ITEMS)
    found = rows(path, *(lean if older >= _LEAN else (_TURNS, _FACTS, _ITEMS)))
    before = sorted((tuple(map(in_words_of_today, row)) for row in found), key=repr)
    assert await store.migrate() == (older, SCHEMA_VERSION)
    assert rows(path, *lean) == before != found
    assert [(row.id, row.number) for row in await store.turns()] == [("a-late", 3), ("t-b", 2), ("t-a", 1)]
    assert [item.id for item in await store.inbox("t-a")] == ["a", "b", "z"]
    assert [len(await store.facts(turn_id)) for turn_id in ("t-a", "t-b", "a-late")] == [6, 6, 3]


async def test_a_migration_keeps_when_a_turn_was_last_written(store: SqliteStore, path: Path, older: int) -> None:
    """With its last fact, or after that: a status may have been written alone."""
    late = "facts SET at = 1800000000 WHERE turn = 1 AND seq = 6"
    if older < _LEAN:
        late = "turns SET updated_at = 1800000000 WHERE turn_id = 't-a'"
    with closing(sqlite3.connect(path)) as old:
        old.execute(f"UPDATE {late}")
        old.commit()
    await store.migrate()
    times = {row.id: row.updated_at for row in await store.turns()}
    assert times == {"t-a": 1_800_000_000, "t-b": 1_700_000_105, "a-late": 1_700_000_102}


async def test_a_migrated_store_goes_on(store: SqliteStore, older: int) -> None:
    """The migration ended all claims. A crash is still noticed, a session is still busy, numbers go on."""
    await store.migrate()
    rested, crashed = await store.claim("t-a"), await store.claim("a-late")
    assert (rested.epoch, rested.seq, rested.crashed) == (4, 6, False)
    assert (crashed.epoch, crashed.seq, crashed.crashed) == (3, 3, True)
    with pytest.raises(SessionBusyError, match="t-a"):
        await Written("new", session="s2").create(store)
    await Written("new").create(store)
    assert (await store.get("new")).number == 3 + older  # none is given twice: schema 2 gave a fourth
    await store.post(InboxItem("t-a", "0", InboxKind.STEER))
    assert [item.id for item in await store.inbox("t-a")] == ["a", "b", "z", "0"]


async def test_a_migration_gives_sessions_titles(store: SqliteStore) -> None:
    """Each has the beginning of its first prompt, and its turns as before."""
    await store.migrate()
    shown = [(one.id, one.title, one.turns, one.open_turn) for one in await store.sessions()]
    assert shown == [("s1", "hi", 1, "a-late"), ("s2", "é 🙂", 2, "t-a")]
    await store.delete_session("s1")
    await store.set_title("s2", "Title")
    assert [(one.id, one.title) for one in await store.sessions()] == [("s2", "Title")]


async def test_what_an_older_release_wrote_is_nobody_s(store: SqliteStore) -> None:
    """It did not keep who drove. Who continues with such a turn has a span of its own, from its first fact on."""
    await store.migrate()
    for turn_id in ("t-a", "t-b", "a-late"):
        assert await store.claim_spans(turn_id) == []
    claim, status = await store.claim("a-late"), (await store.get("a-late")).status
    facts = [Notice(elapsed=2, state=State.TOOL_EXEC, limit="steps")]
    await store.append(claim, facts, status)
    (span,) = await store.claim_spans("a-late")
    assert (span.first, span.epoch, span.owner) == (4, 3, store.owner)
    assert span.began == span.ended == (await store.get("a-late")).updated_at


async def test_a_migrated_file_is_as_a_new_one(store: SqliteStore, path: Path) -> None:
    """Tables and indexes, to the letter."""
    await store.migrate()
    await SqliteStore(path.with_name("new.db")).aclose()

    def schema(file: Path) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(file)) as other:
            rows = other.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        return sorted((kind, name, " ".join((sql or "").split())) for kind, name, sql in rows)

    assert schema(path) == schema(path.with_name("new.db"))


async def test_a_migration_is_done_once(store: SqliteStore, path: Path, older: int) -> None:
    """A handle that was opened before sees that another migrated, and there is nothing left to do."""
    other = SqliteStore(path)
    assert await other.migrate() == (older, SCHEMA_VERSION)
    rows = await other.turns()
    assert await store.turns() == rows
    assert await store.migrate() == (SCHEMA_VERSION, SCHEMA_VERSION)
    assert await store.turns() == rows
    await other.aclose()


async def test_nobody_migrates_under_a_driver(store: SqliteStore, path: Path, older: int) -> None:
    """Its process has the older release. The error names the turn, and nothing changes until its release."""
    driver = OwnerLock(path)
    with closing(sqlite3.connect(path)) as old:
        old.execute("UPDATE turns SET owner = ? WHERE turn_id = 't-a'", (driver.take(),))
        old.commit()
    before = dump(path, "turns", "facts", "inbox")
    said = "turn t-a is being driven by .*, a process of the older release: migrate when that process has ended$"
    with pytest.raises(ConfigError, match=said):
        await store.migrate()
    assert dump(path, "turns", "facts", "inbox") == before
    driver.release()
    assert await store.migrate() == (older, SCHEMA_VERSION)


async def test_a_driver_that_looked_dead_in_a_migration_has_lost_its_turn(store: SqliteStore, path: Path) -> None:
    """Its next append fails. A turn that waits for its first driver keeps epoch 0."""
    with closing(sqlite3.connect(path)) as old:
        old.execute("UPDATE turns SET epoch = 0, owner = NULL WHERE turn_id = 't-b'")
        old.commit()
    await store.migrate()
    assert (await store.get("t-b")).epoch == 0
    written, claim = Written(), Claim("a-late", epoch=1, seq=3)
    with pytest.raises(LeaseLostError):
        await store.append(claim, written.answer(), written.status)
    assert len(await store.facts("a-late")) == 3


async def test_a_migration_that_fails_changes_nothing(store: SqliteStore, path: Path, older: int) -> None:
    """It is one transaction; here, a table or a column is in its way that somebody else put there."""
    in_the_way = "ALTER TABLE facts ADD COLUMN owner TEXT" if older >= _LEAN else "CREATE TABLE facts_2 (theirs TEXT)"
    with closing(sqlite3.connect(path)) as other:
        other.execute(in_the_way)
    before = dump(path, "turns", "facts", "inbox")
    with pytest.raises(StoreError, match=r"(facts_2|owner).*nothing was written"):
        await store.migrate()
    assert dump(path, "turns", "facts", "inbox") == before


async def test_a_file_that_became_newer_is_left_alone(store: SqliteStore, path: Path) -> None:
    """By every method, `migrate` too: only the newer release knows what is in it."""
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 99")
    for call in (store.turns(), store.inbox("t1"), store.migrate(), Written().create(store)):
        with pytest.raises(ConfigError, match=rf"^store {path}: written by a newer release .*upgrade turnwright"):
            await call
    assert dump(path) == [(99,)]


async def test_a_file_that_becomes_newer_under_a_driver_is_left_alone(tmp_path: Path) -> None:
    """A migration ends its claim, and that is what an append asks for. Its other calls ask for the schema."""
    path, written = tmp_path / "turns.db", Written()
    store = SqliteStore(path, durability="normal")
    claim = await written.create(store)
    assert await store.inbox("t1") == await store.inbox("t1") == []
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 99")
        newer.execute("UPDATE turns SET epoch = epoch + 1")
        newer.commit()
    before = dump(path, "turns", "facts")
    with pytest.raises(LeaseLostError):
        await store.append(claim, written.answer(), written.status)
    for call in (store.inbox("t1"), store.claim("t1")):
        with pytest.raises(ConfigError, match=r"newer release .*upgrade turnwright"):
            await call
    assert dump(path, "turns", "facts") == before
    await store.aclose()


def test_a_file_of_a_newer_release_is_left_alone(tmp_path: Path) -> None:
    """It is not even opened."""
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


def migrated(path: Path) -> tuple[int, int]:
    """Open, migrate and close the store."""

    async def run() -> tuple[int, int]:
        store = SqliteStore(path, durability="normal")
        try:
            return await store.migrate()
        finally:
            await store.aclose()

    return anyio.run(run)


def test_of_several_that_migrate_at_once_one_does_it(path: Path, older: int) -> None:
    """The others wait and find it done."""
    done = at_once(4, lambda: migrated(path))
    assert done == [(older, SCHEMA_VERSION), *[(SCHEMA_VERSION, SCHEMA_VERSION)] * 3]
    assert len(dump(path, "turns", "facts", "inbox")) == 3 + 15 + 4 + 1


@pytest.mark.parametrize("round_", range(5))
def test_several_may_open_a_new_file_at_once(tmp_path: Path, round_: int) -> None:
    """One process creates it, and none fails with a locked file."""
    assert at_once(6, lambda: migrated(tmp_path / f"{round_}.db")) == [(SCHEMA_VERSION, SCHEMA_VERSION)] * 6
