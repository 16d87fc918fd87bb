"""Many schedules: those of the seeds from one on, until one breaks a promise."""

import gc
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from turnwright_states.row_counts import RowCounts
from turnwright_states.verdict import Check, Verdict

from .schedule import Schedule, SimulationTarget, run_schedule
from .shrink import shrink

#: Called with the number of schedules so far, and whether a failing one is being made smaller.
Progress = Callable[[int, bool], None]

#: Schedules after which the garbage of those before is collected.
_COLLECT_EVERY: Final = 50


@dataclass(slots=True)
class SimulationReport:
    """The result of a run. `stopped` says why it did not get through its schedules.

    `ends` counts turns by `outcome/reason`. `found` is the schedule that broke a promise, made smaller; its seed is the
    one that found it, in `agent`'s turns. `virtual` are the seconds that passed on the virtual clocks.
    """

    seed: int
    wanted: int
    schedules: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    rows: RowCounts = field(default_factory=RowCounts.none)
    seconds: float = 0.0
    virtual: float = 0.0
    stopped: str = ""
    found: Schedule | None = None
    target: SimulationTarget | None = None
    verdicts: dict[str, Counter[Verdict]] = field(default_factory=dict)

    @property
    def checks(self) -> list[Check]:
        """Return one check of each claim, over all schedules."""
        return [self._summed(claim, counted) for claim, counted in self.verdicts.items()]

    def add(self, schedule: Schedule) -> None:
        """Count one schedule."""
        self.schedules += 1
        self.virtual += schedule.seconds
        self.ends.update(schedule.ends)
        for check in schedule.checks:
            self.verdicts.setdefault(check.claim, Counter())[check.verdict] += 1

    def _summed(self, claim: str, counted: Counter[Verdict]) -> Check:
        if counted[Verdict.VIOLATED]:
            return Check(claim, Verdict.VIOLATED, f"in {counted[Verdict.VIOLATED]} of {self.schedules} schedules")
        if self.stopped:
            return Check(claim, Verdict.INCONCLUSIVE, self.stopped)
        if not counted[Verdict.HOLDS]:
            return Check(claim, Verdict.INCONCLUSIVE, "nothing was seen that would show it")
        return Check(claim, Verdict.HOLDS, f"in {counted[Verdict.HOLDS]} schedules")


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
            progress(report.schedules, False)
            if schedule.violations:
                report.rows = RowCounts.now() - before
                report.target, report.found = target, schedule
                on_progress = partial(progress, report.schedules, True)
                report.found = shrink(schedule, partial(_again, target, number), progress=on_progress)
                break
            if number % _COLLECT_EVERY == 0:
                gc.collect()
    except KeyboardInterrupt:
        report.stopped = f"it was interrupted after {report.schedules} of {schedules} schedules"
    if report.found is None:
        report.rows = RowCounts.now() - before
    report.seconds = time.monotonic() - start
    return report


def _again(target: SimulationTarget, seed: int, choices: object) -> Schedule:
    return run_schedule(target, seed, choices=choices)  # type: ignore[arg-type]  # a partial hides the type
