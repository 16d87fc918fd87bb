"""`turnwright verify`: checks the chart, and walks every path of the machine in small bounds."""

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
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer
from rich.progress import BarColumn, Progress, TextColumn

from turnwright._base.words import count
from turnwright.cli.check_report import exit_code, json_of, lines_of
from turnwright.cli.options import AgentsOption, ConfigOption, JsonObjectOption, ToolsOption, configuration
from turnwright.cli.process import echo_json
from turnwright.cli.screen import Screen, print_lines
from turnwright.config.config import Config
from turnwright.errors import ConfigError
from turnwright.rules import RuleSet
from turnwright_proof.smt.smt import each_smt_check, export
from turnwright_proof.verify import BOUND, MOST, Case, Search, ViolationError, Walk, findings, grid, lint, reach, walk
from turnwright_states.verdict import Check, Verdict

from .agent_rules import check_agents, lines_of_rules
from .reachability import draw_search, json_of_witness, narrow_cases, read_goal

#: Cases per task of a process.
_CHUNK: Final = 4

#: Seconds of a process for a walk of weight 1, and the weight of this guess in the estimate.
_GUESS: Final = 0.01
_GUESSED: Final = 500.0

_Made = TypeVar("_Made")


def verify(
    *,
    bound: Annotated[
        int,
        typer.Option(
            "--bound", metavar="N", min=0, max=200, help="The bound of the walk: step limits 0 to N, and more."
        ),
    ] = BOUND,
    smt: Annotated[
        bool,
        typer.Option("--smt", help="Also prove the bounds for all limits, with z3 and cvc5 (the extra smt)."),
    ] = False,
    smt_export: Annotated[
        Path | None,
        typer.Option(
            "--smt-export",
            metavar="DIR",
            help="Only write the queries of that proof as SMT-LIB files.",
            show_default=False,
        ),
    ] = None,
    walks: Annotated[
        bool, typer.Option("--walk/--no-walk", help="Walk the machine. Without, only the other checks run.")
    ] = True,
    can_reach: Annotated[
        str | None,
        typer.Option(
            "--can-reach",
            metavar="END",
            help="Only find a shortest path to an end: an outcome, OUTCOME/REASON or a reason.",
        ),
    ] = None,
    conditions: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="CONDITION",
            help="A condition on that path: LIMIT=VALUE, a state, or an event; may be repeated.",
            show_default=False,
        ),
    ] = None,
    agents: AgentsOption = None,
    tools: ToolsOption = None,
    rules: Annotated[
        Path | None,
        typer.Option("--rules", metavar="FILE", help="With --agents: rules of the engine, which hold for every agent."),
    ] = None,
    config: ConfigOption = None,
    processes: Annotated[
        int | None,
        typer.Option("--processes", metavar="N", min=1, help="The number of processes [default: all cores]."),
    ] = None,
    most: Annotated[
        int,
        typer.Option(
            "--max-configurations",
            metavar="N",
            min=1,
            help="Cut a walk after N configurations; the result is then inconclusive.",
        ),
    ] = MOST,
    as_json: JsonObjectOption = False,
) -> None:
    """Check the chart, and every path of a turn in small bounds.

    The walk feeds the shipped machine with every possible input, in every configuration within the bound. If a claim is
    violated, the path to the fault is printed. With the default bound it takes about two minutes on two idle cores.

    With --agents it checks the rules of these agents instead: what they guarantee, unknown tools, tools that never run,
    rules that never act, and paths without an answer. The machine is walked with these rules, and each start and each
    answer is compared with the definitions of the rules. The shortest path to a broken rule is printed.

    Exit codes: 0 all claims hold (or a path was found), 1 violated, 2 usage, 6 inconclusive.
    """
    workers = processes or os.cpu_count() or 1
    if rules is not None and not agents:
        raise ConfigError("--rules holds for agents: give --agents as well")
    if agents:
        engine_rules = None if rules is None else RuleSet.load(rules)
        settings = configuration(config, {})
        raise typer.Exit(_verify_rules(settings, agents, tools, engine_rules, as_json=as_json))
    if smt_export is not None:
        print_lines(f"written: {file}" for file in export(smt_export))
        return
    if can_reach is None:
        if conditions:
            raise ConfigError("--with is a condition for --can-reach: give --can-reach as well")
        smt_checks = each_smt_check() if smt else ()  # raises before the walk if z3 is missing
        report = VerifyReport(as_json=as_json)
        report.add("the chart", lint())
        if walks:
            cases = sorted(grid(bound), key=weight, reverse=True)
            processes = min(workers, len(cases))
            with _pool(processes) as pool:
                walk_results = _ParallelMap(pool, processes, quiet=as_json)(partial(walk, most=most), cases)
                report.add_walks(f"the machine, walked within bound {bound}", walk_results)
        if smt:
            report.add("the chart and the effects, proven for all limits by SMT", smt_checks)
        raise typer.Exit(report.close())
    for flag, is_set in (("--smt", smt), ("--no-walk", not walks)):
        if is_set:
            raise ConfigError(f"{flag} and --can-reach exclude each other: give one of them")
    goal, values = read_goal(can_reach, conditions or ())
    cases = narrow_cases(grid(bound), values)
    processes = min(workers, len(cases))
    with _pool(processes) as pool:
        result = reach(cases, goal, each=_ParallelMap(pool, processes, quiet=as_json), most=most)
    question = " with ".join((can_reach, *conditions)) if conditions else can_reach
    raise typer.Exit(answer(question, result, f"the {len(cases)} cases of bound {bound}", as_json=as_json))


