"""The store in a SQLite file: the suite of all stores, and tests of its own."""

import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from tests.engine.store.outbox_facts import OutboxFacts
from tests.engine.store.summary_facts import SummaryFacts

from turnwright.errors import ConfigError, StoreError, TurnBusyError, UnreadableTurnError
from turnwright.store import InboxItem, InboxKind, SqliteStore, Store
from turnwright.store.annotations import Annotation, AnnotationKind, annotation_store
from turnwright_testing.faults import full_disk
from turnwright_testing.store_suite import StoreSuite, Written

pytestmark = pytest.mark.anyio


class SqliteBench:
    """One file. Each handle has a lock of its own, as each process has. `crowd`: see `SqliteStore`."""

    def __init__(self, path: Path, crowd: int | None = None) -> None:
        self.path = path
        self.crowd = crowd
        self.opened: list[Store] = []

    async def open(self) -> Store:
        self.opened.append(SqliteStore(self.path, durability="normal", crowd=self.crowd))
        return self.opened[-1]

    async def bury(self, store: Store) -> None:
        """Remove the lock files, so that their owner looks dead."""
        assert store in self.opened
        for lock in self.path.parent.glob(f"{self.path.name}-owner-*"):
            lock.unlink()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[SqliteBench]:
    bench = SqliteBench(tmp_path / "turns.db")
    yield bench
    for store in bench.opened:
        await store.aclose()


class TestSqliteStore(StoreSuite, SummaryFacts, OutboxFacts):
    """The suite, over the fixture `bench` above."""


async def test_sqlite_store_is_shared(bench: SqliteBench) -> None:
    """So drivers poll the inbox."""
    assert (await bench.open()).shared


async def test_closed_store_leaves_no_lock_behind(bench: SqliteBench) -> None:
    store = await bench.open()
    await Written().create(store)
    assert list(bench.path.parent.glob("*-owner-*"))
    await store.aclose()
    assert not list(bench.path.parent.glob("*-owner-*"))


async def test_closing_leaves_unreleased_turns_as_crashed(bench: SqliteBench) -> None:
    """A turn that was not released looks crashed to the next process."""
    store = await bench.open()
    await Written().create(store)
    await store.aclose()
    assert (await (await bench.open()).claim("t1")).crashed


async def test_journal_survives_the_process(bench: SqliteBench) -> None:
    store, draft = await bench.open(), Written()
    claim = await draft.create(store)
    await store.append(claim, draft.answer(), draft.status)
    await store.aclose()
    assert await (await bench.open()).facts("t1") == list(enumerate(draft.facts, start=1))


async def test_closed_store_raises_store_error(bench: SqliteBench) -> None:
    store = await bench.open()
    await store.aclose()
    with pytest.raises(StoreError, match=r"turns\.db: Cannot operate on a closed database\.; nothing was written"):
        await store.turns()


async def test_store_of_another_thread_explains_its_error(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "turns.db", durability="normal")
    methods: tuple[Callable[[], Awaitable[object]], ...] = (store.turns, store.aclose)
    for method in methods:
        with pytest.raises(StoreError, match=r"another thread .*: give each thread its own engine; nothing was"):
            await anyio.to_thread.run_sync(anyio.run, method)
    await store.aclose()


@pytest.mark.parametrize("payload", ["no JSON", '{"v":99}', '{"v":1,"number":"many"}'])
async def test_unreadable_fact_raises_store_error(bench: SqliteBench, payload: str) -> None:
    """`StoreError`, as for everything that cannot be read; it names the fact."""
    store = await bench.open()
    await Written().create(store)
    with closing(sqlite3.connect(bench.path)) as connection:
        connection.execute("UPDATE facts SET payload = substr(payload, 1, instr(payload, char(10))) || ?", (payload,))
        connection.commit()
    with pytest.raises(StoreError, match="fact 2"):
        await store.facts("t1")


async def test_facts_of_an_append_are_a_single_row(bench: SqliteBench) -> None:
    store, draft = await bench.open(), Written()
    await store.append(await draft.create(store), draft.answer(), draft.status)
    with closing(sqlite3.connect(bench.path)) as connection:
        kinds = [kinds for (kinds,) in connection.execute("SELECT kind FROM facts ORDER BY seq")]
    assert len(kinds) == 2
    assert ",".join(kinds).split(",") == [fact.kind for fact in draft.facts]
    assert len(draft.facts) > 2


