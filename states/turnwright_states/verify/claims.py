"""What a walk claims of the machine, and what it raises when a claim is false."""

from enum import StrEnum

from .case import Case
from .path import Path


class Property(StrEnum):
    """One thing that holds on every way, in words."""

    RANK = "every event lowers the rank, and a message leaves it as it is"
    CYCLE = "no configuration comes twice on one way"
    WAY_ON = "every configuration that is no end takes all that may happen to it"
    STEPS = "steps <= allowance"
    CALLS = "tool calls <= budget, those of sub-agents included"
    LEASES = "what a sub-agent used is counted, or all that was lent to it; what it cannot have used is refused"
    MODEL_CALLS = "model calls <= (allowance + 1) x (1 + max_retries)"
    SPENT = "no step starts on a spent budget"
    PAIRING = "every call of a closed step has its result"
    PRECEDENCE = "where several limits hold, the first in the documented order is the reason"
    ALSO = "also_reached names the other limits that hold, and never the reason"
    ONE_END = "one outcome, one reason and one turn_ended at each end, and no way out of it"
    ROWS = "every row of the chart is taken"
    ENDS = "every reason of every outcome is reached"


class ViolationError(Exception):
    """A claim is false. `what` says how, `path` is the way that leads there, oldest first."""

    def __init__(self, claim: Property, what: str, case: Case, path: Path) -> None:
        steps = "\n".join(f"  {number}. {edge}" for number, edge in enumerate(path, start=1))
        super().__init__(f"{what}\nlimits: {case.changed}\n{steps}")
        self.claim = claim
        self.what = what
        self.case = case
        self.path = path

    def __reduce__(self) -> tuple[type["ViolationError"], tuple[Property, str, Case, Path]]:
        # An exception is rebuilt from its arguments when it comes from another process.
        return ViolationError, (self.claim, self.what, self.case, self.path)
