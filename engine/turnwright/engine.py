"""The facade of the package: starts, follows, steers, answers, resumes and stops turns."""

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Never, TypeVar, Unpack, cast, overload

import anyio

from turnwright_states import Limits

from ._base.blocks import AsyncBlock, async_block
from .agent import Agent
from .context import NOT_GIVEN, DepsFactory, DepsT, GuardrailBase, HooksBase, NotGiven
from .driver.admission import TurnOptions
from .driver.dependencies import (
    Dependencies,
    Prepare,
    Synthesis,
    agents_by_name,
    engine_limits,
    factory_of,
    guardrails_of,
    hooks_of,
    tools_by_name,
)
from .errors import ConfigError, known_options, need_method
from .journal.answers import Answers
from .journal.event_bus import EventBus, Observer
from .model.prices import Price
from .model.protocol import Model
from .model.retry import Backoff
from .model_settings import ModelSettings
from .result import TurnResult
from .runtime import Local, Runtime
from .runtime.engine_turns import EngineTurns
from .runtime.opened_models import OpenedModels
from .runtime.sync_turns import SyncTurns
from .store import Store, open_store
from .tools.loop_handle import MAX_THREADS, Threads
from .tools.tool import Tool
from .transcript.pairing import Unpaired

if TYPE_CHECKING:
    from .runtime.engine_arguments import EngineArguments
    from .runtime.handle import TurnHandle
    from .runtime.turn_stream import TurnStream
    from .telemetry import Telemetry


OutT = TypeVar("OutT")


