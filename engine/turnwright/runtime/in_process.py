"""Turns that this process drives: its own, and those of a runtime's workers."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

import anyio
import anyio.lowlevel

from turnwright.driver.admission import NewTurnClaim
from turnwright.driver.dependencies import NOTHING_SUPPLIED, Dependencies, Supplied
from turnwright.driver.driver import Driver
from turnwright.errors import LeaseLostError, StoreError, TurnBusyError, TurnNotFoundError
from turnwright.journal.answers import current_result
from turnwright.journal.event_bus import EventBus
from turnwright.journal.inbox import abort_item
from turnwright.journal.recovery import Sweep
from turnwright.journal.result import TurnResult
from turnwright.journal.termination import end_turn
from turnwright.journal.turn_journal import JournalFold
from turnwright.store import NONE_ABANDONED, AbandonedDrivers, Claim, DueTurn, Store

from .protocol import Job, JobListener, TurnStatus

_T = TypeVar("_T")


class InProcessTurns:
    """Drives turns of `store` in this process, on any number of tasks, and passes their events to `hub`.

    It is also the `WorkerApi` of a runtime's workers.
    """

    def __init__(self, store: Store, setup: Dependencies, hub: EventBus) -> None:
        self._store = store
        self._setup = setup
        self._hub = hub
        self._driver = Driver(store, setup, hub)
        self._sweep = Sweep(store, setup.now)
        #: The scopes of the jobs that workers drive or wait for, by turn.
        self._jobs: dict[str, list[anyio.CancelScope]] = {}
        #: Receives what the worker of this engine does, if the app has given one.
        self.listener: JobListener | None = None

    def is_driven(self, turn_id: str) -> bool:
        """Whether this process drives the turn."""
        return turn_id in self._driver.segments

    def forget(self) -> None:
        """See `Driver.forget`."""
        self._driver.forget()

    async def is_due(self, turn_id: str) -> bool:
        """Whether driving the turn would do anything."""
        return await self._sweep.is_due(await self._store.get(turn_id))

    async def run(
        self,
        turn_id: str,
        new_turn: NewTurnClaim | None = None,
        fold: JournalFold | None = None,
        supplies: Supplied = NOTHING_SUPPLIED,
    ) -> TurnResult:
        """Drive a turn until it ends or pauses. See `Driver.drive`."""
        try:
            driven_result = await self._driver.drive(turn_id, new_turn, fold=fold, supplies=supplies)
        except BaseException as error:
            await self._close_followers(turn_id, error)
            raise
        await self._close_followers(turn_id)
        if driven_result is not None and (
            driven_result.outcome is not None or (driven_result.paused and not await self._store.is_driven(turn_id))
        ):
            return driven_result
        while True:
            # Another process may have an answer and drive the turn on. Its next end or pause is awaited.
            is_driven = await self._store.is_driven(turn_id)
            result = await current_result(self._store, turn_id)
            if result.outcome is not None or result.paused or not is_driven:
                return result
            await anyio.sleep(self._setup.poll_interval)

    async def drive_or_wait(self, turn_id: str, supplies: Supplied = NOTHING_SUPPLIED) -> TurnResult:
        """Wait until a turn ends or pauses, and drive it while nobody else does.

        A turn that another driver has is looked at every `poll_interval` seconds.
        """
        while await self.is_due(turn_id):
            try:
                return await self.run(turn_id, supplies=supplies)
            except (TurnBusyError, LeaseLostError):
                await anyio.sleep(self._setup.poll_interval)
        return await current_result(self._store, turn_id)

    async def stop(self, turn_id: str) -> None:
        """Abort a turn that has not ended: here if nobody drives it, else by its driver."""
        request = abort_item(turn_id)
        await self._store.post(request)
        if self.is_driven(turn_id):
            self._driver.abort(request)
        elif not await self._store.is_driven(turn_id):
            await end_turn(self._store, turn_id, self._hub)

    async def _close_followers(self, turn_id: str, error: BaseException | None = None) -> None:
        """End the streams of a turn whose driving has ended, or failed."""
        unread_count = 0
        # If another driver has it, its followers wait for more.
        if not isinstance(error, TurnBusyError) and not self.is_driven(turn_id):
            unread_count = self._hub.close(turn_id)
        if isinstance(error, StoreError):
            # Let followers read the written events before the error ends their block.
            with anyio.CancelScope(shield=True):
                for _ in range(unread_count + 1):
                    await anyio.lowlevel.checkpoint()

    @property
    def owner(self) -> str:
        """See `WorkerApi.owner`."""
        return self._store.owner

    async def drive(
        self,
        turn_id: str,
        segment: int,
        *,
        abandoned_drivers: AbandonedDrivers = NONE_ABANDONED,
        on_claim: Callable[[int], None] | None = None,
    ) -> TurnStatus:
        """See `WorkerApi.drive`."""
        return await self._report_drive(turn_id, partial(self._drive, turn_id, segment, abandoned_drivers, on_claim))

    async def drive_claimed(self, claim: Claim) -> TurnStatus:
        """See `WorkerApi.drive_claimed`."""
        drive = partial(self._driver.drive, claim.turn, claim=claim)
        return await self._report_drive(claim.turn, partial(self._drive_in_job, claim.turn, drive))

    async def _report_drive(
        self, turn_id: str, drive: Callable[[Callable[[], None] | None], Awaitable[TurnResult | None]]
    ) -> TurnStatus:
        """Drive a turn, report it to the listener, and return the turn's status."""
        listener, began_at, is_claimed = self.listener, self._setup.clock(), False
        if listener is None:
            return await self._status_after(turn_id, await drive(None))

        def report_claim() -> None:
            nonlocal is_claimed
            if not is_claimed:
                is_claimed = True
                listener.claimed(turn_id)

        try:
            status = await self._status_after(turn_id, await drive(report_claim))
        except BaseException as error:
            listener.ended(turn_id, error, claimed=is_claimed, seconds=self._setup.clock() - began_at)
            raise
        listener.ended(turn_id, status, claimed=is_claimed, seconds=self._setup.clock() - began_at)
        return status

    async def _status_after(self, turn_id: str, result: TurnResult | None) -> TurnStatus:
        """Return the status of a turn that was driven to this result. That of an ended turn is not read again."""
        if result is None or result.outcome is None:
            return await self.status(turn_id)
        return TurnStatus(result.path[-1], result.reason)

    async def _drive(
        self,
        turn_id: str,
        segment: int,
        abandoned_drivers: AbandonedDrivers,
        on_claim: Callable[[int], None] | None,
        on_open: Callable[[], None] | None,
    ) -> TurnResult | None:
        row = await self._store.get(turn_id)
        # An earlier attempt may have continued into the next segment, if the answer came before it paused.
        may_be_ahead = row.owner is not None and row.epoch in abandoned_drivers.epochs
        fold = None if may_be_ahead else await JournalFold.read(self._store, turn_id)
        if fold is not None and fold.segment > segment:
            return None
        if row.owner is not None and row.owner == self._store.owner and abandoned_drivers.covers(row.owner, row.epoch):
            for earlier in self._jobs.get(turn_id, ()):
                earlier.cancel()
        drive = partial(self._driver.drive, turn_id, abandoned_drivers=abandoned_drivers, on_claim=on_claim, fold=fold)
        return await self._drive_in_job(turn_id, drive, on_open)

    async def _drive_in_job(
        self, turn_id: str, drive: Callable[..., Awaitable[TurnResult | None]], on_open: Callable[[], None] | None
    ) -> TurnResult | None:
        """Drive a turn in a scope that a later job for the turn cancels. Nothing suspends before a claim is driven."""

        def report_open() -> None:
            self._hub.wake(turn_id)
            if on_open is not None:
                on_open()

        result: TurnResult | None = None
        scopes = self._jobs.setdefault(turn_id, [])
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            try:
                result = await drive(on_open=report_open)
            except BaseException as error:
                await self._close_followers(turn_id, error)
                raise
            else:
                await self._close_followers(turn_id)
            finally:
                scopes.remove(scope)
                if not scopes:
                    self._jobs.pop(turn_id, None)
        return result

    async def status(self, turn_id: str) -> TurnStatus:
        """See `WorkerApi.status`."""
        status = (await self._store.get(turn_id)).status
        return TurnStatus(status.state, status.reason)

    async def abort(self, turn_id: str, *, abandoned_drivers: AbandonedDrivers = NONE_ABANDONED) -> None:
        """See `WorkerApi.abort`."""
        row = await self._store.get(turn_id)
        if row.status.outcome is not None:
            return
        await self.stop(turn_id)
        if row.owner is not None and abandoned_drivers.covers(row.owner, row.epoch):
            await end_turn(self._store, turn_id, self._hub, abandoned_drivers=abandoned_drivers)

    async def job(self, turn_id: str) -> Job:
        """See `WorkerApi.job`."""
        row = await self._store.get(turn_id)
        return Job(turn_id, (await JournalFold.read(self._store, turn_id)).segment, row.agent)

    async def pending(self, *, idle: float = 0.0, most: int | None = None) -> Sequence[Job]:
        """See `WorkerApi.pending`."""
        jobs: list[Job] = []
        for row in await self._await_due(self._sweep.due(idle=idle, limit=most)):
            try:
                jobs.append(await self.job(row.id))
            except TurnNotFoundError:
                continue  # deleted meanwhile
            except StoreError as error:
                self._sweep.warn_of(row, error)
        return jobs

    async def claim_due(self, limit: int, skipped: Collection[str] = ()) -> Sequence[DueTurn]:
        """See `WorkerApi.claim_due`."""
        return await self._await_due(self._store.due(self._setup.now(), limit=limit, skipped=skipped, claim=True))

    async def _await_due(self, search: Awaitable[Sequence[_T]]) -> Sequence[_T]:
        """Wait for due turns. The listener receives that the store cannot be reached."""
        try:
            return await search
        except StoreError as error:
            if self.listener is not None:
                self.listener.waits(error)
            raise
