"""The names that Temporal stores: workflows, activities, signals, and search attributes."""

from typing import Final

TURN_WORKFLOW: Final = "TurnwrightTurn"
SWEEP_WORKFLOW: Final = "TurnwrightSweep"
DRIVE_ACTIVITY: Final = "turnwright.drive"
ABORT_ACTIVITY: Final = "turnwright.abort"
SWEEP_ACTIVITY: Final = "turnwright.sweep"
#: The signal of a submission: the driver must read what was written to the turn before.
SUBMITTED: Final = "submitted"

#: Keyword search attributes, which a namespace must have before they can be used.
AGENT: Final = "TurnwrightAgent"
OUTCOME: Final = "TurnwrightOutcome"
REASON: Final = "TurnwrightReason"
ATTRIBUTES: Final = (AGENT, OUTCOME, REASON)

#: In a workflow's memo: the seconds without a heartbeat after which an attempt is abandoned, and whether the namespace
#: has the search attributes.
PATIENCE: Final = "turnwright_patience"
SEARCHABLE: Final = "turnwright_searchable"

#: Types of failures.
RELEASED: Final = "Released"
GIVEN_UP: Final = "AbandonedDrivers"


def workflow_id(turn_id: str, segment: int) -> str:
    """Return the id of the job that drives one segment of a turn."""
    return f"turn:{turn_id}:{segment}"


def segment_in(workflow: str) -> int:
    """Return the segment of a job, from the job's id."""
    return int(workflow.rpartition(":")[2])


def schedule_id(queue: str) -> str:
    """Return the id of the schedule that sweeps for a queue."""
    return f"turnwright-sweep:{queue}"
