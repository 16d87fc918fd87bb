"""Exit codes (docs/cli.md#exit-codes)."""

from typing import Final

from turnwright.result import TurnResult
from turnwright_states import Outcome

FAILED: Final = 1
USAGE: Final = 2
PAUSED: Final = 3
CAP_HIT: Final = 4
DOOM_LOOP: Final = 5
#: For `verify`, `replay`, `trace` and `fuzz`: a check neither passed nor failed.
INCONCLUSIVE: Final = 6
ABORTED: Final = 130
#: For a command that SIGTERM stopped. Its turn has not ended, and can be resumed.
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
    """Return the exit code of a turn that has ended or is paused. A turn that lost its driver counts as failed."""
    if result.outcome is not None:
        return _OF_OUTCOME[result.outcome]
    return PAUSED if result.paused else FAILED
