"""What the workers of Temporal do: drive a turn, end one, look for those that were left."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

import anyio
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from turnwright.errors import ConfigError, StoreError, TurnBusyError, TurnNotFoundError, TurnwrightError
from turnwright.runtime.protocol import Job, TurnStatus, WorkerApi
from turnwright.store import AbandonedDrivers

from .names import ABORT_ACTIVITY, DRIVE_ACTIVITY, GIVEN_UP, LET_GO, SWEEP_ACTIVITY, segment_in

#: Seconds between looks at a turn that another driver has, within one attempt.
_PAUSES: Final = (0.1, 0.2, 0.4, 0.8, 1.6)
#: Before the next attempt at such a turn, and at one that was let go of.
_BUSY_PAUSE: Final = timedelta(seconds=10)
_AT_ONCE: Final = timedelta(milliseconds=1)
#: How many turns one sweep submits, and how many of them at once.
_MOST: Final = 500
_SIDE_BY_SIDE: Final = 10
#: What a heartbeat carries: names, and epochs.
_DETAILS: Final = 2
#: Failures that happen where workers come and go: the SDK is not to log them with a traceback.
_USUAL: Final = ApplicationErrorCategory.BENIGN

_LOG = logging.getLogger(__name__)


class Activities:
    """The activities of one worker process.

    `beat` is the time between two heartbeats, and `idle` how long nothing may have been written to a turn that was left
    behind, both in seconds. `submit` starts a job unless it runs already, and says whether it did.
    """

    def __init__(self, work: WorkerApi, submit: Callable[[Job], Awaitable[bool]], *, beat: float, idle: float) -> None:
        self._work = work
        self._submit = submit
        self._beat = beat
        self._idle = idle
        #: What is being driven.
        self._drives: set[asyncio.Task[TurnStatus]] = set()
        self._leaving = False

    def let_go(self) -> None:
        """Let go of every turn that is driven here: others may take them up at once."""
        self._leaving = True
        for task in self._drives:
            task.cancel()

    @activity.defn(name=DRIVE_ACTIVITY)
    async def drive(self, turn_id: str) -> dict[str, str]:
        """Drive one segment of a turn, and take it from the owners that earlier attempts were last heard of as.

        Raises `ApplicationError`. It may be tried again when the store could not be reached, another driver has the
        turn, or this worker stops.
        """
        if self._leaving:
            raise _let_go(turn_id)
        info = activity.info()
        trail = _Trail.of(info.heartbeat_details)
        abandoned = trail.given_up
        # Before the claim: whoever tries next must know whose the turn may be.
        trail.beat(self._work.owner)
        drive = asyncio.create_task(self._patiently(turn_id, segment_in(str(info.workflow_id)), abandoned, trail))
        patience = (info.heartbeat_timeout or timedelta(seconds=self._beat)).total_seconds()
        beats = asyncio.create_task(self._keep_beating(trail, min(self._beat, patience / 3)))
        self._drives.add(drive)
        try:
            return _shown(await self._ended(drive, turn_id))
        except (ApplicationError, asyncio.CancelledError):
            raise
        except TurnwrightError as error:
            if isinstance(error, StoreError | ConfigError):
                _LOG.warning("turn %s is left alone: %s", turn_id, error, extra={"turn": turn_id})
            raise _failure(error) from None
        except Exception as error:  # noqa: BLE001 (whatever it is, it is told)
            _LOG.exception("driving turn %s failed: this is a bug", turn_id, extra={"turn": turn_id})
            raise _failure(error) from None
        finally:
            self._drives.discard(drive)
            beats.cancel()

    @activity.defn(name=ABORT_ACTIVITY)
    async def abort(self, turn_id: str, owners: Sequence[str] = (), epochs: Sequence[int] = ()) -> dict[str, str]:
        """End a turn as aborted; whoever drives it is told, unless it was given up under one of these claims."""
        await self._work.abort(turn_id, abandoned=AbandonedDrivers(frozenset(owners), frozenset(epochs)))
        return _shown(await self._work.status(turn_id))

    @activity.defn(name=SWEEP_ACTIVITY)
    async def sweep(self) -> int:
        """Submit the turns that nobody drives though somebody should. Returns how many were not known to Temporal.

        No more than so many at a time: the rest is found by the next sweep.
        """
        limiter = anyio.Semaphore(_SIDE_BY_SIDE)
        submitted = 0

        async def submit(job: Job) -> None:
            nonlocal submitted
            async with limiter:
                submitted += await self._submit(job)

        due = await self._work.pending(idle=self._idle, most=_MOST)
        async with anyio.create_task_group() as group:
            for job in due:
                group.start_soon(submit, job)
        return submitted

    async def _ended(self, drive: "asyncio.Task[TurnStatus]", turn_id: str) -> TurnStatus:
        """What came of a drive, which is told when this activity is cancelled."""
        try:
            return await asyncio.shield(drive)
        except asyncio.CancelledError:
            told = activity.cancellation_details()
            if told is not None and told.cancel_requested and not drive.done():
                # Somebody cancelled the job: the turn ends as aborted, and what its tools have finished is kept.
                await self._work.abort(turn_id)
                return await asyncio.shield(drive)
            if told is not None and (told.not_found or told.timed_out):
                words = f"turn {turn_id} was let go of: nothing was heard of this worker for too long"
                raise ApplicationError(words, type=GIVEN_UP, category=_USUAL) from None
            if drive.cancelled() or (told is not None and told.worker_shutdown):
                raise _let_go(turn_id) from None
            raise
        finally:
            drive.cancel()
            await asyncio.wait([drive])

    async def _patiently(self, turn_id: str, segment: int, abandoned: AbandonedDrivers, trail: "_Trail") -> TurnStatus:
        """Drive a turn, when whoever has it has let go of it. Raises `TurnBusyError` when that takes too long."""
        for pause in _PAUSES:
            with suppress(TurnBusyError):
                return await self._work.drive(turn_id, segment, abandoned=abandoned, claimed=trail.claimed)
            trail.waits()
            await asyncio.sleep(pause)
        return await self._work.drive(turn_id, segment, abandoned=abandoned, claimed=trail.claimed)

    async def _keep_beating(self, trail: "_Trail", every: float) -> None:
        """Say that this attempt lives, and under which claim it has the turn."""
        while True:
            await asyncio.sleep(every)
            trail.beat(self._work.owner)


class _Trail:
    """What the heartbeats of a job say: the names and the epochs under which its attempts may have had the turn.

    An attempt may have it from its beginning, for a claim is not told in the same moment, until it finds that another
    driver has it.
    """

    def __init__(self, owners: set[str], epochs: set[int]) -> None:
        self._owners = owners
        self._epochs = epochs
        self._own: set[str] = set()
        self._may_own = True

    @classmethod
    def of(cls, details: Sequence[Sequence[str | int]]) -> "_Trail":
        """The trail of the attempts before this one."""
        owners, epochs = details if len(details) == _DETAILS else ((), ())
        return cls({str(name) for name in owners}, {int(epoch) for epoch in epochs})

    @property
    def given_up(self) -> AbandonedDrivers:
        """Those before this attempt, from whom it takes the turn."""
        return AbandonedDrivers(frozenset(self._owners), frozenset(self._epochs))

    def claimed(self, epoch: int) -> None:
        """The attempt has claimed the turn; the next heartbeat says so."""
        self._may_own = True
        self._epochs.add(epoch)

    def waits(self) -> None:
        """Another driver has the turn: one of this very process, it may be, who was not given up."""
        self._may_own = False
        self._own.clear()

    def beat(self, owner: str) -> None:
        """Send a heartbeat."""
        if self._may_own:
            self._own.add(owner)
        activity.heartbeat(sorted(self._owners | self._own), sorted(self._epochs))


def _let_go(turn_id: str) -> ApplicationError:
    words = f"turn {turn_id} was let go of: its worker stops"
    return ApplicationError(words, type=LET_GO, next_retry_delay=_AT_ONCE, category=_USUAL)


def _failure(error: Exception) -> ApplicationError:
    """What Temporal is told of an attempt that failed, and whether there is to be another.

    What quotes somebody else's words may hold a key, or what was said: it stands in the log of the worker alone.
    """
    kind = type(error).__name__
    ours = isinstance(error, TurnwrightError) and error.__cause__ is None
    words = str(error) if ours else f"{kind}: the log of the worker says why"
    if isinstance(error, TurnNotFoundError):
        words = f"the store of the workers has no turn {error.turn}: it was deleted, or their queue is another store's"
    if isinstance(error, TurnBusyError):
        return ApplicationError(words, type=kind, next_retry_delay=_BUSY_PAUSE, category=_USUAL)
    # Another driver has it, it was deleted, it cannot be driven here; or it is a bug, there at each of fifty attempts.
    return ApplicationError(words, type=kind, non_retryable=not isinstance(error, StoreError), category=_USUAL)


def _shown(stand: TurnStatus) -> dict[str, str]:
    """How a turn stands, for the workflow: each of these is a search attribute."""
    outcome = stand.state.outcome
    return {"state": stand.state, "outcome": outcome or "", "reason": stand.reason or ""}
