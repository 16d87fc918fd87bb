"""The store in a PostgreSQL database: the suite of all stores, and tests of its own."""

import asyncio
import re
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from random import Random
from typing import Final, LiteralString, Self

import anyio
import psycopg
import pytest
from msgspec import structs
from tests.engine.store.outbox_facts import OutboxFacts
from tests.engine.store.summary_facts import SummaryFacts
from tests.servers.forked_python import Program, Python
from tests.servers.postgres_server import PostgresServer

from turnwright.errors import (
    ConfigError,
    LeaseLostError,
    SessionBusyError,
    StoreError,
    TurnNotFoundError,
    UnreadableTurnError,
)
from turnwright.store import Claim, InboxItem, InboxKind, NewTurn, Store
from turnwright.store.postgres.schema import SCHEMA, TABLES, Connection, Schema
from turnwright.store.postgres.store import PostgresStore
from turnwright_testing.store_suite import StoreSuite, Written

pytestmark = pytest.mark.anyio


class PostgresBench:
    """One schema. Each handle has a session of its own for its lock, as each process has. Every other one notifies."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.opened: list[PostgresStore] = []

    async def open(self) -> PostgresStore:
        store = PostgresStore(self.address, patience=5, notify=len(self.opened) % 2 == 1)
        self.opened.append(store)
        return store

    async def bury(self, store: Store) -> None:
        """End the session that holds its lock, as the server does when a process dies."""
        assert isinstance(store, PostgresStore)
        await self.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s",
            f"turnwright driver {store.owner}",
        )

    async def execute(self, statement: str, *parameters: object) -> list[tuple[object, ...]]:
        """Ask the server as an administrator would, behind the store's back."""
        async with await psycopg.AsyncConnection.connect(self.address, autocommit=True) as connection:
            cursor = await connection.execute(statement.encode(), parameters)
            return await cursor.fetchall() if cursor.description else []

    async def close(self) -> None:
        for store in self.opened:
            await store.aclose()


@pytest.fixture(scope="module")
def place(postgres_server: PostgresServer) -> str:
    """A schema with the tables of this release, which the tests take in turns."""
    address = postgres_server.new_schema()
    anyio.run(migrated, address)
    return address


async def migrated(address: str) -> tuple[int, int]:
    store = PostgresStore(address)
    versions = await store.migrate()
    await store.aclose()
    return versions


@pytest.fixture
async def bench(place: str) -> AsyncIterator[PostgresBench]:
    bench = PostgresBench(place)
    yield bench
    await bench.close()
    await bench.execute(
        "WITH t AS (DELETE FROM turnwright_turns), f AS (DELETE FROM turnwright_facts),"
        " s AS (DELETE FROM turnwright_sessions), m AS (DELETE FROM turnwright_summaries),"
        " w AS (DELETE FROM turnwright_search), x AS (DELETE FROM turnwright_failures),"
        " y AS (DELETE FROM turnwright_tools),"
        " a AS (DELETE FROM turnwright_annotations) DELETE FROM turnwright_inbox"
    )


class TestPostgresStore(StoreSuite, SummaryFacts, OutboxFacts):
    """The suite, over the fixture `bench` above."""


@pytest.fixture(scope="module")
def fragile() -> Iterator[PostgresServer]:
    """A server that tests stop and kill. They leave it running."""
    reason = PostgresServer.reason_missing()
    if reason is not None:
        pytest.skip(reason)
    with PostgresServer(fsync=False) as server:
        yield server


#: A process that says that it is there, waits for a word, claims the turn, and lives until it is killed.
_CLAIMER: Final = """
import sys, anyio
from turnwright.errors import TurnBusyError
from turnwright.store.postgres import PostgresStore

async def main():
    store = PostgresStore(sys.argv[1])
    await store.get("t1")
    print("there", flush=True)
    sys.stdin.readline()
    try:
        print((await store.claim("t1")).epoch, flush=True)
    except TurnBusyError:
        print("busy", flush=True)
    await anyio.sleep_forever()

anyio.run(main)
"""


class Claimers:
    """Child processes that claim the turn t1 of one store."""

    def __init__(self, python: Python, address: str, count: int, script: str = _CLAIMER) -> None:
        self._exits = ExitStack()
        self.children = [self._exits.enter_context(python.start("-c", script, address)) for _ in range(count)]
        assert [self.said(child) for child in self.children] == ["there"] * count

    def said(self, child: Program) -> str:
        return child.stdout.readline().strip()

    def claim(self) -> list[str]:
        """Let all of them claim at once; what each of them got."""
        for child in self.children:
            child.stdin.write("go\n")
        return [self.said(child) for child in self.children]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._exits.close()


