"""Measure a subject, or the bare loops where it is run itself. Standard library only.

Every part is measured in a child process of its own, so that none sees what another left in memory or in caches.

- `steps`: CPU (`time.process_time`, all threads) of turns of 10, 50 and 200 steps, in one event loop, each run paired
  with one of the bare loop just before it. A run of N = 10 or 50 is several turns one after the other, for a resolution
  above the clock's. CPU is the least of the pairs, and the ratio the least over the least, for whatever else the
  machine does only adds; growth (the last 50 of 200 steps over the first 50) is the median. There are 21 pairs, or as
  many as 30 s allow: at least 7, but for N = 200 at least one. What is made once (`Subject.opened`) is not counted, and
  garbage is collected before each run and not switched off in it.
- `calls`: function calls, builtins included (cProfile; a counting hook in other threads), of a turn of 50 steps less
  those of one of 10, by the 40 steps between: what a turn costs to begin is left out. Independent of the load.
- `bytes`: what the store holds at the start of steps 1, 51, 150 and 200; and what the process handed to the operating
  system to write (`/proc/self/io`: whole pages, the write-ahead log and its checkpoints).
- `results`: CPU a step of turns of 20 steps whose two results have 15 bytes, 4, 16 or 48 KiB each: that of the process,
  the least of several turns, and that of the processes of the server that it uses, the mean of all. The sizes alternate
  for 8 s, three times at least and 15 at most.
- `queue`: 1,000 turns of two steps are queued in PostgreSQL, 50 at once, and then one worker works them off, or two,
  each a process of its own. All must end with their final text. The clock begins when the first worker is ready.
- `peak`: the largest resident size of a process that imports the subject and runs one turn of 200 steps.
- `flight`: so many turns of 10 steps at once, each in a task of its own. They take turns at every step, and all are
  held in their sixth until the last has come there: at that moment resident memory, less what it was before the first,
  is divided by their number. CPU and wall time are those of all steps of all turns. A turn is right when it was asked
  10 times and returned the final text; the tool's calls are counted too. Rounds are repeated up to 1,000 turns in all,
  and at least 3 times where that takes less than 10 s: the least CPU is given. Garbage is collected as in `turnwright
  worker`: `gc.freeze()`, and `gc.set_threshold(20_000, 50, 50)`, for every subject.
- `session`: CPU of turns of one session, each a text in answer to a text, by their place: the least of the ten around
  it. Just before each, the bare loop runs ten steps, and the ratio is that to one of them. What a session keeps is in
  the subject's own store, or in its memory where it has none.
- `import`: CPU of a process between its start-up and the end of the imports that a user writes; median of 7 processes.
"""

import argparse
import asyncio
import cProfile
import gc
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

from bench.bare import Bare, BareSqlite, BareSqliteFull
from bench.results import Bytes, Flight, Growth, Known, Queue, ResultCost, Steps, Turn
from bench.servers import running
from bench.yardstick import Gate, Looks, QueueSubject, Script, Subject, installed, padded, run

SIZES: Final = (10, 50, 200)
STEPS_A_RUN: Final = 200
IN_FLIGHT: Final = (10, 100, 1_000, 10_000)
IN_FLIGHT_STEPS: Final = 10
PAIRS: Final = 21
FEW: Final = 7
ENOUGH_S: Final = 10.0
LONGEST_S: Final = 600.0
IMPORTS: Final = 7
#: A step with results, and a queue.
RESULTS_KIB: Final = (0, 4, 16, 48)
RESULT_STEPS: Final = 20
RESULTS_S: Final = 8.0
RESULT_ROUNDS: Final = (3, 15)
QUEUED: Final = 1_000
SUBMITTED_AT_ONCE: Final = 50
WORKERS: Final = (1, 2)
QUEUE_S: Final = 300.0
#: The collector's thresholds in `turnwright worker`.
GARBAGE: Final = (20_000, 50, 50)
PLACES: Final = (5, 20, 50, 100, 200, 300, 400, 500)
AROUND: Final = 5
EDGE: Final = 50  # how many steps at either end are compared for growth


