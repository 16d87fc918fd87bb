"""One phase of the scale run: workers, turns, deaths, and what was seen of them."""

import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Final, LiteralString, Self

import anyio
import psycopg
from bench.scale.audit import Blow, Observation, Written, driven_for
from bench.scale.cpu import Meter, memory
from bench.scale.work import AGENT, Role, work
from msgspec import Struct

from turnwright.store import open_store
from turnwright.store.rows import split_facts
from turnwright_states.fact_parser import parse_fact
from turnwright_testing.faults import DriverProcess, Witness

#: Submissions under way at once.
_AT_ONCE: Final = 16
#: A phase in which no turn ends for so many seconds is over: what has no outcome then has none.
_STANDSTILL: Final = 180.0
#: Seconds for which a worker is stopped, which is longer than it is waited for by default.
_STALLED: Final = 20.0
#: Seconds after which a worker is ready, at the latest.
_READY: Final = 5.0


class Load(Struct, frozen=True):
    """The work of a phase. Seconds are those of a model call and of a tool call; two of these run in parallel.

    `deaths` are the workers that are killed, each replaced at once; with `stalls` one is stopped for a while too.
    """

    turns: int
    workers: int
    concurrency: int
    steps: int
    model: float
    tool: float
    deaths: int = 0
    stalls: bool = False


class Spread(Struct, frozen=True):
    """Several of the same: how many, the one in the middle, the one that nine of ten do not exceed, and the most."""

    count: int
    median: float
    p90: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The spread of some values; all zero where there are none."""
        if not values:
            return cls(0, 0.0, 0.0, 0.0)
        ordered = sorted(values)
        return cls(len(ordered), median(ordered), ordered[int(0.9 * (len(ordered) - 1))], ordered[-1])


class Measured(Struct, frozen=True):
    """The cost of a phase: seconds, and per turn where it says so.

    `rate` is turns a second between the first and the last tenth of those that ended; `cpu` is by part, in seconds a
    turn. `transactions` are all of the database's, `appends` those that wrote facts.
    """

    load: Load
    seconds: float
    rate: float
    submit: Spread
    append: Spread
    drive: Spread
    cpu: dict[str, float]
    appends: float
    transactions: float
    kib: float
    worker_mib: float


@dataclass(frozen=True, slots=True)
class Place:
    """The servers of a run: the address of a new database, Temporal's (or none), and a folder for witnesses."""

    database: str
    temporal: str
    folder: Path
    name: str


async def run_phase(place: Place, load: Load) -> tuple[Measured, Observation]:
    """Drive the turns of `load`, and return what it took and what was seen. Nothing that it started is left."""
    witness = place.folder / f"{place.name}.witness"
    role = Role(
        place.database,
        place.temporal,
        f"scale-{place.name}",
        witness,
        load.concurrency,
        load.steps,
        load.model,
        load.tool,
    )
    store = open_store(place.database)
    await store.migrate()
    await store.aclose()
    phase = _Phase(role, load)
    with phase.crew:
        await phase.drive()
        most = memory(phase.crew.pids)
    async with _connected(place.database) as connection:
        written_journals = await journals(connection)
        (transactions,) = await _row(
            connection, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
        )
        (size,) = await _row(connection, "SELECT pg_database_size(current_database())")
    observed = Observation(phase.submitted, written_journals, Witness(witness).lines(), phase.blows)
    return phase.measured(observed, transactions=transactions, size=size, memory=most), observed


