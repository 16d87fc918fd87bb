"""`python -m tests.campaigns.histories`: record histories of processes, and check them."""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
from tests.servers.postgres_server import PostgresServer

from turnwright.store import open_store
from turnwright_testing.linearizability import explain_history, run_history


def main() -> int:
    """Record and check histories. Exit code 0 if each has an order, 1 if one has none, 2 for misuse."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.histories", description=__doc__)
    parser.add_argument("--sqlite", type=int, default=200, metavar="N", help="histories on SQLite (%(default)s)")
    parser.add_argument("--postgres", type=int, default=100, metavar="N", help="histories on PostgreSQL (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="the first history (%(default)s)")
    options = parser.parse_args()
    if options.postgres and (reason := PostgresServer.reason_missing()) is not None:
        sys.stderr.write(f"{reason}\n")
        return 2
    counts = {"sqlite": options.sqlite, "postgres": options.postgres}
    exit_codes = [_check(kind, options.seed, number) for kind, number in counts.items() if number]
    return max(exit_codes, default=0)


def _check(kind: str, seed: int, number: int) -> int:
    """Check histories until one has no order. Return the exit code."""
    start, calls, statuses = time.monotonic(), 0, Counter[str]()
    with tempfile.TemporaryDirectory(prefix="turnwright-") as folder, _address(kind, Path(folder)) as address:
        for history_seed in range(seed, seed + number):
            files = Path(folder, f"history-{history_seed}")
            files.mkdir()
            operations = run_history(address, files, history_seed)
            calls += len(operations)
            statuses.update(
                "unknown" if operation.result is None else operation.result.status for operation in operations
            )
            explanation = explain_history(operations)
            if explanation.stuck:
                sys.stdout.write(f"{kind}, seed {history_seed}: {explanation}\n")
                return 1
    summary = ", ".join(f"{count:,} {status}" for status, count in statuses.most_common())
    seconds = time.monotonic() - start
    sys.stdout.write(f"{kind}: {number:,} histories of {calls:,} calls have an order ({seconds:.0f} s): {summary}\n")
    return 0


@contextmanager
def _address(kind: str, folder: Path) -> Iterator[str]:
    with ExitStack() as stack:
        if kind == "sqlite":
            yield f"sqlite:///{folder / 'turns.db'}"
        else:
            address = stack.enter_context(PostgresServer(fsync=False)).new_database()
            anyio.run(_migrate, address)
            yield address


async def _migrate(address: str) -> None:
    store = open_store(address)
    await store.migrate()
    await store.aclose()


if __name__ == "__main__":
    sys.exit(main())
