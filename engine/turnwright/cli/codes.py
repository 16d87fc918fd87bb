"""Exit codes (DESIGN 9)."""

from typing import Final

from turnwright.result import TurnResult
from turnwright_states import Outcome

FAILED: Final = 1
USAGE: Final = 2
PAUSED: Final = 3
CAP_HIT: Final = 4
DOOM_LOOP: Final = 5
#: Of `verify`, `replay` and `fuzz`: a check could neither be passed nor be failed.
INCONCLUSIVE: Final = 6
ABORTED: Final = 130
#: Of a command that SIGTERM stopped: its turn has not ended, and can be resumed.
TERMINATED: Final = 143

_OF_OUTCOME: Final = {
    Outcome.FINISHED: 0,
    Outcome.SYNTHESIS_DONE: 0,
    Outcome.FAILED: FAILED,
    Outcome.CAP_HIT: CAP_HIT,
    Outcome.DOOM_LOOP: DOOM_LOOP,
    Outcome.ABORTED: ABORTED,
}


def exit_code(result: TurnResult) -> int:
    """The exit code of a turn that has ended or is paused. One that its driver left has failed."""
    if result.outcome is not None:
        return _OF_OUTCOME[result.outcome]
    return PAUSED if result.paused else FAILED
