"""The turns of one engine: started, followed, answered and stopped, whichever process drives them."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Never, TypeAlias, cast

import anyio
from pydantic import JsonValue

from turnwright._base.background_task import background_task
from turnwright._base.ids import new_id
from turnwright.agent import Agent
from turnwright.context import NOT_GIVEN
from turnwright.driver.admission import NewTurnClaim, TurnOptions, start_turn
from turnwright.driver.dependencies import NOTHING_SUPPLIED, Dependencies, Supplied, deps_given
from turnwright.errors import ConfigError, EngineClosedError, LeaseLostError, Retry, TurnBusyError, TurnNotFoundError
from turnwright.events import StreamEvent
from turnwright.journal.answers import (
    Answers,
    current_result,
    need_accepted,
    need_agent,
    need_agent_name,
    need_live,
    need_root,
    post_answers,
)
from turnwright.journal.event_bus import EventBus
from turnwright.journal.follow import follow, wait_until_idle
from turnwright.journal.inbox import steer_item
from turnwright.journal.recovery import recover_turns
from turnwright.journal.subturns import unfinished_below
from turnwright.journal.turn_journal import JournalFold
from turnwright.result import TurnResult
from turnwright.store import Store

from .in_process import InProcessTurns
from .protocol import Runtime

if TYPE_CHECKING:
    from .started import StartedTurn, StartedTurns
    from .submitted import SubmittedTurns
    from .turn_stream import ClosableEvents, TurnStream

_LOG = logging.getLogger(__name__)

#: An agent of any dependencies and any answer.
AnyAgent: TypeAlias = Agent[Never, object]


class EngineTurns:
    """Starts, follows, answers and stops the turns of one engine. Its methods are described at `Engine`.

    From here on, dependencies are `object`: the types of `Engine` have checked that its agents and tools need no
    others.
    """

    def __init__(self, store: Store, setup: Dependencies, hub: EventBus, runtime: Runtime) -> None:
        self._store = store
        self._setup = setup
        self._hub = hub
        self._runtime = runtime
        self._closed = False
        self._work = InProcessTurns(store, setup, hub)
        runtime.bind(self._work)
        self._turns = self._work if runtime.embedded else self._submitted()
        self._in_background: StartedTurns | None = None

    def _submitted(self) -> "SubmittedTurns":
        from .submitted import SubmittedTurns  # noqa: PLC0415 (most engines have no runtime)

        return SubmittedTurns(self._store, self._setup, self._runtime, self._work)

    @property
    def store(self) -> Store:
        """The open store. Raises `EngineClosedError`."""
        self._need_open()
        return self._store

    @contextmanager
    def deleting(self) -> Iterator[Store]:
        """Delete turns of the store in this block: this process keeps no text of them afterwards."""
        try:
            yield self.store
        finally:
            self._work.forget()

    async def run(self, agent: AnyAgent, prompt: str, options: TurnOptions, deps: object = NOT_GIVEN) -> TurnResult:
        """See `Engine.run`."""
        turn_id, supplied = new_id(), self.supplied(agent, deps)
        begun = await self._begin(turn_id, agent, prompt, options)
        return self._typed(await self._turns.run(turn_id, begun, None, supplied), supplied.agent)

    @asynccontextmanager
    async def stream(
        self,
        agent: AnyAgent,
        prompt: str,
        options: TurnOptions,
        deps: object = NOT_GIVEN,
        *,
        subagents: bool = False,
    ) -> "AsyncIterator[TurnStream]":
        """See `Engine.stream`."""
        turn_id, supplied = new_id(), self.supplied(agent, deps)

        async def drive(begun: NewTurnClaim) -> TurnResult:
            return self._typed(await self._turns.run(turn_id, begun, None, supplied), supplied.agent)

        if not self._runtime.embedded:
            begun = await self._begin(turn_id, agent, prompt, options)
            heard: dict[str, int] | None = {} if subagents else None
            async with self._followed(turn_id, 0, partial(drive, begun), subagents=heard) as stream:
                yield stream
            return
        with self._hub.follow(turn_id, subagents=subagents) as followed:
            begun = await self._begin(turn_id, agent, prompt, options)
            async with _driven(turn_id, followed, partial(drive, begun)) as stream:
                yield stream

    async def submit(self, agent: AnyAgent, prompt: str, options: TurnOptions) -> str:
        """See `Engine.submit`."""
        turn_id = new_id()
        await self._begin(turn_id, agent, prompt, options, driven=False)
        from .submitted import submit_new  # noqa: PLC0415 (as above)

        await submit_new(self._runtime, turn_id)
        return turn_id

    async def start(self, agent: AnyAgent, prompt: str, options: TurnOptions, deps: object = NOT_GIVEN) -> str:
        """Start a turn in a task of the engine, or submit it to the runtime, and return its id. See `Engine.start`."""
        supplied = self.supplied(agent, deps)
        if not self._runtime.embedded:
            return await self.submit(agent, prompt, options)
        turn_id = new_id()
        begun = await self._begin(turn_id, agent, prompt, options)
        self._background.start(turn_id, begun, supplied)
        return turn_id

    async def result(self, turn_id: str, agent: AnyAgent, deps: object = NOT_GIVEN) -> TurnResult:
        """Wait until a turn ends or pauses, and resume it if nobody drives it. See `TurnHandle.result`."""
        return self._typed(await self._result(turn_id, agent, deps), agent)

    async def _result(self, turn_id: str, agent: AnyAgent, deps: object) -> TurnResult:
        store = self.store
        if not self._runtime.embedded:
            return await self._turns.run(turn_id)
        started = self._started(turn_id)
        if started is None:
            if not await self._work.is_due(turn_id):
                return await current_result(store, turn_id)
            started = self._background.start(turn_id, None, self.supplied(agent, deps))
        return await started.wait()

    def need_turn(self, turn_id: str) -> None:
        """Raise `ConfigError` for a sub-agent's turn, and `TurnNotFoundError` where the store knows at once."""
        need_root(turn_id, "attach to")
        self._need_known(turn_id)

    async def resume(
        self, turn_id: str, answers: Answers | None, agent: AnyAgent | None = None, deps: object = NOT_GIVEN
    ) -> TurnResult:
        """See `Engine.resume`."""
        need_root(turn_id)
        known, supplied = await self.read(turn_id), self.supplied(agent, deps)
        return self._typed(await self.resume_known(known, answers, supplied), agent or self._registered(known))

    async def resume_known(
        self, known: JournalFold, answers: Answers | None, supplied: Supplied = NOTHING_SUPPLIED
    ) -> TurnResult:
        """Resume a turn whose journal was read. See `Engine.resume`."""
        turn_id, turn = known.turn_id, known.machine.turn
        need_root(turn_id)
        self._need_supplied(known, supplied)
        if not answers:
            need_live(turn_id, turn.state.outcome, turn.reason)
            return await self._turns.resume(turn_id, known, supplied)
        replies = await post_answers(self.store, known, answers, now=self._setup.now(), tools=self._setup.tools)
        while True:
            with suppress(TurnBusyError):
                result = await self._turns.resume(turn_id, known, supplied)
                break
            await anyio.sleep(self._setup.poll_interval)
        await need_accepted(self.store, known, result, replies)
        return result

    @asynccontextmanager
    async def stream_resume(
        self,
        turn_id: str,
        answers: Answers | None,
        agent: AnyAgent | None = None,
        deps: object = NOT_GIVEN,
        *,
        subagents: bool = False,
    ) -> "AsyncIterator[TurnStream]":
        """See `Engine.stream_resume`."""
        supplied = self.supplied(agent, deps)
        known = await self.read(turn_id)
        known_below = await unfinished_below(self.store, turn_id, known.facts) if subagents else {}

        async def drive() -> TurnResult:
            return self._typed(await self.resume_known(known, answers, supplied), agent or self._registered(known))

        heard = {turn: facts[-1][0] for turn, facts in known_below.items()} if subagents else None
        async with self._followed(turn_id, known.seq, drive, subagents=heard) as stream:
            yield stream

    async def answer(self, turn_id: str, answers: Answers, *, here: Supplied | None = None) -> None:
        """See `Engine.answer`. With `here`, a task of the engine drives the turn on, unless a runtime drives turns."""
        need_root(turn_id)
        known = await self.read(turn_id)
        if here is not None:
            self._need_supplied(known, here)
        await post_answers(self.store, known, answers, now=self._setup.now(), tools=self._setup.tools)
        if here is not None and self._runtime.embedded:
            self._background.start(turn_id, None, here)
        else:
            await self._runtime.submit(turn_id, known.segment)

    async def steer(self, turn_id: str, text: str) -> None:
        """See `Engine.steer`."""
        item = steer_item(turn_id, text)
        await self._need_live(turn_id)
        await self.store.post(item)
        await self._pass_on(turn_id)
        if item in await self.store.inbox(turn_id):
            await self._need_live(turn_id)  # it may have ended meanwhile

    async def abort(self, turn_id: str) -> None:
        """See `Engine.abort`."""
        if (await self.store.get(turn_id)).status.outcome is None:
            await self._turns.stop(turn_id)
            await self._pass_on(turn_id)

    async def get(self, turn_id: str, agent: AnyAgent | None = None) -> TurnResult:
        """See `Engine.get`."""
        result = await current_result(self.store, turn_id)
        if agent is None:
            return await self._typed_by_registry(result)
        need_agent_name(turn_id, (await self.store.get(turn_id)).agent, agent.name)
        return self._typed(result, agent)

    async def recover(self) -> list[TurnResult]:
        """See `Engine.recover`."""
        at_once = self._setup.max_parallel_tools
        results = await recover_turns(self.store, self._turns.resume, now=self._setup.now, at_once=at_once)
        return [await self._typed_by_registry(result) for result in results]

    def events(
        self, turn_id: str, after: int = 0, *, wait: bool = False, subagents: bool = False
    ) -> AsyncIterator[StreamEvent]:
        """See `Engine.events`."""
        self._need_known(turn_id)
        heard: dict[str, int] | None = {} if subagents else None
        if wait or self._started(turn_id) is None:
            return self._follow(turn_id, after, waits=wait, subagents=heard)
        events = self._follow(turn_id, after, lambda: self._started(turn_id) is not None, subagents=heard)
        return wait_until_idle(events, turn_id, after, partial(current_result, self._store))

    async def run_worker(self, stopping: anyio.Event | None) -> None:
        """See `Engine.run_worker`."""
        self._need_open()
        await self._runtime.run_worker(stopping)

    async def aclose(self) -> None:
        """Release the started turns, and close the runtime. The store is closed by the engine."""
        self._closed = True
        if self._in_background is not None:
            await self._in_background.aclose()
        await self._runtime.aclose()

    async def read(self, turn_id: str) -> JournalFold:
        """Read a turn's journal. Raises `TurnNotFoundError`."""
        return await JournalFold.read(self.store, turn_id, keep_facts=True)

    def supplied(self, agent: AnyAgent | None, deps: object) -> Supplied:
        """Return what a caller supplies. Raises `ConfigError` for wrong or missing dependencies."""
        return Supplied(cast("Agent | None", agent), deps_given(deps, self._setup, here=self._runtime.embedded))

    def _typed(self, result: TurnResult, agent: AnyAgent | None) -> TurnResult:
        """Return the result with its answer in the agent's type. Raises `ConfigError` if it no longer fits."""
        type_ = None if agent is None or result.output is None else self._setup.output_of(cast("Agent", agent))
        if type_ is None:
            return result
        try:
            return replace(result, output=type_.load(cast("JsonValue", result.output)))
        except Retry as misfit:
            raise ConfigError(
                f"turn {result.id}: its answer does not fit the output_type of this agent: {misfit.feedback}"
            ) from None

    def _registered(self, known: JournalFold) -> AnyAgent | None:
        return self._setup.agents.get(str(known.started.agent.get("name")))

    async def _typed_by_registry(self, result: TurnResult) -> TurnResult:
        """Return the result with its answer in the type of the registered agent, or as JSON if it no longer fits."""
        if result.output is None or not self._setup.agents:
            return result
        agent = self._setup.agents.get((await self._store.get(result.id)).agent)
        try:
            return self._typed(result, agent)
        except ConfigError as misfit:
            _LOG.warning("%s; it is returned as JSON", misfit, extra={"turn": result.id})
            return result

    def _need_supplied(self, known: JournalFold, supplied: Supplied) -> None:
        """Raise for another turn's agent, and for code or dependencies that this process will miss.

        So no answer is written that nobody here can act on.
        """
        need_agent(known, supplied.agent)
        if self._runtime.embedded and known.machine.turn.state.outcome is None:
            self._setup.code_for(known.turn_id, known.started.agent, supplied.agent)
            self._setup.need_supplied(known.turn_id, known.started, supplied)

    def _need_open(self) -> None:
        if self._closed:
            raise EngineClosedError

    def _started(self, turn_id: str) -> "StartedTurn | None":
        """Return the turn if a task of the engine drives it."""
        return None if self._in_background is None else self._in_background.get(turn_id)

    @property
    def _background(self) -> "StartedTurns":
        self._need_open()  # it may have been closed while a turn was written
        if self._in_background is None:
            from .started import StartedTurns  # noqa: PLC0415 (most turns are driven by their callers)

            self._in_background = StartedTurns(self._drive_started, self._close_followers)
        return self._in_background

    async def _drive_started(self, one: "StartedTurn") -> TurnResult:
        """Drive a turn until it ends or pauses. While another process drives it, wait for that one."""
        while True:
            try:
                if one.begun is None and not await self._work.is_due(one.id):
                    return await current_result(self._store, one.id)
                return await self._work.run(one.id, one.begun, None, one.supplied)
            except (TurnBusyError, LeaseLostError):
                pass
            finally:
                one.begun = None
            await anyio.sleep(self._setup.poll_interval)

    async def _pass_on(self, turn_id: str) -> None:
        """Give the driver of a turn that was just started what was posted before it opened the turn."""
        started = self._started(turn_id)
        begun = None if started is None else started.begun  # its driver may end while the inbox is read
        if begun is not None:
            begun.claim.waiting = await self._store.inbox(turn_id)

    def _close_followers(self, turn_id: str) -> None:
        if not self._work.is_driven(turn_id):
            self._hub.close(turn_id)  # a turn without a new event would be followed for ever

    def _need_known(self, turn_id: str) -> None:
        if self.store.has(turn_id) is False:
            raise TurnNotFoundError(turn_id)

    async def _need_live(self, turn_id: str) -> None:
        status = (await self.store.get(turn_id)).status
        need_live(turn_id, status.outcome, status.reason)

    async def _begin(
        self, turn_id: str, agent: AnyAgent, prompt: str, options: TurnOptions, *, driven: bool = True
    ) -> NewTurnClaim:
        plain, driven = cast("Agent", agent), driven and self._runtime.embedded
        return await start_turn(
            self.store, self._setup, turn_id, plain, prompt, options, listeners=self._hub, driven=driven
        )

    @asynccontextmanager
    async def _followed(
        self,
        turn_id: str,
        after: int,
        drive: Callable[[], Awaitable[TurnResult]],
        *,
        subagents: Mapping[str, int] | None,
    ) -> "AsyncIterator[TurnStream]":
        """Follow a turn after the fact `after`, while `drive` drives it or waits for its driver."""
        under_way = True

        async def drive_and_close() -> TurnResult:
            nonlocal under_way
            try:
                return await drive()
            finally:
                under_way = False
                if not self._turns.is_driven(turn_id):
                    self._hub.close(turn_id)  # a turn without a new event would be followed for ever

        followed = self._follow(turn_id, after, lambda: under_way, subagents=subagents)
        events = wait_until_idle(followed, turn_id, after, partial(current_result, self._store))
        async with _driven(turn_id, events, drive_and_close) as stream:
            yield stream

    def _follow(
        self,
        turn_id: str,
        after: int,
        expected: Callable[[], bool] = lambda: False,
        *,
        waits: bool = False,
        subagents: Mapping[str, int] | None = None,
    ) -> AsyncIterator[StreamEvent]:
        here = self._runtime.embedded and not waits
        return follow(
            self.store,
            self._hub,
            turn_id,
            after=after,
            is_driven_here=lambda: self._is_driven_here(turn_id),
            is_expected=expected,
            is_due=None if here else partial(self._work.is_due, turn_id),
            here=here,
            poll_interval=self._setup.poll_interval,
            clock=self._setup.clock,
            subagents=subagents,
        )

    def _is_driven_here(self, turn_id: str) -> bool:
        started = self._started(turn_id)
        return self._turns.is_driven(turn_id) or (started is not None and started.begun is not None)


@asynccontextmanager
async def _driven(
    turn_id: str, events: "ClosableEvents", drive: Callable[[], Awaitable[TurnResult]]
) -> "AsyncIterator[TurnStream]":
    """Drive a turn during the block. Once its last event was read, the end of the block waits for its result."""
    from .turn_stream import TurnStream  # noqa: PLC0415 (many programs read no stream)

    stream = TurnStream(turn_id, events)
    async with background_task(stream.drive, drive):
        yield stream
        await stream.wait_for_result()
