"""The facade of the package: starts, follows, steers, answers, resumes and stops turns."""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import asdict, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, Never, Self, TypeAlias, TypedDict, Unpack, cast, overload

import anyio
from pydantic import JsonValue
from typing_extensions import TypeVar

from turnwright._base.background_task import background_task
from turnwright._base.blocks import AsyncValues, Block, async_block
from turnwright._base.ids import new_id
from turnwright.agent import Agent
from turnwright.context import NOT_GIVEN, DepsFactory, DepsT, GuardrailBase, HooksBase, NotGiven
from turnwright.driver.admission import NewTurnClaim, TurnOptions, id_of, start_turn
from turnwright.driver.dependencies import (
    NOTHING_SUPPLIED,
    Dependencies,
    Prepare,
    Supplied,
    Synthesis,
    agents_by_name,
    deps_given,
    engine_limits,
    engine_rules,
    factory_of,
    guardrails_of,
    hooks_of,
    tools_by_name,
)
from turnwright.errors import (
    ConfigError,
    EngineClosedError,
    HookFailedError,
    Retry,
    RuntimeUnavailableError,
    StoreError,
    TurnBusyError,
    TurnNotFoundError,
    known_options,
    need_method,
    need_number,
    need_plain_function,
)
from turnwright.journal.answers import (
    Answer,
    Answering,
    Answers,
    Authorize,
    Judge,
    Signature,
    SignatureOptions,
    current_result,
    need_accepted,
    need_agent,
    need_agent_name,
    need_live,
    need_root,
    need_turn_id,
    need_usable,
    post_answers,
    settled_result,
    sign,
)
from turnwright.journal.event_bus import EventBus, Observer
from turnwright.journal.follow import follow, read_events, wait_until_idle
from turnwright.journal.inbox import steer_item
from turnwright.journal.links import Links
from turnwright.journal.message_history import session_messages
from turnwright.journal.notices import SUBSCRIBER_SECONDS, Notice, Subscriber, checked_subscribers, deliver_notices
from turnwright.journal.recovery import recover_turns
from turnwright.journal.result import TurnResult
from turnwright.journal.subturns import unfinished_below
from turnwright.journal.turn_journal import JournalFold
from turnwright.message import Message
from turnwright.model.model_settings import ModelSettings
from turnwright.model.prices import Price
from turnwright.model.protocol import Model
from turnwright.model.retry import Backoff
from turnwright.runtime import JobListener, Local, Runtime
from turnwright.store import SessionInfo, Store, TurnRow, open_store
from turnwright.store.outbox import outbox_store
from turnwright.store.sessions import checked_title, need_session_id
from turnwright.tools.loop_handle import MAX_THREADS, Threads, in_event_loop
from turnwright.tools.result import ToolResult
from turnwright.tools.tool import Tool
from turnwright.transcript.events import StreamEvent, ToolProgressEvent
from turnwright.transcript.interrupt import Interrupt
from turnwright.transcript.pairing import Unpaired
from turnwright_states import Decision, Limits

from .in_process import InProcessTurns
from .sync_loop import SyncLoop

if TYPE_CHECKING:
    from turnwright.journal.fork_changes import ForkChanges
    from turnwright.journal.polling import WaitPoller
    from turnwright.journal.standing_approvals import StandingApproval
    from turnwright.rules import Rule, RuleSet
    from turnwright.telemetry import Telemetry
    from turnwright_states.replay import FactGroup

    from .handle import TurnHandle
    from .started_turns import StartedTurn, StartedTurns
    from .submitted_turns import SubmittedTurns
    from .turn_stream import SyncTurnStream, TurnStream

_LOG = logging.getLogger(__name__)
#: Seconds between two looks of a worker at the outbox.
_DELIVERY_INTERVAL: Final = 1.0
#: Seconds between two looks of a worker at the calls that wait for a server.
_POLL_INTERVAL: Final = 1.0

T = TypeVar("T")
OutT = TypeVar("OutT")
#: The type of the answer of an agent that need not be named. Without it, nothing is known of the answer.
AnyOutT = TypeVar("AnyOutT", default=object)
#: An agent of any dependencies and any answer.
AnyAgent: TypeAlias = Agent[Never, object]


class EngineArguments(TypedDict, total=False):
    """The options of `Engine` besides its dependencies, agents and tools. See there."""

    model: Model | None
    models: Callable[[str], Model] | None
    store: Store | str
    limits: Limits | None
    rules: "Sequence[Rule | RuleSet]"
    prices: Mapping[str, Price] | None
    history_processor: Prepare | None
    synthesize: Synthesis | None
    model_settings: ModelSettings | None
    strict_settings: bool
    stop_repetition: bool
    authorize: Authorize | None
    links: Links | None
    subscribers: Mapping[str, Subscriber] | None
    on_event: Sequence[Observer]
    backoff: Backoff | None
    tool_timeout: float | NotGiven | None
    max_parallel_tools: int
    max_threads: int
    cancel_grace: float
    poll_interval: float
    unpaired: Unpaired
    show_budget_to_model: bool | str
    runtime: Runtime | None
    now: Callable[[], float]
    clock: Callable[[], float]
    telemetry: "Telemetry | None"