async def test_simultaneous_claims_have_a_single_winner(bench: PostgresBench, python: Python) -> None:
    store = await bench.open()
    await store.release(await Written().create(store))
    with Claimers(python, bench.address, 2) as claimers:
        assert sorted(claimers.claim()) == ["2", "busy"]
        assert await store.is_driven("t1")


async def test_killed_process_drives_no_turn(bench: PostgresBench, python: Python) -> None:
    """As soon as the server has seen its socket closed, nobody has to wait any longer."""
    store = await bench.open()
    await store.release(await Written().create(store))
    with Claimers(python, bench.address, 1) as claimers:
        assert claimers.claim() == ["2"]
        claimers.children[0].end()
        while await store.is_driven("t1"):  # noqa: ASYNC110 (the server does not notify)
            await anyio.sleep(0.01)
        claim = await store.claim("t1")
        assert (claim.epoch, claim.crashed) == (3, True)


#: As above, and it forks a worker that lives until its input ends, while a transaction of its own is not at its end.
_FORKER: Final = """
import os, sys, anyio
from turnwright.store.postgres import PostgresStore

async def main():
    print("there", flush=True)
    sys.stdin.readline()
    store = PostgresStore(sys.argv[1])
    claim = await store.claim("t1")
    async with store._connections.transaction() as connection:
        await connection.execute("SELECT 1 FROM turnwright_turns FOR UPDATE")
        if os.fork() == 0:
            print(claim.epoch, flush=True)
        sys.stdin.read()
        os._exit(0)

anyio.run(main)
"""


async def test_worker_outliving_the_driver_holds_no_lock(bench: PostgresBench, python: Python) -> None:
    """Neither the lock of the driver, nor what its last transaction had locked; while the driver lives it has both."""
    store = await bench.open()
    await store.release(await Written().create(store))
    with Claimers(python, bench.address, 1, _FORKER) as claimers:
        assert claimers.claim() == ["2"]
        assert await store.is_driven("t1")
        claimers.children[0].end()
        with anyio.fail_after(60):
            while await store.is_driven("t1"):  # noqa: ASYNC110 (the server does not notify)
                await anyio.sleep(0.01)
            assert (await store.claim("t1")).crashed


async def test_lost_lock_is_taken_again_with_the_next_append(bench: PostgresBench) -> None:
    """Under the same name, so that its turns look driven again."""
    store, other_store, draft = await bench.open(), await bench.open(), Written()
    claim = await draft.create(store)
    owner = store.owner
    await bench.bury(store)
    assert not await other_store.is_driven("t1")
    await store.append(claim, draft.calls("read_file"), draft.status)
    assert await other_store.is_driven("t1")
    assert store.owner == owner


async def test_submitting_process_takes_no_lock(bench: PostgresBench) -> None:
    """A process that only submits turns needs no session for it."""
    store, draft = await bench.open(), Written()
    await store.create(draft.new, draft.facts, draft.status, driven=False)
    name = f"turnwright driver {store.owner}"
    assert await bench.execute("SELECT 1 FROM pg_stat_activity WHERE application_name = %s", name) == []


async def test_process_unable_to_regain_the_lock_takes_another_name(bench: PostgresBench) -> None:
    """As when the server has not noticed that the old session is gone: what that one claimed still looks driven."""
    store, draft = PostgresStore(bench.address, patience=1), Written()
    bench.opened.append(store)
    await store.release(await draft.create(store))
    owner = store.owner
    await bench.bury(store)
    async with await psycopg.AsyncConnection.connect(bench.address, autocommit=True) as ghost:
        await ghost.execute("SELECT pg_advisory_lock(hashtextextended('turnwright driver ' || %s, 0))", (owner,))
        await store.claim("t1")
        assert store.owner != owner
        assert await (await bench.open()).is_driven("t1")


async def test_simultaneous_checks_of_a_driver_agree(bench: PostgresBench) -> None:
    """None of them takes another's question for the driver's lock."""
    store = await bench.open()
    await Written().create(store)
    await bench.bury(store)
    answers: list[bool] = []

    async def ask(handle: PostgresStore) -> None:
        answers.extend([await handle.is_driven("t1") for _ in range(10)])

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(ask, await bench.open())
    assert answers == [False] * 40


