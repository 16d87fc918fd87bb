"""The results of `make bench`: kept as `bench/results.json`, from which the page and the plots are made."""

import json
import os
import platform
import sqlite3
import time
from pathlib import Path
from typing import Final, TypedDict

from bench.measured import Measured

FOLDER: Final = Path(__file__).parent
RESULTS: Final = FOLDER / "results.json"

Record = dict[str, str | float | None]


class Machine(TypedDict):
    """The machine of the measurement, without its name."""

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

    `missing` are the peers that were not installed, `bodies` is what `bench.bodies` prints, and `counts` what the guard
    counts.
    """

    machine: Machine
    subjects: list[Measured]
    missing: list[str]
    streams: list[Record]
    bodies: str
    counts: dict[str, float]


def machine() -> Machine:
    """This machine, now. `load` is how many processes wanted to run in the last minute, before anything is measured."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "memory_gib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "date": time.strftime("%Y-%m-%d"),
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
    found: Results = json.loads(RESULTS.read_text())
    return found


def write(results: Results) -> None:
    """Keep what was found."""
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def merged(old: Results | None, new: Results) -> Results:
    """The new results, and of the old ones what was not measured this time."""
    if old is None:
        return new
    names = {subject["name"] for subject in new["subjects"]}
    return {
        "machine": new["machine"],
        "subjects": [*(subject for subject in old["subjects"] if subject["name"] not in names), *new["subjects"]],
        "missing": new["missing"],
        "streams": new["streams"] or old["streams"],
        "bodies": new["bodies"] or old["bodies"],
        "counts": new["counts"] or old["counts"],
    }
