"""`turnwright fuzz --agents desk.py:DESK`: rehearses agents that are code, then plays them with stand-ins."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from turnwright._base.words import count
from turnwright.cli import codes
from turnwright.cli.process import Output, echo
from turnwright.context import JsonObject
from turnwright.errors import ConfigError
from turnwright_states.verdict import Verdict
from turnwright_testing.desk.desk import Desk, load_desk, load_desks
from turnwright_testing.desk.fuzz import DeskReport, as_test, fuzz_desk
from turnwright_testing.python_source import code

#: Seconds between two lines about the progress.
_EVERY: Final = 2.0
#: The seconds of the rehearsals of all agents, if the user names none, and the examples that are enough then.
_SECONDS: Final = 25.0
_ENOUGH: Final = 5


@dataclass(frozen=True, slots=True)
class DeskOptions:
    """The options that say which agents are rehearsed."""

    source: str
    agent: str
    tools: str
    root: str
    metadata: JsonObject

    def load(self) -> list[Desk]:
        """Load the desks. Raises `ConfigError`."""
        desks = load_desks(self.source, tools=self.tools, root=self.root)
        if self.agent:
            desks = [desk for desk in desks if desk.agent.name == self.agent] or [load_desk(self.source, self.agent)]
        return [replace(desk, metadata=(self.metadata,)) if self.metadata else desk for desk in desks]

    def expression(self, name: str) -> str:
        """Return the source of the expression that loads one desk."""
        arguments = [code(self.source), *([code(name)] if ":" not in self.source else [])]
        arguments += [f"tools={code(self.tools)}"] if self.tools else []
        return f"load_desk({', '.join(arguments)})"


def rehearse(
    options: DeskOptions,
    *,
    examples: int,
    seed: int,
    seconds: float | None,
    strict: bool,
    test: Path | None,
    command: str,
) -> int:
    """Rehearse each desk, and print what was reached, or the failure. Return the exit code.

    `command` is the command without the seed and the number of examples. Raises `ConfigError`.
    """
    desks = options.load()
    out = Output(alone=True)  # a tool may print, but not inside a printed test
    reports: list[DeskReport] = []
    share = (_SECONDS if seconds is None else seconds) / len(desks)
    for desk in desks:
        progress = ProgressLine(desk.agent.name, examples)
        report = fuzz_desk(desk, examples=examples, seed=seed, seconds=share, progress=progress.show)
        reports.append(report)
        if report.fault is not None:
            _print_failure(report)
            # Without a limit of time, which another machine would reach before the example.
            again = f"{command} --examples {report.examples} --seconds inf --seed {seed}"
            text = as_test(report, options.expression(desk.agent.name), command=again)
            _write(text, test, out)
            echo(f"to repeat: {again}", err=True)
            return codes.FAILED
        if seconds is None and report.examples >= _ENOUGH:
            report.stopped = ""
    out.write(*_report_lines(reports, seed))
    warnings = [warning for report in reports for warning in report.reached.warn()]
    if any(report.verdict is Verdict.INCONCLUSIVE for report in reports):
        return codes.INCONCLUSIVE
    return codes.FAILED if strict and warnings else 0


class ProgressLine:
    """A line on standard error every two seconds."""

    def __init__(self, name: str, total: int) -> None:
        self._name = name
        self._planned = total
        self._start = self._last = time.monotonic()

    def show(self, examples: int, smaller: bool) -> None:
        """Print the progress, unless that was done a moment ago."""
        now = time.monotonic()
        if now - self._last >= _EVERY:
            self._last = now
            verb = "reducing the failure" if smaller else "rehearsing"
            echo(f"{verb}: {self._name}, example {examples} of {self._planned}, {now - self._start:.0f} s", err=True)


def _print_failure(report: DeskReport) -> None:
    echo(f"violated: {report.fault}", err=True)
    echo(f"found in example {report.examples} of {report.planned}, after {report.seconds:.1f} s", err=True)


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


def _write(text: str, file: Path | None, out: Output) -> None:
    if file is None:
        echo("a test that fails in this way is on stdout: save it in a file, and run pytest", err=True)
        out.write(text.removesuffix("\n"))
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--test {file}: cannot be written: {error.strerror}") from None
    echo(f"a test that fails in this way is in {file}: run pytest {file}", err=True)
