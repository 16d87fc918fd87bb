"""The CPU of what Turnwright does beside turns, each as numbers by name.

    python -m bench.program startup|lists|replay|walk

- `startup`: CPU of a process, all threads and system time included, over that of `python -c pass`, which runs just
  before it: the least of nine over the least. Bytecode is compiled before.
- `lists`: with 10,000 turns in a SQLite store, CPU of `turnwright turns --limit 50`: of the whole process, and of the
  command when the process has run it before. And of `turnwright serve`: until its address is printed, and of the first
  page after that. The least of the repeats.
- `replay`: facts a CPU second of a replay that checks that each fact follows, of a turn of 120 steps; the best of nine.
- `walk`: CPU of `turnwright verify`, all processes, whose walk finds as many configurations as `docs/proof.json` says.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from http.cookiejar import CookieJar
from io import StringIO
from pathlib import Path
from typing import Final

from bench.guard import kept_facts
from bench.measure import least_ratio
from bench.results import FOLDER
from bench.turnwright_turns import TurnwrightSqlite
from bench.yardstick import Script, run

from turnwright.cli.app import exit_code
from turnwright_states.replay import replay

PAIRS: Final = 9
TURNS: Final = 10_000
AT_ONCE: Final = 500
PROGRAM: Final = (str(Path(sys.executable).with_name("turnwright")),)
STARTS: Final[dict[str, Sequence[str]]] = {
    "version": (*PROGRAM, "--version"),
    "help": (*PROGRAM, "--help"),
    "import": (sys.executable, "-c", "import turnwright"),
    "engine": (sys.executable, "-c", "from turnwright import Engine"),
}
PASS: Final = (sys.executable, "-c", "pass")


def cpu(command: Sequence[str]) -> tuple[float, str]:
    """Run a command, and return its CPU seconds, with those of its children, and its output."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output)  # noqa: S603 (our own commands)
        _, status, resources = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{command}: exit code {process.returncode}")
        output.seek(0)
        return resources.ru_utime + resources.ru_stime, output.read()


def startup() -> dict[str, float]:
    """Ratios to a process that does nothing, and the CPU of an import in milliseconds."""
    pairs_by_start: dict[str, list[tuple[float, float]]] = {name: [] for name in STARTS}
    for number in range(PAIRS + 1):
        for name, command in STARTS.items():
            nothing, (seconds, _) = cpu(PASS)[0], cpu(command)
            if number:  # the first may compile
                pairs_by_start[name].append((seconds, nothing))
    ratios = {f"start-{name}": least_ratio(pairs) for name, pairs in pairs_by_start.items()}
    return {**ratios, "engine-ms": min(seconds for seconds, _ in pairs_by_start["engine"]) * 1e3}


def lists() -> dict[str, float]:
    """The lists of a large store: by the command, and as the inspector's first page."""
    with tempfile.TemporaryDirectory() as folder:
        store = asyncio.run(filled(Path(folder) / "turns.db", TURNS, at_once=AT_ONCE))
        command = ("turns", "--limit", "50", "--store", store)
        whole = min(cpu([*PROGRAM, *command])[0] for _ in range(PAIRS))
        again = min(repeated(command))
        served = [serve(store) for _ in range(3)]
    return {
        "turns-process-ms": whole * 1e3,
        "turns-ms": again * 1e3,
        "serve-start-ms": min(start for start, _ in served) * 1e3,
        "serve-page-ms": min(page for _, page in served) * 1e3,
    }


async def filled(path: Path, turns: int, *, at_once: int) -> str:
    """Make a store with so many turns of one step, and return its address."""
    subject = TurnwrightSqlite(path)
    async with subject.opened():
        for _ in range(turns // at_once):
            await asyncio.gather(*(run(subject, Script(1)) for _ in range(at_once)))
    return f"sqlite:///{path}"


def repeated(command: Sequence[str]) -> list[float]:
    """CPU seconds of a command in this process, after it has run once."""
    durations: list[float] = []
    arguments, sys.argv = sys.argv, [PROGRAM[0], *command]
    try:
        for _ in range(PAIRS + 1):
            start = time.process_time()
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                code = exit_code()
            durations.append(time.process_time() - start)
            if code:
                raise SystemExit(f"{command}: exit code {code}")
    finally:
        sys.argv = arguments
    return durations[1:]


def serve(store: str) -> tuple[float, float]:
    """CPU seconds of the inspector until it answers, and of its first page."""
    command = [*PROGRAM, "serve", "--port", "0", "--store", store]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 (our own program)
        try:
            address = re.search(r"http://\S+", next(line for line in process.stdout or () if "http://" in line))
            started = used(process.pid)
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
            with opener.open(address[0] if address else "") as page:
                text = page.read().decode()
            if "<table" not in text:
                raise SystemExit(f"this is not a list of turns: {text[:200]}")
            return started, used(process.pid) - started
        finally:
            process.terminate()


def used(pid: int) -> float:
    """The CPU seconds of a process so far, all threads."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def replays() -> dict[str, float]:
    """The speed of a replay that checks each fact."""
    journal = list(enumerate(asyncio.run(kept_facts()), start=1))
    rates: list[float] = []
    for _ in range(PAIRS):
        start = time.process_time()
        replayed = replay(journal)
        rates.append(len(journal) / (time.process_time() - start))
        if replayed.fault is not None:
            raise SystemExit(replayed.check.detail)
    return {"replay-facts-per-s": max(rates)}


def walk() -> dict[str, float]:
    """The CPU of the walk, which must find what the last proof found."""
    seconds, printed = cpu([*PROGRAM, "verify", "--json"])
    measured, proof = json.loads(printed), json.loads((FOLDER.parent / "docs" / "proof.json").read_text())
    for key in ("configurations", "events"):
        if measured[key] != proof[key]:
            raise SystemExit(f"the walk found {measured[key]:,} {key}, and docs/proof.json has {proof[key]:,}")
    return {"walk-cpu-s": seconds}


MEASURED: Final[dict[str, Callable[[], dict[str, float]]]] = {
    "startup": startup,
    "lists": lists,
    "replay": replays,
    "walk": walk,
}


def main() -> None:
    """Measure one part, and print it as JSON."""
    parser = argparse.ArgumentParser(description="Measures what Turnwright does beside turns.")
    parser.add_argument("part", choices=MEASURED)
    print(json.dumps(MEASURED[parser.parse_args().part]()))


if __name__ == "__main__":
    main()
