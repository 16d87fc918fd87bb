"""Watchers of a turn in a PostgreSQL database are notified of writes, and never wait too long."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Final

import anyio
import psycopg
import pytest
from tests.servers.postgres_server import PostgresServer

from turnwright import Agent, Engine, tool
from turnwright._base.blocks import AsyncValues
from turnwright.model.scripted import ScriptedModel, asks_for
from turnwright.store import Changed, Claim, InboxItem, InboxKind, Store, open_store
from turnwright.store.postgres.store import PostgresStore
from turnwright_testing.store_suite import Written

pytestmark = pytest.mark.anyio

#: Seconds that nobody waits here, unless a store is wrong.
NEVER: Final = 600.0
#: Seconds in which whatever is to happen does.
SOON: Final = 60.0


class Place:
    """One schema, and the stores that a test opens on it."""

    def __init__(self, address: str, opened: AsyncExitStack) -> None:
        self.address = address
        self._opened = opened

    def open(self, *, notify: bool = False) -> PostgresStore:
        store = open_store(self.address, notify=notify)
        assert isinstance(store, PostgresStore)
        self._opened.push_async_callback(store.aclose)
        return store

    async def ask(self, statement: str) -> list[tuple[object, ...]]:
        """Ask the server as an administrator would."""
        async with await psycopg.AsyncConnection.connect(self.address, autocommit=True) as connection:
            return await (await connection.execute(statement.encode())).fetchall()

    async def listeners(self) -> int:
        """Return the number of listening connections in the database."""
        return len(await self.ask("SELECT 1 FROM pg_stat_activity WHERE application_name = 'turnwright listener'"))

    async def cut_off(self) -> None:
        """End the connections of those who listen, as an administrator would."""
        assert await self.ask(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = 'turnwright listener'"
        )


@pytest.fixture
async def place(postgres_server: PostgresServer) -> AsyncIterator[Place]:
    address = postgres_server.new_database()
    async with AsyncExitStack() as opened:
        place = Place(address, opened)
        await place.open().migrate()
        yield place


@asynccontextmanager
async def hearing(store: Store, turn_id: str = "t1") -> AsyncIterator[Changed]:
    """Watch a turn, from when it is listened to."""
    async with store.watching(turn_id) as changed:
        with anyio.fail_after(SOON):
            await changed(NEVER)
        yield changed


async def wait(changed: Changed) -> None:
    """Wait until something was written."""
    await changed(NEVER)


Write = Callable[[PostgresStore], Coroutine[object, object, object]]


async def make(store: PostgresStore) -> Claim:
    return await Written().create(store)


async def append(store: PostgresStore) -> None:
    draft = Written()
    await store.append(await store.claim("t1"), draft.calls("look"), draft.status)


async def let_go(store: PostgresStore) -> None:
    await store.release(await store.claim("t1"))


async def post(store: PostgresStore) -> None:
    await store.post(InboxItem("t1", "abort", InboxKind.ABORT), InboxItem("t1", "steer:1", InboxKind.STEER))


@pytest.mark.parametrize("write", [make, append, let_go, post])
async def test_watcher_is_woken_by_writes_of_another_process(place: Place, write: Write) -> None:
    """It created the turn, appended to it, released it, or posted to it."""
    listener, teller = place.open(), place.open(notify=True)
    if write is not make:
        await teller.release(await make(teller))
    async with hearing(listener) as changed, anyio.create_task_group() as group:
        group.start_soon(write, teller)
        with anyio.fail_after(SOON):
            await changed(NEVER)


async def test_earlier_write_ends_the_wait_at_once(place: Place) -> None:
    """Whether the word of it came before the wait began, or comes then."""
    listener, teller, draft = place.open(), place.open(notify=True), Written()
    claim = await draft.create(teller)
    async with hearing(listener, "another"), listener.watching("t1") as changed:
        await teller.append(claim, draft.calls("look"), draft.status)
        with anyio.fail_after(SOON):
            await changed(NEVER)
            await teller.append(claim, draft.abort(), draft.status)
            assert await listener.facts("t1") == list(enumerate(draft.facts, start=1))
            await changed(NEVER)


async def test_watcher_without_a_notification_keeps_waiting(place: Place) -> None:
    """A quiet store does not notify, and a notification of another turn wakes only that turn's watchers."""
    listener, quiet, teller = place.open(), place.open(), place.open(notify=True)
    await quiet.release(await Written("t1").create(quiet))
    woken: list[str] = []

    async def told() -> None:
        await first(NEVER)
        woken.append("t1")

    async with (
        aclosing(PostgresStore(place.address)) as also_quiet,
        hearing(listener, "t1") as first,
        listener.watching("t2") as second,
        anyio.create_task_group() as group,
    ):
        group.start_soon(told)
        await append(quiet)
        await post(also_quiet)
        with anyio.fail_after(SOON):
            # The server notifies in the order of the commits.
            await Written("t2").create(teller)
            await second(NEVER)
            assert woken == []
            await post(teller)
            await Written("t3").create(teller)
            group.cancel_scope.cancel()


