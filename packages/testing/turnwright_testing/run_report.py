"""The counts of a run of many turns: how they ended, and how often each claim held."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from turnwright_states.facts import Fact, TurnEnded
from turnwright_states.row_counts import RowCounts
from turnwright_states.verdict import Check, Verdict, worst


def ending_of(last: Fact | None) -> str:
    """Return the end of a turn as `outcome/reason`, by its last fact."""
    return f"{last.outcome}/{last.reason}" if isinstance(last, TurnEnded) else "not ended"


@dataclass(slots=True)
class RunReport:
    """The result of a run.

    `stopped` says why it did not get through what was wanted. `ends` counts the turns by `outcome/reason`.
    """

    seed: int
    wanted: int
    ends: Counter[str] = field(default_factory=Counter)
    rows: RowCounts = field(default_factory=RowCounts.zeros)
    seconds: float = 0.0
    stopped: str = ""
    #: How often each claim was found to hold, to be violated, or to be unknown.
    verdicts: dict[str, Counter[Verdict]] = field(default_factory=dict)

    #: What is checked: turns, or schedules.
    checked: ClassVar[str] = "turns"

    @property
    def total(self) -> int:
        """The number of things that were checked."""
        return self.ends.total()

    @property
    def checks(self) -> list[Check]:
        """Return one check for each claim, over the whole run. One that was never examined does not hold."""
        return [self._sum_checks(claim, counts) for claim, counts in self.verdicts.items()]

    @property
    def verdict(self) -> Verdict:
        return worst(self.checks)

    def lines(self) -> Iterator[str]:
        """Return a line for each claim, after the reason why the run was stopped."""
        if self.stopped:
            yield f"inconclusive: {self.stopped}"
        for check in self.checks:
            detail = "" if self.stopped or not check.detail else f" ({check.detail})"
            yield f"  {check.verdict}: {check.claim}{detail}"

    def count(self, checks: Iterable[Check]) -> None:
        """Count the verdict of each check."""
        for check in checks:
            self.verdicts.setdefault(check.claim, Counter())[check.verdict] += 1

    def _sum_checks(self, claim: str, counts: Counter[Verdict]) -> Check:
        if counts[Verdict.VIOLATED]:
            detail = f"in {counts[Verdict.VIOLATED]} of {self.total} {self.checked}"
            return Check(claim, Verdict.VIOLATED, detail)
        if self.stopped:
            return Check(claim, Verdict.INCONCLUSIVE, self.stopped)
        if not counts[Verdict.HOLDS]:
            return Check(claim, Verdict.INCONCLUSIVE, "nothing was seen that would show it")
        return Check(claim, Verdict.HOLDS, f"in {counts[Verdict.HOLDS]} {self.checked}")
