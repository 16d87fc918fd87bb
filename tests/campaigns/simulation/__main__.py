"""`python -m tests.campaigns.simulation`: simulate the project's own agents, in several processes."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import cycle, islice
from typing import Final, NamedTuple

from turnwright_testing.simulation import simulate
from turnwright_testing.simulation.shrink import plain

from .targets import TARGETS

#: The schedules of one target that a process runs in one go.
_CHUNK: Final = 250


class _Chunk(NamedTuple):
    target: str
    seed: int
    schedules: int


class _Seen(NamedTuple):
    """The result of a chunk. `failure` describes the schedule that broke a promise."""

    chunk: _Chunk
    schedules: int
    virtual: float
    ends: Counter[str]
    row_counts: list[int]
    failure: str = ""


def main() -> int:
    """Run the schedules. Exit code 0 if every promise is kept, 1 if one is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=7000, metavar="N", help="schedules in all (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first seed (%(default)s)")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="processes at once (%(default)s)")
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this one; may be repeated")
    options = parser.parse_args()
    start, ends, rows, schedules, virtual = time.monotonic(), Counter[str](), Counter[int](), 0, 0.0
    with ProcessPoolExecutor(options.processes) as pool:
        chunks = list(_chunks(options.target or list(TARGETS), options.seed, options.schedules))
        for chunk_result in pool.map(_run, chunks):
            schedules += chunk_result.schedules
            virtual += chunk_result.virtual
            ends.update(chunk_result.ends)
            rows.update(row for row, times in enumerate(chunk_result.row_counts, start=1) if times)
            if chunk_result.failure:
                pool.shutdown(cancel_futures=True)
                sys.stdout.write(chunk_result.failure)
                return 1
    seconds = time.monotonic() - start
    sys.stdout.write(
        f"{schedules:,} schedules keep every promise: {sum(ends.values()):,} turns, {len(rows)} rows of the chart\n"
        f"{virtual / 3600:,.0f} hours of virtual time in {seconds:,.0f} s, {schedules / seconds:.0f} a second\n"
    )
    for end, count in ends.most_common():
        sys.stdout.write(f"  {end:<28} {count:>9,}\n")
    return 0


def _chunks(targets: list[str], seed: int, schedules: int) -> Iterator[_Chunk]:
    """Return chunks of all targets in turn; each chunk has seeds of its own."""
    number = -(-schedules // _CHUNK)
    for place, target in enumerate(islice(cycle(targets), number)):
        first = place * _CHUNK
        yield _Chunk(target, seed + first, min(_CHUNK, schedules - first))


def _run(chunk: _Chunk) -> _Seen:
    report = simulate([TARGETS[chunk.target]], schedules=chunk.schedules, seed=chunk.seed)
    failure = ""
    if report.found is not None:
        lines = [f"violated: {violation.claim}: {violation.detail}" for violation in report.found.violations]
        lines += [f"  {line}" for line in report.found.trace]
        lines += [f"target {chunk.target}, seed {report.found.seed}, choices {plain(report.found.choices)}"]
        failure = "\n".join([*lines, ""])
    return _Seen(chunk, report.schedules, report.virtual, report.ends, list(report.rows.taken), failure)


if __name__ == "__main__":
    sys.exit(main())