def _verify_rules(
    settings: Config, source: str, tools: str | None, engine_rules: RuleSet | None, *, as_json: bool
) -> int:
    """Print what the rules of agents guarantee, and their faults. Returns the exit code."""
    checks_by_agent = dict(check_agents(settings, source, tools, engine_rules))
    checks = [rule_check for checks in checks_by_agent.values() for rule_check in checks]
    if as_json:
        echo_json(json_of(checks))
    elif not checks_by_agent:
        print_lines(["no agent has rules"])
    else:
        for agent, agent_checks in checks_by_agent.items():
            print_lines([f"the rules of agent {agent!r}:", *lines_of_rules(agent_checks)])
    return exit_code(checks) if checks else 0


def weight(case: Case) -> float:
    """Return an estimate of a walk's size. Long walks start first."""
    limits = case.limits
    wide = case.widest**2 * (2 if limits.doom_threshold is None else 6) * (1 + limits.max_pauses)
    return wide * limits.allowance * (1 + case.delegates)


class Estimate:
    """An estimate of the remaining time, from the walks that are done."""

    def __init__(self, total: float, processes: int, now: Callable[[], float] = time.monotonic) -> None:
        self._total, self._processes, self._now = max(total, 1.0), processes, now
        self._start = now()
        self.done = 0.0

    def __str__(self) -> str:
        """Return the share that is done and the remaining time: ` 42 %, about 9 s left`."""
        spent_seconds = (self._now() - self._start) * self._processes
        seconds_each = (spent_seconds + _GUESS * _GUESSED) / (self.done + _GUESSED)
        remaining_seconds = (self._total - self.done) * seconds_each / self._processes
        words = f"{remaining_seconds:.0f} s" if remaining_seconds < 90 else f"{remaining_seconds / 60:.0f} min"  # noqa: PLR2004 (a limit for seconds as a unit)
        return f"{100 * self.done / self._total:>3.0f} %, about {words} left"


