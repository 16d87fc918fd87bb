"""The two workflows. They decide nothing about a turn: they have it driven, and report its status.

They run without the SDK's sandbox, which would import all of Turnwright again for each of them. So nothing in them may
read a clock, a file, or anything else that differs in a replay. Changes must follow the rules for code that running
workflows replay (Temporal: "patching").
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

#: The longest turn. Heartbeats show that it is alive.
_LONGEST: Final = timedelta(days=30)
#: Attempts at one segment: workers die or stop, stores cannot be reached.
_ATTEMPTS: Final = 50
_LONGEST_PAUSE: Final = timedelta(seconds=30)
#: The time limit of short work: aborting a turn, sweeping.
_SHORT: Final = timedelta(seconds=60)
_SHORT_ATTEMPTS: Final = 5

_OUTCOME: Final = SearchAttributeKey.for_keyword(OUTCOME)
_REASON: Final = SearchAttributeKey.for_keyword(REASON)


@workflow.defn(name=TURN_WORKFLOW, sandboxed=False)
class TurnWorkflow:
    """Drives one segment of a turn. Its argument is the turn's id, its result the turn's state."""

    def __init__(self) -> None:
        self._submissions = 0
        #: The last heartbeat of an abandoned attempt.
        self._trail: list[list[str] | list[int]] = []
        #: Whether the turn has ended, as far as is known here.
        self._ended = False

    @workflow.signal(name=SUBMITTED)
    def submitted(self) -> None:
        """Note another submission of the segment, after a write to the turn."""
        self._submissions += 1

    @workflow.run
    async def run(self, turn_id: str) -> str:
        """Have the turn driven, and again if it was submitted meanwhile and has not ended."""
        try:
            # The submission that comes with the start is counted before the turn is driven.
            await asyncio.sleep(0)
            while True:
                before = self._submissions
                status = await self._drive(turn_id)
                self._show(status)
                _check_cancelled()
                if self._ended or self._submissions == before:
                    return status["state"]
        except asyncio.CancelledError:
            if not self._ended:
                # Canceled while no worker had it: the turn must end all the same.
                self._show(await self._abort(turn_id))
            raise

    async def _drive(self, turn_id: str) -> dict[str, str]:
        patience = timedelta(seconds=workflow.memo_value(PATIENCE, type_hint=float))
        try:
            status: dict[str, str] = await workflow.execute_activity(
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
            # Its worker may have died or stalled before it learned of the cancellation.
            if isinstance(error.cause, TimedOut):
                self._trail = list(error.cause.last_heartbeat_details)
            _check_cancelled()
            raise
        self._ended = bool(status["outcome"])
        return status

    async def _abort(self, turn_id: str) -> dict[str, str]:
        status: dict[str, str] = await workflow.execute_activity(
            ABORT_ACTIVITY,
            args=[turn_id, *self._trail],
            result_type=dict[str, str],
            start_to_close_timeout=_SHORT,
            retry_policy=RetryPolicy(maximum_interval=_LONGEST_PAUSE, maximum_attempts=_ATTEMPTS),
        )
        return status

    def _show(self, status: dict[str, str]) -> None:
        if workflow.memo_value(SEARCHABLE, type_hint=bool):
            reason = status["reason"]
            workflow.upsert_search_attributes(
                [
                    _OUTCOME.value_set(status["outcome"] or status["state"]),
                    _REASON.value_set(reason) if reason else _REASON.value_unset(),
                ]
            )


def _check_cancelled() -> None:
    """Raise `CancelledError` if the workflow was canceled while its activity ran to its end."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


@workflow.defn(name=SWEEP_WORKFLOW, sandboxed=False)
class SweepWorkflow:
    """Submits turns that a crash left between the journal and their submission. Its result is how many."""

    @workflow.run
    async def run(self) -> int:
        """Sweep once."""
        submitted_count: int = await workflow.execute_activity(
            SWEEP_ACTIVITY,
            result_type=int,
            start_to_close_timeout=_SHORT,
            retry_policy=RetryPolicy(maximum_attempts=_SHORT_ATTEMPTS),
        )
        return submitted_count
