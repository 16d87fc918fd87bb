"""Many schedules: those of the seeds from one on, until one breaks a promise."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from turnwright_states.row_counts import RowCounts
from turnwright_testing.failing_test import FailureOrigin, failing_test
from turnwright_testing.python_source import Imports, code
from turnwright_testing.run_report import RunReport

from .choices import Made
from .schedule import Schedule, SimulationTarget, assert_schedule, run_schedule
from .shrink import plain, shrink

#: Called with the number of schedules so far, and whether a failing one is being made smaller.
Progress = Callable[[int, bool], None]

#: Schedules after which the garbage of those before is collected.
_COLLECT_EVERY: Final = 50


@dataclass(slots=True)
class SimulationReport(RunReport):
    """The result of a run.

    `found` is the schedule of the `target` that broke a promise, made smaller; its seed is the one that found it.
    `virtual` are the seconds that passed on the virtual clocks.
    """

    schedules: int = 0
    virtual: float = 0.0
    found: Schedule | None = None
    target: SimulationTarget | None = None

    checked: ClassVar[str] = "schedules"

    @property
    def total(self) -> int:
        return self.schedules

    def add(self, schedule: Schedule) -> None:
        """Count one schedule."""
        self.schedules += 1
        self.virtual += schedule.seconds
        self.ends.update(schedule.ends)
        self.count(schedule.checks)


def simulate(
    targets: Sequence[SimulationTarget],
    *,
    schedules: int = 200,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress = lambda _schedules, _failed: None,
) -> SimulationReport:
    """Run the schedules of the seeds `seed`, `seed + 1`, ..., until one breaks a promise, or `seconds` are over.

    The targets are simulated in turn, so a seed repeats a schedule where the targets are the same. Ctrl-C stops the
    run. Raises `ConfigError` for an agent that cannot run with its tools.
    """
    start, before = time.monotonic(), RowCounts.now()
    report = SimulationReport(seed, schedules)
    try:
        for number in range(seed, seed + schedules):
            if seconds is not None and time.monotonic() - start >= seconds:
                report.stopped = f"the time was up after {report.schedules} of {schedules} schedules"
                break
            target = targets[number % len(targets)]
            schedule = run_schedule(target, number)
            report.add(schedule)
            report.rows = RowCounts.now() - before
            progress(report.schedules, False)
            if schedule.violations:
                report.target, report.found = target, schedule
                on_progress = partial(progress, report.schedules, True)
                report.found = shrink(schedule, partial(_again, target, number), progress=on_progress)
                break
            if number % _COLLECT_EVERY == 0:
                gc.collect()
    except KeyboardInterrupt:
        report.stopped = f"it was interrupted after {report.schedules} of {schedules} schedules"
    report.seconds = time.monotonic() - start
    return report


def _again(target: SimulationTarget, seed: int, choices: Made) -> Schedule:
    return run_schedule(target, seed, choices=choices)


def as_schedule_test(schedule: Schedule, target: SimulationTarget, origin: FailureOrigin, *, command: str) -> str:
    """Return a pytest file that runs a schedule of the target again. See `failing_test`."""
    imports = Imports()
    names = origin.names(imports)
    arguments = ["AGENT", "tuple(TOOLS)", *(["build=BUILD"] if origin.build else [])]
    arguments += [f"metadata={code(target.metadata, imports)}"] if target.metadata else []
    target_source = f"{imports.name(SimulationTarget)}({', '.join(arguments)})"
    run = f"{imports.name(run_schedule)}({target_source}, {schedule.seed}, choices=CHOICES)"
    return failing_test(
        "test_every_promise_holds",
        f"{imports.name(assert_schedule)}({run})",
        names | {"CHOICES": code(plain(schedule.choices), imports, before=len("CHOICES = "))},
        imports,
        command=command,
        notes=[f"violated: {check.claim}: {check.detail!a}" for check in schedule.violations],
    )