class Engine(Generic[DepsT]):
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
    applies to every agent. `rules` hold for every agent, besides its own (docs/rules.md#rules-over-calls). `prices` has
    the cost of each model's tokens, by model name; it precedes the cost that a model reports, which precedes the
    published prices of `genai-prices`, if that is installed.

    Functions of yours may be async. Others run in threads, but for `needs_approval` and `loop_key` of a tool, which run
    in the event loop and must be fast. Those for `models`, `on_event` and the clocks must be plain, and run there too.

    `history_processor(messages)` may change what a model receives, never what is stored. `synthesize(batch)` is called
    with each finished batch, and ends the turn if it returns a text. Each function of `on_event` is called with every
    event. `unpaired` says what happens to unpaired messages, imported or made by `history_processor`: they are repaired
    when they are sent, or rejected (`reject`). With `show_budget_to_model` the model is sent what is left of the
    limits, in a standard text or in yours.

    `model_settings` are settings of every model call (temperature, thinking, caching and more), which those of an agent
    and of a run override. A setting that a model does not support is left out with a warning, or refused with
    `strict_settings`. See docs/rules.md#settings. A reply that repeats its own end again and again is a failed attempt,
    unless `stop_repetition` is false. See docs/rules.md#replies.

    `authorize` is asked about each answer, whichever way it comes, before it is stored: who answers which interrupt,
    and how (`Answering`). True accepts it; False, the reason why not, or an exception refuses it. A process without
    this function accepts no answer to a turn of such an engine. See docs/rules.md#who-may-answer.

    `links` makes addresses with signed tokens: links by which people answer (`link`), and callbacks by which services
    give results (`ToolContext.callback_url`). The app mounts `turnwright.web.answer_app` there.

    Each of `subscribers`, by name, receives a `Notice` when a root turn pauses, ends, or hands out a call, at least
    once, also of what another process did. Workers deliver, and `deliver`. See docs/rules.md#outbox.

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

    The methods that end with `_sync` do what those without it do, in a program without an event loop. An engine that
    was used in this way can then be used in this way only. Ctrl-C releases the turn, which can be resumed, and raises
    `KeyboardInterrupt`. All raise `ConfigError` in an event loop, and while another thread uses the engine. See
    docs/rules.md#without-an-event-loop.
    """

    @overload
    def __init__(
        self: "Engine[None]",
        *,
        agents: Sequence[Agent[None, object]] = (),
        tools: Sequence[Tool[None]] = (),
        hooks: Sequence[HooksBase[None]] = (),
        guardrails: Sequence[GuardrailBase[None]] = (),
        **options: Unpack[EngineArguments],
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
        **options: Unpack[EngineArguments],
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
        **options: Unpack[EngineArguments],
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
        rules: "Sequence[Rule | RuleSet]" = (),
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
        authorize: Authorize | None = None,
        links: Links | None = None,
        subscribers: Mapping[str, Subscriber] | None = None,
        runtime: Runtime | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        telemetry: "Telemetry | None" = None,
    ) -> None:
        self.store = open_store(store) if isinstance(store, str) else store
        need_method("store", self.store, "append", "an address such as sqlite:///turns.db, or a store")
        open_models = _OpenedModels(model, models)
        self.setup = Dependencies(
            model=model,
            models=None if models is None else open_models.get,
            # From here on, deps are `object`: the overloads have checked that all of one engine have the same type.
            tools=tools_by_name(cast("Sequence[Tool]", tools)),
            agents=agents_by_name(cast("Sequence[Agent]", agents)),
            hooks=hooks_of(cast("Sequence[HooksBase]", hooks)),
            guardrails=guardrails_of(cast("Sequence[GuardrailBase]", guardrails)),
            make_deps=factory_of(deps),
            takes_deps=deps is not None or deps_type is not None,
            limits=engine_limits(limits, tool_timeout),
            rules=engine_rules(rules),
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
            authorize=authorize,
            links=links,
            cancel_grace=cancel_grace,
            poll_interval=poll_interval,
            now=now,
            clock=clock,
        )
        observe_segment, self._telemetry = None, telemetry
        if telemetry is not None:
            from turnwright.telemetry import ObservedSegment  # noqa: PLC0415 (most programs have no telemetry)

            need_method("telemetry", telemetry, "turn", "an object with the methods of Telemetry, or OpenTelemetry()")
            observe_segment = partial(ObservedSegment.of, telemetry)
        runtime = Local() if runtime is None else runtime
        need_method("runtime", runtime, "submit", "a runtime, such as Local()")
        if not runtime.embedded and isinstance(store, str) and not self.store.shared:
            raise ConfigError(f"store {store} belongs to this process alone: give one that the runtime's workers share")
        if runtime.embedded:  # else the engines of the workers make them
            self.setup.need_no_deps()
        self._subscribers = checked_subscribers(subscribers or {})
        #: The outbox of the store, if there are subscribers, and whether they are in it.
        self._outbox = outbox_store(self.store) if self._subscribers else None
        self._is_subscribed = not self._subscribers
        self._poller: WaitPoller | None = None
        self._models = open_models
        self._hub = EventBus(on_event, observe_segment)
        self._runtime = runtime
        self._closed = False
        #: Drives turns in this process.
        self._work = InProcessTurns(self.store, self.setup, self._hub)
        runtime.bind(self._work)
        #: Drives the turns of this engine: here, or on the workers of its runtime.
        self._turns = self._work if runtime.embedded else self._open_submitted()
        self._in_background: StartedTurns | None = None
        #: The event loop of a program that has none.
        self._sync = SyncLoop()

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
        options are those of `TurnOptions`. With the option `id`, a retry of the call attaches to its turn: it returns
        the result, waits for the driver, or resumes the turn after a crash. See docs/rules.md#start-once. Raises
        `SessionBusyError`, `TurnConflictError`, `ConfigError` for an agent that cannot run here, and what
        `Driver.drive` raises. How the turn ends is a value.
        """
        turn_id, supplies = id_of(options), self._make_supplies(agent, deps)
        new_turn = await self._begin(turn_id, agent, prompt, options)
        return cast("TurnResult[OutT]", await self._drive_new(turn_id, new_turn, supplies))

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
        from .turn_stream import driven_stream  # noqa: PLC0415 (many programs read no stream)

        turn_id, supplies = id_of(options), self._make_supplies(agent, deps)
        with self._hub.follow(turn_id, subagents=subagents) as events:
            new_turn = await self._begin(turn_id, agent, prompt, options)
            drive = partial(self._drive_new, turn_id, new_turn, supplies)
            if new_turn is not None and self._runtime.embedded:
                async with driven_stream(turn_id, events, drive) as stream:
                    yield cast("TurnStream[OutT]", stream)
                return
        async with self._follow_drive(turn_id, 0, drive, subagents={} if subagents else None) as stream:
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
        supplies = self._make_supplies(agent, deps)
        if self._runtime.embedded:
            turn_id = id_of(options)
            new_turn = await self._begin(turn_id, agent, prompt, options)
            self._background.start(turn_id, new_turn, supplies)
        else:
            turn_id = await self.submit(agent, prompt, **options)
        return self._handle(turn_id, agent, deps)

    def attach(
        self, turn_id: str, agent: Agent[DepsT, OutT], *, deps: DepsT | NotGiven = NOT_GIVEN
    ) -> "TurnHandle[OutT]":
        """Return a handle of an existing turn of this agent, whichever process drives it. Nothing is driven yet.

        `TurnHandle.result` resumes it if nobody drives it, with these `deps` instead of those that the engine makes.
        Raises `ConfigError` for a sub-agent's turn, and `TurnNotFoundError`, with PostgreSQL at the handle's first use.
        """
        need_root(turn_id, "attach to")
        self._need_turn(turn_id)
        return self._handle(turn_id, agent, deps)

    async def submit(self, agent: Agent[DepsT, object], prompt: str, **options: Unpack[TurnOptions]) -> str:
        """Start a turn for a worker to drive, and return its id at once. `events` follows it.

        Its state is `QUEUED` until a worker drives it. A worker is a process that runs `run_worker` on the same store
        with the same runtime. It makes the dependencies. Takes the options of `run`, and raises what `run` does.
        """
        turn_id = id_of(options)
        if await self._begin(turn_id, agent, prompt, options, is_driven=False) is not None:
            from .submitted_turns import submit_new  # noqa: PLC0415 (most engines have no runtime)

            await submit_new(self._runtime, turn_id)
        return turn_id

    async def run_worker(self, stopping: anyio.Event | None = None, *, listener: JobListener | None = None) -> None:
        """Work for the runtime: drive submitted and abandoned turns, until canceled.

        Once `stopping` is set, no turn is started. The call returns when the running turns have ended or paused, or
        were released after the runtime's `drain` seconds. `listener` receives what the worker does. Raises
        `RuntimeUnavailableError`.
        """
        self._need_open()
        self._work.listener = listener
        await self._subscribe()
        poller = self._wait_poller()
        async with AsyncExitStack() as tasks:
            for name in self._subscribers:  # a slow one holds up none of the others
                await tasks.enter_async_context(background_task(self._deliver_always, name))
            if poller.is_needed:
                await tasks.enter_async_context(background_task(self._poll_always, poller))
            await self._runtime.run_worker(stopping)

    @overload
    async def resume(
        self,
        turn_id: str,
        answers: Answers | None = None,
        *,
        deps: DepsT | NotGiven = NOT_GIVEN,
        **signature: Unpack[SignatureOptions],
    ) -> TurnResult: ...
    @overload
    async def resume(
        self,
        turn_id: str,
        answers: Answers | None = None,
        *,
        agent: Agent[DepsT, OutT],
        deps: DepsT | NotGiven = NOT_GIVEN,
        **signature: Unpack[SignatureOptions],
    ) -> TurnResult[OutT]: ...
    async def resume(
        self,
        turn_id: str,
        answers: Answers | None = None,
        *,
        agent: Agent[DepsT, object] | None = None,
        deps: DepsT | NotGiven = NOT_GIVEN,
        **signature: Unpack[SignatureOptions],
    ) -> TurnResult:
        """Answer a paused turn, or resume one whose driver is gone, and drive it until it ends or pauses.

        `answers` has a text, a bool, or an `Answer` (`reject("why")`) for each interrupt's id. The turn continues once
        the last interrupt is answered. All answers are written before anything runs on them, or none is. If another
        process drives the turn, this call waits until it ends or pauses there.

        `by` and `via` say who answers and through which channel, as you claim it: the journal keeps them with the time.
        `agent` is the turn's agent, for what its journal cannot keep of it and for the type of the result; a registered
        agent is found by its name. `deps` are the dependencies of this call, instead of those that the engine makes.

        Raises `ConfigError` for an agent of another name. Raises `InvalidAnswerError`, listing the open interrupts, if
        an answer is invalid or another one was faster.
        Raises `TurnAlreadyEndedError`, `TurnNotFoundError`, and without answers `TurnBusyError` while another driver
        has the turn.
        """
        fold, supplies = await self._read(turn_id), self._make_supplies(agent, deps)
        return await self._resume(fold, answers, supplies, **signature)

    async def answer(self, turn_id: str, answers: Answers, **signature: Unpack[SignatureOptions]) -> None:
        """Answer a paused turn, and leave the driving to a worker. Takes and raises what `resume` does.

        The first answer counts. Another one raises, also after the turn has used the first.
        """
        fold = await self._post_answers(turn_id, answers, **signature)
        await self._runtime.submit(turn_id, fold.segment)

    @overload
    async def settle(
        self, key: str, result: JsonValue | ToolResult, /, **signature: Unpack[SignatureOptions]
    ) -> bool: ...
    @overload
    async def settle(self, key: str, /, *, error: str, **signature: Unpack[SignatureOptions]) -> bool: ...
    async def settle(
        self,
        key: str,
        result: JsonValue | ToolResult | NotGiven = NOT_GIVEN,
        /,
        *,
        error: str | None = None,
        **signature: Unpack[SignatureOptions],
    ) -> bool:
        """Give the result of a call from outside, or the `error` with which it failed. A worker drives the turn on.

        `key` is the call's idempotency key, `TURN:CALL` or `TURN:CALL:CALL` (`Interrupt.key`). The call waits for its
        result (`Later`, `external_tool`), or its outcome is unknown, or it runs still, and will use this result when it
        waits or after a crash. Any process may settle, without the turn's tools. `by` and `via` are those of `resume`.

        Returns True once the result is stored, and False if the call has the same one already, also after the turn
        ended. Raises `AlreadySettledError` if it has another result, `InvalidAnswerError` if no open call has the key,
        the call waits for something else, or the result does not fit its `output_schema`, `ConfigError` for a result
        that is too large or not JSON, and `TurnNotFoundError`. See docs/rules.md#waits.
        """
        from turnwright.journal.settling import settle_call  # noqa: PLC0415 (many programs settle no calls)

        outside_result, now = settled_result(result, error), self.setup.now()
        addressee = await settle_call(
            self._open_store,
            key,
            outside_result,
            signature=sign(now, **signature),
            now=now,
            judge=self._judge_answers,
            poll_interval=self.setup.poll_interval,
        )
        if addressee is not None and not addressee.is_early:
            await self._runtime.submit(addressee.fold.turn_id, addressee.fold.segment)
        return addressee is not None

    async def approvals(self, session: str) -> "list[StandingApproval]":
        """Return the approvals of a session that cover equal calls (`approve(always=True)`), the oldest first.

        Raises `StoreError`.
        """
        from turnwright.journal.standing_approvals import list_approvals  # noqa: PLC0415 (few apps list approvals)

        need_session_id(session)
        return await list_approvals(self._open_store, session)

    async def revoke_approvals(self, session: str) -> int:
        """Revoke the approvals of a session that cover equal calls (`approve(always=True)`): later turns ask again.

        Returns the number of the approvals. A turn that has not ended keeps its own, and those that it has read. Raises
        `ConfigError` for a store that keeps no annotations, and `StoreError`.
        """
        from turnwright.journal.standing_approvals import revoke_approvals  # noqa: PLC0415 (few apps revoke approvals)

        need_session_id(session)
        return await revoke_approvals(self._open_store, session, self.setup.now())

    async def deliver(self) -> int:
        """Deliver the notices of the outbox that are due to this engine's subscribers. Workers do it continuously.

        Returns the number of those that were delivered. A failed one is delivered again after a second, then after
        twice as long each time, at most an hour, for 3 days. Raises `StoreError`.
        """
        await self._subscribe()
        return await self._deliver(self._subscribers)

    async def _deliver(self, subscribers: Mapping[str, Subscriber]) -> int:
        """Deliver the notices that are due to these subscribers. Return the number of those that were delivered."""
        if self._outbox is None:
            return 0
        return await deliver_notices(self._open_store, self._outbox, subscribers, self._call, self.setup.now)

    async def _call(self, name: str, subscriber: Subscriber, notice: Notice) -> object:
        """Call a subscriber in a task of its own. Raises `HookFailedError`."""
        from turnwright.driver.hooks.asking import ask  # noqa: PLC0415 (many apps have no subscribers)

        grace = self.setup.cancel_grace
        return await ask(f"subscriber {name!r}", subscriber, notice, seconds=SUBSCRIBER_SECONDS, grace=grace)

    async def _subscribe(self) -> None:
        """Write the subscriptions of this engine, once."""
        if not self._is_subscribed and self._outbox is not None:
            await self._outbox.subscribe([*self._subscribers])
            self._is_subscribed = True

    async def _deliver_always(self, name: str) -> None:
        """Deliver notices to a subscriber until canceled, as a worker does."""
        while True:
            try:
                await self._deliver({name: self._subscribers[name]})
                await self._report_outbox()
            except StoreError as error:
                _LOG.warning("no notice is delivered until the store can be reached again: %s", error)
            await anyio.sleep(_DELIVERY_INTERVAL)

    def _wait_poller(self) -> "WaitPoller":
        from turnwright.journal.polling import WaitPoller  # noqa: PLC0415 (of workers, and of recoveries)

        if self._poller is None:
            self._poller = WaitPoller(self._open_store, self.setup.tools, self.setup.now)
        return self._poller

    async def _poll_always(self, poller: "WaitPoller") -> None:
        """Ask tools about the calls that wait, until canceled, as a worker does."""
        while True:
            try:
                for turn_id in await poller.poll():
                    with suppress(TurnNotFoundError):
                        fold = await JournalFold.read(self._open_store, turn_id)
                        await self._runtime.submit(turn_id, fold.segment)
            except (StoreError, RuntimeUnavailableError) as error:
                _LOG.warning("no task is looked at until the store and the runtime can be reached again: %s", error)
            await anyio.sleep(_POLL_INTERVAL)

    async def _report_outbox(self) -> None:
        """Report the numbers of notices to the telemetry."""
        if self._telemetry is not None and self._outbox is not None:
            counts = await self._outbox.count_notices()
            try:
                self._telemetry.outbox(counts)
            except Exception:  # noqa: BLE001 (an embedder's; deliveries continue)
                _LOG.warning("the telemetry raised an error, and misses the outbox", exc_info=True)

    def link(
        self,
        turn_id: str,
        interrupt: Interrupt,
        decision: Decision | str,
        *,
        by: str = "",
        expires_in: float | None = None,
    ) -> str:
        """Return the address by which the person `by` answers an open interrupt with this decision: `approve`, ...

        Opening it shows the question, and a button answers: mail programs and chats open addresses by themselves. It is
        valid for `expires_in` seconds, by default as long as the engine's links. `interrupt` is one of the turn's
        interrupts. Raises `ConfigError` without `Engine(links=...)`, and for a decision that the interrupt does not
        take. See docs/rules.md#links.
        """
        if self.setup.links is None:
            raise ConfigError("link: give the engine links=Links(base, keys=[...])")
        need_root(turn_id)
        if not isinstance(interrupt, Interrupt) or not interrupt.turn_started_at:
            name = interrupt.id if isinstance(interrupt, Interrupt) else f"{interrupt!r:.40}"
            raise ConfigError(f"link: {name} is not an interrupt of a turn's result: take one of its `interrupts`")
        now = self.setup.now()
        by = sign(now, by=by).by
        return self.setup.links.answer(turn_id, interrupt, str(decision), by=by, expires_in=expires_in, now=now)

    async def progress(self, key: str, progress: float, total: float | None = None, message: str = "") -> None:
        """Report the progress of a call that runs elsewhere: `progress` of `total`, in a unit of your choice.

        The turn's inbox keeps the latest report, and `get` shows it. Followers in this process receive a
        `ToolProgressEvent`. Raises `ConfigError` for anything but finite numbers and text, and what `settle` raises
        about the key.
        """
        from turnwright.journal.settling import report_progress  # noqa: PLC0415 (many programs settle no calls)

        addressee, report = await report_progress(self._open_store, key, progress, total, message)
        turn, _, call = key.rpartition(":")
        seq, tool = addressee.fold.seq if addressee.fold.turn_id == turn else 0, addressee.interrupt.tool
        if turn in self._hub.followed:
            event = ToolProgressEvent(turn, seq, call=call, tool=tool, **asdict(report))
            self._hub.publish(event)

    @async_block("async with engine.stream_resume(...) as events:` and in it `async for event in events:")
    async def stream_resume(
        self,
        turn_id: str,
        answers: Answers | None = None,
        *,
        agent: Agent[DepsT, AnyOutT] | None = None,
        deps: DepsT | NotGiven = NOT_GIVEN,
        subagents: bool = False,
        **signature: Unpack[SignatureOptions],
    ) -> "AsyncIterator[TurnStream[AnyOutT]]":
        """Do what `resume` does and follow the turn, as `stream` follows a new one.

        The events begin after the journal's last fact, and end with `TurnEndedEvent` or `TurnPausedEvent`, even if only
        some interrupts were answered. Raises in the block what `resume` raises.
        """
        supplies, fold = self._make_supplies(agent, deps), await self._read(turn_id)
        drive = partial(self._resume, fold, answers, supplies, **signature)
        below = await unfinished_below(self._open_store, turn_id, fold.facts) if subagents else {}
        last_seqs = {turn: facts[-1][0] for turn, facts in below.items()} if subagents else None
        async with self._follow_drive(turn_id, fold.seq, drive, subagents=last_seqs) as stream:
            yield cast("TurnStream[AnyOutT]", stream)

    async def steer(self, turn_id: str, text: str) -> None:
        """Send a message to a running turn. The turn receives it before its next model call that may use tools.

        A turn that ends before that returns it as `undelivered`; a paused turn keeps it. The message resets the
        doom-loop detector, and refills no limit. Any process may steer. Raises `TurnNotFoundError`,
        `TurnAlreadyEndedError`, and `ConfigError` for a blank message. See docs/rules.md#messages.
        """
        need_turn_id(turn_id)
        item = steer_item(turn_id, text)
        await self._need_live(turn_id)
        await self._open_store.post(item)
        await self._pass_on(turn_id)
        if item in await self._open_store.inbox(turn_id):
            await self._need_live(turn_id)  # it may have ended meanwhile

    async def abort(self, turn_id: str) -> None:
        """End a paused turn, or signal the driver of a running one. A turn that has ended stays as it is.

        Raises `TurnNotFoundError`.
        """
        need_turn_id(turn_id)
        if (await self._open_store.get(turn_id)).status.outcome is None:
            await self._turns.stop(turn_id)
            await self._pass_on(turn_id)

    def events(
        self, turn_id: str, after: int = 0, *, wait: bool = False, subagents: bool = False
    ) -> AsyncIterator[StreamEvent]:
        """Yield the events of a turn with a `seq` above `after`: from the journal, then live until it ends or pauses.

        The live events are those since this call, not since the first event is requested.

        Any process may drive the turn. With `wait`, or with a runtime, a turn without a driver is awaited, with a
        warning after some seconds. With `subagents`, the events of its sub-agents' turns are included, each with its
        own `turn` and `seq`: those of a call that is open at `after`, from the beginning of its turn. Raises
        `TurnNotFoundError` at the call, or with PostgreSQL when the first event is requested.
        """
        need_turn_id(turn_id)
        self._need_turn(turn_id)
        below: dict[str, int] | None = {} if subagents else None
        if wait or self._find_started(turn_id) is None:
            events = self._follow(turn_id, after, waits=wait, subagents=below)
        else:
            events = self._follow(turn_id, after, lambda: self._find_started(turn_id) is not None, subagents=below)
            events = wait_until_idle(events, turn_id, after, partial(current_result, self.store))
        return AsyncValues(events, "async for event in engine.events(...):")

    async def snapshot(self, turn_id: str, after: int = 0, *, subagents: bool = False) -> list[StreamEvent]:
        """Return the events of a turn's journal so far, with a `seq` above `after`, without following the turn.

        `events(turn_id, after=snapshot[-1].seq)` continues there. `subagents` is that of `events`. Raises
        `TurnNotFoundError`.
        """
        need_turn_id(turn_id)
        return await read_events(self._open_store, turn_id, after=after, subagents={} if subagents else None)

    @overload
    async def get(self, turn_id: str) -> TurnResult: ...
    @overload
    async def get(self, turn_id: str, *, agent: Agent[Never, OutT]) -> TurnResult[OutT]: ...
    async def get(self, turn_id: str, *, agent: Agent[Never, object] | None = None) -> TurnResult:
        """Return a turn's current result. Its `output` has the type of the engine's agent of that name.

        An answer that no longer fits the type is returned as JSON, with a warning. With `agent` the result has the type
        of this agent, and `ConfigError` is raised for an answer that does not fit, or another agent's turn. Raises
        `TurnNotFoundError`.
        """
        need_turn_id(turn_id)
        result = await current_result(self._open_store, turn_id)
        if agent is None:
            return await self._typed_by_registry(result)
        need_agent_name(turn_id, (await self._open_store.get(turn_id)).agent, agent.name)
        return self._read_typed_output(result, agent)

    async def turns(
        self,
        *,
        session: str | None = None,
        live: bool | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[TurnRow]:
        """Return the turns of the store, the newest first, including those of sub-agents.

        `session` selects one session, `live` unfinished turns (True) or ended ones (False). At most `limit` are
        returned, with a `number` below `before`: pass the last one's for the next page. `get` returns the details of
        one.
        """
        if session is not None:
            need_session_id(session)
        if limit is not None:
            need_number("limit", limit, 0)
        return await self._open_store.turns(session=session, live=live, limit=limit, before=before)

    async def recover(self) -> list[TurnResult]:
        """Resume every turn whose driver is gone and that does not wait for a person, and drive each to its end.

        Paused turns are included if they were answered or an interrupt has expired. A turn that cannot run here is left
        alone with a warning: its tools, model, code or dependencies are missing. `max_parallel_tools` turns run at
        once.
        """
        at_once, poller = self.setup.max_parallel_tools, self._wait_poller()
        if poller.is_needed:
            await poller.poll()
        results = await recover_turns(self._open_store, self._turns.run, now=self.setup.now, at_once=at_once)
        return [await self._typed_by_registry(result) for result in results]

    async def fork(self, turn_id: str, *, at: int, **changes: "Unpack[ForkChanges]") -> str:
        """Copy the first `at` facts of a turn into a new turn, and return its id. `resume` drives it on from there.

        `changes` are what the fork has otherwise: `prompt`, `instructions`, `model`, `model_settings`, `limits` and
        `results`. Unlike a replay, a fork executes: actions of the original may be repeated. The original is not
        changed. `recover` and workers resume an unfinished fork too. Raises what `fork_turn` raises: `ConfigError` for
        an `at` that is not the end of an input, naming the nearest ones, and for changes that are not possible.
        """
        from turnwright.journal.fork import fork_turn  # noqa: PLC0415 (imports the replay, which no turn needs)

        need_turn_id(turn_id)
        return await fork_turn(self._open_store, turn_id, at, new_id=f"fork-{new_id()}", changes=changes)

    async def fork_places(self, turn_id: str) -> "tuple[FactGroup, ...]":
        """Return the inputs after which `fork` can copy a turn, oldest first: the `last` of each is an `at`.

        The one that ended the turn is left out. Raises `TurnNotFoundError`, and `ConfigError` for an invalid journal.
        """
        from turnwright.journal.fork import fork_places  # noqa: PLC0415 (as above)

        need_turn_id(turn_id)
        return fork_places(turn_id, await self._open_store.facts(turn_id))

    async def delete(self, turn_id: str) -> int:
        """Delete a turn and its sub-agents' turns. Returns how many were deleted.

        Its messages are then missing from its session, and from a turn that continues it. Raises `TurnNotFoundError`,
        `TurnBusyError` while it is driven, and `ConfigError` for a sub-agent's turn whose root turn has not ended.
        """
        from turnwright.journal.upkeep import delete_turn  # noqa: PLC0415 (most programs delete nothing)

        need_turn_id(turn_id)
        with self._deleting() as store:
            return await delete_turn(store, turn_id)

    async def prune(self, *, older_than: float) -> int:
        """Delete turns that ended more than `older_than` seconds ago, and their sub-agents'. Returns how many."""
        from turnwright.journal.upkeep import prune_turns  # noqa: PLC0415 (as above)

        with self._deleting() as store:
            return await prune_turns(store, older_than)

    async def sessions(self, *, limit: int | None = 50, before: int | None = None) -> list[SessionInfo]:
        """Return sessions, those with the newest turns first.

        At most `limit` are returned, with a `number` below `before`: pass the last one's for the next page.
        """
        if limit is not None:
            need_number("limit", limit, 0)
        return await self._open_store.sessions(limit=limit, before=before)

    async def messages(self, session: str) -> list[Message]:
        """Return the whole conversation of a session, oldest message first, with what its first turn continues.

        The open turn is included as far as it is. Raises `SessionNotFoundError`, and `UnreadableTurnError` if one of
        its turns cannot be read.
        """
        need_session_id(session)
        return await session_messages(self._open_store, session)

    async def set_title(self, session: str, title: str) -> None:
        """Set the title of a session. Its first title is the beginning of its first prompt.

        The title is stored on one line. Raises `SessionNotFoundError`, and `ConfigError` for a blank title, or one of
        more than 200 characters.
        """
        need_session_id(session)
        await self._open_store.set_title(session, checked_title(title))

    async def delete_session(self, session: str) -> int:
        """Delete all turns of a session and their sub-agents' turns. Returns how many were deleted.

        Raises `SessionNotFoundError`, and `TurnBusyError` while one of them is driven; then nothing was deleted.
        """
        need_session_id(session)
        with self._deleting() as store:
            return await store.delete_session(session)

    async def aclose(self) -> None:
        """Close the store, and the connections of each model that has an `aclose`.

        Turns of `start` are released and can be resumed. Other turns that are being driven lose their store: end them
        before.
        """
        self._closed = True
        async with AsyncExitStack() as stack:  # in reverse order, and each, also if another one fails
            stack.push_async_callback(self.store.aclose)
            stack.push_async_callback(self._models.aclose)
            stack.push_async_callback(self._runtime.aclose)
            if self._in_background is not None:
                stack.push_async_callback(self._in_background.aclose)

    async def __aenter__(self) -> Self:
        await self._subscribe()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def run_sync(
        self,
        agent: Agent[DepsT, OutT],
        prompt: str,
        *,
        deps: DepsT | NotGiven = NOT_GIVEN,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[OutT]:
        """Do what `run` does, in a program without an event loop. The engine can then be used in this way only.

        Ctrl-C releases the turn, which can be resumed, and raises `KeyboardInterrupt`. Raises `ConfigError` in an event
        loop, and while another thread uses the engine. See docs/rules.md#without-an-event-loop.
        """
        return self._run(partial(self.run, agent, prompt, deps=deps, **options), "run(...)")

    def stream_sync(
        self,
        agent: Agent[DepsT, OutT],
        prompt: str,
        *,
        deps: DepsT | NotGiven = NOT_GIVEN,
        subagents: bool = False,
        **options: Unpack[TurnOptions],
    ) -> "AbstractContextManager[SyncTurnStream[OutT]]":
        """Do what `stream` does, in a program without an event loop: `with engine.stream_sync(...) as events: ...`.

        The turn runs only while the next event is awaited. Leaving the block early, or Ctrl-C, releases the turn, which
        can be resumed. Raises what `run_sync` does.
        """
        return self._iterate_stream(
            partial(self.stream, agent, prompt, deps=deps, subagents=subagents, **options), "stream"
        )

    @overload
    def resume_sync(
        self,
        turn_id: str,
        answers: Answers | None = None,
        *,
        deps: DepsT | NotGiven = NOT_GIVEN,
        **signature: Unpack[SignatureOptions],
    ) -> TurnResult: ...
    @overload
    def resume_sync(
        self,
        turn_id: str,
        answers: Answers | None = None,
        *,
        agent: Agent[DepsT, OutT],
        deps: DepsT | NotGiven = NOT_GIVEN,
        **signature: Unpack[SignatureOptions],
    ) -> TurnResult[OutT]: ...
    def resume_sync(
        self,
        turn_id: str,
        answers: Answers | None = None,
        *,
        agent: Agent[DepsT, object] | None = None,
        deps: DepsT | NotGiven = NOT_GIVEN,
        **signature: Unpack[SignatureOptions],
    ) -> TurnResult:
        """Do what `resume` does, in a program without an event loop. Raises what `resume` and `run_sync` do."""
        named_agent = {} if agent is None else {"agent": agent}
        return self._run(partial(self.resume, turn_id, answers, deps=deps, **named_agent, **signature), "resume(...)")

    def stream_resume_sync(
        self,
        turn_id: str,
        answers: Answers | None = None,
        *,
        agent: Agent[DepsT, AnyOutT] | None = None,
        deps: DepsT | NotGiven = NOT_GIVEN,
        subagents: bool = False,
        **signature: Unpack[SignatureOptions],
    ) -> "AbstractContextManager[SyncTurnStream[AnyOutT]]":
        """Do what `stream_resume` does, as `stream_sync` does what `stream` does. Raises what both raise."""
        block = partial(self.stream_resume, turn_id, answers, agent=agent, deps=deps, subagents=subagents, **signature)
        return self._iterate_stream(block, "stream_resume")

    def answer_sync(self, turn_id: str, answers: Answers, **signature: Unpack[SignatureOptions]) -> None:
        """Do what `answer` does, in a program without an event loop. Raises what `answer` and `run_sync` do."""
        self._run(partial(self.answer, turn_id, answers, **signature), "answer(...)")

    @overload
    def settle_sync(
        self, key: str, result: JsonValue | ToolResult, /, **signature: Unpack[SignatureOptions]
    ) -> bool: ...
    @overload
    def settle_sync(self, key: str, /, *, error: str, **signature: Unpack[SignatureOptions]) -> bool: ...
    def settle_sync(
        self,
        key: str,
        result: JsonValue | ToolResult | NotGiven = NOT_GIVEN,
        /,
        *,
        error: str | None = None,
        **signature: Unpack[SignatureOptions],
    ) -> bool:
        """Do what `settle` does, in a program without an event loop. Raises what `settle` and `run_sync` do."""
        settle = cast("Callable[..., Coroutine[object, object, bool]]", self.settle)
        results = () if isinstance(result, NotGiven) else (result,)
        failure = {} if error is None else {"error": error}
        return self._run(partial(settle, key, *results, **failure, **signature), "settle(...)")

    @overload
    def get_sync(self, turn_id: str) -> TurnResult: ...
    @overload
    def get_sync(self, turn_id: str, *, agent: Agent[Never, OutT]) -> TurnResult[OutT]: ...
    def get_sync(self, turn_id: str, *, agent: Agent[Never, object] | None = None) -> TurnResult:
        """Do what `get` does, in a program without an event loop. Raises what `get` and `run_sync` do."""
        named_agent = {} if agent is None else {"agent": agent}
        return self._run(partial(self.get, turn_id, **named_agent), "get(...)")

    def recover_sync(self) -> list[TurnResult]:
        """Do what `recover` does, in a program without an event loop. Raises what `run_sync` does."""
        return self._run(self.recover, "recover()")

    def close(self) -> None:
        """Do what `aclose` does, in a program without an event loop. Raises `ConfigError` in an event loop."""
        self._sync.run(self.aclose, instead="`await engine.aclose()`", is_last=True)

    def __enter__(self) -> Self:
        """Raise `ConfigError` in an event loop, where the end of the block could not close the engine."""
        if in_event_loop():
            raise ConfigError(
                "an event loop runs here (as in Jupyter): write `async with Engine(...) as engine:` and"
                " `await engine.run(...)`"
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, method: Callable[[], Coroutine[object, object, T]], form: str) -> T:
        """Return the result of a method of this engine, in a program without an event loop. `form` is how it is called.

        See `SyncLoop.run`.
        """
        return self._sync.run(method, instead=f"`await engine.{form}`")

    def _iterate_stream(
        self, block: "Callable[[], AbstractAsyncContextManager[TurnStream[OutT]]]", name: str
    ) -> "AbstractContextManager[SyncTurnStream[OutT]]":
        """Return a block of a method of this engine, of that `name`, for a program without an event loop."""
        from .turn_stream import iterated_stream  # noqa: PLC0415 (many programs read no stream)

        open_stream = iterated_stream(self._sync, block, instead=f"`async with engine.{name}(...)`")
        return Block(open_stream, f"with engine.{name}_sync(...) as events:` and in it `for event in events:")

    def _open_submitted(self) -> "SubmittedTurns":
        from .submitted_turns import SubmittedTurns  # noqa: PLC0415 (most engines have no runtime)

        return SubmittedTurns(self.store, self.setup, self._runtime, self._work)

    def _handle(self, turn_id: str, agent: Agent[DepsT, OutT], deps: object) -> "TurnHandle[OutT]":
        from .handle import TurnHandle  # noqa: PLC0415 (many programs have no handles)

        wait, answer = partial(self._wait_for, turn_id, agent, deps), partial(self._answer_here, turn_id, agent, deps)
        return TurnHandle(self, turn_id, agent.name, cast("Callable[[], Awaitable[TurnResult[OutT]]]", wait), answer)

    async def _wait_for(self, turn_id: str, agent: AnyAgent, deps: object) -> TurnResult:
        """Wait until a turn ends or pauses, and resume it if nobody drives it. See `TurnHandle.result`."""
        row = await self._open_store.get(turn_id)
        if row.agent != agent.name:
            raise ConfigError(f"turn {turn_id} is a turn of agent {row.agent!r}, not of {agent.name!r}")
        if not self._runtime.embedded:
            return self._read_typed_output(await self._turns.run(turn_id), agent)
        started_turn = self._find_started(turn_id)
        if started_turn is None:
            if not await self._work.is_due(turn_id):
                return self._read_typed_output(await current_result(self._open_store, turn_id), agent)
            started_turn = self._background.start(turn_id, None, self._make_supplies(agent, deps))
        return self._read_typed_output(await started_turn.wait(), agent)

    async def _answer_here(
        self, turn_id: str, agent: AnyAgent, deps: object, answers: Answers, **signature: Unpack[SignatureOptions]
    ) -> None:
        """Answer a paused turn. A task of this engine drives it on, or the workers of its runtime do."""
        supplies = self._make_supplies(agent, deps)
        fold = await self._post_answers(turn_id, answers, supplies, **signature)
        if self._runtime.embedded:
            self._background.start(turn_id, None, supplies)
        else:
            await self._runtime.submit(turn_id, fold.segment)

    async def _post_answers(
        self,
        turn_id: str,
        answers: Answers,
        supplies: Supplied | None = None,
        **signature: Unpack[SignatureOptions],
    ) -> JournalFold:
        """Post answers to a paused turn, and return its journal. `supplies` is what its driver here will have."""
        signature_fields = sign(self.setup.now(), **signature)
        fold = await self._read(turn_id)
        if supplies is not None:
            self._need_supplied(fold, supplies)
        await need_usable(
            self._open_store, fold, await self._post(fold, answers, signature_fields), signature_fields.by
        )
        return fold

    async def _post(self, fold: JournalFold, answers: Answers, signature_fields: Signature) -> dict[str, Answer]:
        return await post_answers(
            self._open_store,
            fold,
            answers,
            now=self.setup.now(),
            tools=self.setup.tools_in_turn(fold.turn_id, fold.started),
            signature=signature_fields,
            judge=self._judge_answers,
        )

    @property
    def _judge_answers(self) -> Judge | None:
        """Asks the app about answers, if it authorizes them."""
        return None if self.setup.authorize is None else partial(self._judge, self.setup.authorize)

    async def _judge(self, authorize: Authorize, answering: Answering) -> str:
        """Ask the app whether an answer may be stored. Return the reason why not, or an empty text."""
        from turnwright.driver.hooks.asking import ask  # noqa: PLC0415 (many apps authorize no answers)

        try:
            verdict = await ask("authorize", authorize, answering, grace=self.setup.cancel_grace)
        except HookFailedError as error:
            return f"not authorized: {error}"
        if verdict is True:
            return ""
        return verdict if isinstance(verdict, str) and verdict.strip() else "not authorized"

    async def _resume(
        self,
        fold: JournalFold,
        answers: Answers | None,
        supplies: Supplied = NOTHING_SUPPLIED,
        **signature: Unpack[SignatureOptions],
    ) -> TurnResult:
        """Resume a turn whose journal was read. See `resume`."""
        turn_id, turn, signature_fields = fold.turn_id, fold.machine.turn, sign(self.setup.now(), **signature)
        self._need_supplied(fold, supplies)
        agent = supplies.agent or self.setup.agents.get(str(fold.started.agent.get("name")))
        if not answers:
            need_live(turn_id, turn.state.outcome, turn.reason)
            return self._read_typed_output(await self._turns.run(turn_id, fold=fold, supplies=supplies), agent)
        seq, items = fold.seq, await self._post(fold, answers, signature_fields)
        while True:
            with suppress(TurnBusyError):
                result = await self._turns.run(turn_id, fold=fold, supplies=supplies)
                break
            await anyio.sleep(self.setup.poll_interval)
        await need_accepted(self._open_store, fold, result, items, signature_fields.by, after=seq)
        return self._read_typed_output(result, agent)

    async def _begin(
        self, turn_id: str, agent: AnyAgent, prompt: str, options: TurnOptions, *, is_driven: bool = True
    ) -> NewTurnClaim | None:
        """Write a new turn. Returns None if the option `id` names a turn with the same request."""
        await self._subscribe()
        plain, is_driven = cast("Agent", agent), is_driven and self._runtime.embedded
        return await start_turn(
            self._open_store, self.setup, turn_id, plain, prompt, options, listeners=self._hub, driven=is_driven
        )

    async def _drive_new(self, turn_id: str, new_turn: NewTurnClaim | None, supplies: Supplied) -> TurnResult:
        """Drive a turn that was just written, or that an equal start has written, until it ends or pauses."""
        if new_turn is None and self._runtime.embedded:
            result = await self._work.drive_or_wait(turn_id, supplies)
        else:
            result = await self._turns.run(turn_id, new_turn, None, supplies)
        return self._read_typed_output(result, supplies.agent)

    async def _read(self, turn_id: str) -> JournalFold:
        """Read a turn's journal. Raises `TurnNotFoundError`, and `ConfigError` for a sub-agent's turn."""
        need_root(turn_id)
        return await JournalFold.read(self._open_store, turn_id, keep_facts=True)

    def _make_supplies(self, agent: AnyAgent | None, deps: object) -> Supplied:
        """Return what a caller supplies. Raises `ConfigError` for wrong or missing dependencies.

        From here on, dependencies are `object`: the types of this class have checked that its agents and tools need no
        others.
        """
        return Supplied(cast("Agent | None", agent), deps_given(deps, self.setup, here=self._runtime.embedded))

    def _need_supplied(self, fold: JournalFold, supplies: Supplied) -> None:
        """Raise for another turn's agent, and for code or dependencies that this process will miss.

        So no answer is written that nobody here can act on.
        """
        need_agent(fold, supplies.agent)
        if self._runtime.embedded and fold.machine.turn.state.outcome is None:
            self.setup.code_for(fold.turn_id, fold.started.agent, supplies.agent)
            self.setup.need_supplied(fold.turn_id, fold.started, supplies)

    def _read_typed_output(self, result: TurnResult, agent: AnyAgent | None) -> TurnResult:
        """Return the result with its answer in the agent's type. Raises `ConfigError` if it no longer fits."""
        type_ = None if agent is None or result.output is None else self.setup.output_of(cast("Agent", agent))
        if type_ is None:
            return result
        try:
            return replace(result, output=type_.load(cast("JsonValue", result.output)))
        except Retry as misfit:
            raise ConfigError(
                f"turn {result.id}: its answer does not fit the output_type of this agent: {misfit.feedback}"
            ) from None

    async def _typed_by_registry(self, result: TurnResult) -> TurnResult:
        """Return the result with its answer in the type of the registered agent, or as JSON if it no longer fits."""
        if result.output is None or not self.setup.agents:
            return result
        agent = self.setup.agents.get((await self.store.get(result.id)).agent)
        try:
            return self._read_typed_output(result, agent)
        except ConfigError as misfit:
            _LOG.warning("%s; it is returned as JSON", misfit, extra={"turn": result.id})
            return result

    @property
    def _open_store(self) -> Store:
        """The store. Raises `EngineClosedError`."""
        self._need_open()
        return self.store

    def _need_open(self) -> None:
        if self._closed:
            raise EngineClosedError

    def _need_turn(self, turn_id: str) -> None:
        """Raise `TurnNotFoundError` where the store knows at once."""
        if self._open_store.has(turn_id) is False:
            raise TurnNotFoundError(turn_id)

    async def _need_live(self, turn_id: str) -> None:
        status = (await self._open_store.get(turn_id)).status
        need_live(turn_id, status.outcome, status.reason)

    @contextmanager
    def _deleting(self) -> Iterator[Store]:
        """Delete turns of the store in this block: this process keeps no text of them afterwards."""
        try:
            yield self._open_store
        finally:
            self._work.forget()

    @property
    def _background(self) -> "StartedTurns":
        self._need_open()  # it may have been closed while a turn was written
        if self._in_background is None:
            from .started_turns import StartedTurns  # noqa: PLC0415 (most turns are driven by their callers)

            self._in_background = StartedTurns(self._work, self._hub)
        return self._in_background

    def _find_started(self, turn_id: str) -> "StartedTurn | None":
        """Return the turn if a task of the engine drives it."""
        return None if self._in_background is None else self._in_background.get(turn_id)

    async def _pass_on(self, turn_id: str) -> None:
        """Give the driver of a turn that was just started what was posted before it opened the turn."""
        started_turn = self._find_started(turn_id)
        new_turn = None if started_turn is None else started_turn.new_turn  # its driver may end while the inbox is read
        if new_turn is not None:
            new_turn.claim.waiting = await self.store.inbox(turn_id)

    @asynccontextmanager
    async def _follow_drive(
        self,
        turn_id: str,
        after: int,
        drive: Callable[[], Awaitable[TurnResult]],
        *,
        subagents: Mapping[str, int] | None,
    ) -> "AsyncIterator[TurnStream]":
        """Follow a turn after the fact `after`, while `drive` drives it or waits for its driver."""
        from .turn_stream import driven_stream  # noqa: PLC0415 (many programs read no stream)

        under_way = True

        async def drive_and_close() -> TurnResult:
            nonlocal under_way
            try:
                return await drive()
            finally:
                under_way = False
                if not self._turns.is_driven(turn_id):
                    self._hub.close(turn_id)  # a turn without a new event would be followed for ever

        events = self._follow(turn_id, after, lambda: under_way, subagents=subagents)
        events = wait_until_idle(events, turn_id, after, partial(current_result, self.store))
        async with driven_stream(turn_id, events, drive_and_close) as stream:
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
            self._open_store,
            self._hub,
            turn_id,
            after=after,
            is_driven_here=lambda: self._is_driven_here(turn_id),
            is_expected=expected,
            is_due=None if here else partial(self._work.is_due, turn_id),
            here=here,
            poll_interval=self.setup.poll_interval,
            clock=self.setup.clock,
            subagents=subagents,
            subscription=self._hub.follow(turn_id, subagents=subagents is not None),
        )

    def _is_driven_here(self, turn_id: str) -> bool:
        started_turn = self._find_started(turn_id)
        return self._turns.is_driven(turn_id) or (started_turn is not None and started_turn.new_turn is not None)


class _OpenedModels:
    """The engine's model, and those that `models` makes by name. Raises `ConfigError` if that is not a function."""

    def __init__(self, model: Model | None, models: Callable[[str], Model] | None) -> None:
        need_plain_function("models", models, "name")
        self._model = model
        self._models = models
        self._by_name: dict[str, Model] = {}

    def get(self, name: str) -> Model:
        """Return the model of that name. Raises what `models` raises."""
        if name not in self._by_name and self._models is not None:
            self._by_name[name] = self._models(name)
        return self._by_name[name]

    async def aclose(self) -> None:
        """Close the connections of each model that has an `aclose`."""
        async with AsyncExitStack() as stack:
            for model in {id(model): model for model in (self._model, *self._by_name.values())}.values():
                close = getattr(model, "aclose", None)
                if close is not None:
                    stack.push_async_callback(close)
