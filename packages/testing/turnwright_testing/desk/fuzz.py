"""Rehearses a desk: visits by chance, played with the real tools, until one shows a fault."""

import itertools
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from turnwright_states.verdict import Verdict
from turnwright_testing.draw import quiet
from turnwright_testing.failing_test import failing_test
from turnwright_testing.python_source import Imports, code
from turnwright_testing.reached import Reached

from .chance import Chance
from .desk import Desk, load_desk
from .domain import Domain
from .rehearsal import Fault, Rehearsal, Script
from .shrink import play_case, shrink
from .visit import Visit, Visits

#: Called with the number of examples so far, and whether a failing one is being made smaller.
Progress = Callable[[int, bool], None]

#: The seeds of examples are below this number.
_SEEDS: Final = 1 << 32
#: How often a fault that real time decides about must come again.
_CONFIRMED: Final = 3
#: Each case shows a fault that `reset()` leaves behind, so that none can be made smaller.
_DIRTY: Final = "reset() leaves it so"


class CaseFailedError(AssertionError):
    """A case shows faults. The message names the tool or the hook in its first line."""


@dataclass(slots=True)
class DeskReport:
    """The result of a run: the `fault` with the smallest `case` that shows it, or None, and what was `reached`.

    `stopped` says why the run did not get through the `planned` examples.
    """

    desk: Desk
    seed: int
    planned: int
    examples: int = 0
    seconds: float = 0.0
    reached: Reached = field(default_factory=Reached)
    fault: Fault | None = None
    case: Visits = ()
    stopped: str = ""

    @property
    def verdict(self) -> Verdict:
        """Violated by a fault, inconclusive if it was stopped, and else it holds."""
        if self.fault is not None:
            return Verdict.VIOLATED
        return Verdict.INCONCLUSIVE if self.stopped else Verdict.HOLDS

    def lines(self) -> Iterator[str]:
        """Return what was reached, and a warning for each thing that never was."""
        turns = self.reached.ends.total()
        yield f"{self.desk.agent.name}: {self.examples} examples, {turns} turns, {self.seconds:.1f} s"
        yield from self.reached.lines()
        yield from (f"warning: {warning}" for warning in self.reached.warn())


def fuzz_desk(
    desk: Desk,
    *,
    examples: int = 200,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress = lambda _examples, _smaller: None,
) -> DeskReport:
    """Play `examples` of visits with the desk's real tools, until one shows a fault, or `seconds` are over.

    A seed repeats a run. Raises `ConfigError` for a desk that cannot run.
    """
    report, start = DeskReport(desk, seed, examples), time.monotonic()
    with quiet():
        idle_case = (Visit(metadata=desk.metadata[0]),)
        idle_kinds = {fault.kind for fault in play_case(desk, idle_case).faults}
        domain, seeds = Domain(desk, seed), random.Random(seed)  # noqa: S311 (repeatable, not secret)
        try:
            for number in itertools.count(1):
                if number > examples:
                    break
                if seconds is not None and time.monotonic() - start >= seconds:
                    report.stopped = f"the time was up after {report.examples} of {examples} examples"
                    break
                rehearsal = Rehearsal(desk, Chance(desk, domain, seeds.randrange(_SEEDS)), report.reached).play()
                report.examples = number
                progress(number, False)
                fault = _confirm(desk, rehearsal)
                if fault is not None:
                    report.fault, report.case = fault, tuple(rehearsal.visits)
                    if fault.kind in {later.kind for later in play_case(desk, idle_case).faults} - idle_kinds:
                        report.fault = replace(fault, detail=f"{fault.detail} ({_DIRTY})")
                        break
                    step = lambda: progress(number, True)  # noqa: E731, B023 (called in this round)
                    report.case, report.fault = shrink(desk, report.case, fault, progress=step)
                    break
        except KeyboardInterrupt:
            report.stopped = f"it was interrupted after {report.examples} of {examples} examples"
    report.seconds = time.monotonic() - start
    return report


def _confirm(desk: Desk, rehearsal: Rehearsal) -> Fault | None:
    """Return the first fault, unless real time decides about it and it does not come again."""
    case = tuple(rehearsal.visits)
    for fault in rehearsal.faults:
        rounds = range(_CONFIRMED if fault.is_timed else 0)
        if all(any(again.kind == fault.kind for again in play_case(desk, case).faults) for _ in rounds):
            return fault
    return None


def as_test(report: DeskReport, loaded_code: str, *, command: str) -> str:
    """Return a pytest file that plays the failing case again. `loaded_code` is the expression that loads the desk."""
    imports = Imports()
    imports.name(load_desk)
    return failing_test(
        "test_desk_keeps_its_promises",
        f"{imports.name(assert_case)}(DESK, CASE)",
        {"DESK": loaded_code, "CASE": code(report.case, imports, before=len("CASE = "))},
        imports,
        command=command,
        notes=[f"violated: {ascii(str(report.fault))[1:-1]}"],
    )


def assert_case(desk: Desk, case: Visits) -> None:
    """Play a case, and raise `CaseFailedError` for its faults."""
    with quiet():
        faults = Rehearsal(desk, Script(case), Reached()).play().faults
    if faults:
        raise CaseFailedError("\n".join(map(str, faults)))
