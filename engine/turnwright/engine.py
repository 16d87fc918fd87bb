"""The facade of the package: starts, follows, steers, answers, resumes and stops turns."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

import anyio

from turnwright_states import Limits

from ._base.background_task import background_task
from ._base.ids import new_id
from .agent import Agent
from .driver.subagents import subagent_tools
from .errors import ConfigError, EngineClosedError, TurnBusyError, TurnNotFoundError, known_options
from .events import TurnEvent
from .journal.admission import NewTurnClaim, TurnOptions, admit, ended, limits_for, write_turn
from .journal.answer_posting import Answers, check_answers, current_result, need_live, need_root, post_answers
from .journal.dependencies import Dependencies, Prepare, Price, Synthesis, tools_by_name
from .journal.event_bus import EventBus, Observer
from .journal.follow import follow, wait_until_idle
from .journal.inbox import steer_item
from .journal.message_history import EarlierJournals
from .journal.recovery import recover_turns
from .journal.termination import supersede_session
from .journal.turn_journal import JournalFold
from .journal.upkeep import delete_turn, prune_turns
from .model.protocol import Model
from .model.retry import Backoff
from .result import TurnResult
from .runtime import Local, Runtime
from .runtime.in_process import InProcessTurns
from .runtime.submitted import SubmittedTurns, submit_new
from .store import Store, TurnRow, open_store
from .tools.tool import Tool
from .transcript.pairing import Unpaired

if TYPE_CHECKING:
    from turnwright_states.replay import FactGroup

    from .agents.certificate import Certificate
    from .telemetry import Telemetry


class Engine:
    """Drives turns: in this process, on any number of tasks of one event loop, or wherever a runtime's workers are.

    `model` serves agents that name none; `models` returns the model that an agent names. Without `models` an agent may
    name no model but that of the engine. `tools` is what agents may use.
    `store` is a store or its address (`memory:`, `sqlite:///turns.db`). `limits` are the defaults that an agent's own
    are laid over; its `ceiling` binds every agent. `prices` gives the cost of a model's tokens by its name.

    `history_processor(messages)` may change what is sent to a model, never what is stored. `synthesize(batch)` is
    offered each finished batch, and ends the turn when it returns a text. Each of `on_event` is called with every
    event. `unpaired` says what becomes of messages that are not paired, an embedder's own or `history_processor`'s:
    they are repaired when they are sent, or refused (`reject`). With `show_budget_to_model` the model hears what is
    left: in our words, or in those given. `max_parallel_tools` calls of a turn run at once; after an abort tools have
    `cancel_grace` seconds to end, and an inbox that other processes may write is looked at every `poll_interval`
    seconds. `now` is the wall clock, in seconds since the epoch of Unix; `clock` never goes back. `telemetry` is told
    of the work as it is done: `turnwright.otel` has one.

    `runtime` has turns driven. With the one that is left out, `Local`, who runs a turn drives it. With another one
    turns are submitted, and their journal is followed: whoever stops waiting stops nothing, and of a reply nothing is
    heard before it is whole. `models` and `tools` then need not be those of the workers, but what a turn may ask for is
    checked against them.

    Raises `ConfigError` for a store that cannot be opened, two tools of one name, and what `Dependencies` refuses. Once
    it is closed, every method that needs the store raises `EngineClosedError`. Source: DESIGN 8.
    """

    @known_options("Engine", Limits.model_fields)
    def __init__(
        self,
        *,
        model: Model | None = None,
        models: Callable[[str], Model] | None = None,
        tools: Sequence[Tool] = (),
        store: Store | str = "memory:",
        limits: Limits | None = None,
        prices: Mapping[str, Price] | None = None,
        history_processor: Prepare | None = None,
        synthesize: Synthesis | None = None,
        on_event: Sequence[Observer] = (),
        backoff: Backoff | None = None,
        max_parallel_tools: int = 8,
        cancel_grace: float = 1.0,
        poll_interval: float = 0.25,
        unpaired: Unpaired = "repair",
        show_budget_to_model: bool | str = False,
        runtime: Runtime | None = None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        telemetry: "Telemetry | None" = None,
    ) -> None:
        self.store = open_store(store) if isinstance(store, str) else store
        self._made: dict[str, Model] = {}
        self.setup = Dependencies(
            model=model,
            models=None if models is None else partial(self._model, models),
            tools=tools_by_name(tools),
            limits=limits or Limits(),
            prices=prices or {},
            history_processor=history_processor,
            synthesize=synthesize,
            backoff=backoff or Backoff(),
            max_parallel_tools=max_parallel_tools,
            unpaired=unpaired,
            show_budget_to_model=show_budget_to_model,
            cancel_grace=cancel_grace,
            poll_interval=poll_interval,
            now=now,
            clock=clock,
        )
        self._closed = False
        stretches = None
        if telemetry is not None:
            from .telemetry import ObservedStretch  # noqa: PLC0415 (most programs have no telemetry)

            stretches = partial(ObservedStretch.of, telemetry)
        self._hub = EventBus(on_event, stretches)
        self._runtime = Local() if runtime is None else runtime
        if not self._runtime.embedded and isinstance(store, str) and not self.store.shared:
            raise ConfigError(f"store {store} is this process's alone: name one that the runtime's workers share")
        self._work = InProcessTurns(self.store, self.setup, self._hub)
        self._runtime.bind(self._work)
        self._turns = (
            self._work if self._runtime.embedded else SubmittedTurns(self.store, self.setup, self._runtime, self._work)
        )

    async def run(self, agent: Agent, prompt: str, **options: Unpack[TurnOptions]) -> TurnResult:
        """Run one turn until it has ended or is paused.

        The options are those of `TurnOptions`. Raises `SessionBusyError`, `ConfigError` for an agent that cannot run
        here, and what `Driver.drive` raises; how the turn ends is a value.
        """
        turn_id = new_id()
        begun = await self._begin(turn_id, agent, prompt, **options)
        return await self._turns.run(turn_id, begun)

    @asynccontextmanager
    async def stream(
        self, agent: Agent, prompt: str, **options: Unpack[TurnOptions]
    ) -> AsyncIterator[AsyncIterator[TurnEvent]]:
        """Run one turn, and follow it: `async with engine.stream(...) as events: async for event in events: ...`.

        The events end with `TurnEndedEvent` or `TurnPausedEvent`. Leaving the block early stops driving; the turn stays
        as it is and can be resumed. (Where a runtime drives it, nothing stops.) Takes and raises what `run` does.
        """
        turn_id = new_id()
        if not self._runtime.embedded:
            begun = await self._begin(turn_id, agent, prompt, **options)
            async with self._followed(turn_id, 0, partial(self._turns.run, turn_id, begun)) as events:
                yield events
            return
        with self._hub.follow(turn_id) as followed:
            begun = await self._begin(turn_id, agent, prompt, **options)
            async with background_task(self._turns.run, turn_id, begun):
                yield followed

    async def submit(self, agent: Agent, prompt: str, **options: Unpack[TurnOptions]) -> str:
        """Begin a turn that a worker is to drive, and return its id at once; `events` follows it.

        Its state is `QUEUED` until a worker has begun to drive it.
        A worker is whoever runs `work` on the same store with the same runtime. Takes and raises what `run` does.
        """
        turn_id = new_id()
        await self._begin(turn_id, agent, prompt, driven=False, **options)
        await submit_new(self._runtime, turn_id)
        return turn_id

    async def run_worker(self, stopping: anyio.Event | None = None) -> None:
        """Be a worker of the runtime: drive what is submitted, and what was left, until cancelled.

        When `stopping` is set nothing new is begun, and this returns once the turns that run have ended or rest, or
        were let go of because they took too long for the runtime's `drain`. Raises `RuntimeUnavailableError`.
        """
        self._need_open()
        await self._runtime.run_worker(stopping)

    async def resume(self, turn_id: str, answers: Answers | None = None) -> TurnResult:
        """Answer a paused turn, or take up one whose driver is gone, and drive it on.

        `answers` gives, for each interrupt's id, a text, a bool, or an `Answer` (`reject("why")`). Not all need be
        answered; the turn goes on when the last one is. They are written down before anything runs on them, all or
        none; where another process drives the turn they are left to it, and its end or pause is waited for.

        Raises `InvalidAnswerError` when one of them does not fit, or when somebody else was faster: it lists what is
        open. Raises `TurnAlreadyEndedError`, `TurnNotFoundError`, and without answers `TurnBusyError` while another
        driver has the turn.
        """
        need_root(turn_id)
        return await self._resume(await self._read(turn_id), answers)

    async def _resume(self, known: JournalFold, answers: Answers | None) -> TurnResult:
        turn_id, turn = known.turn_id, known.machine.turn
        need_root(turn_id)
        if not answers:
            need_live(turn_id, turn.state.outcome, turn.reason)
            return await self._turns.take_up(turn_id, known)
        replies = await post_answers(self._opened, known, answers, now=self.setup.now())
        while True:
            with suppress(TurnBusyError):
                result = await self._turns.take_up(turn_id, known)
                break
            await anyio.sleep(self.setup.poll_interval)
        await check_answers(self._opened, known, result, replies)
        return result

    async def answer(self, turn_id: str, answers: Answers) -> None:
        """Answer a paused turn, and leave it to a worker to drive it on. Takes and raises what `resume` does.

        That somebody else was faster is said here only where the answer waits to be taken in; the first one stands.
        """
        need_root(turn_id)
        known = await self._read(turn_id)
        await post_answers(self._opened, known, answers, now=self.setup.now())
        await self._runtime.submit(turn_id, known.segment)

    @asynccontextmanager
    async def stream_resume(
        self, turn_id: str, answers: Answers | None = None
    ) -> AsyncIterator[AsyncIterator[TurnEvent]]:
        """Do what `resume` does, and follow it, as `stream` follows a new turn.

        The events begin with the first that the journal does not have yet, and end with `TurnEndedEvent` or
        `TurnPausedEvent`, the latter also where not all was answered. Raises in the block what `resume` raises.
        """
        known = await self._read(turn_id)
        async with self._followed(turn_id, known.seq, partial(self._resume, known, answers)) as events:
            yield events

    async def steer(self, turn_id: str, text: str) -> None:
        """Say something to a turn that runs. It is taken in before its next model call that may use tools.

        A turn that ends before that returns it as `undelivered`; one that rests keeps it until it goes on. The message
        makes the doom-loop detector forget, and refills no limit. Any process may steer. Raises `TurnNotFoundError`,
        `TurnAlreadyEndedError`, and `ConfigError` for a message that says nothing. Source: DESIGN 4.15.
        """
        item = steer_item(turn_id, text)
        await self._need_live(turn_id)
        await self._opened.post(item)
        if item in await self._opened.inbox(turn_id):
            await self._need_live(turn_id)  # it may have ended since it was asked

    async def fork(self, turn_id: str, *, at: int) -> str:
        """Copy the first `at` facts of a turn into a new turn, which `resume` drives on from there. Returns its id.

        Unlike a replay, a fork executes, and what the original did after that place may be done again. The original is
        not touched. Until it is resumed, the fork is an unfinished turn that nobody drives: `recover` takes it up, and
        so do workers.
        Raises what `fork_turn` raises: `ConfigError` for an `at` that is not the end of an event, naming the nearest.
        """
        from .journal.fork import fork_turn  # noqa: PLC0415 (it reads journals back to their events, which no turn does)

        return await fork_turn(self._opened, turn_id, at, new_id=f"fork-{new_id()}")

    async def fork_places(self, turn_id: str) -> "tuple[FactGroup, ...]":
        """The events after which `fork` can copy a turn, oldest first: the `last` of each is an `at`.

        All but the one that ended it. Raises `TurnNotFoundError`, and `ConfigError` for a journal that does not hold.
        """
        from .journal.fork import fork_places  # noqa: PLC0415 (likewise)

        return fork_places(turn_id, await self._opened.facts(turn_id))

    async def abort(self, turn_id: str) -> None:
        """Stop a turn, in whatever state it is. Nothing happens to one that has ended.

        A turn that rests is ended here; one that is driven is told to stop, by whoever drives it. Raises
        `TurnNotFoundError`.
        """
        if (await self._opened.get(turn_id)).status.outcome is None:
            await self._turns.stop(turn_id)

    async def recover(self) -> list[TurnResult]:
        """Take up every turn that nobody drives and that does not wait for a person, and drive each to its end.

        Turns that wait are touched too if somebody has answered, or their time to answer is over. A turn that cannot
        run here (its tools or its model are missing) is left alone, with a warning. As many run side by side as a
        batch may have calls (`max_parallel_tools`).
        """
        return await recover_turns(
            self._opened, self._turns.take_up, now=self.setup.now, at_once=self.setup.max_parallel_tools
        )

    async def delete(self, turn_id: str) -> int:
        """Forget a turn and its sub-turns. Returns how many there were.

        What it said is then missing from its session, and from a turn that continues it. Raises `TurnNotFoundError`,
        `TurnBusyError` while it is driven, and `ConfigError` for a sub-agent's turn whose caller has not ended.
        """
        return await delete_turn(self._opened, turn_id)

    async def prune(self, *, older_than: float) -> int:
        """Delete the turns that ended more than `older_than` seconds ago, with their sub-turns. Returns how many.

        A turn that has not ended stays, however old it is: `abort` ends it.
        """
        return await prune_turns(self._opened, older_than)

    def events(self, turn_id: str, after: int = 0, *, wait: bool = False) -> AsyncIterator[TurnEvent]:
        """Every event of a turn whose `seq` is above `after`: the journal's first, then live until it halts or pauses.

        Re-attaches to a turn that is driven here, and reads the journal of one that another process drives. One that
        nobody drives yet is waited for with `wait`, or with a runtime that will; after a few seconds a warning in the
        log says that no worker has taken it up. Raises `TurnNotFoundError` when it is called; where only a server can
        tell (PostgreSQL), when the first event is asked for, before anything is waited for.
        """
        if self._opened.has(turn_id) is False:
            raise TurnNotFoundError(turn_id)
        return self._follow(turn_id, after, waits=wait)

    async def get(self, turn_id: str) -> TurnResult:
        """How a turn stands now. Raises `TurnNotFoundError`."""
        return await current_result(self._opened, turn_id)

    async def turns(
        self,
        *,
        session: str | None = None,
        live: bool | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[TurnRow]:
        """The turns of the store, the one made last first, those of sub-agents among them. Nothing of them is replayed.

        Of one `session`, or of all; only `live` ones (not ended: they run, wait or were left), only ended ones (False),
        or both. At most `limit`, and only those whose `number` is below `before`: with that of the last one, the next
        page. `get` tells all about one.
        """
        return await self._opened.turns(session=session, live=live, limit=limit, before=before)

    def explain(self, agent: Agent) -> "Certificate":
        """What bounds a turn of this agent here, and who set it. Raises `ConfigError` for what is no agent."""
        from .agents.certificate import certificate  # noqa: PLC0415 (its models take long to make, and no turn needs them)

        setup = self.setup
        limits_for(agent, setup)
        return certificate(
            agent,
            setup.limits,
            subagent_tools=partial(subagent_tools, setup.tools),
            tools_of=lambda one: setup.tools_for(one).values(),
        )

    async def aclose(self) -> None:
        """Close the store, and the connections of each model that has an `aclose`. Nothing can be done afterwards.

        End what runs before: a turn that is being driven loses its store.
        """
        self._closed = True
        for model in {id(one): one for one in (self.setup.model, *self._made.values())}.values():
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()
        await self._runtime.aclose()
        await self.store.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @property
    def _opened(self) -> Store:
        self._need_open()
        return self.store

    def _need_open(self) -> None:
        if self._closed:
            raise EngineClosedError

    async def _read(self, turn_id: str) -> JournalFold:
        return await JournalFold.read(self._opened, turn_id, keep_facts=True)

    async def _need_live(self, turn_id: str) -> None:
        status = (await self._opened.get(turn_id)).status
        need_live(turn_id, status.outcome, status.reason)

    async def _begin(
        self, turn_id: str, agent: Agent, prompt: str, *, driven: bool = True, **options: Unpack[TurnOptions]
    ) -> NewTurnClaim:
        """Check everything that can be checked, then write the turn's first facts."""
        self._need_open()
        session, continues = options.get("session"), options.get("continue_from")
        started = admit(self.setup, agent, prompt, options)
        earlier: EarlierJournals = {}
        if continues is not None:
            before, earlier[continues] = await ended(self._opened, continues)
            session = session or before.session
            started = started.model_copy(update={"session": session})
        if session is not None:
            earlier |= await supersede_session(self._opened, session, self._hub)
        return await write_turn(
            self._opened,
            turn_id,
            agent,
            started,
            created_at=self.setup.now(),
            listeners=self._hub,
            driven=driven and self._runtime.embedded,
            earlier=earlier,
        )

    @asynccontextmanager
    async def _followed(
        self, turn_id: str, after: int, drive: Callable[[], Awaitable[object]]
    ) -> AsyncIterator[AsyncIterator[TurnEvent]]:
        """The events of a turn behind the fact `after`, while `drive` drives it or has it driven."""
        under_way = True

        async def driven() -> None:
            nonlocal under_way
            try:
                await drive()
            finally:
                under_way = False
                if not self._turns.is_driven(turn_id):
                    self._hub.close(turn_id)  # nothing may have happened that would have ended the waiting

        async with background_task(driven):
            yield wait_until_idle(self._follow(turn_id, after, lambda: under_way), turn_id, after, self.get)

    def _follow(
        self, turn_id: str, after: int, expected: Callable[[], bool] = lambda: False, *, waits: bool = False
    ) -> AsyncIterator[TurnEvent]:
        here = self._runtime.embedded and not waits
        return follow(
            self._opened,
            self._hub,
            turn_id,
            after=after,
            is_driven_here=lambda: self._turns.is_driven(turn_id),
            is_expected=expected,
            is_due=None if here else partial(self._work.is_due, turn_id),
            here=here,
            poll=self.setup.poll_interval,
            clock=self.setup.clock,
        )

    def _model(self, models: Callable[[str], Model], name: str) -> Model:
        """The model of that name, made once: it may have connections, which are closed with the engine."""
        if name not in self._made:
            self._made[name] = models(name)
        return self._made[name]