async def test_failed_append_writes_nothing(bench: SqliteBench) -> None:
    """Not the status either: it is one transaction."""
    store, draft = await bench.open(), Written()
    claim = await draft.create(store)
    before, status = list(draft.facts), draft.status
    with closing(sqlite3.connect(bench.path)) as connection:
        connection.execute(
            "CREATE TRIGGER f AFTER INSERT ON facts WHEN NEW.seq = 3 BEGIN SELECT RAISE(FAIL, 'full'); END"
        )
        connection.commit()
    with pytest.raises(StoreError, match="full"):
        await store.append(claim, draft.answer(), draft.status)
    assert await store.facts("t1") == list(enumerate(before, start=1))
    assert (await store.get("t1")).status == status
    assert claim.seq == len(before)


@pytest.mark.parametrize("room", [0, 100, 5000, 20_000])
async def test_full_disk_rejects_an_append_and_the_store_stays_usable(bench: SqliteBench, room: int) -> None:
    """However much of it fitted: nothing is written, and once there is room the same append is."""
    store, draft = await bench.open(), Written()
    claim = await draft.create(store)
    before, status = list(draft.facts), draft.status
    facts = draft.answer("x" * 100_000)
    with (
        full_disk(bench.path.with_name("turns.db-wal").stat().st_size + room),
        pytest.raises(StoreError, match=r"turns\.db.*disk.*nothing was written"),
    ):
        await store.append(claim, facts, draft.status)
    for handle in (store, await bench.open()):
        assert await handle.facts("t1") == list(enumerate(before, start=1))
        assert (await handle.get("t1")).status == status
    await store.append(claim, facts, draft.status)
    assert await store.facts("t1") == list(enumerate(draft.facts, start=1))


async def test_store_created_on_a_full_disk_can_be_opened_later(bench: SqliteBench) -> None:
    """The empty rest of it counts as a new file."""
    for room in (0, 5000):
        with full_disk(room), pytest.raises(ConfigError, match=r"turns\.db.*disk"):
            await bench.open()
    await Written().create(await bench.open())