def main(*subjects: Subject | QueueSubject) -> None:
    """Measure one part of one subject, and print it as a JSON object; or list the subjects with their parts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true", help="print the subjects and their parts, and measure nothing")
    parser.add_argument("--only", metavar="NAME", help="the subject")
    parser.add_argument("--part", help="what to measure")
    parser.add_argument("--quick", action="store_true", help="measure little")
    parser.add_argument("--work", metavar="ADDRESS", help="be a worker of the subject's queue")
    options = parser.parse_args()
    if options.list:
        print(json.dumps([(known(subject), parts(subject, quick=options.quick)) for subject in subjects]))
        return
    (chosen,) = (subject for subject in subjects if subject.name == options.only)
    if options.work:
        asyncio.run(cast("QueueSubject", chosen).work(options.work))
        return
    print(json.dumps(part(chosen, options.part, quick=options.quick)))


def known(subject: Subject | QueueSubject) -> Known:
    """The record of a subject before it is measured."""
    return {
        "name": subject.name,
        "python": platform.python_version(),
        "versions": installed(*subject.packages),
        "notes": list(subject.notes),
        "durable": isinstance(subject, QueueSubject) or subject.durable,
        "streamed": isinstance(subject, Subject) and subject.streamed,
        "store_kind": subject.store_kind if isinstance(subject, Subject) else "PostgreSQL",
        "flight": {},
        "failed": {},
        "taken": {},
    }


def parts(subject: Subject | QueueSubject, *, quick: bool = False) -> list[str]:
    """The names of what can be measured of a subject."""
    if isinstance(subject, QueueSubject):
        return ["queue"]
    if subject.is_slow:
        return ["results"]
    flights = [f"flight {turns}" for turns in IN_FLIGHT if turns <= subject.most_in_flight]
    session = ["session"] if subject.has_sessions else []
    return ["steps", "results", "calls", "bytes", "peak", *(flights[:1] if quick else flights), *session, "import"]


def part(subject: Subject | QueueSubject, name: str, *, quick: bool) -> dict[str, Any]:
    """Measure one part here."""
    if isinstance(subject, QueueSubject):
        return {"queue": [asyncio.run(queue(subject, workers, quick=quick)) for workers in WORKERS]}
    measure, _, turns = name.partition(" ")
    if measure == "calls":
        return {"calls_per_step": max_calls_per_step(subject)}
    if measure == "import":
        return {"import_ms": import_ms(subject.modules, 1 if quick else IMPORTS)}
    measured: dict[str, Callable[[], Coroutine[Any, Any, dict[str, Any]]]] = {
        "steps": lambda: steps(subject, quick=quick),
        "results": lambda: results(subject, quick=quick),
        "bytes": lambda: stored(subject),
        "peak": lambda: peak(subject),
        "flight": lambda: flight(subject, int(turns), quick=quick),
        "session": lambda: session(subject, 20 if quick else PLACES[-1]),
    }
    return _run(subject, measured[measure])


def _run(subject: Subject, measure: Callable[[], Coroutine[Any, Any, dict[str, Any]]]) -> dict[str, Any]:
    async def inside() -> dict[str, Any]:
        async with subject.opened():
            return await measure()

    return asyncio.run(inside())


async def steps(subject: Subject, *, quick: bool) -> dict[str, Any]:
    """CPU a step beside the bare loop's, and growth with the turn."""
    bare = Bare()
    await _cpu(bare, SIZES[0])
    await _cpu(subject, SIZES[0])
    figures: dict[str, Steps] = {}
    marks: list[list[float]] = []
    for size in SIZES[:2] if quick else SIZES:
        pairs: list[tuple[float, float]] = []
        start = time.perf_counter()
        needed = FEW if size < SIZES[-1] else 1
        while len(pairs) < PAIRS and (time.perf_counter() - start < ENOUGH_S or len(pairs) < needed):
            against, _ = await _cpu(bare, size)
            seconds, script = await _cpu(subject, size)
            pairs.append((seconds, against))
            if size == SIZES[-1]:
                marks.append(script.marks)
        figures[str(size)] = {
            "cpu_us": min(seconds for seconds, _ in pairs) * 1e6,
            "bare_us": min(against for _, against in pairs) * 1e6,
            "ratio": least_ratio(pairs),
            "pairs": len(pairs),
        }
    return {"steps": figures, **({"growth": growth(marks)} if marks else {})}


