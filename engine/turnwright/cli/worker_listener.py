"""A worker's runtime, overheard: which turns this process takes up, and what becomes of them."""

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

import anyio

from turnwright._base.background_task import background_task
from turnwright._base.ids import root_of
from turnwright.errors import ConfigError, StoreError, TurnBusyError, TurnwrightError
from turnwright.events import TurnEvent
from turnwright.runtime import Job, Runtime, TurnStatus, WorkerApi
from turnwright.store import NONE_ABANDONED, AbandonedDrivers, Store
from turnwright_states import State

#: Seconds after which it is asked whether a turn is ours of which nothing was heard yet.
_SILENCE: Final = 1.0


class WorkerListener(Protocol):
    """Who is told."""

    def taken_up(self, turn: str) -> None:
        """This process drives a turn now."""
        ...

    def at_rest(self, turn: str, stand: TurnStatus, seconds: float) -> None:
        """A turn that was driven here has ended, or is paused. `seconds` is for how long it was driven."""
        ...

    def left_alone(self, turn: str, why: str) -> None:
        """A turn cannot be driven here."""
        ...

    def let_go(self, turn: str, why: str) -> None:
        """A turn that was driven here neither ended nor rests."""
        ...

    def waits(self, why: str) -> None:
        """The store cannot be read, so that no turns are found."""
        ...


@dataclass(slots=True)
class _Try:
    """A turn that is driven, or would be if nobody else had it. `ours`: whether it is, and that was told."""

    began: float = field(default_factory=time.monotonic)
    ours: bool = False
    over: bool = False


class ObservedRuntime:
    """A runtime that tells `ear` what its worker does. `observe` is to be an observer of its engine.

    `store` is the engine's.
    """

    def __init__(self, runtime: Runtime, store: Store, ear: WorkerListener) -> None:
        self._runtime = runtime
        self._store = store
        self._ear = ear
        self._tries: dict[str, _Try] = {}
        self.embedded = runtime.embedded

    @property
    def driven(self) -> list[str]:
        return [turn for turn, one in self._tries.items() if one.ours]

    def observe(self, event: TurnEvent) -> None:
        """Take an event in: a turn whose events are heard is driven here."""
        self._is_ours(root_of(event.turn))

    def bind(self, work: WorkerApi) -> None:
        self._runtime.bind(_Told(work, self, self._ear))

    async def submit(self, turn_id: str, segment: int) -> None:
        await self._runtime.submit(turn_id, segment)

    async def cancel(self, turn_id: str) -> None:
        await self._runtime.cancel(turn_id)

    async def failure(self, turn_id: str, segment: int) -> str | None:
        return await self._runtime.failure(turn_id, segment)

    async def run_worker(self, stopping: anyio.Event | None = None) -> None:
        await self._runtime.run_worker(stopping)

    async def aclose(self) -> None:
        await self._runtime.aclose()

    async def reach(self) -> None:
        """Ask the runtime's service something, whatever it answers. Raises `RuntimeUnavailableError`."""
        await self._runtime.failure("worker", 1)

    async def hear(self, turn_id: str, driving: Awaitable[TurnStatus]) -> TurnStatus:
        """Await the driving of a turn, and tell of it. Raises what that raises."""
        before, one = self._tries.get(turn_id), _Try()
        self._tries[turn_id] = one
        try:
            async with background_task(self._look, turn_id, one):
                stand = await driving
        except TurnBusyError:
            raise  # another driver has it
        except (ConfigError, StoreError) as error:
            self._ear.left_alone(turn_id, str(error))
            raise
        except BaseException as error:
            if one.ours:
                why = str(error) if isinstance(error, TurnwrightError) else "another worker may take it up"
                self._ear.let_go(turn_id, why)
            raise
        finally:
            if self._tries.get(turn_id) is one:
                del self._tries[turn_id]
                if before is not None and not before.over:
                    self._tries[turn_id] = before
            one.over = True
        if one.ours and (stand.state.outcome is not None or stand.state is State.PAUSED):
            self._ear.at_rest(turn_id, stand, time.monotonic() - one.began)
        return stand

    async def _look(self, turn_id: str, one: _Try) -> None:
        while not one.ours:
            await anyio.sleep(_SILENCE)
            with suppress(TurnwrightError):
                if (await self._store.get(turn_id)).owner == self._store.owner:
                    self._is_ours(turn_id)

    def _is_ours(self, turn_id: str) -> None:
        one = self._tries.get(turn_id)
        if one is not None and not one.ours:
            one.ours = True
            self._ear.taken_up(turn_id)


class _Told:
    """What the worker does, told to `overheard`."""

    def __init__(self, work: WorkerApi, overheard: ObservedRuntime, ear: WorkerListener) -> None:
        self._work = work
        self._overheard = overheard
        self._ear = ear

    @property
    def owner(self) -> str:
        return self._work.owner

    async def drive(
        self,
        turn_id: str,
        segment: int,
        *,
        over: AbandonedDrivers = NONE_ABANDONED,
        claimed: Callable[[int], None] | None = None,
    ) -> TurnStatus:
        return await self._overheard.hear(turn_id, self._work.drive(turn_id, segment, over=over, claimed=claimed))

    async def status(self, turn_id: str) -> TurnStatus:
        return await self._work.status(turn_id)

    async def abort(self, turn_id: str, *, over: AbandonedDrivers = NONE_ABANDONED) -> None:
        await self._work.abort(turn_id, over=over)

    async def job(self, turn_id: str) -> Job:
        return await self._work.job(turn_id)

    async def pending(self, *, idle: float = 0.0, most: int | None = None) -> Sequence[Job]:
        try:
            return await self._work.pending(idle=idle, most=most)
        except StoreError as error:
            self._ear.waits(str(error))
            raise
