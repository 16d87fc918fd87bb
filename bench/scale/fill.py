"""Fills a store with turns, and holds the store's own counters against the formula of what a turn costs it.

    python -m bench.scale.fill [--store postgresql|sqlite] [--turns N] [--steps N] [--calls N] [--json FILE]

An engine with a scripted model drives a few turns, one after the other. The others are copies of the last one: under a
new id, through `create`, `append` and `release`, which are what the engine called. So a copy costs what a turn costs
its store, without the engine's reads and its CPU.

Printed are the counters beside the formula (`model.store_cost`), bytes per turn, and the time of a few queries at that
fill. The counters are PostgreSQL's own, with those of a proxy for round trips, and for SQLite its tables of pages and
its log.
"""

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import anyio
import msgspec
import psycopg
from bench.proxy import Proxy
from bench.scale.model import StoreCost, store_cost
from msgspec import Struct
from tests.servers.postgres_server import PostgresServer

from turnwright import Agent, Engine, Usage, tool
from turnwright.model.scripted import Line, ScriptedModel, asks_for
from turnwright.store import Claim, InboxItem, NewTurn, SqliteStore, Status, Store
from turnwright.store.postgres.store import PostgresStore
from turnwright.store.sqlite.opening import Durability
from turnwright_states.facts import Fact
from turnwright_testing.faults.wrapper import StoreWrapper

#: Turns that an engine drives, and those before them, which open connections and prepare statements.
_DRIVEN, _WARMING = 20, 2
#: Turns that wait for a worker when the queries are timed, how often each is, and the turns of a page.
_WAITING, _REPEATS, _PAGE = 100, 10, 50
_PROMPT: Final = "Look around, and say what there is to see."
_USAGE: Final = Usage(input_tokens=100, output_tokens=10)
#: An odd number: its multiples are spread over all numbers of 64 bits.
_ODD: Final = 0x9E3779B97F4A7C15
#: Bytes of the log of SQLite: its head with the size of a page, and the head of a frame with where a commit ends.
_LOG_HEAD, _PAGE_SIZE, _FRAME_HEAD, _COMMIT = 32, slice(8, 12), 24, slice(4, 8)


@tool
async def look(place: int) -> str:
    """Look at a place."""
    return f"Place {place}: {'nothing of interest was seen here; ' * 6}"


class Shape(Struct, frozen=True):
    """The turns of a fill: their steps, and the calls of each."""

    steps: int = 4
    calls: int = 2

    @property
    def cost(self) -> StoreCost:
        """The cost of each to its store."""
        return store_cost(self.steps, self.calls)

    def engine(self, store: Store, turns: int) -> Engine:
        """An engine whose model knows so many turns of this shape. It polls so rarely that no poll is counted."""
        steps: list[Line] = [
            asks_for(*(("look", {"place": step * self.calls + call}) for call in range(self.calls)), usage=_USAGE)
            for step in range(self.steps)
        ]
        model = ScriptedModel(*[*steps, "That is all that there is to see."] * turns)
        return Engine(model=model, tools=[look], store=store, poll_interval=3_600.0)

    @property
    def agent(self) -> Agent:
        """The agent of these turns."""
        return Agent(name="Looker", budget=self.steps * self.calls + 1)


class Counted(Struct, frozen=True):
    """Differences of the counters of a store. `commits` are those that wrote, `log` is in bytes; None if not known."""

    rows: int
    tables: int
    indexes: int
    commits: int | None
    log: int | None

    def __sub__(self, before: "Counted") -> "Counted":
        return Counted(
            self.rows - before.rows,
            self.tables - before.tables,
            self.indexes - before.indexes,
            _difference(self.commits, before.commits),
            _difference(self.log, before.log),
        )