async def results(subject: Subject, *, quick: bool) -> dict[str, Any]:
    """CPU a step by the size of its results, in this process and in the server's."""
    durations: dict[int, list[float]] = {kib: [] for kib in RESULTS_KIB}
    server: dict[int, list[float]] = {kib: [] for kib in RESULTS_KIB}
    await run(subject, Script(SIZES[0]))
    start, (least, most) = time.perf_counter(), RESULT_ROUNDS
    limit, least = (0.0, 1) if quick else (RESULTS_S, least)
    rounds = 0
    while rounds < least or (rounds < most and time.perf_counter() - start < limit):
        rounds += 1
        for kib in RESULTS_KIB:
            with padded(kib):
                gc.collect()
                looks, before, cpu = Looks.count, subject.server_cpu(), time.process_time()
                await run(subject, Script(RESULT_STEPS))
                durations[kib].append(time.process_time() - cpu)
                if before is not None:
                    server[kib].append((subject.server_cpu() or 0.0) - before)
            if Looks.count - looks != 2 * (RESULT_STEPS - 1):
                raise RuntimeError(f"{subject.name}: the tool ran {Looks.count - looks} times")
    figures: dict[str, ResultCost] = {
        str(kib): {
            "cpu_ms": min(durations[kib]) / RESULT_STEPS * 1e3,
            "server_ms": statistics.fmean(server[kib]) / RESULT_STEPS * 1e3 if server[kib] else None,
            "rounds": rounds,
        }
        for kib in RESULTS_KIB
    }
    return {"results": figures}


async def queue(subject: QueueSubject, workers: int, *, quick: bool) -> Queue:
    """Submit turns, and let so many workers work them off."""
    turns = SUBMITTED_AT_ONCE if quick else QUEUED
    with running("postgres") as server:
        await subject.prepare(server.address)
        async with subject.opened(server.address):
            start = time.perf_counter()
            for first in range(0, turns, SUBMITTED_AT_ONCE):
                await asyncio.gather(*(subject.submit(first + place) for place in range(SUBMITTED_AT_ONCE)))
            submitted_s = time.perf_counter() - start
            module = cast("str", sys.modules["__main__"].__spec__.name)  # type: ignore[union-attr]
            command = [sys.executable, "-m", module, "--only", subject.name, "--work", server.address]
            before = server.cpu()
            processes = [_start(command) for _ in range(workers)]
            try:
                for process in processes[:1]:
                    if process.stdout is None or "ready" not in process.stdout.readline():
                        raise RuntimeError(f"{subject.name}: its worker does not start")
                start, first_s, ended = time.perf_counter(), None, 0
                while ended < turns:
                    if time.perf_counter() - start > QUEUE_S:
                        raise RuntimeError(f"{subject.name}: {ended} of {turns} turns ended within {QUEUE_S:.0f} s")
                    await asyncio.sleep(0.05)
                    ended = await subject.count_ended()
                    first_s = time.perf_counter() - start if ended and first_s is None else first_s
                worked_s = time.perf_counter() - start
                cpu_s = sum(map(_cpu_of, processes))
            finally:
                for process in processes:
                    process.kill()
                    process.communicate()
            return {
                "workers": workers,
                "turns": turns,
                "submits_per_s": turns / submitted_s,
                "first_s": first_s or 0.0,
                "turns_per_s": turns / worked_s,
                "worker_ms": cpu_s / turns * 1e3,
                "server_ms": (server.cpu() - before) / turns * 1e3,
            }


