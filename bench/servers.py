"""The servers of durable subjects: PostgreSQL, and Temporal's for development.

    python -m bench.servers postgres|temporal

Runs a server with files of its own, prints its address, and ends it when its standard input is closed. A subject runs
this module in the environment of Turnwright, which has the programs (`running`): its own need not have them. Beside
that, this module needs the standard library only.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

ROOT: Final = Path(__file__).parents[1]
#: The interpreter of Turnwright's environment.
PYTHON: Final = ROOT / ".venv" / "bin" / "python"
_TICKS: Final = os.sysconf("SC_CLK_TCK")

Kind = Literal["postgres", "temporal"]


class Server:
    """A running server: its address, and the CPU that its processes have taken."""

    def __init__(self, address: str, pid: int) -> None:
        self.address = address
        self._pid = pid

    def cpu(self) -> float:
        """CPU seconds of all its processes so far, those included that have ended. Linux only."""
        fields_by_pid: dict[int, list[str]] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                fields_by_pid[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
        children: dict[int, list[int]] = {}
        for pid, fields in fields_by_pid.items():
            children.setdefault(int(fields[1]), []).append(pid)
        ticks, pids = 0, children.get(self._pid, [])
        while pids:
            pid = pids.pop()
            ticks += sum(map(int, fields_by_pid[pid][11:15]))
            pids += children.get(pid, [])
        return ticks / _TICKS


@contextmanager
def running(kind: Kind) -> Iterator[Server]:
    """Run a server during the block. Raises RuntimeError if it does not start."""
    python = str(PYTHON) if PYTHON.exists() else sys.executable
    command = [python, "-m", "bench.servers", kind]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 (our own module)
        try:
            address = (process.stdout.readline() if process.stdout else "").strip()
            if not address:
                raise RuntimeError(f"no {kind} server here: see its message above")
            yield Server(address, process.pid)
        finally:
            if process.stdin:
                process.stdin.close()


def main() -> None:
    """Run a server until standard input is closed."""
    if sys.argv[1] == "postgres":
        from tests.servers.postgres_server import PostgresServer  # noqa: PLC0415 (Turnwright's environment has it)

        with PostgresServer() as database:
            print(database.new_database(), flush=True)
            sys.stdin.read()
        return
    from tests.servers.temporal_server import TemporalServer  # noqa: PLC0415 (likewise)

    with TemporalServer(search_attributes=()) as server:
        print(server.address, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