@pytest.mark.slow
async def test_writes_during_canceled_reads_are_kept(bench: PostgresBench) -> None:
    """A connection that is given back in the middle of a pipeline queues the next statement, and never sends it."""
    store, other_store = await bench.open(), await bench.open()
    await store.release(await Written("read").create(store))
    draw = Random(1)  # noqa: S311 (nothing secret)

    async def cut_off() -> None:
        while True:
            with anyio.move_on_after(draw.uniform(0, 0.01)):
                while True:
                    await store.facts("read")

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(cut_off)
        for number in range(60):
            draft = Written(f"t{number}")
            claim = await draft.create(other_store)
            await other_store.release(claim)
            await store.release(await store.claim(f"t{number}"))
            assert (await other_store.get(f"t{number}")).owner is None
        group.cancel_scope.cancel()


async def test_simultaneous_turns_of_a_session_have_a_single_winner(bench: PostgresBench) -> None:
    """The other claim gets the driver's name."""
    claims: list[Claim] = []
    busy: list[SessionBusyError] = []

    async def create(handle: PostgresStore, turn_id: str) -> None:
        try:
            claims.append(await Written(turn_id, session="s1").create(handle))
        except SessionBusyError as refused:
            busy.append(refused)

    async with anyio.create_task_group() as group:
        for name in ("t1", "t2", "t3"):
            group.start_soon(create, await bench.open(), name)
    (winner,) = claims
    assert [(refused.session, refused.turn) for refused in busy] == [("s1", winner.turn)] * 2


@pytest.mark.slow
async def test_restarted_server_is_used_again(fragile: PostgresServer) -> None:
    """An append in between says that nothing was written; the next one finds its turn, and the process its lock."""
    address, draft = fragile.new_schema(), Written()
    await migrated(address)
    store, other_store = PostgresStore(address, patience=1), PostgresStore(address)
    claim = await draft.create(store)
    facts = draft.calls("read_file")
    fragile.stop()
    with pytest.raises(StoreError, match="nothing was written"):
        await store.append(claim, facts, draft.status)
    fragile.start()
    await store.append(claim, facts, draft.status)
    assert await store.facts("t1") == list(enumerate(draft.facts, start=1))
    assert await other_store.is_driven("t1")
    await store.aclose()
    await other_store.aclose()


@pytest.mark.slow
async def test_restarting_server_is_awaited(fragile: PostgresServer) -> None:
    """Within the timeout, a driver does not notice it."""
    address, draft = fragile.new_schema(), Written()
    await migrated(address)
    store = PostgresStore(address, patience=60)
    claim = await draft.create(store)
    fragile.kill()
    async with anyio.create_task_group() as group:
        group.start_soon(store.append, claim, draft.answer(), draft.status)
        await anyio.sleep(0.05)
        await anyio.to_thread.run_sync(fragile.start)
    assert await store.facts("t1") == list(enumerate(draft.facts, start=1))
    await store.aclose()


async def _blocked(bench: PostgresBench) -> None:
    """Wait until a statement waits for a lock that another session has."""
    while not await bench.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):  # noqa: ASYNC110 (the server does not notify)
        await anyio.sleep(0.005)


@pytest.mark.slow
async def test_append_with_a_lost_response_is_reported_as_unknown(fragile: PostgresServer) -> None:
    """Nobody knows whether the server wrote it; the error says so, and where to look."""
    bench, draft = PostgresBench(fragile.new_schema()), Written()
    store = await bench.open()
    await store.migrate()
    claim = await draft.create(store)
    failed: list[str] = []

    async def append() -> None:
        with pytest.raises(StoreError) as error:
            await store.append(claim, draft.answer(), draft.status)
        failed.append(str(error.value))

    async with anyio.create_task_group() as group:
        try:
            async with await psycopg.AsyncConnection.connect(bench.address) as connection:
                await connection.execute("SELECT 1 FROM turnwright_turns FOR UPDATE")
                group.start_soon(append)
                await _blocked(bench)
                fragile.kill()
        except psycopg.OperationalError:
            fragile.start()
    assert "not known whether" in failed[0]
    assert "nothing was written" not in failed[0]
    await bench.close()


