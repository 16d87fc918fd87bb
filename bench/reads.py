"""The inspector's pages on a store with 100,000 turns.

    python -m bench.reads

A page is requested from the application in this process: all that it reads, and its rendering. *first* is the first
request to a new application on a store that was just opened; the system has the file in memory. The others are medians
of the next five, in which the store does not change. CPU is that of all threads; with PostgreSQL, that of the server's
processes too. Milliseconds. Of `turnwright serve` the CPU is shown until it prints its address, and that of its first
page after that: the least of three.

The turns are of half a year, of 12 agents and 4 models. A few wait for somebody, and some have sub-agents, tags or
scores (`bench/many_turns.py`). A search is for a word that most turns have, for one that 20 have, and for one that none
has.
"""

import asyncio
import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from statistics import median
from typing import Final

import httpx
import psycopg
from bench.many_turns import COMMON, NOTHING, RARE, TURNS, copy_turns, write_turns
from bench.program import serve
from bench.results import Record
from tests.servers.postgres_server import PostgresServer

from turnwright import Engine
from turnwright.model import ScriptedModel
from turnwright.store.summaries import Order
from turnwright_inspector import Open, inspector_app
from turnwright_inspector.views.turn_query import PAGE, RANGES, STANDINGS

REPEATS: Final = 5
SERVED: Final = 3
#: Seconds until the server's processes of the last page have ended, whose CPU would else count for the next one.
PAUSE: Final = 0.2
#: The figures of a page in one store.
FIGURES: Final = ("first", "CPU", "wall")
_DEEP: Final = "SELECT number FROM summaries WHERE root = 1 ORDER BY cost DESC, number DESC LIMIT 1 OFFSET :skipped"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_MS: Final = 1e3


def addresses(deep: int) -> Iterator[tuple[str, str]]:
    """Yield the pages that are measured: what they are, and their address. `deep` is the turn before the last page."""
    yield "list", "/"
    yield "list", "/?before=51"
    for order in Order:
        down = "/" if order is Order.NEWEST else f"/?sort={order}"
        yield from (("list", page) for page in (down, f"/?sort={order}&way=up") if page != "/")
    yield "list", f"/?sort=cost&before={deep}"
    for standing in STANDINGS:
        yield "list", f"/?outcome={standing}"
    yield from (("list", f"/?range={span}") for span in RANGES)
    for query in (
        "reason=step_cap",
        "agent=Agent 11",
        "agent=nobody",
        "model=model-1",
        "session=session-1",
        "tag=looked at",
    ):
        yield "list", f"/?{query}"
    yield "list", "/?agent=Agent 3&model=model-1&outcome=failed&range=30d&sort=cost"
    for word in (COMMON, RARE, NOTHING, f"{COMMON} {RARE}"):
        yield "search", f"/?q={word}"
    yield "search", f"/?q={COMMON}&sort=cost"
    yield "search", f"/?q={COMMON}&agent=Agent 3&range=30d"
    yield "agents", "/agents"
    yield from (("agents", f"/agents?range={span}") for span in RANGES)
    yield from (("agents", f"/agents?{query}") for query in ("by=model", "agent=Agent 3", f"q={COMMON}"))
    for query in ("", "?last=5000", "?last=5000&agent=Agent 3"):
        yield "statistics", f"/statistics{query}"
    yield from (("sessions", page) for page in ("/sessions", "/sessions?before=5000", "/session?session=session-1"))
    yield from (("needs you", page) for page in ("/needs-you", "/needs-you/count"))


def main() -> None:
    """Measure all pages with each store, and print them as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(measured(Path(folder)))))


async def measured(folder: Path, turns: int = TURNS, repeats: int = REPEATS, served: int = SERVED) -> list[Record]:
    """A row for each page, with figures for each store."""
    path = folder / "turns.db"
    await write_turns(path, turns)
    address = f"sqlite:///{path}"
    with closing(sqlite3.connect(path)) as db:
        (deep,) = db.execute(_DEEP, {"skipped": max(turns - PAGE - 1, 0)}).fetchone()
    rows: list[Record] = [{"what": kind, "page": page} for kind, page in addresses(deep)]
    await _measure(rows, "SQLite", address, repeats)
    if PostgresServer.reason_missing() is None:
        with PostgresServer(fsync=False, settings={"shared_buffers": "256MB"}) as server:
            database = server.new_database()
            await copy_turns(path, database)
            await _measure(rows, "PostgreSQL", database, repeats)
    passes = [serve(address) for _ in range(served)]
    for name, place in (("until it answers", 0), ("its first page", 1)):
        rows.append({"what": "serve", "page": name, "SQLite first": min(timings[place] for timings in passes) * _MS})
    return rows


async def _measure(rows: Sequence[Record], store: str, address: str, repeats: int) -> None:
    elsewhere = _cpu_of_server(address) if store == "PostgreSQL" else float
    for row in rows:
        timings = await _requests(address, str(row["page"]), repeats + 1, elsewhere)
        values = (timings[0][0], *(median(timing[place] for timing in timings[1:]) for place in (0, 1)))
        row |= {f"{store} {name}": value * _MS for name, value in zip(FIGURES, values, strict=True)}


async def _requests(address: str, page: str, count: int, elsewhere: Callable[[], float]) -> list[tuple[float, float]]:
    """CPU and time of each request. `elsewhere` returns the CPU seconds of other processes."""
    timings: list[tuple[float, float]] = []
    await asyncio.sleep(PAUSE)
    async with Engine(model=ScriptedModel(), store=address) as engine:
        transport = httpx.ASGITransport(app=inspector_app(engine, access=Open()))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for _ in range(count):
                server = elsewhere()
                start, cpu = time.perf_counter(), time.process_time()
                response = await client.get(page)
                cpu_seconds, lasted = time.process_time() - cpu, time.perf_counter() - start
                timings.append((cpu_seconds + elsewhere() - server, lasted))
                if response.status_code != httpx.codes.OK:
                    raise SystemExit(f"{page}: {response.status_code}: {response.text[:200]}")
    return timings


def _cpu_of_server(address: str) -> Callable[[], float]:
    """Return a function that returns the CPU seconds of the database's server, whose processes it starts itself."""
    with psycopg.connect(address) as connection:
        server = _parent(connection.info.backend_pid)

    def spent() -> float:
        cpu_seconds = 0.0
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                if _parent(int(process.name)) == server:
                    cpu_seconds += int((process / "schedstat").read_text().split()[0]) / 1e9
        ended = _fields(server)[13:15]  # of those that have ended
        return cpu_seconds + sum(map(int, ended)) / _TICKS

    return spent


def _parent(process: int) -> int:
    return int(_fields(process)[1])


def _fields(process: int) -> list[str]:
    """The fields of a process behind its name, which may contain anything."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


if __name__ == "__main__":
    main()