async def test_writer_times_out_on_a_locked_file(bench: SqliteBench) -> None:
    """Only writers wait, for as long as the store is patient; later it works."""
    store, other_store = SqliteStore(bench.path, patience=0.01), await bench.open()
    bench.opened.append(store)
    claim = await Written().create(store)
    with closing(sqlite3.connect(bench.path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        for call in (store.post(InboxItem("t1", "abort", InboxKind.ABORT)), store.release(claim), store.delete("t1")):
            with pytest.raises(StoreError, match=r"another process has locked it: try again.*nothing was written"):
                await call
        assert [row.id for row in await store.turns()] == ["t1"]
        assert await other_store.inbox("t1") == []
    await store.release(claim)


@pytest.mark.parametrize("crowd", [1, 3])
@pytest.mark.parametrize("kind", ["append", "release", "post", "claim", "delete", "annotate"])
async def test_locked_file_blocks_no_other_task(bench: SqliteBench, kind: str, crowd: int) -> None:
    """A call waits for the lock, alone or with the writes of others, and other tasks run meanwhile."""
    store = SqliteStore(bench.path, durability="normal", crowd=crowd)
    bench.opened.append(store)
    draft = Written()
    claim = await draft.create(store)
    ended = Written("t2")
    await store.release(await ended.create(store))

    async def call() -> None:
        if kind == "append":
            await store.append(claim, draft.calls("read_file"), draft.status)
        elif kind == "release":
            await store.release(claim)
        elif kind == "post":
            await store.post(InboxItem("t1", "abort", InboxKind.ABORT))
        elif kind == "claim":
            await store.claim("t2")
        elif kind == "delete":
            await store.delete("t2")
        else:
            await store.annotate(Annotation("t1", AnnotationKind.TAG, "urgent", None, "", 0.0))
        finished.set()

    finished = anyio.Event()
    with closing(sqlite3.connect(bench.path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            for _ in range(5):  # the call waits, and this task runs
                await anyio.sleep(0.001)
            assert not finished.is_set()
            assert [row.id for row in await store.turns()] == ["t2", "t1"]
            writer.rollback()
    assert finished.is_set()


async def test_canceled_append_to_a_locked_file_is_written(bench: SqliteBench) -> None:
    """An append that runs inline cannot be canceled, also where it has to wait after all; `inline` is false then."""
    store = await bench.open()
    assert isinstance(store, SqliteStore)
    draft = Written()
    claim = await draft.create(store)
    with closing(sqlite3.connect(bench.path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert store.inline
        async with anyio.create_task_group() as group:
            group.start_soon(store.append, claim, draft.calls("read_file"), draft.status)
            await anyio.sleep(0.001)
            assert not store.inline
            group.cancel_scope.cancel()
            writer.rollback()
    assert await store.facts("t1") == list(enumerate(draft.facts, start=1))
    assert store.inline


async def test_locked_new_file_is_waited_for_in_the_first_call(bench: SqliteBench) -> None:
    """Opening it in an event loop does not wait."""
    with closing(sqlite3.connect(bench.path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("CREATE TABLE x (y)")
        store = await bench.open()
        async with anyio.create_task_group() as group:
            group.start_soon(Written().create, store)
            await anyio.sleep(0.001)
            assert store.has("t1") is None
            writer.rollback()
    assert store.has("t1")
    assert [row.id for row in await store.turns()] == ["t1"]


async def test_invalid_utf8_affects_only_the_same_turn(bench: SqliteBench) -> None:
    """As another program may have written it."""
    store = await bench.open()
    for name in ("t1", "t2"):
        await Written(name).create(store)
    with closing(sqlite3.connect(bench.path)) as connection:
        connection.execute("UPDATE facts SET payload = CAST(x'ff' AS TEXT) WHERE turn = 1")
        connection.commit()
    with pytest.raises(StoreError, match="fact 1"):
        await store.facts("t1")
    assert len(await store.turns()) == 2
    with closing(sqlite3.connect(bench.path)) as connection:
        connection.execute("UPDATE turns SET agent = CAST(x'ff' AS TEXT) WHERE turn_id = 't1'")
        connection.commit()
    assert [row.id for row in await store.turns()] == ["t2", "t1"]


@pytest.mark.parametrize(
    ("damage", "methods"),
    [
        ("UPDATE facts SET payload = 'no JSON'", ["facts"]),
        ("UPDATE facts SET seq = -9", ["claim"]),
        ("UPDATE facts SET epoch = -1", ["claim_spans"]),
        ("UPDATE turns SET epoch = -1", ["get", "is_driven", "claim"]),
        ("UPDATE inbox SET kind = 'x'", ["inbox", "post", "claim"]),
    ],
)
async def test_damaged_data_is_reported_with_the_store(bench: SqliteBench, damage: str, methods: list[str]) -> None:
    store, item = await bench.open(), InboxItem("t1", "abort", InboxKind.ABORT)
    await store.release(await Written().create(store))
    await store.post(item)
    with closing(sqlite3.connect(bench.path)) as connection:
        connection.execute(damage)
        connection.commit()
    for method in methods:
        with pytest.raises(UnreadableTurnError, match=f"^store {bench.path}: turn t1: "):
            await getattr(store, method)(item if method == "post" else "t1")


async def test_damaged_file_raises_store_error(bench: SqliteBench) -> None:
    """It says so, instead of giving what is left as if it were all."""
    store, draft = await bench.open(), Written(prompt="x" * 200_000)
    await draft.create(store)
    await store.aclose()
    size = bench.path.stat().st_size
    with bench.path.open("r+b") as file:
        file.seek(size // 2)  # the schema is in the first pages
        file.write(b"\xff" * (size - size // 2))
    store = await bench.open()
    with pytest.raises(StoreError, match="the file is damaged"):
        await store.facts("t1")


@pytest.mark.parametrize("change", ["kind = 'dreamt'", "name = x'ff00'", "text = x'ff00'", "value = 'x'", "at = 'x'"])
async def test_damaged_annotation_names_the_turn(bench: SqliteBench, change: str) -> None:
    store, draft = await bench.open(), Written()
    await store.release(await draft.create(store))
    annotations = annotation_store(store)
    await annotations.annotate(Annotation("t1", AnnotationKind.TAG, "seen"))
    with closing(sqlite3.connect(bench.path, isolation_level=None)) as db:
        db.execute(f"UPDATE annotations SET {change}")  # noqa: S608 (constant)
    with pytest.raises(UnreadableTurnError, match="turn t1: an annotation is damaged: "):
        await annotations.annotations(["t1"])


async def test_missing_table_raises_store_error_with_a_remedy(bench: SqliteBench) -> None:
    store, draft = await bench.open(), Written()
    await store.release(await draft.create(store))
    await store.aclose()
    with closing(sqlite3.connect(bench.path)) as db:
        db.execute("DROP TABLE facts")
    store = await bench.open()
    with pytest.raises(StoreError, match="no such table: facts: the file is not as this release writes it: restore a"):
        await store.facts("t1")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
async def test_read_only_file_is_readable(bench: SqliteBench) -> None:
    """And a write fails with the reason."""
    store, draft = await bench.open(), Written()
    await store.release(await draft.create(store))
    await store.aclose()
    bench.path.chmod(0o400)
    store = await bench.open()
    assert await store.facts("t1") == list(enumerate(draft.facts, start=1))
    with pytest.raises(StoreError, match="give this user write access to the file"):
        await store.claim("t1")


async def test_new_file_is_readable_only_by_the_user(bench: SqliteBench) -> None:
    """It contains the prompts of users, and so does its log."""
    store = await bench.open()
    await Written().create(store)
    for name in ("turns.db", "turns.db-wal", "turns.db-shm"):
        assert bench.path.with_name(name).stat().st_mode & 0o777 == 0o600


async def test_opening_a_file_keeps_permissions_and_time(bench: SqliteBench) -> None:
    """A file that was made readable for others stays so, and is as old as it was."""
    await (await bench.open()).aclose()
    bench.path.chmod(0o640)
    os.utime(bench.path, (1, 1))
    await bench.open()
    now = bench.path.stat()
    assert (now.st_mode & 0o777, now.st_mtime) == (0o640, 1)


async def test_deleted_text_is_removed_from_the_file(bench: SqliteBench) -> None:
    store = await bench.open()
    await store.release(await Written(prompt="the word is XYZZY" * 2000).create(store))
    await store.delete("t1")
    await store.aclose()
    assert [path.name for path in bench.path.parent.iterdir()] == ["turns.db"]
    assert b"XYZZY" not in bench.path.read_bytes()


async def test_link_to_the_file_is_the_same_store(bench: SqliteBench) -> None:
    """Also for the locks: a process that uses the link sees the driver."""
    (bench.path.parent / "elsewhere").mkdir()
    link = bench.path.parent / "elsewhere" / "link.db"
    link.symlink_to(bench.path)
    store, other_store = await bench.open(), SqliteStore(link)
    bench.opened.append(other_store)
    claim = await Written().create(store)
    with pytest.raises(TurnBusyError):
        await other_store.claim("t1")
    await store.release(claim)
    await other_store.claim("t1")
    with pytest.raises(TurnBusyError):
        await store.claim("t1")


async def test_unencodable_name_raises_store_error(bench: SqliteBench) -> None:
    """As a command line may give it, in bytes that are not UTF-8."""
    store = await bench.open()
    for call in (store.get("\udcff"), store.inbox("\udcff"), store.post(InboxItem("\udcff", "abort", InboxKind.ABORT))):
        with pytest.raises(StoreError, match="surrogates"):
            await call


@pytest.mark.parametrize("crowd", [None, 0])
async def test_duplicate_id_is_reported_with_the_store(bench: SqliteBench, crowd: int | None) -> None:
    """Also where writes share a transaction."""
    bench.crowd = crowd
    store = await bench.open()
    await Written().create(store)
    with pytest.raises(StoreError, match=f"^store {bench.path}: turn t1 already exists"):
        await Written().create(store)


def test_unusable_path_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is not a database, whatever its name says. " * 50)
    for path in (tmp_path / "missing" / "turns.db", tmp_path, tmp_path / "text.db"):
        with pytest.raises(ConfigError, match=f"{path.name}.*: name a"):
            SqliteStore(path)


def test_database_of_another_program_is_left_unchanged(tmp_path: Path) -> None:
    """Not a byte of it changes."""
    with closing(sqlite3.connect(tmp_path / "theirs.db")) as theirs:
        theirs.execute("CREATE TABLE turns (theirs TEXT)")
    before = (tmp_path / "theirs.db").read_bytes()
    with pytest.raises(ConfigError) as refused:
        SqliteStore(tmp_path / "theirs.db")
    assert str(refused.value).startswith(f"store {tmp_path / 'theirs.db'}: this is another program's database")
    assert (tmp_path / "theirs.db").read_bytes() == before


async def test_readers_do_not_wait_for_the_writer(bench: SqliteBench) -> None:
    """The file is in WAL mode, for every process that opens it."""
    await bench.open()
    with closing(sqlite3.connect(bench.path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