@pytest.mark.parametrize("method", ["append", "post", "claim", "delete"])
async def test_canceled_task_leaves_a_clean_connection(bench: PostgresBench, method: str) -> None:
    """As asyncio cancels: nothing is written, and the only connection of the store can be used at once."""
    store, draft = PostgresStore(bench.address, connections=1), Written()
    bench.opened.append(store)
    claim = await draft.create(store)
    if method in {"claim", "delete"}:
        await store.release(claim)
    before, row = list(draft.facts), await store.get("t1")
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "append": lambda: store.append(claim, draft.calls("read_file"), draft.status),
        "post": lambda: store.post(InboxItem("t1", "abort", InboxKind.ABORT)),
        "claim": lambda: store.claim("t1"),
        "delete": lambda: store.delete("t1"),
    }
    async with await psycopg.AsyncConnection.connect(bench.address) as connection:
        await connection.execute("SELECT 1 FROM turnwright_turns FOR UPDATE")
        task = asyncio.ensure_future(calls[method]())
        await _blocked(bench)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await store.get("t1") == row
    assert await store.facts("t1") == list(enumerate(before, start=1))
    assert await store.inbox("t1") == []


async def test_started_write_is_finished_despite_cancellation(bench: PostgresBench) -> None:
    """As anyio cancels: the outcome of an append is known, a release is made, and a claim has the turn."""
    store, draft = await bench.open(), Written()
    claim = await draft.create(store)
    claims: list[Claim] = []
    ended: list[object] = []

    async def claim_anew() -> None:
        claims.append(await store.claim("t1"))

    async def append() -> None:
        await store.append(claim, draft.calls("read_file"), draft.status)

    async def release() -> None:
        await store.release(claim)

    async def make(call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        finally:
            ended.append(call)

    for count, call in enumerate((append, release, claim_anew)):
        async with (
            await psycopg.AsyncConnection.connect(bench.address) as connection,
            anyio.create_task_group() as group,
        ):
            await connection.execute("SELECT 1 FROM turnwright_turns FOR UPDATE")
            group.start_soon(make, call)
            await _blocked(bench)
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                for _ in range(5):  # meanwhile a call that is not shielded ends
                    await bench.execute("SELECT 1")
                assert len(ended) == count
                await connection.rollback()
    assert claim.seq == len(draft.facts)
    assert await store.facts("t1") == list(enumerate(draft.facts, start=1))
    assert [(claim.epoch, claim.crashed) for claim in claims] == [(2, False)]
    assert await store.is_driven("t1")


async def test_appends_continue_after_failed_appends(bench: PostgresBench) -> None:
    """The server skips the rest of a pipeline that fails, also the preparation of a statement."""
    store, draft = await bench.open(), Written()
    claim = await draft.create(store)
    calls = draft.calls("read_file")
    beyond = structs.replace(draft.status, steps=2**62)
    for _ in range(3):
        with pytest.raises(StoreError, match="out of range"):
            await store.append(replace(claim), calls, beyond)
        assert await store.append(claim, (), draft.status) == []


async def test_append_returns_messages_posted_during_the_wait(bench: PostgresBench) -> None:
    """A post that has the turn's row first is committed first, so its message waits once the append is made."""
    store, draft = await bench.open(), Written()
    claim, waiting = await draft.create(store), list[InboxItem]()

    async def append() -> None:
        waiting.extend(await store.append(claim, draft.calls("read_file"), draft.status))

    async with await psycopg.AsyncConnection.connect(bench.address) as connection, anyio.create_task_group() as group:
        await connection.execute("SELECT 1 FROM turnwright_turns FOR UPDATE")
        await connection.execute(
            "INSERT INTO turnwright_inbox (turn_id, id, kind, payload, at) VALUES ('t1', 'abort', 'abort', '{}', 1)"
        )
        group.start_soon(append)
        await _blocked(bench)
        await connection.commit()
    assert waiting == [InboxItem("t1", "abort", InboxKind.ABORT)]


async def test_claim_with_a_failed_commit_leaves_no_driver(postgres_server: PostgresServer) -> None:
    """Nor does a failed release: the next claim is marked as after a crash."""
    bench = PostgresBench(postgres_server.new_schema())
    store = await bench.open()
    await store.migrate()
    claim = await Written().create(store)
    await bench.execute("CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no room'; END $$")
    await bench.execute(
        "CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON turnwright_turns DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION fail()"
    )
    for call in (lambda: store.release(claim), lambda: store.claim("t1")):
        with pytest.raises(StoreError, match="no room"):
            await call()
        assert not await store.is_driven("t1")
    await bench.execute("DROP TRIGGER late ON turnwright_turns")
    claim = await store.claim("t1")
    assert (claim.epoch, claim.crashed) == (2, True)
    await bench.close()


async def test_unmigrated_store_is_refused(postgres_server: PostgresServer) -> None:
    """Opening it changes nothing in the database; the message says what to do."""
    bench, draft = PostgresBench(postgres_server.new_schema()), Written()
    store = await bench.open()
    item, claim = InboxItem("t1", "abort", InboxKind.ABORT), Claim("t1", 1, 1)
    for call in (
        lambda: store.get("t1"),
        lambda: store.facts("t1"),
        store.turns,
        lambda: store.inbox("t1"),
        lambda: store.is_driven("t1"),
        lambda: draft.create(store),
        lambda: store.claim("t1"),
        lambda: store.append(claim, (), draft.status),
        lambda: store.release(claim),
        lambda: store.post(item),
        lambda: store.delete("t1"),
    ):
        with pytest.raises(ConfigError, match="it has no tables of Turnwright yet: run `turnwright migrate"):
            await call()
    assert await bench.execute("SELECT 1 FROM pg_class WHERE relnamespace = current_schema()::regnamespace") == []
    await bench.close()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("DROP TABLE turnwright_turns", 'relation "turnwright_turns" does not exist'),
        ("ALTER TABLE turnwright_turns DROP COLUMN model", 'column "model" does not exist'),
        ("UPDATE turnwright_schema SET version = NULL", "its schema version is None"),
        ("DELETE FROM turnwright_schema", 'relation "turnwright_inbox" already exists'),
    ],
)
async def test_damaged_tables_are_named(postgres_server: PostgresServer, change: LiteralString, why: str) -> None:
    """A migration cannot mend them, so no error advises one again."""
    bench = PostgresBench(postgres_server.new_schema())
    try:
        store = await bench.open()
        await store.migrate()
        await bench.execute("ALTER TABLE turnwright_schema ALTER version DROP NOT NULL")
        await bench.execute(change)
        damage = f"{re.escape(why)}: the tables are not as this release writes them: restore a copy$"
        with pytest.raises(StoreError, match=damage):
            await (store.migrate() if change.startswith("DELETE") else store.turns())
    finally:
        await bench.close()


