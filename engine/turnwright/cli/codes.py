"""Exit codes (docs/cli.md#exit-codes)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from turnwright.journal.result import TurnResult

FAILED: Final = 1
USAGE: Final = 2
PAUSED: Final = 3
CAP_HIT: Final = 4
DOOM_LOOP: Final = 5
#: For `verify`, `replay`, `audit --strict` and `fuzz`: a check neither passed nor failed.
INCONCLUSIVE: Final = 6
ABORTED: Final = 130
#: For a command that SIGTERM stopped. Its turn has not ended, and can be resumed.
TERMINATED: Final = 143

#: By the text of the outcome, so that the help does not load the machine.
_OF_OUTCOME: Final[Mapping[str, int]] = {
    "finished": 0,
    "synthesis_done": 0,
    "failed": FAILED,
    "cap_hit": CAP_HIT,
    "doom_loop": DOOM_LOOP,
    "aborted": ABORTED,
}


def exit_code(result: "TurnResult") -> int:
    """Return the exit code of a turn that has ended or is paused. A turn that lost its driver counts as failed."""
    if result.outcome is not None:
        return _OF_OUTCOME[result.outcome]
    return PAUSED if result.paused else FAILED