@contextmanager
def walking(cases: Sequence[Case], processes: int, *, quiet: bool) -> Iterator[Callable[[Case], None]]:
    """Show a progress bar while cases are walked. Yields a function to call after each case.

    The bar is on stderr, or on stdout if only that is a terminal, or nowhere.
    """
    screen = Screen(err=sys.stderr.isatty() or quiet)
    estimate = Estimate(sum(map(weight, cases)), processes)
    columns = (TextColumn("walking"), BarColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("", total=sum(map(weight, cases)) or 1.0, left=estimate)

        def note_walk(case: Case) -> None:
            estimate.done += weight(case)
            bar.update(task, completed=estimate.done)

        yield note_walk


class _ParallelMap:
    """`map` over cases in several processes, with a progress bar."""

    def __init__(self, pool: Pool, processes: int, *, quiet: bool) -> None:
        self._pool, self._processes, self._quiet = pool, processes, quiet

    def __call__(self, work: Callable[[Case], _Made], cases: Sequence[Case]) -> Iterator[_Made]:
        """Yield the result of each case, in their order."""
        results: dict[int, _Made | Exception] = {}
        due_number = 0
        with walking(cases, self._processes, quiet=self._quiet) as progress:
            numbered_results = self._pool.imap_unordered(
                partial(_number_result, work), enumerate(cases), chunksize=_CHUNK
            )
            for number, result in numbered_results:
                results[number] = result
                progress(cases[number])
                while due_number in results:
                    first = results.pop(due_number)
                    if isinstance(first, Exception):
                        raise first
                    yield first
                    due_number += 1


def _number_result(work: Callable[[Case], _Made], numbered_case: tuple[int, Case]) -> tuple[int, _Made | Exception]:
    """Return the number and the result, or the error, which is raised in the order of the cases."""
    number, case = numbered_case
    try:
        return number, work(case)
    except Exception as error:  # noqa: BLE001 (raised in the parent process)
        return number, error


@contextmanager
def _pool(processes: int) -> Iterator[Pool]:
    """Processes that ignore Ctrl-C. A terminal sends it to all of them, and the parent process ends the others."""
    context = multiprocessing.get_context("spawn")
    # The first lock starts a helper process of multiprocessing, which would remove the block below.
    context.Lock()
    signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGINT}
    )  # inherited by the processes; a signal that comes now stays pending
    try:
        pool = context.Pool(processes)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    with pool:
        yield pool


class VerifyReport:
    """Prints the checks as they finish, and a summary line; as JSON, one object at the end."""

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
        """Add up the walks as they finish, and print the findings. A walk raises the fault that it found."""
        start, total, violation = time.monotonic(), self._total, None
        try:
            for walk in walks:
                total.add(walk)
        except ViolationError as fault:
            violation = fault
        self.add(heading, findings(total, violation))
        self._say(
            f"  walked {count(total.configurations, 'configuration')} over {count(total.edges, 'event')}"
            f" in {count(total.walks, 'walk')}, {time.monotonic() - start:.0f} s"
        )
        self._say(
            "events into each end:",
            *(f"  {end:<28} {event_count:>9,}" for end, event_count in sorted(total.ends.items())),
        )

    def close(self) -> int:
        if self._as_json:
            total = self._total
            counts = {"walks": total.walks, "configurations": total.configurations, "events": total.edges}
            echo_json(json_of(self._checks) | counts | {"ends": total.ends})
        verdict_counts = Counter(check.verdict for check in self._checks)
        verdict_list = ", ".join(
            f"{verdict_counts[verdict]} {word}" for verdict, word in _SUM.items() if verdict_counts[verdict]
        )
        self._say(f"{count(len(self._checks), 'check')}: {verdict_list or 'no checks'}")
        return exit_code(self._checks)

    def _say(self, *lines: str) -> None:
        if not self._as_json:
            print_lines(lines)


_SUM: Final = {Verdict.HOLDS: "hold", Verdict.VIOLATED: "violated", Verdict.INCONCLUSIVE: "inconclusive"}


def answer(question: str, search: Search, where: str, *, as_json: bool = False) -> int:
    """Print the path that was found, or that there is none in `where`. Returns the exit code."""
    if search.witness is not None:
        if as_json:
            echo_json({"reached": True} | json_of_witness(search.witness))
        else:
            print_lines(
                [f"{question}: reached in {count(len(search.witness.events), 'event')}; no shorter path exists", ""]
            )
            print_lines(draw_search(search.witness))
        return 0
    sentence = f"not in {count(search.configurations, 'configuration')} of {where}; larger cases were not checked"
    if search.cut:
        sentence = f"the search was cut: {sentence}"
    check = Check(f"{question} can be reached", Verdict.INCONCLUSIVE, sentence)
    if as_json:
        echo_json({"reached": False} | json_of([check]))
    else:
        print_lines(lines_of([check]))
    return exit_code([check])
