"""The verdicts on the invariants of recorded turns, by claim, as numbers of turns."""

from typing import Final

from msgspec import Struct, field

from turnwright_audit.traces import TraceClaim, TurnCheck
from turnwright_states.verdict import Verdict

#: The faults of all runs that are kept with their words.
_FAULTS_KEPT: Final = 20


class ClaimCount(Struct):
    """The turns in which a claim holds, is violated, or cannot be decided, with the first reason for the latter."""

    holds: int = 0
    violated: int = 0
    unknown: int = 0
    why: str = ""

    def merge(self, addend: "ClaimCount") -> None:
        """Add the turns of another count."""
        self.holds += addend.holds
        self.violated += addend.violated
        self.unknown += addend.unknown
        self.why = self.why or addend.why

    @property
    def verdict(self) -> Verdict:
        """The verdict on all turns. One turn that cannot be decided is not a pass."""
        if self.violated:
            return Verdict.VIOLATED
        return Verdict.INCONCLUSIVE if self.unknown or not self.holds else Verdict.HOLDS


class SeenFault(Struct):
    """A claim that a turn of a run broke: the reason, and the events that led there."""

    claim: str
    file: str
    run: str
    turn: str
    why: str
    witness: tuple[str, ...]


class Invariants(Struct):
    """The verdicts on some turns, by claim, and the first faults."""

    turns: int = 0
    claims: dict[str, ClaimCount] = field(default_factory=dict)
    faults: list[SeenFault] = field(default_factory=list)

    def take(self, check: TurnCheck, file: str, run: str) -> None:
        """Count the check of a turn."""
        self.turns += 1
        broken_claims = {fault.claim for fault in check.faults}
        for claim in TraceClaim:
            claim_count = self.claims.setdefault(claim, ClaimCount())
            claim_count.violated += claim in broken_claims
            claim_count.unknown += claim in check.unknown
            claim_count.holds += claim not in broken_claims and claim not in check.unknown
            claim_count.why = claim_count.why or check.unknown.get(claim, "")
        self.faults += [
            SeenFault(fault.claim, file, run, check.turn, fault.why, fault.witness)
            for fault in check.faults[: _FAULTS_KEPT - len(self.faults)]
        ]

    def merge(self, addend: "Invariants") -> None:
        """Add the verdicts on other turns."""
        self.turns += addend.turns
        for claim, count in addend.claims.items():
            self.claims.setdefault(claim, ClaimCount()).merge(count)
        self.faults = [*self.faults, *addend.faults][:_FAULTS_KEPT]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict on a claim."""
        verdicts = {count.verdict for count in self.claims.values()}
        if Verdict.VIOLATED in verdicts:
            return Verdict.VIOLATED
        return Verdict.HOLDS if verdicts == {Verdict.HOLDS} else Verdict.INCONCLUSIVE