async def test_simultaneous_migrations_run_once(postgres_server: PostgresServer) -> None:
    """The other waits, and finds it done."""
    address = postgres_server.new_schema()
    versions: list[tuple[int, int]] = []

    async def migrate_it() -> None:
        versions.append(await migrated(address))

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(migrate_it)
    done = (SCHEMA.version, SCHEMA.version)
    assert sorted(versions) == [(0, SCHEMA.version), done, done]
    assert await migrated(address) == done


async def test_started_migration_is_finished_despite_cancellation(postgres_server: PostgresServer) -> None:
    bench = PostgresBench(postgres_server.new_schema())
    store, versions = await bench.open(), list[tuple[int, int]]()

    async def migrate_it() -> None:
        versions.append(await store.migrate())

    async with await psycopg.AsyncConnection.connect(bench.address) as connection, anyio.create_task_group() as group:
        await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('turnwright migrate', 0))")
        group.start_soon(migrate_it)
        await _blocked(bench)
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await connection.rollback()
    assert versions == [(0, SCHEMA.version)]
    await bench.close()


async def test_store_of_a_newer_release_is_refused(postgres_server: PostgresServer) -> None:
    bench = PostgresBench(postgres_server.new_schema())
    store = await bench.open()
    await store.migrate()
    await bench.execute("UPDATE turnwright_schema SET version = 99")
    for call in (store.turns, store.migrate, lambda: store.claim("t1")):
        with pytest.raises(ConfigError, match=f"^store {store.place}: written by a newer release.*upgrade turnwright"):
            await call()
    await bench.close()