async def test_watchers_of_a_process_share_a_connection_while_waiting(place: Place) -> None:
    """There is none before the first of them waits, and none after the last has gone."""
    listener, teller = place.open(), place.open(notify=True)
    await teller.release(await make(teller))
    async with AsyncExitStack() as watching:
        waits = [await watching.enter_async_context(listener.watching(f"t{n % 3}")) for n in range(9)]
        assert await place.listeners() == 0
        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as group:
                for changed in waits:
                    group.start_soon(wait, changed)
            await post(teller)
            async with anyio.create_task_group() as group:
                for changed in waits[1::3]:
                    group.start_soon(wait, changed)
        assert await place.listeners() == 1
    await gone(place)


async def gone(place: Place) -> None:
    """Wait until nobody listens."""
    with anyio.fail_after(SOON):
        while await place.listeners():  # noqa: ASYNC110 (the server does not notify)
            await anyio.sleep(0.01)


@pytest.mark.slow
async def test_lost_connection_is_restored(place: Place) -> None:
    """Meanwhile a wait takes its full time. After the reconnect all watchers are woken: notifications were missed."""
    listener, teller = place.open(), place.open(notify=True)
    await teller.release(await make(teller))
    async with hearing(listener) as changed:
        await place.cut_off()
        with anyio.fail_after(SOON):
            await changed(0.01)
            await changed(NEVER)
            assert await place.listeners() == 1
            async with anyio.create_task_group() as group:
                group.start_soon(post, teller)
                await changed(NEVER)


async def test_watcher_unable_to_listen_waits_for_the_timeout(postgres_server: PostgresServer) -> None:
    """As with a server that is down or accepts no connections: readers get the error, watchers do not."""
    store = PostgresStore(
        postgres_server.address.replace(postgres_server.address.rpartition(":")[2], "1/db"), patience=1
    )
    async with store.watching("t1") as changed:
        with anyio.fail_after(SOON):
            for _ in range(3):
                await changed(0.01)
    await store.aclose()


async def test_closed_store_releases_the_watchers(place: Place) -> None:
    """Their next read fails, and they wait no longer than they said. Nothing listens any more."""
    store = place.open()
    async with hearing(store) as changed:
        async with anyio.create_task_group() as group:
            group.start_soon(wait, changed)
            await anyio.lowlevel.checkpoint()
            with anyio.fail_after(SOON):
                await store.aclose()
        with anyio.fail_after(SOON):
            await changed(0.01)
    await gone(place)


@tool
async def look(n: int) -> str:
    """Look."""
    return f"nothing at {n}"


async def test_notified_follower_receives_a_turn_to_the_end(place: Place) -> None:
    """From its beginning to its end, by somebody who would not look again for an hour."""
    model = ScriptedModel(*(asks_for(("look", {"n": n})) for n in range(3)), "Nothing there.")
    async with (
        Engine(model=model, tools=[look], store=place.open(notify=True)) as driver,
        Engine(model=model, tools=[look], store=place.open(), poll_interval=3600) as follower,
        driver.stream(Agent(name="Tester"), "Look") as driven,
    ):
        with anyio.fail_after(SOON):
            first = await anext(driven)
            heard = [event async for event in follower.events(first.turn)]
            positions = [event.seq for event in heard]
        assert positions == list(range(1, len(await follower.store.facts(first.turn)) + 1))
        assert heard[-1].type == "turn_ended"


async def test_follower_may_stop_in_another_task(place: Place) -> None:
    """Any task may close a generator. The connection is closed too."""
    async with Engine(model=ScriptedModel("Done."), store=place.open()) as engine:
        claim = await Written().create(engine.store)
        other_engine = Engine(model=ScriptedModel("Done."), store=place.open())
        events = other_engine.events("t1")

        async def listen() -> None:
            async for event in events:
                assert event.turn == "t1"

        with anyio.fail_after(SOON):
            async with anyio.create_task_group() as group:
                group.start_soon(listen)
                while not await place.listeners():  # noqa: ASYNC110 (the server does not notify)
                    await anyio.sleep(0.01)
                group.cancel_scope.cancel()
            again = other_engine.events("t1")
            await anext(again)

            async def close() -> None:
                assert isinstance(again, AsyncValues)
                await again.aclose()

            async with anyio.create_task_group() as group:
                group.start_soon(close)
        await gone(place)
        await other_engine.aclose()
        await engine.store.release(claim)
