"""The round trips of a PostgreSQL store, as a proxy before the server counts them."""

from urllib.parse import urlsplit

import pytest
from anyio import Event, create_task_group
from bench.proxy import Proxy
from tests.servers.postgres_server import PostgresServer

from turnwright import Agent, Engine
from turnwright.model.scripted import ScriptedModel
from turnwright.runtime import Local
from turnwright.store import InboxItem, InboxKind
from turnwright.store.postgres.store import PostgresStore
from turnwright.transcript.events import TurnEndedEvent
from turnwright_testing.store_suite import Written

pytestmark = pytest.mark.anyio


async def test_append_and_read_take_a_round_trip_each(postgres_server: PostgresServer) -> None:
    """Independent of what waits in the inbox, what the append consumes, and whether it is prepared."""
    address = postgres_server.new_schema()
    parts = urlsplit(address)
    assert parts.hostname is not None
    assert parts.port is not None
    proxy, draft = Proxy(parts.hostname, parts.port), Written()
    async with proxy.listening() as port:
        store = PostgresStore(address.replace(f":{parts.port}/", f":{port}/"), connections=1)
        await store.migrate()
        claim = await draft.create(store)
        await store.post(*(InboxItem("t1", f"steer:{n}", InboxKind.STEER) for n in range(3)))
        facts, counted = draft.calls("ok", "ok"), []
        for n in range(9):  # psycopg prepares what is sent for the sixth time
            before = proxy.trips
            waiting = await store.append(claim, facts, draft.status, (f"steer:{n}",))
            counted.append(proxy.trips - before)
            assert len(waiting) == max(0, 2 - n)
        for _ in range(9):
            before = proxy.trips
            assert await store.inbox("t1") == []
            assert len(await store.facts("t1")) == claim.seq
            counted += divmod(proxy.trips - before, 2)
        await store.aclose()
    assert counted == [1] * 9 + [1, 0] * 9


async def test_submission_takes_a_round_trip(postgres_server: PostgresServer) -> None:
    """In a session and without one."""
    parts = urlsplit(address := postgres_server.new_schema())
    assert parts.hostname is not None
    assert parts.port is not None
    proxy, trips = Proxy(parts.hostname, parts.port), list[int]()
    async with proxy.listening() as port:
        store = PostgresStore(address.replace(f":{parts.port}/", f":{port}/"), connections=1)
        await store.migrate()
        for number in range(9):
            draft = Written(f"t{number}", session=f"s{number}" if number % 2 else None)
            before = proxy.trips
            await store.create(draft.new, draft.facts, draft.status, driven=False)
            trips.append(proxy.trips - before)
        await store.aclose()
    assert trips == [1] * 9


async def test_turns_that_start_at_once_share_the_check_of_the_lock(postgres_server: PostgresServer) -> None:
    """Each creation and each append is a trip. The session with the lock is asked twice beside them, not 24 times."""
    parts = urlsplit(address := postgres_server.new_schema())
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = Proxy(parts.hostname, parts.port)
    async with proxy.listening() as port:
        store = PostgresStore(address.replace(f":{parts.port}/", f":{port}/"), connections=4)
        await store.migrate()

        async def start(name: str) -> None:
            draft = Written(name)
            claim = await draft.create(store)
            await store.append(claim, draft.calls("ok"), draft.status)

        before = 0
        for _ in range(2):  # the first round opens the connections
            before = proxy.trips
            async with create_task_group() as group:
                for number in range(20):
                    group.start_soon(start, f"{before}-{number}")
        await store.aclose()
    # A busy machine lets some turns come late for a check that is shared. Without sharing there were 64 trips.
    assert proxy.trips - before <= 20 + 20 + 10


@pytest.mark.slow
async def test_claims_of_many_due_turns_take_as_many_trips_as_a_single_one(postgres_server: PostgresServer) -> None:
    parts = urlsplit(address := postgres_server.new_schema())
    assert parts.hostname is not None
    assert parts.port is not None
    proxy, trips = Proxy(parts.hostname, parts.port), list[int]()
    async with proxy.listening() as port:
        store = PostgresStore(address.replace(f":{parts.port}/", f":{port}/"), connections=1)
        await store.migrate()
        for number in range(200):
            draft = Written(f"t{number:03}")
            await store.create(draft.new, draft.facts, draft.status, driven=False)
        claimed: list[str] = []
        for limit in (1, 1, 8, 90, 100):
            before = proxy.trips
            claimed += [turn.row.id for turn in await store.due(0.0, limit=limit, claim=True)]
            trips.append(proxy.trips - before)
        await store.aclose()
    assert claimed == [f"t{number:03}" for number in range(200)]
    assert trips[1:] == [trips[1]] * 4


@pytest.mark.slow
async def test_late_turn_of_a_session_costs_as_much_as_an_early_turn(postgres_server: PostgresServer) -> None:
    """The process keeps the history: a turn asks for the one before it, and for the number of the others."""
    parts = urlsplit(address := postgres_server.new_schema())
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = Proxy(parts.hostname, parts.port)
    async with proxy.listening() as port:
        store = PostgresStore(address.replace(f":{parts.port}/", f":{port}/"), connections=1)
        await store.migrate()
        trips: list[int] = []
        async with Engine(model=ScriptedModel("Done.", repeat=True), store=store, poll_interval=60.0) as engine:
            for number in range(24):
                before = proxy.trips
                await engine.run(Agent(name="Clerk"), f"prompt {number:02}", session="s")
                trips.append(proxy.trips - before)
    assert trips[4:] == [trips[4]] * 20


async def test_turn_of_a_worker_of_this_process_takes_few_more_trips(postgres_server: PostgresServer) -> None:
    """A follower reads the turn and its journal once, then receives what its driver publishes: it does not listen."""
    parts = urlsplit(address := postgres_server.new_schema())
    assert parts.hostname is not None
    assert parts.port is not None
    proxy, agent, stop = Proxy(parts.hostname, parts.port), Agent(name="A"), Event()
    counts: list[tuple[int, int]] = []
    async with proxy.listening() as port:
        store = PostgresStore(address.replace(f":{parts.port}/", f":{port}/"))
        await store.migrate()
        model, runtime = ScriptedModel("Done.", repeat=True), Local(every=3_600.0)
        async with (
            Engine(model=model, store=store, runtime=runtime, agents=[agent], poll_interval=3_600.0) as engine,
            create_task_group() as group,
        ):
            group.start_soon(engine.run_worker, stop)
            for _ in range(4):  # the first round opens the connections
                before = proxy.trips
                await engine.run(agent, "go")
                between = proxy.trips
                events = [event async for event in engine.events(await engine.submit(agent, "go"), wait=True)]
                assert isinstance(events[-1], TurnEndedEvent)
                counts.append((between - before, proxy.trips - between))
            stop.set()
    run, submitted = min(run for run, _ in counts), min(submitted for _, submitted in counts)
    assert submitted <= run + 8