def _start(command: Sequence[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 (our own module)


def _cpu_of(process: "subprocess.Popen[str]") -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def least_ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """The least of the first over the least of the second: whatever else the machine does only adds."""
    return min(subject_seconds for subject_seconds, _ in pairs) / min(against for _, against in pairs)


async def _cpu(subject: Subject, size: int, turns: int | None = None) -> tuple[float, Script]:
    """CPU seconds a step of so many turns of `size`, or as many as make a run, and the script of the last."""
    if turns is None:
        turns = max(1, STEPS_A_RUN // size)
        gc.collect()
    script = Script(size)
    start = time.process_time()
    for _ in range(turns):
        script = Script(size)
        await run(subject, script)
    return (time.process_time() - start) / (turns * size), script


def growth(runs: list[list[float]]) -> Growth:
    """The last 50 steps over the first 50 (median of the runs), from the CPU time at the start of each step."""
    ends = len(runs[0]) - 1
    ratios = [(marks[ends] - marks[ends - EDGE]) / (marks[EDGE] - marks[0]) for marks in runs]
    tens = [
        statistics.median((marks[min(at + 10, ends)] - marks[at]) / (min(at + 10, ends) - at) for marks in runs) * 1e6
        for at in range(0, ends, 10)
    ]
    return {"ratio": statistics.median(ratios), "runs": len(runs), "by_ten_us": tens}


class Counter:
    """Counts the function calls of threads that are started after it was set."""

    def __init__(self) -> None:
        self.calls = 0
        threading.setprofile(self._event)

    def _event(self, frame: FrameType, event: str, arg: object) -> None:
        del frame, arg
        self.calls += event in {"call", "c_call"}


def max_calls_per_step(subject: Subject) -> float:
    """Function calls per step, without what a turn costs to begin."""
    worker_calls = Counter()

    async def counted() -> dict[str, float]:
        calls_by_size: dict[str, float] = {}
        await run(subject, Script(SIZES[0]))
        for size in SIZES[:2]:
            profile = cProfile.Profile()
            before = worker_calls.calls
            profile.enable()
            await run(subject, Script(size))
            profile.disable()
            in_here = sum(entry.callcount for entry in profile.getstats())
            calls_by_size[str(size)] = in_here + worker_calls.calls - before
        return calls_by_size

    calls_by_size = _run(subject, counted)
    return float(calls_by_size[str(SIZES[1])] - calls_by_size[str(SIZES[0])]) / (SIZES[1] - SIZES[0])


async def stored(subject: Subject) -> dict[str, Any]:
    """Bytes per step at the beginning and at the end of a turn of 200 steps."""
    if subject.stored() is None:
        return {"bytes": None}
    await run(subject, Script(SIZES[0]))
    last = SIZES[-1]
    stored_by_step: dict[int, int] = {}
    written_by_step: dict[int, int | None] = {}

    def note(step: int) -> None:
        if step in {1, EDGE + 1, last - EDGE, last}:
            written_by_step[step] = bytes_written()
            stored_by_step[step] = subject.stored() or 0

    await run(subject, Script(last, at_step=note))
    figures: Bytes = {
        "first": (stored_by_step[EDGE + 1] - stored_by_step[1]) / EDGE,
        "last": (stored_by_step[last] - stored_by_step[last - EDGE]) / EDGE,
        "written_first": _per_step(written_by_step[1], written_by_step[EDGE + 1]),
        "written_last": _per_step(written_by_step[last - EDGE], written_by_step[last]),
    }
    return {"bytes": figures}


def _per_step(before: int | None, after: int | None) -> float | None:
    return None if before is None or after is None else (after - before) / EDGE


def bytes_written() -> int | None:
    """Return the bytes that this process has handed to the operating system to write; None if unknown."""
    path = Path("/proc/self/io")
    if not path.exists():
        return None
    return next(int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith("wchar"))


async def peak(subject: Subject) -> dict[str, float]:
    """The largest resident size of this process, in MiB, after one turn of 200 steps."""
    await run(subject, Script(SIZES[-1]))
    return {"peak_mib": largest_resident() / 2**20}


def largest_resident() -> int:
    """The largest resident size of this process so far, in bytes."""
    path = Path("/proc/self/status")  # on Linux, getrusage knows the size of the process that started this one too
    if not path.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) * 1024 for line in path.read_text().splitlines() if line.startswith("VmHWM:"))


def resident() -> int | None:
    """The resident size of this process in bytes; none where that cannot be known."""
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if path.exists() else None


@contextmanager
def worker_garbage() -> Iterator[None]:
    """Collect garbage as `turnwright worker` does."""
    before, frozen_count = gc.get_threshold(), gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    yield
    gc.set_threshold(*before)
    if not frozen_count:  # else others rely on it
        gc.unfreeze()


async def flight(subject: Subject, turns: int, *, quick: bool = False) -> dict[str, Any]:
    """So many turns at once, each of 10 steps."""
    await run(subject, Script(IN_FLIGHT_STEPS))
    with worker_garbage():
        flight = await _flight(subject, turns, quick=quick)
    return {"flight": {str(turns): flight}}


async def _flight(subject: Subject, turns: int, *, quick: bool) -> Flight:
    rounds: list[tuple[float, float]] = []
    wrong = 0
    missing = 0
    gate_bytes: int | None = None
    start = time.perf_counter()
    least = 1 if quick else max(3, 1_000 // turns)
    while not rounds or (len(rounds) < least and time.perf_counter() - start < ENOUGH_S):
        gc.collect()
        first = not rounds
        before = resident()
        at_gate: list[int | None] = []

        def note(at_gate: list[int | None] = at_gate) -> None:
            at_gate.append(resident())

        gate = Gate(turns, note)
        scripts = [Script(IN_FLIGHT_STEPS, gate) for _ in range(turns)]
        looks = Looks.count
        wall, cpu = time.perf_counter(), time.process_time()
        ended = await asyncio.gather(*(run(subject, script) for script in scripts), return_exceptions=True)
        rounds.append((time.process_time() - cpu, time.perf_counter() - wall))
        errors = [end for end in ended if end is not None]
        wrong = max(wrong, len(errors))
        missing = max(missing, abs(turns * (IN_FLIGHT_STEPS - 1) * 2 - (Looks.count - looks)))
        if errors and first:
            sys.stderr.write(f"{errors[0]!r}\n")
        if first and before is not None and at_gate and at_gate[0] is not None:
            gate_bytes = at_gate[0] - before
    cpu = min(cpu for cpu, _ in rounds)
    return {
        "turns": turns,
        "right": turns - wrong,
        "looks_missing": missing,
        "steps_per_cpu_s": turns * IN_FLIGHT_STEPS / cpu,
        "cpu_s": cpu,
        "wall_s": statistics.median(wall for _, wall in rounds),
        "kib_per_turn": None if gate_bytes is None else gate_bytes / turns / 1024,
        "rounds": len(rounds),
    }


async def session(subject: Subject, turns: int) -> dict[str, dict[str, Turn]]:
    """CPU of turns of one session by their place. It ends early where a subject is slow."""
    subject.session = "s"
    bare = Bare()
    spent: list[tuple[float, float]] = []
    start = time.perf_counter()
    while len(spent) < turns + AROUND and time.perf_counter() - start < 5 * ENOUGH_S:
        against, _ = await _cpu(bare, SIZES[0], turns=1)
        seconds, _ = await _cpu(subject, 1, turns=1)
        spent.append((seconds, against))
    turns_by_place: dict[str, Turn] = {}
    for at in (at for at in PLACES if at + AROUND <= len(spent)):
        around = spent[max(at - AROUND, 1) : at + AROUND]
        turns_by_place[str(at)] = {
            "cpu_ms": min(seconds for seconds, _ in around) * 1e3,
            "ratio": least_ratio(around),
        }
    return {"session": turns_by_place}


def import_ms(modules: Sequence[str], times: int) -> float:
    """CPU milliseconds of importing modules in a new process (median; the first, which may compile, is not counted)."""
    lines = "\n".join(f"import {module}" for module in modules)
    code = f"import time\nbegan = time.process_time()\n{lines}\nprint(time.process_time() - began)"
    durations = []
    for _ in range(times + 1):
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)  # noqa: S603
        durations.append(float(done.stdout.split()[-1]))
    return statistics.median(durations[1:]) * 1e3


if __name__ == "__main__":
    main(Bare(), BareSqlite(), BareSqliteFull())
