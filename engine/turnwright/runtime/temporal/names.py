"""What Temporal knows of a turn: the names of jobs, of their parts, and of what they can be searched by."""

from typing import Final

TURN_WORKFLOW: Final = "TurnwrightTurn"
SWEEP_WORKFLOW: Final = "TurnwrightSweep"
DRIVE_ACTIVITY: Final = "turnwright.drive"
ABORT_ACTIVITY: Final = "turnwright.abort"
SWEEP_ACTIVITY: Final = "turnwright.sweep"
#: The signal that says: what was written to the turn before this came is to be seen by whoever drives it.
SUBMITTED: Final = "submitted"

#: Keyword search attributes, which a namespace must have before they can be used.
AGENT: Final = "TurnwrightAgent"
OUTCOME: Final = "TurnwrightOutcome"
REASON: Final = "TurnwrightReason"
ATTRIBUTES: Final = (AGENT, OUTCOME, REASON)

#: In a workflow's memo: after how many seconds without a heartbeat an attempt is given up, and whether the namespace
#: has the search attributes.
PATIENCE: Final = "turnwright_patience"
SEARCHABLE: Final = "turnwright_searchable"

#: Types of failures.
LET_GO: Final = "LetGo"
GIVEN_UP: Final = "AbandonedDrivers"


def workflow_id(turn_id: str, segment: int) -> str:
    """The id of the job that drives one segment of a turn."""
    return f"turn:{turn_id}:{segment}"


def segment_in(workflow: str) -> int:
    """The segment that a job is for, by the job's id."""
    return int(workflow.rpartition(":")[2])


def schedule_id(queue: str) -> str:
    """The id of the schedule that sweeps for the turns of a queue's store."""
    return f"turnwright-sweep:{queue}"
