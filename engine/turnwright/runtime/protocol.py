"""The interface of a runtime, which decides which process drives a turn, and when (docs/rules.md#drivers).

`drive(turn)` is safe however often and by however many processes it is called, even by abandoned ones. So a runtime
need not be exact: it says that a turn is to be driven, a worker calls `WorkerApi.drive`, and after a crash another one
does.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import anyio
import msgspec

from turnwright.errors import ConfigError, StoreError
from turnwright.store import NONE_ABANDONED, AbandonedDrivers, Claim, DueTurn, Queued
from turnwright_states import EndReason, State


class Job(msgspec.Struct, frozen=True):
    """A turn to drive: its id, the number of its segment, and its agent's name.

    Segments are counted from 1. Each pause ends one, and the answers belong to the next.
    """

    turn: str
    segment: int
    agent: str


class TurnStatus(msgspec.Struct, frozen=True):
    """The state and the reason of a turn that was driven. The journal has the rest."""

    state: State | Queued
    reason: EndReason | None = None


class JobListener(Protocol):
    """Receives what the worker of an engine does, in its event loop, and must not raise: see `Engine.run_worker`."""

    def claimed(self, turn_id: str) -> None:
        """Receive that the worker drives a turn: it has the turn's tools and model."""
        ...

    def ended(self, turn_id: str, ending: TurnStatus | BaseException, *, claimed: bool, seconds: float) -> None:
        """Receive how an attempt at a turn ended: with the turn's status, or with an error.

        `claimed` says that this attempt was reported as claimed. It took `seconds`.
        """
        ...

    def waits(self, error: StoreError) -> None:
        """Receive that the worker could not look for turns."""
        ...


class WorkerApi(Protocol):
    """The work of a runtime's workers in one process, on the engine's store, tools and models."""

    @property
    def owner(self) -> str:
        """The name of this process among the drivers of the store. It may change after the store was lost."""
        ...

    async def drive(
        self,
        turn_id: str,
        segment: int,
        *,
        abandoned_drivers: AbandonedDrivers = NONE_ABANDONED,
        on_claim: Callable[[int], None] | None = None,
    ) -> TurnStatus:
        """Drive a turn until it ends or pauses. A job for an earlier segment does nothing.

        `abandoned_drivers` covers earlier attempts at the same job: the turn is taken from them even if they live. If
        one of them continued into the next segment, so does this attempt. An earlier attempt in this process is
        stopped first. `on_claim` is called with the epoch of each claim of this attempt.

        If the task is canceled, the turn is released, and others may resume it at once. Raises `CannotRunError` if its
        tools or its model are missing here, `LeaseLostError`, `TurnNotFoundError`, `StoreError`, and `TurnBusyError`
        while another driver has it.
        """
        ...

    async def drive_claimed(self, claim: Claim) -> TurnStatus:
        """Drive a turn of `claim_due` until it ends or pauses, and release it in any case, as `drive` does."""
        ...

    async def status(self, turn_id: str) -> TurnStatus:
        """Return a turn's status. Raises `TurnNotFoundError`."""
        ...

    async def abort(self, turn_id: str, *, abandoned_drivers: AbandonedDrivers = NONE_ABANDONED) -> None:
        """Abort a turn: here if it is paused or released, else by its driver. An ended turn stays as it is.

        Drivers in `abandoned_drivers` do not count as drivers. Raises `TurnNotFoundError` and `StoreError`.
        """
        ...

    async def job(self, turn_id: str) -> Job:
        """Return the job to submit for a turn. Raises `TurnNotFoundError`."""
        ...

    async def pending(self, *, idle: float = 0.0, most: int | None = None) -> Sequence[Job]:
        """Return the turns that are due and that nobody drives, the oldest first, at most `most`.

        They are not paused, or were answered, or an interrupt has expired. Nothing was written to them for `idle`
        seconds, if the machines' clocks agree.
        """
        ...

    async def claim_due(self, limit: int, skipped: Collection[str] = ()) -> Sequence[DueTurn]:
        """Claim the turns of `pending`, the oldest first, at most `limit`, without those with an id in `skipped`.

        Each claimed turn must be passed to `drive_claimed`. A turn with an `error` was not claimed. Raises
        `StoreError`.
        """
        ...


class Runtime(Protocol):
    """Decides which process drives a turn. `Local` uses this process; others use workers on several machines.

    Every method may raise `RuntimeUnavailableError` if its service cannot be reached.
    """

    @property
    def embedded(self) -> bool:
        """Whether the task that runs a turn drives it. Otherwise the turn is submitted and followed."""
        ...

    def bind(self, work: WorkerApi) -> None:
        """Receive the work of the workers. Called once, by the engine. Raises `ConfigError` for a second engine."""
        ...

    async def submit(self, turn_id: str, segment: int) -> None:
        """Have a free worker drive a turn soon. The request is durable when this returns.

        Submitting a waiting or running segment again only makes sure that its driver reads what was written to the turn
        before.
        """
        ...

    async def cancel(self, turn_id: str) -> None:
        """Notify the driver of a turn, if there is one, that an abort is in its inbox. Otherwise the turn has ended."""
        ...

    async def failure(self, turn_id: str, segment: int) -> str | None:
        """Return why no worker will drive a submitted segment; None while one does or may."""
        ...

    async def run_worker(self, stopping: anyio.Event | None = None) -> None:
        """Drive submitted and abandoned turns, until canceled.

        Once `stopping` is set, no turn is started. The call returns when the running turns have ended or paused, or
        were released because they took too long.
        """
        ...

    async def aclose(self) -> None:
        """Release all resources. Called once, with the engine."""
        ...


class BoundRuntime:
    """The part of a runtime that all have: it belongs to one engine."""

    _bound: WorkerApi | None = None

    def bind(self, work: WorkerApi) -> None:
        """See `Runtime.bind`."""
        if self._bound is not None:
            raise ConfigError("this runtime belongs to another engine: give each engine its own")
        self._bound = work

    @property
    def _work(self) -> WorkerApi:
        if self._bound is None:
            raise ConfigError("this runtime belongs to no engine: give it to one, Engine(runtime=...)")
        return self._bound
