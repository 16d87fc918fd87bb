"""What decides who drives a turn, and when (DESIGN 6).

`drive(turn)` is safe however often it is called, by however many at once, and by those who were given up for dead. So a
runtime need not be right about anything: it says that a turn is to be driven, some worker of it calls `Work.drive`, and
whatever happens to the worker, somebody calls it again.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import anyio
import msgspec

from turnwright.store import NONE_ABANDONED, AbandonedDrivers, Queued
from turnwright_states import EndReason, State


class Job(msgspec.Struct, frozen=True):
    """A turn that is to be driven on: its id, which stretch of it, and its agent's name.

    The segments of a turn are counted from 1; each pause begins a new one, which the answers to it go into.
    """

    turn: str
    segment: int
    agent: str


class TurnStatus(msgspec.Struct, frozen=True):
    """How a turn stands that was driven: for those who show it. The journal knows more."""

    state: State | Queued
    reason: EndReason | None = None


class WorkerApi(Protocol):
    """What the workers of a runtime do, in one process: an engine's, with its store, its tools and its models."""

    @property
    def owner(self) -> str:
        """The name of this process among the drivers of the store. It may change when the store was lost."""
        ...

    async def drive(
        self,
        turn_id: str,
        segment: int,
        *,
        abandoned: AbandonedDrivers = NONE_ABANDONED,
        claimed: Callable[[int], None] | None = None,
    ) -> TurnStatus:
        """Drive a turn until it has ended or rests. A job for a segment that is over does nothing.

        `abandoned` are earlier attempts at the same job: the turn is taken from them even if they live, and if one of
        them went on into the next segment, so does this. One in this process is stopped first. `claimed`
        is told the epoch of each claim of this attempt.

        When it is cancelled the turn is let go of, and may be taken up by others at once. Raises `CannotRunError` when
        its tools or its model are not here, `LeaseLostError`, `TurnNotFoundError`, `StoreError`, and `TurnBusyError`
        while another driver has it.
        """
        ...

    async def status(self, turn_id: str) -> TurnStatus:
        """How a turn stands. Raises `TurnNotFoundError`."""
        ...

    async def abort(self, turn_id: str, *, abandoned: AbandonedDrivers = NONE_ABANDONED) -> None:
        """Have a turn end as aborted: here if it rests, by its driver if it has one. One that has ended stays as it is.

        Drivers in `abandoned` have it no more.

        Raises `TurnNotFoundError` and `StoreError`.
        """
        ...

    async def job(self, turn_id: str) -> Job:
        """What is to be submitted for a turn as it stands. Raises `TurnNotFoundError`."""
        ...

    async def pending(self, *, idle: float = 0.0, most: int | None = None) -> Sequence[Job]:
        """The turns that somebody should drive and nobody does, the oldest first.

        They need not wait for a person, or were answered, or their time to answer is over; nothing was written to them
        for `idle` seconds (where clocks of machines agree). No more than `most`, the oldest.
        """
        ...


class Runtime(Protocol):
    """Has turns driven. `local` does so in this process; one for several machines asks an engine for that.

    Every method may raise `RuntimeUnavailableError` when its service cannot be reached.
    """

    @property
    def embedded(self) -> bool:
        """Whether who runs a turn drives it too, in its own task. Otherwise the turn is submitted, and followed."""
        ...

    def bind(self, work: WorkerApi) -> None:
        """Be given what workers do. Called once, by the engine. Raises `ConfigError` when another engine did before."""
        ...

    async def submit(self, turn_id: str, segment: int) -> None:
        """Have a turn driven soon, by whichever worker is free. It is written down before this returns.

        Submitting the same segment again while it waits or runs adds nothing, but one thing: what was written to the
        turn before the last submission is seen by whoever drives it.
        """
        ...

    async def cancel(self, turn_id: str) -> None:
        """Tell whoever drives a turn, if anybody does, that an abort waits in its inbox. The turn was ended if not."""
        ...

    async def failure(self, turn_id: str, segment: int) -> str | None:
        """Why no worker will drive a submitted segment; None as long as one does, or may."""
        ...

    async def run_worker(self, stopping: anyio.Event | None = None) -> None:
        """Drive what is submitted, by whomever, and take up what was left, until cancelled.

        When `stopping` is set nothing new is begun, and this returns when the turns that run have ended or rest, or
        were let go of because that took too long.
        """
        ...

    async def aclose(self) -> None:
        """Let go of everything. Called once, with the engine."""
        ...
