"""`turnwright verify`: lints the chart, walks the machine that ships, and says what was checked."""

import json
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.pool import Pool
from typing import Annotated, Final, TypeVar

import typer
from rich.console import Console
from rich.progress import track

from turnwright.errors import ConfigError
from turnwright.proof.spin import each_check
from turnwright_states.verdict import Check, Verdict
from turnwright_states.verify import (
    BOUND,
    MOST,
    Case,
    Search,
    Violation,
    Walk,
    findings,
    grid,
    lint,
    reach,
    walk,
)

from .goal import narrowed, read_goal
from .verdicts import exit_code, json_of, lines_of
from .witness import drawn, json_of_witness

#: Cases that a process is handed at once.
_CHUNK: Final = 4

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


def verify(
    *,
    bound: Annotated[
        int, typer.Option("--bound", metavar="N", min=0, max=200, help="How far the walk goes: caps 0 to N, and more.")
    ] = BOUND,
    spin: Annotated[
        bool, typer.Option("--spin", help="Have SPIN prove the chart's model as well (needs spin and a C compiler).")
    ] = False,
    can_reach: Annotated[
        str | None,
        typer.Option(
            "--can-reach",
            metavar="END",
            help="Only look for a shortest way to an end: an outcome, OUTCOME/REASON or a reason.",
        ),
    ] = None,
    conditions: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="CONDITION",
            help="What that way must have: LIMIT=VALUE, a state that it passes, or an event. May be repeated.",
            show_default=False,
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", metavar="N", min=1, help="How many walk at once [default: all cores].")
    ] = None,
    most: Annotated[
        int,
        typer.Option("--max-configurations", metavar="N", min=1, help="Cut a walk there, and say that it was cut."),
    ] = MOST,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Lint the chart, then walk every configuration that a turn can reach within small bounds: each path ends.

    What is walked is the machine that ships, fed with everything that its
    surroundings may do. A claim holds, is violated (the way to the fault is
    printed), or is inconclusive: nobody knows, and it is not counted as a pass.

    --can-reach answers with a shortest way through the chart, drawn:
    turnwright verify --can-reach cap_hit/budget --with steps=4 --with PAUSED

    Exit codes: 0 all hold (or a way was found), 1 violated, 2 usage, 6 inconclusive.
    """
    workers = processes or os.cpu_count() or 1
    if can_reach is None:
        if conditions:
            raise ConfigError("--with narrows what --can-reach looks for: give --can-reach as well")
        report = Report(as_json=as_json)
        report.add("the chart, as it is written", lint())
        cases = sorted(grid(bound), key=_weight, reverse=True)
        with _pool(min(workers, len(cases))) as pool:
            report.add_walks(
                f"the machine, walked within bound {bound}", _spread(pool, partial(walk, most=most), cases)
            )
        if spin:
            report.add("the chart's model, searched by SPIN", each_check())
        raise typer.Exit(report.close())
    if spin:
        raise ConfigError("--spin and --can-reach are two things to do: give one of them")
    goal, values = read_goal(can_reach, conditions or ())
    chosen = narrowed(grid(bound), values)
    with _pool(min(workers, len(chosen))) as pool:
        found = reach(chosen, goal, each=partial(_spread, pool), most=most)
    asked = " with ".join((can_reach, *conditions)) if conditions else can_reach
    raise typer.Exit(answer(asked, found, f"the {len(chosen)} cases of bound {bound}", as_json=as_json))


def _spread(pool: Pool, work: Callable[[_Given], _Made], over: Sequence[_Given]) -> Iterator[_Made]:
    """What `map` gives, from several processes, with a bar."""
    made = pool.imap(work, over, chunksize=_CHUNK)
    bar = Console(stderr=True)
    yield from track(made, "walking", len(over), console=bar, transient=True, disable=not bar.is_terminal)


@contextmanager
def _pool(processes: int) -> Iterator[Pool]:
    """Processes that Ctrl-C leaves alone: a terminal sends it to all of them, and this one ends the others."""
    context = multiprocessing.get_context("spawn")
    # The first lock starts a helper of multiprocessing's own, which would lift the block below.
    context.Lock()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which they inherit; what comes meanwhile is kept
    try:
        pool = context.Pool(processes)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with pool:
        yield pool


class Report:
    """What `verify` prints: the checks as they become known, a line that sums them up, and the exit code.

    As JSON it is one object at the end.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._checks: list[Check] = []
        self._total = Walk()

    def add(self, heading: str, checks: Iterable[Check]) -> None:
        """Print each check as it comes, under a heading."""
        self._say(f"{heading}:")
        for check in checks:
            self._checks.append(check)
            self._say(*(f"  {line}" for line in lines_of([check])))

    def add_walks(self, heading: str, walks: Iterable[Walk]) -> None:
        """Add walks up as they come in, and print what they found. One that finds a fault raises it where it is due."""
        began, total, violation = time.monotonic(), self._total, None
        try:
            for done in walks:
                total.add(done)
        except Violation as fault:
            violation = fault
        self.add(heading, findings(total, violation))
        self._say(
            f"  walked {_count(total.configurations, 'configuration')} over {_count(total.edges, 'event')}"
            f" in {_count(total.walks, 'walk')}, {time.monotonic() - began:.0f} s"
        )
        self._say("events into each end:", *(f"  {end:<28} {seen:>9,}" for end, seen in sorted(total.ends.items())))

    def close(self) -> int:
        """Print what it comes to, and return the exit code."""
        if self._as_json:
            total = self._total
            counts = {"walks": total.walks, "configurations": total.configurations, "events": total.edges}
            typer.echo(json.dumps(json_of(self._checks) | counts | {"ends": total.ends}))
        found = Counter(check.verdict for check in self._checks)
        each = ", ".join(f"{found[verdict]} {word}" for verdict, word in _SUM.items() if found[verdict])
        self._say(f"{_count(len(self._checks), 'check')}: {each or 'nothing was checked'}")
        return exit_code(self._checks)

    def _say(self, *lines: str) -> None:
        if not self._as_json:
            for line in lines:
                typer.echo(line)


_SUM: Final = {Verdict.HOLDS: "hold", Verdict.VIOLATED: "violated", Verdict.INCONCLUSIVE: "inconclusive"}


def answer(asked: str, found: Search, where: str, *, as_json: bool = False) -> int:
    """Print the way that was found, drawn, or that there was none `where` it was looked for. Returns the exit code."""
    if found.witness is not None:
        if as_json:
            typer.echo(json.dumps({"reached": True} | json_of_witness(found.witness)))
        else:
            typer.echo(f"{asked}: reached in {_count(len(found.witness.events), 'event')}, and in no fewer\n")
            typer.echo("\n".join(drawn(found.witness)))
        return 0
    seen = f"not in {_count(found.configurations, 'configuration')} of {where}, and nothing is said of larger ones"
    if found.cut:
        seen = f"the search was cut: {seen}"
    check = Check(f"{asked} can be reached", Verdict.INCONCLUSIVE, seen)
    if as_json:
        typer.echo(json.dumps({"reached": False} | json_of([check])))
    else:
        typer.echo("\n".join(lines_of([check])))
    return exit_code([check])


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _weight(case: Case) -> int:
    """A guess at a walk's size, so that the long ones begin first."""
    limits = case.limits
    wide = case.widest**2 * (2 if limits.doom_threshold is None else 6) * (1 + limits.max_pauses)
    return wide * limits.allowance * (1 + case.delegates)
