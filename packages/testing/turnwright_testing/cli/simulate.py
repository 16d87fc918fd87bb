"""`turnwright fuzz --simulate`: many schedules of the user's agents, each with several processes, people and faults."""

from collections.abc import Callable, Iterator, Sequence
from typing import cast

from turnwright.agent import Agent
from turnwright.cli.check_report import lines_of_turns
from turnwright_testing.failing_test import FailureOrigin
from turnwright_testing.simulation import SimulationReport
from turnwright_testing.simulation.campaign import as_schedule_test
from turnwright_testing.simulation.shrink import plain

from .run_output import Run

#: Lines of a trace that are shown.
_MOST_LINES = 200


def print_simulation(
    report: SimulationReport,
    run: Run,
    agents: Sequence[Agent],
    command: str,
    origin_of: Callable[[Agent], FailureOrigin],
) -> None:
    """Print the report, or the reduced failure and a test that fails in the same way.

    `command` is the command without the seed and the number of schedules; `origin_of` says how a test makes an agent.
    """
    schedule, target = report.found, report.target
    if schedule is None or target is None:
        run.out.write(*_report_lines(report, agents))
        return
    again = f"{command} --schedules 1 --seed {schedule.seed}"
    kept_choices = sum(number > 0 for numbers in plain(schedule.choices).values() for number in numbers)
    run.fail(
        *(f"violated: {violation.claim}: {violation.detail}" for violation in schedule.violations),
        *(f"  {line}" for line in schedule.trace[-_MOST_LINES:]),
        f"found in schedule {report.schedules} of {report.wanted}, whose seed is {schedule.seed}",
        f"reduced to {kept_choices} choices that are not the simplest",
        command=again,
        test=as_schedule_test(schedule, target, origin_of(cast("Agent", target.agent)), command=again),
    )


def _report_lines(report: SimulationReport, agents: Sequence[Agent]) -> Iterator[str]:
    names = ", ".join(agent.name for agent in agents)
    first, last = report.seed, report.seed + max(report.schedules, 1) - 1
    turns = report.ends.total()
    yield f"simulated {report.schedules:,} schedules, {turns:,} turns, with {names}: seeds {first} to {last}"
    a_second = report.schedules / report.seconds if report.seconds else 0
    hours = report.virtual / 3600
    yield f"{report.seconds:.1f} s, {a_second:.0f} schedules a second; {hours:.1f} hours of virtual time"
    yield "stand-ins replaced the tools: no tool was run"
    yield from report.lines()
    yield from lines_of_turns(report.ends, report.rows)
