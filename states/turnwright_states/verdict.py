"""What a check says of what it checked: it holds, it is violated, or nobody knows.

The third is an answer of its own. A tool that is missing, or a bound that was hit, proves nothing, and whoever prints
a verdict prints it as it is: inconclusive is never a pass.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What a check found."""

    HOLDS = "holds"
    VIOLATED = "violated"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Check:
    """One claim that was checked.

    `claim` is what should hold, in a sentence without a full stop. `detail` says over what it was checked, what is
    wrong, or why nobody knows. `witness` is the way to the fault, oldest first; empty where there is none.
    """

    claim: str
    verdict: Verdict
    detail: str = ""
    witness: tuple[str, ...] = ()


def worst(checks: Iterable[Check]) -> Verdict:
    """The verdict on all of them: violated if one is, else inconclusive if one is. No check at all is inconclusive."""
    found = {check.verdict for check in checks}
    if Verdict.VIOLATED in found:
        return Verdict.VIOLATED
    return Verdict.HOLDS if found == {Verdict.HOLDS} else Verdict.INCONCLUSIVE
