"""`turnwright verify`: walks the machine that ships, and says what was checked."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterable
from multiprocessing.pool import Pool
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from turnwright_states.verify import Case, Violation, Walk, grid, walk

from . import codes


def verify(
    *,
    processes: Annotated[
        int | None, typer.Option("--processes", metavar="N", min=1, help="How many walk at once [default: all cores].")
    ] = None,
) -> None:
    """Walk every configuration that a turn can reach within small bounds, and check that each path ends.

    Exit code 0 when every check holds, 1 when one is violated; the way to the fault is printed.
    """
    cases = sorted(grid(), key=_weight, reverse=True)
    with _pool(processes or os.cpu_count() or 1) as pool:
        walks = pool.imap(walk, cases, chunksize=4)
        code = verdict(track(walks, "walking", len(cases), console=Console(stderr=True), transient=True))
    raise typer.Exit(code)


def _pool(processes: int) -> Pool:
    """Processes that Ctrl-C leaves alone: a terminal sends it to all of them, and this one ends the others."""
    context = multiprocessing.get_context("spawn")
    # The first lock starts a helper of multiprocessing's own, which would lift the block below.
    context.Lock()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which they inherit; what comes meanwhile is kept
    try:
        return context.Pool(processes)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def verdict(walks: Iterable[Walk]) -> int:
    """Add walks up as they come in, print what they found, and return the exit code.

    A walk that finds a fault raises `Violation` where it is due.
    """
    began = time.monotonic()
    total = Walk()
    try:
        for done in walks:
            total.add(done)
    except Violation as violation:
        typer.echo(f"violated: {violation}", err=True)
        return codes.FAILED
    untaken = total.untaken()
    report(total, time.monotonic() - began)
    for row in untaken:
        typer.echo(f"violated: no walk took the row {row.name}", err=True)
    return codes.FAILED if untaken else 0


def report(total: Walk, seconds: float) -> None:
    """Print the counts of a whole campaign."""
    typer.echo(
        f"walked {total.configurations:,} configurations over {total.edges:,} edges"
        f" in {total.walks} walks, {seconds:.0f} s"
    )
    taken = [] if total.untaken() else [f"every row of the chart was taken ({len(total.rows)})"]
    for line in (
        "the rank falls on every edge; no cycle; a way on from every configuration",
        "steps <= allowance, started calls <= budget, model calls <= (allowance + 1) x (1 + max_retries)",
        "every call of a closed step has its result; one outcome and one reason at each end",
        *taken,
    ):
        typer.echo(f"  holds: {line}")
    typer.echo("edges into each end:")
    for end, count in sorted(total.ends.items()):
        typer.echo(f"  {end:<28} {count:>9,}")


def _weight(case: Case) -> int:
    """A guess at a walk's size, so that the long ones begin first."""
    limits = case.limits
    return (limits.doom_threshold or 0) * 100 + limits.allowance * 10 + limits.max_pauses
