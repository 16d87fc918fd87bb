"""`turnwright verify`: lints the chart, walks the machine that ships, and says what was checked."""

import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.pool import Pool
from typing import Annotated, Final, TypeVar

import typer
from rich.progress import BarColumn, Progress, TextColumn

from turnwright.errors import ConfigError
from turnwright.proof.spin import each_check
from turnwright_states.verdict import Check, Verdict
from turnwright_states.verify import BOUND, MOST, Case, Search, ViolationError, Walk, findings, grid, lint, reach, walk

from .check_report import exit_code, json_of, lines_of
from .process import echo_json
from .reachability import drawn, json_of_witness, narrowed, read_goal
from .screen import Screen, print_lines

#: Cases that a process is handed at once.
_CHUNK: Final = 4

#: Seconds that a process takes for a walk of weight 1, and with how much weight that guess counts: until walks have
#: been timed here, it alone says how long all of them will take.
_GUESS: Final = 0.01
_GUESSED: Final = 500.0

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
        report = VerifyReport(as_json=as_json)
        report.add("the chart, as it is written", lint())
        cases = sorted(grid(bound), key=weight, reverse=True)
        processes = min(workers, len(cases))
        with _pool(processes) as pool:
            walks = _Watched(pool, processes, quiet=as_json)(partial(walk, most=most), cases)
            report.add_walks(f"the machine, walked within bound {bound}", walks)
        if spin:
            report.add("the chart's model, searched by SPIN", each_check())
        raise typer.Exit(report.close())
    if spin:
        raise ConfigError("--spin and --can-reach are two things to do: give one of them")
    goal, values = read_goal(can_reach, conditions or ())
    chosen = narrowed(grid(bound), values)
    processes = min(workers, len(chosen))
    with _pool(processes) as pool:
        found = reach(chosen, goal, each=_Watched(pool, processes, quiet=as_json), most=most)
    asked = " with ".join((can_reach, *conditions)) if conditions else can_reach
    raise typer.Exit(answer(asked, found, f"the {len(chosen)} cases of bound {bound}", as_json=as_json))


def weight(case: Case) -> float:
    """Return a guess at a walk's size. The long ones begin first."""
    limits = case.limits
    wide = case.widest**2 * (2 if limits.doom_threshold is None else 6) * (1 + limits.max_pauses)
    return wide * limits.allowance * (1 + case.delegates)


class Estimate:
    """How long walks will take, by those that are through."""

    def __init__(self, total: float, processes: int, now: Callable[[], float] = time.monotonic) -> None:
        self._total, self._processes, self._now = max(total, 1.0), processes, now
        self._began = now()
        self.done = 0.0

    def __str__(self) -> str:
        """Say the share that is through, and how long the rest takes: ` 42 %, about 9 s left`."""
        spent = (self._now() - self._began) * self._processes
        each = (spent + _GUESS * _GUESSED) / (self.done + _GUESSED)
        left = (self._total - self.done) * each / self._processes
        words = f"{left:.0f} s" if left < 90 else f"{left / 60:.0f} min"  # noqa: PLR2004 (seconds that are said as such)
        return f"{100 * self.done / self._total:>3.0f} %, about {words} left"


@contextmanager
def walking(cases: Sequence[Case], processes: int, *, quiet: bool) -> Iterator[Callable[[Case], None]]:
    """Show a bar while cases are walked, which whoever walks them tells of each. It is there at once.

    It stands on stderr, or where that is no terminal, on stdout; nowhere if neither is one.
    """
    screen = Screen(err=sys.stderr.isatty() or quiet)
    estimate = Estimate(sum(map(weight, cases)), processes)
    columns = (TextColumn("walking"), BarColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("", total=sum(map(weight, cases)) or 1.0, left=estimate)

        def walked(case: Case) -> None:
            estimate.done += weight(case)
            bar.update(task, completed=estimate.done)

        yield walked


class _Watched:
    """What `map` does, for cases, in several processes, with a bar until the last one is through."""

    def __init__(self, pool: Pool, processes: int, *, quiet: bool) -> None:
        self._pool, self._processes, self._quiet = pool, processes, quiet

    def __call__(self, work: Callable[[Case], _Made], cases: Sequence[Case]) -> Iterator[_Made]:
        """Give what comes of each case, in their order."""
        came: dict[int, _Made | Exception] = {}
        due = 0
        with walking(cases, self._processes, quiet=self._quiet) as walked:
            worked = self._pool.imap_unordered(partial(_numbered, work), enumerate(cases), chunksize=_CHUNK)
            for number, made in worked:
                came[number] = made
                walked(cases[number])
                while due in came:
                    first = came.pop(due)
                    if isinstance(first, Exception):
                        raise first
                    yield first
                    due += 1


def _numbered(work: Callable[[Case], _Made], given: tuple[int, Case]) -> tuple[int, _Made | Exception]:
    """Return what came of it with its number. An error comes out when it is its turn."""
    number, one = given
    try:
        return number, work(one)
    except Exception as error:  # noqa: BLE001 (raised where the others are)
        return number, error


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


class VerifyReport:
    """What `verify` prints: the checks as they become known, a line that sums them up, and the exit code.

    As JSON it is one object at the end.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._checks: list[Check] = []
        self._total = Walk()

    def add(self, heading: str, checks: Iterable[Check]) -> None:
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
        except ViolationError as fault:
            violation = fault
        self.add(heading, findings(total, violation))
        self._say(
            f"  walked {_count(total.configurations, 'configuration')} over {_count(total.edges, 'event')}"
            f" in {_count(total.walks, 'walk')}, {time.monotonic() - began:.0f} s"
        )
        self._say("events into each end:", *(f"  {end:<28} {seen:>9,}" for end, seen in sorted(total.ends.items())))

    def close(self) -> int:
        if self._as_json:
            total = self._total
            counts = {"walks": total.walks, "configurations": total.configurations, "events": total.edges}
            echo_json(json_of(self._checks) | counts | {"ends": total.ends})
        found = Counter(check.verdict for check in self._checks)
        each = ", ".join(f"{found[verdict]} {word}" for verdict, word in _SUM.items() if found[verdict])
        self._say(f"{_count(len(self._checks), 'check')}: {each or 'nothing was checked'}")
        return exit_code(self._checks)

    def _say(self, *lines: str) -> None:
        if not self._as_json:
            print_lines(lines)


_SUM: Final = {Verdict.HOLDS: "hold", Verdict.VIOLATED: "violated", Verdict.INCONCLUSIVE: "inconclusive"}


def answer(asked: str, found: Search, where: str, *, as_json: bool = False) -> int:
    """Print the way that was found, drawn, or that there was none `where` it was looked for. Returns the exit code."""
    if found.witness is not None:
        if as_json:
            echo_json({"reached": True} | json_of_witness(found.witness))
        else:
            print_lines([f"{asked}: reached in {_count(len(found.witness.events), 'event')}, and in no fewer", ""])
            print_lines(drawn(found.witness))
        return 0
    seen = f"not in {_count(found.configurations, 'configuration')} of {where}, and nothing is said of larger ones"
    if found.cut:
        seen = f"the search was cut: {seen}"
    check = Check(f"{asked} can be reached", Verdict.INCONCLUSIVE, seen)
    if as_json:
        echo_json({"reached": False} | json_of([check]))
    else:
        print_lines(lines_of([check]))
    return exit_code([check])


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