async def test_older_store_is_migrated_without_drivers(postgres_server: PostgresServer) -> None:
    """Until then the later release refuses each call; a driver of the older release would write as before."""
    bench, draft = PostgresBench(postgres_server.new_schema()), Written()
    store = await bench.open()
    await store.migrate()
    claim = await draft.create(store)
    later = LaterStore(bench.address, patience=5)
    bench.opened.append(later)
    for call in (later.turns, lambda: later.claim("t1"), lambda: later.claim_spans("t1")):
        with pytest.raises(ConfigError, match=rf"schema {OLDER}, this release needs {LATER}: run `turnwright migrate"):
            await call()
    why = f"turn t1 is being driven by {store.owner}, a process of the older release: migrate when that process has"
    with pytest.raises(ConfigError, match=why):
        await later.migrate()
    await store.release(claim)
    assert await later.migrate() == (OLDER, LATER)
    assert await later.migrate() == (LATER, LATER)
    assert await later.facts("t1") == list(enumerate(draft.facts, start=1))
    assert await bench.execute("SELECT label FROM turnwright_turns") == [("T1",)]
    await bench.close()


def test_error_for_an_older_store_differs_from_an_empty_database() -> None:
    """Both name the command."""
    older = f"schema {OLDER}, this release needs {LATER}"
    for version, problem in (
        (OLDER, older),
        (0, "it has no tables of Turnwright"),
    ):
        message = str(LATER_SCHEMA.older(version, "postgresql://host/db"))
        assert message.startswith(f"store postgresql://host/db: {problem}")
        assert message.endswith("run `turnwright migrate --store ...` with the same address")


async def _label_turns(connection: Connection) -> None:
    await connection.execute("UPDATE turnwright_turns SET label = upper(turn_id)")


#: The schema of a later release, with two invented steps: statements, and a function.
LATER_SCHEMA: Final = Schema(TABLES, "ALTER TABLE turnwright_turns ADD COLUMN label text;", _label_turns)
OLDER, LATER = SCHEMA.version, LATER_SCHEMA.version


class LaterStore(PostgresStore):
    """A store of that release."""

    _schema = LATER_SCHEMA


async def test_migration_fences_a_driver_with_a_lost_lock(postgres_server: PostgresServer) -> None:
    """Later reads fail and ask for an upgrade. A turn that waits for its first driver keeps epoch 0."""
    bench, draft = PostgresBench(postgres_server.new_schema()), Written()
    store = await bench.open()
    await store.migrate()
    claim = await draft.create(store)
    queued = NewTurn("queued", None, "Tidier", "scripted", 1.0)
    await store.create(queued, Written("queued").facts, draft.status, driven=False)
    await bench.execute("UPDATE turnwright_turns SET owner = '1-dead' WHERE turn_id = 't1'")
    later = LaterStore(bench.address, patience=5)
    bench.opened.append(later)
    assert await later.migrate() == (OLDER, LATER)
    assert {row.id: row.epoch for row in await later.turns()} == {"t1": claim.epoch + 1, "queued": 0}
    with pytest.raises(LeaseLostError):
        await store.append(claim, draft.answer(), draft.status)
    with pytest.raises(ConfigError, match="upgrade"):
        await store.facts("t1")
    await bench.close()


async def test_concurrent_migrations_of_an_older_store_run_once(postgres_server: PostgresServer) -> None:
    """Two handles of a later release: the second waits, and finds the work done."""
    bench = PostgresBench(postgres_server.new_schema())
    await (await bench.open()).migrate()
    versions: list[tuple[int, int]] = []

    async def migrate_one(store: PostgresStore) -> None:
        versions.append(await store.migrate())

    async with anyio.create_task_group() as group:
        for _ in range(2):
            bench.opened.append(later := LaterStore(bench.address, patience=5))
            group.start_soon(migrate_one, later)
    assert sorted(versions) == [(OLDER, LATER), (LATER, LATER)]
    await bench.close()


async def test_failed_step_changes_nothing(postgres_server: PostgresServer) -> None:
    """The steps before it are undone with it."""
    bench = PostgresBench(postgres_server.new_schema())
    await (await bench.open()).migrate()
    await bench.execute("ALTER TABLE turnwright_turns ADD COLUMN label integer")
    bench.opened.append(later := LaterStore(bench.address, patience=5))
    with pytest.raises(StoreError, match="label"):
        await later.migrate()
    await bench.execute("ALTER TABLE turnwright_turns DROP COLUMN label")
    assert await later.migrate() == (OLDER, LATER)
    await bench.close()


