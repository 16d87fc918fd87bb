"""The activities of a Temporal worker: drive a turn, abort one, sweep for abandoned ones."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

import anyio
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from turnwright.errors import CannotRunError, ConfigError, StoreError, TurnBusyError, TurnNotFoundError, TurnwrightError
from turnwright.runtime.protocol import Job, TurnStatus, WorkerApi
from turnwright.store import AbandonedDrivers

from .names import ABORT_ACTIVITY, DRIVE_ACTIVITY, GIVEN_UP, RELEASED, SWEEP_ACTIVITY, segment_in

#: Seconds between tries to claim a turn that another driver has, within one attempt.
_PAUSES: Final = (0.1, 0.2, 0.4, 0.8, 1.6)
#: The delay of the next attempt at a busy turn, and at a released one.
_BUSY_PAUSE: Final = timedelta(seconds=10)
_AT_ONCE: Final = timedelta(milliseconds=1)
#: The most turns that one sweep submits, and how many at once.
_MOST: Final = 500
_SIDE_BY_SIDE: Final = 10
#: The number of details of a heartbeat: names, and epochs.
_DETAILS: Final = 2
#: Failures that are normal when workers come and go. The SDK must not log them with a traceback.
_USUAL: Final = ApplicationErrorCategory.BENIGN

_LOG = logging.getLogger(__name__)


class Activities:
    """The activities of one worker process.

    `beat` is the time between heartbeats, and `idle` the time without writes after which a turn counts as abandoned,
    both in seconds. `submit` starts a job unless it is running, and returns whether it did.
    """

    def __init__(self, work: WorkerApi, submit: Callable[[Job], Awaitable[bool]], *, beat: float, idle: float) -> None:
        self._work = work
        self._submit = submit
        self._beat = beat
        self._idle = idle
        #: The turns being driven.
        self._drives: set[asyncio.Task[TurnStatus]] = set()
        self._leaving = False

    def release_all(self) -> None:
        """Release every turn that is driven here. Others may claim them at once."""
        self._leaving = True
        for task in self._drives:
            task.cancel()

    @activity.defn(name=DRIVE_ACTIVITY)
    async def drive(self, turn_id: str) -> dict[str, str]:
        """Drive one segment of a turn, claiming it also from the owners that earlier attempts reported.

        Raises `ApplicationError`. The attempt may be repeated if the store could not be reached, another driver has the
        turn, or this worker stops.
        """
        if self._leaving:
            raise _make_release_error(turn_id)
        info = activity.info()
        trail = _Trail.of(info.heartbeat_details)
        abandoned_drivers = trail.abandoned
        # Sent before the claim, so that the next attempt knows the possible owner.
        trail.beat(self._work.owner)
        drive = asyncio.create_task(
            self._drive_when_free(turn_id, segment_in(str(info.workflow_id)), abandoned_drivers, trail)
        )
        patience = (info.heartbeat_timeout or timedelta(seconds=self._beat)).total_seconds()
        beats = asyncio.create_task(self._keep_beating(trail, min(self._beat, patience / 3)))
        self._drives.add(drive)
        try:
            return _make_attributes(await self._await_ending(drive, turn_id))
        except (ApplicationError, asyncio.CancelledError):
            raise
        except TurnwrightError as error:
            if isinstance(error, StoreError | ConfigError):
                _LOG.warning("turn %s is skipped: %s", turn_id, error, extra={"turn": turn_id})
            raise _failure(error) from None
        except Exception as error:  # noqa: BLE001 (every failure is reported)
            _LOG.exception("driving turn %s failed: this is a bug", turn_id, extra={"turn": turn_id})
            raise _failure(error) from None
        finally:
            self._drives.discard(drive)
            beats.cancel()

    @activity.defn(name=ABORT_ACTIVITY)
    async def abort(self, turn_id: str, owners: Sequence[str] = (), epochs: Sequence[int] = ()) -> dict[str, str]:
        """Abort a turn. Its driver is notified, unless it was abandoned under one of these claims."""
        await self._work.abort(turn_id, abandoned_drivers=AbandonedDrivers(frozenset(owners), frozenset(epochs)))
        return _make_attributes(await self._work.status(turn_id))

    @activity.defn(name=SWEEP_ACTIVITY)
    async def sweep(self) -> int:
        """Submit abandoned turns. Returns how many were new to Temporal.

        The number is limited; the next sweep finds the rest.
        """
        limiter = anyio.Semaphore(_SIDE_BY_SIDE)
        submitted_count = 0

        async def submit(job: Job) -> None:
            nonlocal submitted_count
            async with limiter:
                submitted_count += await self._submit(job)

        due_jobs = await self._work.pending(idle=self._idle, most=_MOST)
        async with anyio.create_task_group() as group:
            for job in due_jobs:
                group.start_soon(submit, job)
        return submitted_count

    async def _await_ending(self, drive: "asyncio.Task[TurnStatus]", turn_id: str) -> TurnStatus:
        """Return the status after a drive. A cancellation of this activity is passed on."""
        try:
            return await asyncio.shield(drive)
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if details is not None and details.cancel_requested and not drive.done():
                # The job was canceled: the turn ends as aborted, and its tools' finished work is kept.
                await self._work.abort(turn_id)
                return await asyncio.shield(drive)
            if details is not None and (details.not_found or details.timed_out):
                words = f"turn {turn_id} was released: this worker sent no heartbeat for too long"
                raise ApplicationError(words, type=GIVEN_UP, category=_USUAL) from None
            if drive.cancelled() or (details is not None and details.worker_shutdown):
                raise _make_release_error(turn_id) from None
            raise
        finally:
            drive.cancel()
            await asyncio.wait([drive])

    async def _drive_when_free(
        self, turn_id: str, segment: int, abandoned_drivers: AbandonedDrivers, trail: "_Trail"
    ) -> TurnStatus:
        """Drive a turn once its current driver has released it. Raises `TurnBusyError` if that takes too long."""
        for pause in _PAUSES:
            with suppress(TurnBusyError):
                return await self._work.drive(
                    turn_id, segment, abandoned_drivers=abandoned_drivers, on_claim=trail.claimed
                )
            trail.waits()
            await asyncio.sleep(pause)
        return await self._work.drive(turn_id, segment, abandoned_drivers=abandoned_drivers, on_claim=trail.claimed)

    async def _keep_beating(self, trail: "_Trail", every: float) -> None:
        """Send heartbeats: this attempt lives, and has the turn under these claims."""
        while True:
            await asyncio.sleep(every)
            trail.beat(self._work.owner)


class _Trail:
    """The heartbeats of a job: the names and epochs under which its attempts may own the turn.

    An attempt may own the turn from its beginning, because a claim is reported only with the next heartbeat, until it
    finds another driver.
    """

    def __init__(self, owners: set[str], epochs: set[int]) -> None:
        self._owners = owners
        self._epochs = epochs
        self._own: set[str] = set()
        self._may_own = True

    @classmethod
    def of(cls, details: Sequence[Sequence[str | int]]) -> "_Trail":
        """Return the trail of the earlier attempts."""
        owners, epochs = details if len(details) == _DETAILS else ((), ())
        return cls({str(name) for name in owners}, {int(epoch) for epoch in epochs})

    @property
    def abandoned(self) -> AbandonedDrivers:
        """The earlier attempts, from which this one claims the turn."""
        return AbandonedDrivers(frozenset(self._owners), frozenset(self._epochs))

    def claimed(self, epoch: int) -> None:
        """Note a claim, which the next heartbeat reports."""
        self._may_own = True
        self._epochs.add(epoch)

    def waits(self) -> None:
        """Note that another driver has the turn, maybe one of this process that was not abandoned."""
        self._may_own = False
        self._own.clear()

    def beat(self, owner: str) -> None:
        """Send a heartbeat."""
        if self._may_own:
            self._own.add(owner)
        activity.heartbeat(sorted(self._owners | self._own), sorted(self._epochs))


def _make_release_error(turn_id: str) -> ApplicationError:
    words = f"turn {turn_id} was released: its worker stops"
    return ApplicationError(words, type=RELEASED, next_retry_delay=_AT_ONCE, category=_USUAL)


def _failure(error: Exception) -> ApplicationError:
    """Return the failure of an attempt for Temporal, and whether it may be repeated.

    Texts of other programs may contain keys or content. They are only in the worker's log.
    """
    kind = type(error).__name__
    is_own = isinstance(error, TurnwrightError) and error.__cause__ is None
    words = str(error) if is_own else f"{kind}: see the log of the worker"
    if isinstance(error, TurnNotFoundError):
        words = f"the workers' store has no turn {error.turn}: it was deleted, or the queue belongs to another store"
    if isinstance(error, TurnBusyError):
        return ApplicationError(words, type=kind, next_retry_delay=_BUSY_PAUSE, category=_USUAL)
    # Not repeated: the turn is lost, deleted, or cannot be driven here, or a bug would fail all fifty attempts.
    may_pass = isinstance(error, StoreError) or (isinstance(error, CannotRunError) and error.may_pass)
    return ApplicationError(words, type=kind, non_retryable=not may_pass, category=_USUAL)


def _make_attributes(status: TurnStatus) -> dict[str, str]:
    """Return a turn's status for the workflow: each field is a search attribute."""
    outcome = status.state.outcome
    return {"state": status.state, "outcome": outcome or "", "reason": status.reason or ""}