class Engine(SyncTurns[DepsT]):
    """Runs turns: in this process, on any number of tasks of one event loop, or on the workers of a runtime.

    `deps` makes the dependencies of a turn, for its tools and other functions: a function of the turn (`TurnInfo`), or
    a generator that yields them once and then closes them. It is called once for each driver of a turn. Or `deps_type`
    is the type of dependencies that each `run` is given, and then no other process can resume the turn. An engine with
    neither is an `Engine[None]`. See docs/rules.md#dependencies.

    `agents` are registered by name. A resumed turn finds there what its journal cannot keep of its agent: functions and
    types.

    `model` serves agents that name none; `models` returns the model that an agent names. Without `models`, agents may
    name only the engine's model. `tools` are the tools that agents may use. `hooks` and `guardrails` apply to every
    turn, before those of its agent. An engine that lacks one of them cannot resume the turn. `store` is a store or its
    address (`memory:`, `sqlite:///turns.db`). `limits` are the defaults, which an agent's limits override; `ceiling`
    applies to every agent. `prices` has the cost of each model's tokens, by model name; it precedes the cost that
    a model reports, which precedes the published prices of `genai-prices`, if that is installed.

    Functions of yours may be async. Others run in threads. Only those for `models`, `on_event` and the clocks must be
    plain functions: they run in the event loop, and must be fast.

    `history_processor(messages)` may change what a model receives, never what is stored. `synthesize(batch)` is called
    with each finished batch, and ends the turn if it returns a text. Each function of `on_event` is called with every
    event. `unpaired` says what happens to unpaired messages, imported or made by `history_processor`: they are repaired
    when they are sent, or rejected (`reject`). With `show_budget_to_model` the model is sent what is left of the
    limits, in a standard text or in yours.

    `model_settings` are settings of every model call (temperature, thinking, caching and more), which those of an agent
    and of a run override. A setting that a model does not support is left out with a warning, or refused with
    `strict_settings`. See docs/rules.md#settings. A reply that repeats its own end again and again is a failed attempt,
    unless `stop_repetition` is false. See docs/rules.md#replies.

    `tool_timeout` is short for the limit of that name: the seconds of a call of a tool without a `timeout` of its own,
    300 by default. `deps`, `synthesize` and `history_processor` have as long; None means that all of them may take for
    ever. See docs/rules.md#time-limits.

    `backoff` is the wait between attempts at a model call. `max_parallel_tools` calls of a turn run at once, and
    `max_threads` functions that are not async, of all turns in an event loop. After an abort, tools have `cancel_grace`
    seconds to end. An inbox that other processes may write to is read every `poll_interval` seconds. `now` is the wall
    clock, in seconds since the Unix epoch; `clock` never goes back. `telemetry` receives the work as it happens:
    `turnwright.otel` has one.

    `runtime` decides which process drives a turn. The default, `Local`, drives it in the task that runs it. With
    another runtime, turns are submitted and their journal is followed: canceling the caller does not stop the turn, and
    replies arrive complete, not streamed. `models` and `tools` may then differ from the workers', but turns are checked
    against them.

    Raises `ConfigError` for an argument of another type, a store that cannot be opened, two tools or agents of one
    name, code that needs dependencies (`ToolContext[Deps]`) where there are none, and what `Dependencies` rejects.
    After `aclose`, every method that needs the store raises `EngineClosedError`. See docs/rules.md#errors.
    """

    @overload
    def __init__(
        self: "Engine[None]",
        *,
        agents: Sequence[Agent[None, object]] = (),
        tools: Sequence[Tool[None]] = (),
        hooks: Sequence[HooksBase[None]] = (),
        guardrails: Sequence[GuardrailBase[None]] = (),
        **options: "Unpack[EngineArguments]",
    ) -> None: ...
    @overload
    def __init__(
        self,
        *,
        deps: DepsFactory[DepsT],
        agents: Sequence[Agent[DepsT, object]] = (),
        tools: Sequence[Tool[DepsT]] = (),
        hooks: Sequence[HooksBase[DepsT]] = (),
        guardrails: Sequence[GuardrailBase[DepsT]] = (),
        **options: "Unpack[EngineArguments]",
    ) -> None: ...
    @overload
    def __init__(
        self,
        *,
        deps_type: type[DepsT],
        agents: Sequence[Agent[DepsT, object]] = (),
        tools: Sequence[Tool[DepsT]] = (),
        hooks: Sequence[HooksBase[DepsT]] = (),
        guardrails: Sequence[GuardrailBase[DepsT]] = (),
        **options: "Unpack[EngineArguments]",
    ) -> None: ...
    @known_options("Engine", Limits.model_fields)
    def __init__(
        self,
        *,
        deps: DepsFactory[object] | None = None,
        deps_type: type[object] | None = None,
        agents: Sequence[Agent[Never, object]] = (),
        tools: Sequence[Tool[Never]] = (),
        hooks: Sequence[HooksBase[Never]] = (),
        guardrails: Sequence[GuardrailBase[Never]] = (),
        model: Model | None = None,
        models: Callable[[str], Model] | None = None,
        store: Store | str = "memory:",
        limits: Limits | None = None,
        prices: Mapping[str, Price] | None = None,
        history_processor: Prepare | None = None,
        synthesize: Synthesis | None = None,
        on_event: Sequence[Observer] = (),
        backoff: Backoff | None = None,
        tool_timeout: float | NotGiven | None = NOT_GIVEN,
        max_parallel_tools: int = 8,
        max_threads: int = MAX_THREADS,
        cancel_grace: float = 1.0,
        poll_interval: float = 0.25,
        unpaired: Unpaired = "repair",
        show_budget_to_model: bool | str = False,
        model_settings: ModelSettings | None = None,
        strict_settings: bool = False,
        stop_repetition: bool = True,
        runtime: Runtime | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        telemetry: "Telemetry | None" = None,
    ) -> None:
        self.store = open_store(store) if isinstance(store, str) else store
        need_method("store", self.store, "append", "an address such as sqlite:///turns.db, or a store")
        opened = OpenedModels(model, models)
        self.setup = Dependencies(
            model=model,
            models=None if models is None else opened.get,
            # From here on, deps are `object`: the overloads have checked that all of one engine have the same type.
            tools=tools_by_name(cast("Sequence[Tool]", tools)),
            agents=agents_by_name(cast("Sequence[Agent]", agents)),
            hooks=hooks_of(cast("Sequence[HooksBase]", hooks)),
            guardrails=guardrails_of(cast("Sequence[GuardrailBase]", guardrails)),
            make_deps=factory_of(deps),
            takes_deps=deps is not None or deps_type is not None,
            limits=engine_limits(limits, tool_timeout),
            prices=prices or {},
            history_processor=history_processor,
            synthesize=synthesize,
            backoff=backoff or Backoff(),
            max_parallel_tools=max_parallel_tools,
            threads=Threads(max_threads),
            unpaired=unpaired,
            show_budget_to_model=show_budget_to_model,
            model_settings=model_settings,
            strict_settings=strict_settings,
            stop_repetition=stop_repetition,
            cancel_grace=cancel_grace,
            poll_interval=poll_interval,
            now=now,
            clock=clock,
        )
        observe_segment = None
        if telemetry is not None:
            from .telemetry import ObservedSegment  # noqa: PLC0415 (most programs have no telemetry)

            observe_segment = partial(ObservedSegment.of, telemetry)
        runtime = Local() if runtime is None else runtime
        need_method("runtime", runtime, "submit", "a runtime, such as Local()")
        if not runtime.embedded and isinstance(store, str) and not self.store.shared:
            raise ConfigError(f"store {store} belongs to this process alone: give one that the runtime's workers share")
        if runtime.embedded:  # else the engines of the workers make them
            self.setup.need_no_deps()
        turns = EngineTurns(self.store, self.setup, EventBus(on_event, observe_segment), runtime)
        super().__init__(self.store, turns, opened)

    async def run(
        self,
        agent: Agent[DepsT, OutT],
        prompt: str,
        *,
        deps: DepsT | NotGiven = NOT_GIVEN,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[OutT]:
        """Run one turn until it ends or pauses.

        `deps` are the dependencies of this call, instead of those that the engine makes; the caller closes them. The
        options are those of `TurnOptions`. Raises `SessionBusyError`, `ConfigError` for an agent that cannot run here,
        and what `Driver.drive` raises. How the turn ends is a value.
        """
        return cast("TurnResult[OutT]", await self._turns.run(agent, prompt, options, deps))

    @async_block("async with engine.stream(...) as events:` and in it `async for event in events:")
    async def stream(
        self,
        agent: Agent[DepsT, OutT],
        prompt: str,
        *,
        deps: DepsT | NotGiven = NOT_GIVEN,
        subagents: bool = False,
        **options: Unpack[TurnOptions],
    ) -> "AsyncIterator[TurnStream[OutT]]":
        """Run one turn and follow it: `async with engine.stream(...) as events: async for event in events: ...`.

        The events end with `TurnEndedEvent` or `TurnPausedEvent`. The block's value also has `turn_id`, `text()`
        instead of the events, and at their end `result`. With `subagents`, the events of its sub-agents' turns are
        included, each with its own `turn`. Leaving the block early stops the driving; the turn can be resumed. (A
        runtime's turn continues.) Takes and raises what `run` does.
        """
        async with self._turns.stream(agent, prompt, options, deps, subagents=subagents) as stream:
            yield cast("TurnStream[OutT]", stream)

    async def start(
        self,
        agent: Agent[DepsT, OutT],
        prompt: str,
        *,
        deps: DepsT | NotGiven = NOT_GIVEN,
        **options: Unpack[TurnOptions],
    ) -> "TurnHandle[OutT]":
        """Start a turn in the background, and return its handle once the turn is written.

        A task of this engine drives the turn, or the workers of its runtime do. The turn continues when the handle is
        dropped and when the caller is canceled. `aclose` and the end of the event loop release it, and it can be
        resumed. Takes and raises what `run` does. See docs/rules.md#handles.
        """
        turn_id = await self._turns.start(agent, prompt, options, deps)
        from .runtime.handle import TurnHandle  # noqa: PLC0415 (many programs have no handles)

        return TurnHandle(self._turns, turn_id, agent, deps)

    def attach(
        self, turn_id: str, agent: Agent[DepsT, OutT], *, deps: DepsT | NotGiven = NOT_GIVEN
    ) -> "TurnHandle[OutT]":
        """Return a handle of an existing turn of this agent, whichever process drives it. Nothing is driven yet.

        `TurnHandle.result` resumes it if nobody drives it, with these `deps` instead of those that the engine makes.
        Raises `ConfigError` for a sub-agent's turn, and `TurnNotFoundError`, with PostgreSQL at the handle's first use.
        """
        self._turns.need_turn(turn_id)
        from .runtime.handle import TurnHandle  # noqa: PLC0415 (many programs have no handles)

        return TurnHandle(self._turns, turn_id, agent, deps)

    async def submit(self, agent: Agent[DepsT, object], prompt: str, **options: Unpack[TurnOptions]) -> str:
        """Start a turn for a worker to drive, and return its id at once. `events` follows it.

        Its state is `QUEUED` until a worker drives it. A worker is a process that runs `run_worker` on the same store
        with the same runtime. It makes the dependencies. Takes the options of `run`, and raises what `run` does.
        """
        return await self._turns.submit(agent, prompt, options)

    async def run_worker(self, stopping: anyio.Event | None = None) -> None:
        """Work for the runtime: drive submitted and abandoned turns, until canceled.

        Once `stopping` is set, no turn is started. The call returns when the running turns have ended or paused, or
        were released after the runtime's `drain` seconds. Raises `RuntimeUnavailableError`.
        """
        await self._turns.run_worker(stopping)

    @overload
    async def resume(
        self, turn_id: str, answers: Answers | None = None, *, deps: DepsT | NotGiven = NOT_GIVEN
    ) -> TurnResult: ...
    @overload
    async def resume(
        self,
        turn_id: str,
        answers: Answers | None = None,
        *,
        agent: Agent[DepsT, OutT],
        deps: DepsT | NotGiven = NOT_GIVEN,
    ) -> TurnResult[OutT]: ...
    async def resume(
        self,
        turn_id: str,
        answers: Answers | None = None,
        *,
        agent: Agent[DepsT, object] | None = None,
        deps: DepsT | NotGiven = NOT_GIVEN,
    ) -> TurnResult:
        """Answer a paused turn, or resume one whose driver is gone, and drive it until it ends or pauses.

        `answers` has a text, a bool, or an `Answer` (`reject("why")`) for each interrupt's id. The turn continues once
        the last interrupt is answered. All answers are written before anything runs on them, or none is. If another
        process drives the turn, this call waits until it ends or pauses there.

        `agent` is the turn's agent, for what its journal cannot keep of it and for the type of the result; a registered
        agent is found by its name. `deps` are the dependencies of this call, instead of those that the engine makes.

        Raises `ConfigError` for an agent of another name. Raises `InvalidAnswerError`, listing the open interrupts, if
        an answer is invalid or another one was faster.
        Raises `TurnAlreadyEndedError`, `TurnNotFoundError`, and without answers `TurnBusyError` while another driver
        has the turn.
        """
        return await self._turns.resume(turn_id, answers, agent, deps)

    async def answer(self, turn_id: str, answers: Answers) -> None:
        """Answer a paused turn, and leave the driving to a worker. Takes and raises what `resume` does.

        It raises for a faster answer only while that waits in the inbox. The first answer counts.
        """
        await self._turns.answer(turn_id, answers)

    @overload
    def stream_resume(
        self,
        turn_id: str,
        answers: Answers | None = None,
        *,
        deps: DepsT | NotGiven = NOT_GIVEN,
        subagents: bool = False,
    ) -> "AsyncBlock[TurnStream]": ...
    @overload
    def stream_resume(
        self,
        turn_id: str,
        answers: Answers | None = None,
        *,
        agent: Agent[DepsT, OutT],
        deps: DepsT | NotGiven = NOT_GIVEN,
        subagents: bool = False,
    ) -> "AsyncBlock[TurnStream[OutT]]": ...
    @async_block("async with engine.stream_resume(...) as events:` and in it `async for event in events:")
    async def stream_resume(
        self,
        turn_id: str,
        answers: Answers | None = None,
        *,
        agent: Agent[DepsT, object] | None = None,
        deps: DepsT | NotGiven = NOT_GIVEN,
        subagents: bool = False,
    ) -> "AsyncIterator[TurnStream]":
        """Do what `resume` does and follow the turn, as `stream` follows a new one.

        The events begin after the journal's last fact, and end with `TurnEndedEvent` or `TurnPausedEvent`, even if only
        some interrupts were answered. Raises in the block what `resume` raises.
        """
        async with self._turns.stream_resume(turn_id, answers, agent, deps, subagents=subagents) as stream:
            yield stream