async def test_failed_migration_changes_nothing(postgres_server: PostgresServer) -> None:
    """Its first steps are undone with the one that failed."""
    bench = PostgresBench(postgres_server.new_schema())
    await bench.execute("CREATE TABLE turnwright_facts ()")
    with pytest.raises(StoreError, match="turnwright_facts"):
        await (await bench.open()).migrate()
    await bench.execute("DROP TABLE turnwright_facts")
    assert await migrated(bench.address) == (0, SCHEMA.version)
    await bench.close()


async def test_wrong_password_is_reported_at_once_and_hidden(postgres_server: PostgresServer) -> None:
    """Reads and claims fail with the same message: the reason and the place."""
    wrong = postgres_server.address.replace(":", ":not-", 2).replace("not-//", "//")
    store = PostgresStore(wrong, patience=60)
    for call in (store.turns, lambda: store.claim("t1")):
        with pytest.raises(
            StoreError, match=r"store postgresql://127\.0\.0\.1:\d+/postgres: .*authentication failed"
        ) as e:
            await call()
        assert "not-" not in "".join(traceback.format_exception(e.value))
    assert "not-" not in repr(store)
    await store.aclose()


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:se@cret@host/db",
        "postgresql://me:se/cret@host/db",
        "postgresql://me:1/cret@host/db",
        "postgresql://me:secret@host:port/db",
        "postgresql://me:secret%zz@host/db",
        "postgresql://me:secret@host/db?colour=cret",
    ],
)
def test_unreadable_address_is_not_repeated(address: str) -> None:
    """The part that looks like a host may belong to a password."""
    with pytest.raises(ConfigError, match="percent-encoded") as error:
        PostgresStore(address)
    assert "cret" not in "".join(traceback.format_exception(error.value)).replace(f'"{address}"', "")


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("postgresql://", "postgresql:///"),
        ("postgres://me@host/db?user=me@tenant", "postgresql://host/db"),
        ("postgresql://me:se%40cret@[::1]:5433/db", "postgresql://::1:5433/db"),
        ("postgresql://h1:1,h2:2/db", "postgresql://h1,h2:1,2/db"),
    ],
)
def test_store_name_has_no_user_and_password(address: str, place: str) -> None:
    assert PostgresStore(address).place == place


async def test_closed_store_raises_store_error(bench: PostgresBench) -> None:
    store = await bench.open()
    await store.turns()
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreError, match="closed"):
        await store.turns()


async def test_closing_leaves_unreleased_turns_as_crashed(bench: PostgresBench) -> None:
    """A turn that was not released looks crashed to the next process."""
    store = await bench.open()
    await Written().create(store)
    await store.aclose()
    other_store = await bench.open()
    while await other_store.is_driven("t1"):  # noqa: ASYNC110 (the server ends a session a moment after its client has left)
        await anyio.sleep(0.01)
    assert (await other_store.claim("t1")).crashed


async def test_default_isolation_of_the_database_has_no_effect(postgres_server: PostgresServer) -> None:
    """A driver that lost the turn while its append waited gets `LeaseLostError`, and no conflict."""
    address = postgres_server.new_schema() + "%20-cdefault_transaction_isolation%3Dserializable"
    await migrated(address)
    bench, draft = PostgresBench(address), Written()
    store = await bench.open()
    claim = await draft.create(store)
    async with await psycopg.AsyncConnection.connect(address) as connection, anyio.create_task_group() as group:
        await connection.execute("UPDATE turnwright_turns SET epoch = epoch + 1")

        async def append() -> None:
            with pytest.raises(LeaseLostError):
                await store.append(claim, draft.answer(), draft.status)

        group.start_soon(append)
        await _blocked(bench)
        await connection.commit()
    await bench.close()


async def test_second_of_two_simultaneous_deletes_finds_no_turn(bench: PostgresBench) -> None:
    """The one that waited for the other's locks."""
    store = await bench.open()
    await store.release(await Written().create(store))
    async with await psycopg.AsyncConnection.connect(bench.address) as connection, anyio.create_task_group() as group:
        await connection.execute("DELETE FROM turnwright_turns")

        async def delete() -> None:
            with pytest.raises(TurnNotFoundError, match="t1"):
                await store.delete("t1")

        group.start_soon(delete)
        await _blocked(bench)
        await connection.commit()


def test_store_has_four_connections_and_a_ten_second_wait() -> None:
    connections = PostgresStore("postgresql://host/db")._connections  # noqa: SLF001 (only they know)
    assert (connections._most, connections._patience) == (4, 10)  # noqa: SLF001


