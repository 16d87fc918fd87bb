"""`turnwright fuzz --agents desk.py:DESK`: rehearses agents that are code, with their real tools."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from turnwright._base.words import count
from turnwright.cli import codes
from turnwright_states.verdict import Verdict
from turnwright_testing.desk.desk import Desk
from turnwright_testing.desk.fuzz import DeskReport, as_test, fuzz_desk

from .run_output import ProgressLine, Run

#: The seconds of the rehearsals of all agents, if the user names none, and the examples that are enough then.
_SECONDS: Final = 25.0
_ENOUGH: Final = 5


def rehearse(desks: Mapping[str, Desk], run: Run, examples: int, *, strict: bool, command: str) -> int:
    """Rehearse each desk, and print what was reached, or the failure. Return the exit code.

    `desks` are by the expressions that load them. `command` is the command without the seed and the number of examples.
    Raises `ConfigError`.
    """
    reports: list[DeskReport] = []
    share = (_SECONDS if run.seconds is None else run.seconds) / len(desks)
    for expression, desk in desks.items():
        progress = ProgressLine(desk.agent.name, examples, verb="rehearsing")
        report = fuzz_desk(desk, examples=examples, seed=run.seed, seconds=share, progress=progress.show)
        reports.append(report)
        if report.fault is not None:
            # Without a limit of time, which another machine would reach before the example.
            again = f"{command} --examples {report.examples} --seconds inf --seed {run.seed}"
            number = f"found in example {report.examples} of {report.planned}, after {report.seconds:.1f} s"
            test = as_test(report, expression, command=again)
            run.fail(f"violated: {report.fault}", number, command=again, test=test)
            return codes.FAILED
        if run.seconds is None and report.examples >= _ENOUGH:
            report.stopped = ""
    run.out.write(*_report_lines(reports, run.seed))
    warnings = [warning for report in reports for warning in report.reached.warn()]
    if any(report.verdict is Verdict.INCONCLUSIVE for report in reports):
        return codes.INCONCLUSIVE
    return codes.FAILED if strict and warnings else 0


def _report_lines(reports: Sequence[DeskReport], seed: int) -> Iterator[str]:
    """Return the lines of a run without a failure."""
    names = ", ".join(report.desk.agent.name for report in reports)
    examples = sum(report.examples for report in reports)
    turns = sum(report.reached.ends.total() for report in reports)
    tools = len({tool.name for report in reports for tool in report.desk.tools})
    seconds = sum(report.seconds for report in reports)
    yield (
        f"played {examples} examples, {turns} turns, with {names} and {count(tools, 'tool')}:"
        f" seed {seed}, {seconds:.1f} s"
    )
    yield "the tools were run for real (--stand-ins replaces them)"
    for report in reports:
        yield from report.lines()
        if report.stopped:
            yield f"inconclusive: {report.stopped}"
