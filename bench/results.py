"""The results of `make bench`: kept as `bench/results.json`, from which the page and the plots are made.

Standard library only.
"""

import json
import os
import platform
import sqlite3
import time
from pathlib import Path
from typing import Final, TypedDict

FOLDER: Final = Path(__file__).parent
RESULTS: Final = FOLDER / "results.json"

Record = dict[str, str | float | None]


class Taken(TypedDict):
    """One measurement: the start of its run, the seconds that it took, and the load of the machine before it."""

    run: str
    seconds: float
    load: float


class Steps(TypedDict):
    """CPU a step at one number of steps."""

    cpu_us: float
    bare_us: float
    ratio: float
    pairs: int


class Growth(TypedDict):
    """The last 50 of 200 steps over the first 50, and the CPU of each ten."""

    ratio: float
    runs: int
    by_ten_us: list[float]


class Bytes(TypedDict):
    """Bytes per step, in the first 50 and the last 50 of 200 steps: in the store, and handed to the system to write."""

    first: float
    last: float
    written_first: float | None
    written_last: float | None


class Flight(TypedDict):
    """So many turns at once. `right` of `turns` ended as they should, in each round."""

    turns: int
    right: int
    looks_missing: int
    steps_per_cpu_s: float
    cpu_s: float
    wall_s: float
    kib_per_turn: float | None
    rounds: int


class ResultCost(TypedDict):
    """CPU of a step in milliseconds, in the process and in its server's processes, at one size of its results."""

    cpu_ms: float
    server_ms: float | None
    rounds: int


class Queue(TypedDict):
    """Queued turns, worked off by so many workers. CPU is that of a turn, of all workers and of the server."""

    workers: int
    turns: int
    submits_per_s: float
    first_s: float
    turns_per_s: float
    worker_ms: float
    server_ms: float


class Turn(TypedDict):
    """CPU of a turn of one step at a place in a session, and over that of a step of the bare loop."""

    cpu_ms: float
    ratio: float


class Known(TypedDict):
    """The properties of a subject without measurement, when its parts were measured, and why some were not."""

    name: str
    python: str
    versions: dict[str, str]
    notes: list[str]
    durable: bool
    streamed: bool
    store_kind: str
    flight: dict[str, Flight]
    failed: dict[str, str]
    taken: dict[str, Taken]


class Measured(Known, total=False):
    """All that was measured of one subject. A part that failed is missing. `session` has places in a session."""

    steps: dict[str, Steps]
    growth: Growth
    results: dict[str, ResultCost]
    queue: list[Queue]
    calls_per_step: float
    bytes: Bytes | None
    peak_mib: float
    session: dict[str, Turn]
    import_ms: float


class Machine(TypedDict):
    """The machine of a measurement, without its name. `load` is the number of processes that wanted to run before."""

    processor: str
    cores: int
    memory_gib: float
    system: str
    python: str
    sqlite: str
    date: str
    load: float


class Results(TypedDict):
    """All of it.

    `run` is when the last run began. `missing` are the peers that are not installed, `bodies` is what `bench.bodies`
    prints, `counts` what the guard counts, and `figures` what `bench.program` measures. `taken` is about the
    parts that have no subject.
    """

    run: str
    machine: Machine
    subjects: list[Measured]
    missing: list[str]
    streams: list[Record]
    reads: list[Record]
    bodies: str
    counts: dict[str, float]
    figures: dict[str, float]
    taken: dict[str, Taken]


def empty() -> Results:
    """Nothing measured yet, on this machine."""
    return {
        "run": now(),
        "machine": machine(),
        "subjects": [],
        "missing": [],
        "streams": [],
        "reads": [],
        "bodies": "",
        "counts": {},
        "figures": {},
        "taken": {},
    }


def now() -> str:
    """The date and the time of day, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime())


def machine() -> Machine:
    """This machine."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "memory_gib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "date": now()[:10],
        "load": os.getloadavg()[0],
    }


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def read() -> Results | None:
    """Return the last results; None if there are none yet."""
    if not RESULTS.exists():
        return None
    results: Results = json.loads(RESULTS.read_text())
    return results


def write(results: Results) -> None:
    """Keep what was found."""
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
