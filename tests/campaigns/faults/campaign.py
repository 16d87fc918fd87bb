"""The campaign: many trials, on several processes at once, and one report."""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from multiprocessing.queues import SimpleQueue
from typing import Final

import anyio
from tests.servers.postgres_server import PostgresServer

from turnwright.store import open_store
from turnwright_testing.faults.process import CONTEXT, PRELOADED

from . import worker_process
from .audit import Audit, audit
from .report import FaultReport
from .trial import run_trial

#: Called with the audit of each trial as it comes, with the kind of its store.
Progress = Callable[[str, Audit], None]

SQLITE: Final = "sqlite"
POSTGRES: Final = "postgres"


def run_campaign(
    *, sqlite: int, postgres: int, seed: int, processes: int = 2, progress: Progress | None = None
) -> FaultReport:
    """Run so many trials on each kind of store, `processes` at once, and report.

    The trials of a seed are always the same, apart from those that are killed at a random time. For PostgreSQL a
    server is started; raises `ConfigError` where none can be had.
    """
    audits: dict[str, list[Audit]] = {}
    for kind, trials in ((SQLITE, sqlite), (POSTGRES, postgres)):
        if trials:
            audits[kind] = []
            with (
                _addresses(kind, processes) as addresses,
                ProcessPoolExecutor(processes, CONTEXT, _take, (addresses,)) as pool,
            ):
                for done in as_completed([pool.submit(one_trial, seed, number) for number in range(1, trials + 1)]):
                    audits[kind].append(done.result())
                    if progress is not None:
                        progress(kind, audits[kind][-1])
    return FaultReport.of(seed, audits)


def one_trial(seed: int, number: int) -> Audit:
    return audit(anyio.run(partial(run_trial, seed, number, _Given.address)))


class _Given:
    """The store's address of a process of the pool; none: an SQLite file for each trial."""

    address = ""


def _take(addresses: "SimpleQueue[str]") -> None:
    _Given.address = addresses.get()


@contextmanager
def _addresses(kind: str, processes: int) -> Iterator["SimpleQueue[str]"]:
    """A store for each process: a trial may sweep all that it finds in its store."""
    CONTEXT.set_forkserver_preload([*PRELOADED, worker_process.__name__])
    queue: SimpleQueue[str] = CONTEXT.SimpleQueue()
    if kind == SQLITE:
        for _ in range(processes):
            queue.put("")
        yield queue
        return
    with PostgresServer(fsync=False) as server:
        for _ in range(processes):
            address = server.new_database()
            anyio.run(_migrate, address)
            queue.put(address)
        yield queue


async def _migrate(address: str) -> None:
    store = open_store(address)
    try:
        await store.migrate()
    finally:
        await store.aclose()
