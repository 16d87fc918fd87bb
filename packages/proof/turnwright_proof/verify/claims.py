"""The claims of a walk about the machine, and the error for a false claim."""

from enum import StrEnum

from turnwright_states.errors import PicklableError

from .case import Case
from .path import Path


class Property(StrEnum):
    """A claim that holds on every path, as a sentence."""

    RANK = "every event lowers the rank, and a message leaves it as it is"
    CYCLE = "no configuration occurs twice on one path"
    WAY_ON = "every configuration that is not an end accepts every possible input"
    STEPS = "steps <= allowance <= 200, with one step kept for a conclusion that is a step"
    CALLS = "tool calls <= budget, those of sub-agents included"
    LEASES = "a sub-agent's usage, or else its whole lease, is counted; an impossible usage is refused"
    MODEL_CALLS = "model calls <= (allowance + 1) x (1 + max_retries) + 2 x max_compactions"
    LOOPS = "a person is asked about a doom loop if and only if the limits say so, and a pause and a budget are left"
    SPENT = "no step starts on a spent budget"
    PAIRING = "every call of a closed step has its result"
    PRECEDENCE = "where several limits hold, the first in the documented order is the reason"
    ALSO = "also_reached names the other limits that hold, and never the reason"
    ANSWER = "no step starts and no conclusion is asked for after a call gave the answer"
    REFUSED = "no call of a refused reply runs"
    ONE_END = "one outcome, one reason and one turn_ended at each end, which has no way out"
    ROWS = "every row of the chart is taken"
    ENDS = "every reason of every outcome is reached"


class ViolationError(PicklableError, Exception):
    """A claim is false. `what` is the fault, and `path` leads there, oldest first."""

    def __init__(self, claim: Property, problem: str, case: Case, path: Path) -> None:
        steps = "\n".join(f"  {number}. {edge}" for number, edge in enumerate(path, start=1))
        super().__init__(f"{problem}\nlimits: {case.changed}\n{steps}")
        self.claim = claim
        self.what = problem
        self.case = case
        self.path = path