async def test_excess_calls_wait_for_a_connection(bench: PostgresBench) -> None:
    store = PostgresStore(bench.address, connections=1)
    bench.opened.append(store)
    async with anyio.create_task_group() as group:
        for n in range(8):
            group.start_soon(Written(f"t{n}").create, store)
    assert len(await store.turns()) == 8


@pytest.mark.parametrize("turn_id", ["t\x001", "t\ud800"])
async def test_unstorable_id_is_refused(bench: PostgresBench, turn_id: str) -> None:
    """NUL, and half a surrogate pair. Nothing is written."""
    store = await bench.open()
    with pytest.raises(StoreError, match="nothing was written"):
        await Written(turn_id).create(store)
    assert await store.turns() == []


@pytest.mark.parametrize("payload", ["no JSON", '{"v":99}', '{"v":1,"number":"many"}'])
async def test_unreadable_fact_raises_store_error(bench: PostgresBench, payload: str) -> None:
    """`StoreError`, as for everything that cannot be read; it names the fact."""
    store = await bench.open()
    await Written().create(store)
    await bench.execute("UPDATE turnwright_facts SET payload = split_part(payload, E'\\n', 1) || E'\\n' || %s", payload)
    with pytest.raises(StoreError, match="fact 2"):
        await store.facts("t1")


async def test_facts_of_an_append_are_a_single_row(bench: PostgresBench) -> None:
    store, draft = await bench.open(), Written()
    await store.append(await draft.create(store), draft.answer(), draft.status)
    kinds = [str(kinds) for (kinds,) in await bench.execute("SELECT kind FROM turnwright_facts ORDER BY seq")]
    assert len(kinds) == 2
    assert ",".join(kinds).split(",") == [fact.kind for fact in draft.facts]


@pytest.mark.parametrize(
    ("damage", "methods"),
    [
        ("UPDATE turnwright_facts SET payload = 'no JSON'", ["facts"]),
        ("UPDATE turnwright_facts SET seq = -9", ["claim"]),
        ("UPDATE turnwright_facts SET epoch = -1", ["claim_spans"]),
        ("UPDATE turnwright_turns SET epoch = -1", ["get", "is_driven", "claim"]),
        ("UPDATE turnwright_inbox SET kind = 'x'", ["inbox", "post", "claim"]),
    ],
)
async def test_damaged_data_is_reported_with_the_store(bench: PostgresBench, damage: str, methods: list[str]) -> None:
    store, item = await bench.open(), InboxItem("t1", "abort", InboxKind.ABORT)
    await store.release(await Written().create(store))
    await store.post(item)
    await bench.execute(damage)
    for method in methods:
        with pytest.raises(UnreadableTurnError, match=f"^store {store.place}: turn t1: "):
            await getattr(store, method)(item if method == "post" else "t1")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE turnwright_turns SET state = 'NOWHERE' WHERE turn_id = 't1'",
        "UPDATE turnwright_turns SET reason = 'boredom' WHERE turn_id = 't1'",
        "UPDATE turnwright_turns SET created_at = 'NaN' WHERE turn_id = 't1'",
        "UPDATE turnwright_turns SET updated_at = 1e300 WHERE turn_id = 't1'",
        "UPDATE turnwright_turns SET epoch = -1 WHERE turn_id = 't1'",
        "UPDATE turnwright_turns SET live = NOT live WHERE turn_id = 't1'",
        "ALTER TABLE turnwright_turns ALTER agent TYPE bytea USING agent::bytea",
    ],
)
async def test_damaged_row_affects_only_the_same_turn(postgres_server: PostgresServer, damage: str) -> None:
    """It is listed with its fault, and reading it raises."""
    bench = PostgresBench(postgres_server.new_schema())
    store = await bench.open()
    await store.migrate()
    for name in ("t0", "t1", "t2"):
        await store.release(await Written(name).create(store))
    await bench.execute(damage)
    rows = {row.id: row for row in await store.turns()}
    assert sorted(rows) == ["t0", "t1", "t2"]
    assert rows["t1"].fault
    for call in (store.get, store.is_driven):
        with pytest.raises(UnreadableTurnError, match="turn t1: "):
            await call("t1")
    if "bytea" not in damage:  # that is the column of every row
        assert (await store.get("t2")).fault == rows["t2"].fault == ""
    await bench.close()