def _difference(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


class Filling(Protocol):
    """A store to be filled, and what reads its counters."""

    @property
    def name(self) -> str:
        """The name of the store in messages."""
        ...

    @property
    def trips(self) -> int | None:
        """The round trips so far; None if nothing counts them."""
        ...

    def opened(self) -> Store:
        """Open the store."""
        ...

    def holding_log(self) -> AbstractContextManager[None]:
        """Keep what is written to the log in the block, where the counters need it."""
        ...

    def count(self) -> Counted:
        """Read the counters."""
        ...


@dataclass
class PostgresFilling:
    """A database of PostgreSQL. With a `proxy`, which listens at a port, a store has one connection, through it."""

    address: str
    proxy: tuple[Proxy, int] | None = None
    name: str = "PostgreSQL"

    @property
    def trips(self) -> int | None:
        """See `Filling.trips`."""
        return self.proxy and self.proxy[0].trips

    def opened(self) -> PostgresStore:
        """See `Filling.opened`."""
        if self.proxy is None:
            return PostgresStore(self.address, connections=8)
        parts = urlsplit(self.address)
        return PostgresStore(self.address.replace(f":{parts.port}/", f":{self.proxy[1]}/"), connections=1)

    def holding_log(self) -> AbstractContextManager[None]:
        """See `Filling.holding_log`."""
        return nullcontext()

    def count(self) -> Counted:
        """See `Filling.count`.

        A transaction that writes takes the next id. `xact_commit` counts those that only read too, and comes late.
        """
        with psycopg.connect(self.address, autocommit=True) as connection:
            tables = connection.execute(
                "SELECT relname, pg_table_size(oid), pg_indexes_size(oid) FROM pg_class"
                " WHERE relkind = 'r' AND relname LIKE 'turnwright%'"
            ).fetchall()
            rows = [connection.execute(f"SELECT count(*) FROM {name}".encode()).fetchone() for name, _, _ in tables]  # noqa: S608
            ids = connection.execute(
                "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, pg_current_wal_lsn() - '0/0'"
            ).fetchone()
        commits, log = ids or (0, 0)
        table_bytes, index_bytes = (sum(int(table[place]) for table in tables) for place in (1, 2))
        return Counted(sum(row[0] for row in rows if row), table_bytes, index_bytes, commits, int(log))


@dataclass
class SqliteFilling:
    """A file of SQLite."""

    path: Path
    durability: Durability = "full"
    name: str = "SQLite"
    trips: None = None
    _holds_log: bool = field(default=False, init=False)

    def opened(self) -> SqliteStore:
        """See `Filling.opened`."""
        return SqliteStore(self.path, durability=self.durability)

    @contextmanager
    def holding_log(self) -> Iterator[None]:
        """See `Filling.holding_log`. While somebody reads, SQLite does not begin the log anew."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as reader:
            reader.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM turns").fetchone()
            self._holds_log = True
            yield
            self._holds_log = False

    def count(self) -> Counted:
        """See `Filling.count`."""
        with closing(sqlite3.connect(self.path)) as db:
            names = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
            rows = [
                db.execute(f"SELECT count(*) FROM {name}").fetchone()[0]  # noqa: S608
                for (name,) in names
                if not name.startswith(("search", "sqlite_"))
            ]
            sizes = dict[int, int](
                db.execute(
                    # Pages times their size: the sum that dbstat has itself wraps at 4 GiB.
                    "SELECT name IN (SELECT name FROM sqlite_schema WHERE type = 'index'), sum(pageno * page_size)"
                    " FROM dbstat, pragma_page_size WHERE aggregate = 1 GROUP BY 1"
                )
            )
        commits, log = self._log() if self._holds_log else (None, None)
        return Counted(sum(rows), sizes.get(0, 0), sizes.get(1, 0), commits, log)

    def _log(self) -> tuple[int, int]:
        """The commits in the log, and its bytes. The frame that ends a commit has the size of the file after it."""
        log = self.path.with_name(f"{self.path.name}-wal").read_bytes()
        frame = _FRAME_HEAD + int.from_bytes(log[_PAGE_SIZE], "big")
        heads = (log[place : place + _FRAME_HEAD] for place in range(_LOG_HEAD, len(log), frame))
        return sum(any(head[_COMMIT]) for head in heads), len(log)


class RecordingStore(StoreWrapper):
    """Keeps what was written of the last turn, for copies of it."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._new: NewTurn | None = None
        self._appends: list[tuple[Sequence[Fact], Status]] = []

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status, *, driven: bool = True) -> Claim:
        """See `Store.create`."""
        self._new, self._appends = new, [(facts, status)]
        return await super().create(new, facts, status, driven=driven)

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """See `Store.append`."""
        self._appends.append((tuple(facts), status))
        return await super().append(claim, facts, status, consumed)

    async def copy(self, number: int, store: Store, *, driven: bool = True) -> None:
        """Write the turn to a store once more, or only submit it."""
        if self._new is None:
            raise ValueError("no turn was recorded")
        new = replace(self._new, id=copy_id(number), created_at=time.time())
        (first, status), *appends = self._appends
        claim = await store.create(new, first, status, driven=driven)
        if driven:
            for facts, after in appends:
                await store.append(claim, facts, after)
            await store.release(claim)


