"""The verdict of a check: it holds, it is violated, or it is inconclusive.

A missing tool or a bound that was reached proves nothing, so inconclusive is never a pass.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, NamedTuple, TypeAlias


class Verdict(StrEnum):
    """The result of a check."""

    HOLDS = "holds"
    VIOLATED = "violated"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Check:
    """One claim that was checked.

    `claim` is a sentence without a full stop. `detail` has the extent of the check, the fault, or the reason why it is
    inconclusive. `witness` is the path to the fault, oldest first; empty without a fault.
    """

    claim: str
    verdict: Verdict
    detail: str = ""
    witness: tuple[str, ...] = ()


def worst(checks: Iterable[Check]) -> Verdict:
    """Return the verdict on all checks: violated if one is, else inconclusive if one is, or if there is no check."""
    verdicts = {check.verdict for check in checks}
    if Verdict.VIOLATED in verdicts:
        return Verdict.VIOLATED
    return Verdict.HOLDS if verdicts == {Verdict.HOLDS} else Verdict.INCONCLUSIVE


#: What a broken rule does: it ends the turn, refuses the call or the answer, asks a person, or only reports.
Effect: TypeAlias = Literal["refuse", "ask", "end", "report"]


class Broken(NamedTuple):
    """A rule that a call, or an answer, breaks."""

    rule: str
    effect: Effect
    #: The id of the call; None for an answer.
    call: str | None
    #: The ids of the last earlier calls that decided it, at most three.
    by: tuple[str, ...]
    words: str


#: What a rule did to a call or an answer, in the words of people.
_DECIDED: Final = {"allow": "allowed", "refuse": "refused", "ask": "asked", "end": "ended", "report": "reported"}


class RuleDecision(NamedTuple):
    """The decision of a rule in a turn: `refused by verify-first (by: call00003)`."""

    rule: str
    #: What came of it: a rule that asks refuses where no pause is left.
    effect: Effect | Literal["allow"]
    #: The id of the call; None for an answer.
    call: str | None
    #: The ids of the last earlier calls that decided it, at most three.
    by: tuple[str, ...] = ()
    #: Why the rule is broken; empty for a rule that allows the call.
    words: str = ""

    @property
    def is_broken(self) -> bool:
        """Whether the rule is broken."""
        return self.effect != "allow"

    @property
    def participle(self) -> str:
        """The effect as what was done: `refused`."""
        return _DECIDED[self.effect]

    def __str__(self) -> str:
        return f"{self.participle} by {self.rule}" + (f" (by: {', '.join(self.by)})" if self.by else "")