async def idle(place: Place, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """Return the CPU of one worker and the servers, by part: until it is ready, and then each second without work."""
    role = Role(place.database, place.temporal, f"scale-{place.name}", place.folder / "idle", 1, 1, 0.0, 0.0)
    store = open_store(place.database)
    await store.migrate()
    await store.aclose()
    with _Crew(role, 1) as crew:
        await anyio.sleep(_READY)
        start = crew.meter.read()
        await anyio.sleep(seconds)
        end = crew.meter.read()
    return start, {part: (end[part] - start[part]) / seconds for part in end}


class _Crew:
    """The worker processes, of which some die."""

    def __init__(self, role: Role, size: int) -> None:
        self._role = role
        self._size = size
        self._workers: list[DriverProcess] = []
        self._stopped: list[DriverProcess] = []
        self.meter = Meter()

    def __enter__(self) -> Self:
        for _ in range(self._size):
            self.hire()
        return self

    def __exit__(self, *exc_info: object) -> None:
        for worker in (*self._workers, *self._stopped):
            worker.kill()

    @property
    def pids(self) -> list[int]:
        """The numbers of those that live."""
        return [worker.pid for worker in self._workers]

    def hire(self) -> None:
        """One more."""
        self._workers.append(DriverProcess(work, self._role))
        self.meter.workers.add(self._workers[-1].pid)

    def pick(self) -> DriverProcess:
        """Any of them."""
        return random.choice(self._workers)  # noqa: S311 (it decides who dies, and no secret)

    def stop(self, worker: DriverProcess) -> None:
        """Stop one. It is not picked any more."""
        self._workers.remove(worker)
        self._stopped.append(worker)
        worker.stop()

    def kill(self, worker: DriverProcess) -> Blow:
        """Kill one."""
        self.meter.read()
        (self._stopped if worker in self._stopped else self._workers).remove(worker)
        blow = Blow(worker.pid, time.time())
        worker.kill()
        return blow


@dataclass
class _Phase:
    role: Role
    load: Load
    submitted: list[str] = field(default_factory=list)
    blows: list[Blow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.crew = _Crew(self.role, self.load.workers)
        self._submits: list[float] = []
        self._ended = 0
        self._cpu_used: dict[str, float] = {}
        self._start = 0.0

    async def drive(self) -> None:
        """Submit all, let some die, and return when all have ended, or none does any more."""
        self._start = time.time()
        async with anyio.create_task_group() as group:
            group.start_soon(self._submit)
            group.start_soon(self._strike)
            if self.load.stalls:
                group.start_soon(self._stall)
            await self._watch()
            group.cancel_scope.cancel()
        self._cpu_used = self.crew.meter.read()

    def measured(self, observed: Observation, *, transactions: int, size: int, memory: float) -> Measured:
        """The cost so far."""
        count = max(len(self.submitted), 1)
        ends = sorted(turn.journal[-1].at for turn in observed.turns if turn.turn_ended)
        tenth = len(ends) // 10
        middle = ends[tenth : len(ends) - tenth] or [0.0]
        took = [int(line.words[2]) / 1e6 for line in observed.lines if line.words[0] == "took"]
        drives = [seconds for seconds in map(driven_for, observed.turns) if seconds is not None]
        return Measured(
            load=self.load,
            seconds=(ends[-1] if ends else time.time()) - self._start,
            rate=(len(middle) - 1) / max(middle[-1] - middle[0], 1e-9),
            submit=Spread.of(self._submits),
            append=Spread.of(took),
            drive=Spread.of(drives),
            cpu={part: cpu_seconds / count for part, cpu_seconds in self._cpu_used.items()},
            appends=len(took) / count,
            transactions=transactions / count,
            kib=size / 1024 / count,
            worker_mib=memory,
        )

    async def _submit(self) -> None:
        places = anyio.Semaphore(_AT_ONCE)
        async with self.role.engine() as engine:

            async def one(number: int) -> None:
                async with places:
                    start = time.perf_counter()
                    self.submitted.append(await engine.submit(AGENT, f"Do order {number}."))
                    self._submits.append(time.perf_counter() - start)

            async with anyio.create_task_group() as group:
                for number in range(self.load.turns):
                    group.start_soon(one, number)

    async def _watch(self) -> None:
        changed = time.monotonic()
        async with _connected(self.role.address) as connection:
            while self._ended < self.load.turns and time.monotonic() - changed < _STANDSTILL:
                await anyio.sleep(0.5)
                (ended,) = await _row(connection, "SELECT count(*) FROM turnwright_turns WHERE NOT live")
                self.crew.meter.read()
                if ended != self._ended:
                    self._ended, changed = ended, time.monotonic()

    async def _strike(self) -> None:
        """Kill one whenever as many turns have ended as make the deaths fall evenly over the phase."""
        deaths = self.load.deaths
        for number in range(1, deaths + 1):
            while self._ended < number * self.load.turns / (deaths + 2):  # noqa: ASYNC110 (a database counts them)
                await anyio.sleep(0.1)
            await anyio.sleep(random.random())  # noqa: S311 (when it dies is not a secret either)
            self.blows.append(self.crew.kill(self.crew.pick()))
            self.crew.hire()

    async def _stall(self) -> None:
        """Stop one, with another in its place, until others have its turns; then it continues, and one is too many."""
        while self._ended < self.load.turns / 4:  # noqa: ASYNC110 (a database counts them)
            await anyio.sleep(0.1)
        worker = self.crew.pick()
        self.blows.append(Blow(worker.pid, time.time(), stalled=True))
        self.crew.stop(worker)
        self.crew.hire()
        await anyio.sleep(_STALLED)
        worker.go_on()
        await anyio.sleep(_STALLED / 4)
        self.blows.append(self.crew.kill(worker))


@asynccontextmanager
async def _connected(address: str) -> AsyncIterator[psycopg.AsyncConnection]:
    connection = await psycopg.AsyncConnection.connect(address, autocommit=True)
    try:
        yield connection
    finally:
        await connection.close()


async def _row(connection: psycopg.AsyncConnection, query: LiteralString) -> tuple[int, ...]:
    row = await (await connection.execute(query)).fetchone()
    return row or (0,)


async def journals(connection: psycopg.AsyncConnection) -> dict[str, list[Written]]:
    """Read the journals of all turns. The facts of an append have one time."""
    cursor = await connection.execute(
        "SELECT turn_id, seq, kind, payload, at FROM turnwright_facts ORDER BY turn_id, seq"
    )
    rows = await cursor.fetchall()
    return {
        turn: [
            Written(seq, at, parse_fact(kind, payload))
            for _, first, kinds, payloads, at in of_turn
            for seq, kind, payload in split_facts([(first, kinds, payloads)])
        ]
        for turn, of_turn in groupby(rows, key=lambda row: row[0])
    }