def copy_id(number: int) -> str:
    """The id of a copy: spread as random ones are, and never twice."""
    return f"{number * _ODD % 2**64:016x}"


async def drive(filling: Filling, shape: Shape, turns: int) -> tuple[RecordingStore, Counted, int | None]:
    """Drive turns with an engine. Return what was written of the last one, the counters, and the round trips."""
    recorder = RecordingStore(filling.opened())
    await recorder.migrate()
    async with shape.engine(recorder, turns + _WARMING) as engine:
        for _ in range(_WARMING):
            await engine.run(shape.agent, _PROMPT)
        with filling.holding_log():
            before, trips = filling.count(), filling.trips
            for _ in range(turns):
                await engine.run(shape.agent, _PROMPT)
            counted, trips = filling.count() - before, _difference(filling.trips, trips)
    await recorder.aclose()
    return recorder, counted, trips


async def copy(recorder: RecordingStore, store: Store, turns: int, at_once: int = 1) -> None:
    """Write so many copies of the recorded turn."""
    numbers = iter(range(1, turns + 1))

    async def work() -> None:
        for number in numbers:
            await recorder.copy(number, store)

    async with anyio.create_task_group() as group:
        for _ in range(at_once):
            group.start_soon(work)


async def time_queries(recorder: RecordingStore, store: Store, turns: int) -> dict[str, float]:
    """The seconds of a few queries on so many copies: of each the least of several."""
    for number in range(turns + 1, turns + 1 + _WAITING):
        await recorder.copy(number, store, driven=False)
    ids = [copy_id(number) for number in range(1, turns, max(turns // _REPEATS, 1))]
    middle = (await store.get(ids[len(ids) // 2])).number
    queries: dict[str, list[Callable[[], Awaitable[object]]]] = {
        "claim of 8 due turns": [lambda: store.due(time.time(), limit=8, claim=True)] * _REPEATS,
        "newest page of turns": [lambda: store.turns(limit=_PAGE)] * _REPEATS,
        "page in the middle": [lambda: store.turns(limit=_PAGE, before=middle)] * _REPEATS,
        "journal of a turn": [partial(store.facts, turn) for turn in ids],
        "deletion of a turn": [partial(store.delete, turn) for turn in ids],
    }
    timed: dict[str, float] = {}
    for name, repeats in queries.items():
        seconds: list[float] = []
        for query in repeats:
            start = time.perf_counter()
            await query()
            seconds.append(time.perf_counter() - start)
        timed[name] = min(seconds)
    return timed


class Fill(Struct, frozen=True):
    """A fill: what was counted of the driven turns and of the copies, and the seconds of queries after it."""

    store: str
    shape: Shape
    driven_turns: int
    driven: Counted
    trips: int | None
    copies: int
    copied: Counted
    seconds: float
    queries: dict[str, float]

    def lines(self) -> Iterator[str]:
        """The counters beside the formula, in words."""
        cost = self.shape.cost
        yield f"{self.store}, turns of {self.shape.steps} steps with {self.shape.calls} calls"
        for name, turns, counted, trips in (
            (f"{self.driven_turns:,} driven", self.driven_turns, self.driven, self.trips),
            (f"{self.copies:,} copied", self.copies, self.copied, None),
        ):
            amounts = (("rows", counted.rows, cost.rows), ("commits", counted.commits, cost.commits))
            for label, count, cost_of_turn in (*amounts, ("round trips", trips, cost.trips)):
                if count is not None:
                    yield f"  {name}: {label} {count:,}, formula {cost_of_turn * turns:,}"
            if counted.log is not None:
                yield f"  {name}: log {counted.log / turns / 1024:.2f} KiB a turn"
        tables, indexes = (size / self.copies / 1024 for size in (self.copied.tables, self.copied.indexes))
        yield f"  tables {tables:.2f} KiB a turn, indexes {indexes:.2f}"
        rate = self.copies / self.seconds
        yield f"  {self.seconds:.0f} s: {rate:,.0f} turns a second, {rate * cost.commits:,.0f} commits"
        yield from (f"  {name}: {1e3 * seconds:.1f} ms" for name, seconds in self.queries.items())


async def fill(filling: Filling, unproxied: Filling, shape: Shape, turns: int, at_once: int) -> Fill:
    """Drive a few turns, copy them, and count. `unproxied` is the same store for copies, which need no proxy's CPU."""
    recorder, driven, trips = await drive(filling, shape, _DRIVEN)
    store = unproxied.opened()
    before, start = unproxied.count(), time.perf_counter()
    await copy(recorder, store, turns, at_once)
    seconds = time.perf_counter() - start
    copied = unproxied.count() - before
    queries = await time_queries(recorder, store, turns)
    await store.aclose()
    return Fill(filling.name, shape, _DRIVEN, driven, trips, turns, copied, seconds, queries)


async def fill_postgres(shape: Shape, turns: int, at_once: int, *, durable: bool) -> Fill:
    """Fill a database of a server of its own."""
    settings = {"shared_buffers": "256MB", "max_wal_size": "2GB", "synchronous_commit": "on" if durable else "off"}
    with PostgresServer(settings=settings) as server:
        address = server.new_database()
        parts = urlsplit(address)
        proxy = Proxy(str(parts.hostname), parts.port or 0)
        async with proxy.listening() as port:
            proxied, direct = PostgresFilling(address, (proxy, port)), PostgresFilling(address)
            return await fill(proxied, direct, shape, turns, at_once)


async def fill_sqlite(shape: Shape, turns: int, at_once: int, *, durable: bool) -> Fill:
    """Fill a file."""
    with tempfile.TemporaryDirectory(prefix="turnwright-fill-") as folder:
        filling = SqliteFilling(Path(folder) / "turns.db", "full" if durable else "normal")
        return await fill(filling, filling, shape, turns, at_once)


def main() -> None:
    """Fill, and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale.fill", description="What turns cost their store.")
    parser.add_argument("--store", choices=("postgresql", "sqlite"), default="postgresql", help="(%(default)s)")
    parser.add_argument("--turns", type=int, default=1_000, metavar="N", help="to copy (%(default)s)")
    parser.add_argument("--steps", type=int, default=4, metavar="N", help="of a turn (%(default)s)")
    parser.add_argument("--calls", type=int, default=2, metavar="N", help="of a step (%(default)s)")
    parser.add_argument("--at-once", type=int, default=8, metavar="N", help="copies written at once (%(default)s)")
    parser.add_argument("--durable", action="store_true", help="wait for the disk at each commit: the counters agree")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options = parser.parse_args()
    into = fill_postgres if options.store == "postgresql" else fill_sqlite
    shape = Shape(options.steps, options.calls)
    filled = anyio.run(partial(into, shape, options.turns, options.at_once, durable=options.durable))
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(filled), indent=2) + b"\n")
    print("\n".join(filled.lines()))


if __name__ == "__main__":
    main()
