"""The two workflows. They decide nothing about a turn: they have it driven, and say how it stands.

They run without the SDK's sandbox, which would import all of Turnwright again for each of them. Nothing in them looks
at a clock, a file, or anything else that a replay would not find again; whoever changes them must keep it so, and must
keep to the rules for changing code that running workflows replay (Temporal: "patching").
"""

import asyncio
from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey
from temporalio.exceptions import ActivityError, is_cancelled_exception
from temporalio.exceptions import TimeoutError as TimedOut

from .names import (
    ABORT_ACTIVITY,
    DRIVE_ACTIVITY,
    OUTCOME,
    PATIENCE,
    REASON,
    SEARCHABLE,
    SUBMITTED,
    SWEEP_ACTIVITY,
    SWEEP_WORKFLOW,
    TURN_WORKFLOW,
)

#: A turn may take long; that it goes on is what heartbeats say.
_LONGEST: Final = timedelta(days=30)
#: Attempts that a segment is given: workers that died or were stopped, stores that could not be reached.
_ATTEMPTS: Final = 50
_LONGEST_PAUSE: Final = timedelta(seconds=30)
#: For what takes a moment: ending a turn, looking for turns.
_SHORT: Final = timedelta(seconds=60)
_SHORT_ATTEMPTS: Final = 5

_OUTCOME: Final = SearchAttributeKey.for_keyword(OUTCOME)
_REASON: Final = SearchAttributeKey.for_keyword(REASON)


@workflow.defn(name=TURN_WORKFLOW, sandboxed=False)
class TurnWorkflow:
    """Drives one segment of a turn. Its argument is the turn's id, its result the state in which the turn rests."""

    def __init__(self) -> None:
        self._submissions = 0
        #: What the last heartbeats of an attempt said that was given up.
        self._trail: list[list[str] | list[int]] = []
        #: Whether the turn has ended, as far as is known here.
        self._ended = False

    @workflow.signal(name=SUBMITTED)
    def submitted(self) -> None:
        """Somebody submitted the segment, and wrote to the turn before."""
        self._submissions += 1

    @workflow.run
    async def run(self, turn_id: str) -> str:
        """Have the turn driven, and once more if it was submitted meanwhile and has not ended."""
        try:
            # The submission that comes with the start is taken in before the turn is driven.
            await asyncio.sleep(0)
            while True:
                seen = self._submissions
                stand = await self._drive(turn_id)
                self._show(stand)
                _check_cancelled()
                if self._ended or self._submissions == seen:
                    return stand["state"]
        except asyncio.CancelledError:
            if not self._ended:
                # Cancelled when no worker had it: somebody must end the turn all the same.
                self._show(await self._abort(turn_id))
            raise

    async def _drive(self, turn_id: str) -> dict[str, str]:
        patience = timedelta(seconds=workflow.memo_value(PATIENCE, type_hint=float))
        try:
            stand: dict[str, str] = await workflow.execute_activity(
                DRIVE_ACTIVITY,
                turn_id,
                result_type=dict[str, str],
                start_to_close_timeout=_LONGEST,
                heartbeat_timeout=patience,
                retry_policy=RetryPolicy(
                    initial_interval=patience / 10,
                    maximum_interval=_LONGEST_PAUSE,
                    maximum_attempts=_ATTEMPTS,
                ),
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from error
            # Its worker may have died, or have stalled, before it heard that somebody cancelled it.
            if isinstance(error.cause, TimedOut):
                self._trail = list(error.cause.last_heartbeat_details)
            _check_cancelled()
            raise
        self._ended = bool(stand["outcome"])
        return stand

    async def _abort(self, turn_id: str) -> dict[str, str]:
        stand: dict[str, str] = await workflow.execute_activity(
            ABORT_ACTIVITY,
            args=[turn_id, *self._trail],
            result_type=dict[str, str],
            start_to_close_timeout=_SHORT,
            retry_policy=RetryPolicy(maximum_interval=_LONGEST_PAUSE, maximum_attempts=_ATTEMPTS),
        )
        return stand

    def _show(self, stand: dict[str, str]) -> None:
        if workflow.memo_value(SEARCHABLE, type_hint=bool):
            reason = stand["reason"]
            workflow.upsert_search_attributes(
                [
                    _OUTCOME.value_set(stand["outcome"] or stand["state"]),
                    _REASON.value_set(reason) if reason else _REASON.value_unset(),
                ]
            )


def _check_cancelled() -> None:
    """Raise `CancelledError` if somebody cancelled the workflow while its activity was seen through to its end."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


@workflow.defn(name=SWEEP_WORKFLOW, sandboxed=False)
class SweepWorkflow:
    """Submits the turns that a crash stranded between the journal and their submission. Its result is how many."""

    @workflow.run
    async def run(self) -> int:
        """Look for them once."""
        submitted: int = await workflow.execute_activity(
            SWEEP_ACTIVITY,
            result_type=int,
            start_to_close_timeout=_SHORT,
            retry_policy=RetryPolicy(maximum_attempts=_SHORT_ATTEMPTS),
        )
        return submitted
