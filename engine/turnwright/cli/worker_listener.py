"""Reports the turns that a worker drives, and their results."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import anyio
from pydantic import JsonValue

from turnwright._base.background_task import background_task
from turnwright._base.ids import root_of
from turnwright._base.words import count, cut_line
from turnwright.errors import ConfigError, StoreError, TurnBusyError, TurnwrightError
from turnwright.events import TurnEvent
from turnwright.runtime import Job, Runtime, TurnStatus, WorkerApi
from turnwright.store import NONE_ABANDONED, AbandonedDrivers, Store
from turnwright_states import State

from . import process
from .process import json_line

#: Seconds without an event after which the store is asked whether this worker drives the turn.
_SILENCE: Final = 1.0


class WorkerListener:
    """Prints what happens, as a JSON object or as text, a line each."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._out = process.Output(alone=as_json)

    def started(self, store: str, model: str, service: Mapping[str, JsonValue], tools: list[str]) -> None:
        at = f" at {service['address']}" if service else ""
        words = f"worker of {store}{at}  model {cut_line(model)}  {count(len(tools), 'tool')}"
        fields: dict[str, JsonValue] = {"store": store, **service, "model": model, "tools": [*tools]}
        self._print("started", words, **fields)

    def claimed(self, turn: str) -> None:
        self._print("claimed", f"turn {turn}  claimed", turn=turn)

    def settled(self, turn: str, status: TurnStatus, seconds: float) -> None:
        outcome, reason = status.state.outcome, status.reason
        how = "paused" if outcome is None else f"{outcome}: {reason}"
        self._print(
            "settled",
            f"turn {turn}  {how}  ({seconds:.1f} s)",
            turn=turn,
            state=str(status.state),
            outcome=None if outcome is None else str(outcome),
            reason=None if reason is None else str(reason),
            seconds=round(seconds, 3),
        )

    def refused(self, turn: str, why: str) -> None:
        self._print("refused", f"turn {turn}  refused: {cut_line(why, 600)}", turn=turn, why=why)

    def released(self, turn: str, why: str) -> None:
        self._print("released", f"turn {turn}  released: {cut_line(why, 600)}", turn=turn, why=why)

    def waits(self, why: str) -> None:
        self._print("waiting", f"cannot look for turns: {cut_line(why, 600)}", why=why)

    def draining(self, turns: list[str], seconds: float) -> None:
        words = f"draining: {count(len(turns), 'turn')} may continue for {seconds:g} s; a second signal leaves at once"
        self._print("draining", words, turns=[*turns], seconds=seconds)

    def stopped(self) -> None:
        self._print("stopped", "stopped")

    def _print(self, kind: str, words: str, **fields: JsonValue) -> None:
        self._out.write(json_line({"type": kind, **fields}) if self._as_json else words)


@dataclass(slots=True)
class _ClaimAttempt:
    """An attempt to drive a turn. `ours`: this worker drives it, and that was reported."""

    began: float = field(default_factory=time.monotonic)
    ours: bool = False
    over: bool = False


class ObservedRuntime:
    """A runtime that reports to `listener` what its worker does. `observe` must observe the events of its engine.

    `store` is the engine's store.
    """

    def __init__(self, runtime: Runtime, store: Store, listener: WorkerListener) -> None:
        self._runtime = runtime
        self._store = store
        self._listener = listener
        self._tries: dict[str, _ClaimAttempt] = {}
        self.embedded = runtime.embedded

    @property
    def driven(self) -> list[str]:
        return [turn for turn, one in self._tries.items() if one.ours]

    def observe(self, event: TurnEvent) -> None:
        """Handle an event: a turn with events in this process is driven by this worker."""
        self._is_ours(root_of(event.turn))

    def bind(self, work: WorkerApi) -> None:
        self._runtime.bind(_ObservedWork(work, self, self._listener))

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
        """Send the runtime's service a request, and ignore the answer. Raises `RuntimeUnavailableError`."""
        await self._runtime.failure("worker", 1)

    async def watch(self, turn_id: str, driving: Awaitable[TurnStatus]) -> TurnStatus:
        """Await `driving` and report on it. Raises the errors of `driving`."""
        before, one = self._tries.get(turn_id), _ClaimAttempt()
        self._tries[turn_id] = one
        try:
            async with background_task(self._look, turn_id, one):
                status = await driving
        except TurnBusyError:
            raise  # another driver has it
        except (ConfigError, StoreError) as error:
            self._listener.refused(turn_id, str(error))
            raise
        except BaseException as error:
            if one.ours:
                why = str(error) if isinstance(error, TurnwrightError) else "another worker can resume it"
                self._listener.released(turn_id, why)
            raise
        finally:
            if self._tries.get(turn_id) is one:
                del self._tries[turn_id]
                if before is not None and not before.over:
                    self._tries[turn_id] = before
            one.over = True
        if one.ours and (status.state.outcome is not None or status.state is State.PAUSED):
            self._listener.settled(turn_id, status, time.monotonic() - one.began)
        return status

    async def _look(self, turn_id: str, one: _ClaimAttempt) -> None:
        while not one.ours:
            await anyio.sleep(_SILENCE)
            with suppress(TurnwrightError):
                if (await self._store.get(turn_id)).owner == self._store.owner:
                    self._is_ours(turn_id)

    def _is_ours(self, turn_id: str) -> None:
        one = self._tries.get(turn_id)
        if one is not None and not one.ours:
            one.ours = True
            self._listener.claimed(turn_id)


class _ObservedWork:
    """A worker API that reports to `observed`."""

    def __init__(self, work: WorkerApi, observed: ObservedRuntime, listener: WorkerListener) -> None:
        self._work = work
        self._observed = observed
        self._listener = listener

    @property
    def owner(self) -> str:
        return self._work.owner

    async def drive(
        self,
        turn_id: str,
        segment: int,
        *,
        abandoned: AbandonedDrivers = NONE_ABANDONED,
        claimed: Callable[[int], None] | None = None,
    ) -> TurnStatus:
        return await self._observed.watch(
            turn_id, self._work.drive(turn_id, segment, abandoned=abandoned, claimed=claimed)
        )

    async def status(self, turn_id: str) -> TurnStatus:
        return await self._work.status(turn_id)

    async def abort(self, turn_id: str, *, abandoned: AbandonedDrivers = NONE_ABANDONED) -> None:
        await self._work.abort(turn_id, abandoned=abandoned)

    async def job(self, turn_id: str) -> Job:
        return await self._work.job(turn_id)

    async def pending(self, *, idle: float = 0.0, most: int | None = None) -> Sequence[Job]:
        try:
            return await self._work.pending(idle=idle, most=most)
        except StoreError as error:
            self._listener.waits(str(error))
            raise
