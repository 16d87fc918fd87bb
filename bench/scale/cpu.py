"""The CPU seconds of what this process started, by part, as Linux counts them."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from bench.scale.model import PARTS

_TICK: Final = os.sysconf("SC_CLK_TCK")
#: Places among the fields after the name.
_PARENT, _USER, _SYSTEM = 1, 11, 12
#: What the kernel calls the servers.
_SERVERS: Final = ("postgres", "temporal")


class Meter:
    """Adds up CPU seconds since it was made. `workers` are the numbers of the worker processes that are there now.

    A process that is to be killed must be read before, with `read`, or what it used since the last time is missing.
    """

    def __init__(self) -> None:
        self.workers: set[int] = set()
        self._last: dict[int, tuple[str, float]] = {}
        self._before: dict[str, float] = {}
        self._before = self.read()

    def read(self) -> dict[str, float]:
        """The seconds so far, by part."""
        self._last |= {pid: (part, cpu_seconds) for pid, part, cpu_seconds in self._seen()}
        total = dict.fromkeys(PARTS, 0.0)
        for part, cpu_seconds in self._last.values():
            total[part] += cpu_seconds
        return {part: total_seconds - self._before.get(part, 0.0) for part, total_seconds in total.items()}

    def _seen(self) -> Iterator[tuple[int, str, float]]:
        processes = dict(_processes())
        own = os.getpid()
        for pid, (name, _, process_seconds) in processes.items():
            if pid == own:
                yield pid, "client", process_seconds
            elif pid in self.workers:
                yield pid, "worker", process_seconds
            elif name in _SERVERS and _is_below(pid, own, processes):
                yield pid, name, process_seconds


def _processes() -> Iterator[tuple[int, tuple[str, int, float]]]:
    """The name, the parent and the CPU seconds of every process."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name is in brackets and may contain anything.
            before, _, after = stat.read_text(errors="replace").rpartition(")")
            fields = after.split()
            process_seconds = (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICK
            yield int(stat.parent.name), (before.partition("(")[2], int(fields[_PARENT]), process_seconds)


def _is_below(pid: int, ancestor: int, processes: Mapping[int, tuple[str, int, float]]) -> bool:
    while pid in processes:
        if pid == ancestor:
            return True
        pid = processes[pid][1]
    return False


def memory(pids: Iterable[int]) -> float:
    """The most resident memory that any of these processes ever had, in MiB."""
    most = 0.0
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    most = max(most, int(line.split()[1]) / 1024)
    return most
