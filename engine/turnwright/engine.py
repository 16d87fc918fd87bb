"""What an orchestrator embeds: starts turns, follows them, steers and answers them, stops them, takes them up again."""

import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

import anyio
import anyio.lowlevel

from turnwright_states import Limits, State

from .admission import Begun, TurnOptions, admit, limits_for, write_turn
from .agent import Agent
from .answering import Answers, post_answers, standing, standing_live, taken_in
from .budgets import Budgets
from .driver import Driver
from .ending import end_turn, supersede
from .errors import ConfigError, SessionBusy, StoreError, TurnBusy, UnknownTurn
from .events import TurnEvent
from .following import follow, until_it_rests
from .hub import Hub, Observer
from .ids import new_id, root_of
from .inbox import abort_item, steer_item, steers
from .model.protocol import Model
from .model.retry import Backoff
from .pairing import HistoryMode
from .recovery import recover_turns
from .result import TurnResult
from .setup import Prepare, Price, Setup, Synthesis
from .store import InboxKind, Store, TurnRow, open_store
from .subagent import callees
from .tasks import beside
from .tools.tool import Tool

if TYPE_CHECKING:
    from .certificate import Certificate


class Engine:
    """Drives turns in this process, on any number of tasks of one event loop.

    `model` serves agents that name none; `models` finds the one that an agent names. `tools` is what agents may use.
    `store` is a store or its address (`memory:`, `sqlite:///turns.db`). `limits` are the defaults that an agent's own
    are laid over; its `ceiling` binds every agent. `prices` gives the cost of a model's tokens by its name.

    `prepare(messages)` may change what is sent to a model, never what is stored. `synthesise(batch)` is offered each
    finished batch, and ends the turn when it returns a text. Each of `observers` is called with every event.
    `history` says what becomes of messages that are not paired, an embedder's own or `prepare`'s: they are repaired
    when they are sent, or refused (`strict`). `budgets` are the budgets of tool calls by the class of an agent's tools,
    where neither the agent nor `limits` set one. With `tell_budget` the model hears what is left: in our words, or in
    those given. `parallel` calls of a turn run at once; after an abort tools have `grace` seconds to end, and an inbox
    that other processes may write is looked at every `poll` seconds. `now` is the wall clock, in seconds since the
    epoch of Unix; `clock` never goes back.

    Raises `ConfigError` for a store that cannot be opened, two tools of one name, and what `Setup` refuses. Source:
    DESIGN 8.
    """

    def __init__(
        self,
        *,
        model: Model | None = None,
        models: Callable[[str], Model] | None = None,
        tools: Sequence[Tool] = (),
        store: Store | str = "memory:",
        limits: Limits | None = None,
        prices: Mapping[str, Price] | None = None,
        prepare: Prepare | None = None,
        synthesise: Synthesis | None = None,
        observers: Sequence[Observer] = (),
        backoff: Backoff | None = None,
        parallel: int = 8,
        grace: float = 1.0,
        poll: float = 0.25,
        history: HistoryMode = "repair",
        budgets: Budgets | None = None,
        tell_budget: bool | str = False,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = open_store(store) if isinstance(store, str) else store
        self._made: dict[str, Model] = {}
        self.setup = Setup(
            model=model,
            models=None if models is None else partial(self._model, models),
            tools=_by_name(tools),
            limits=limits or Limits(),
            prices=prices or {},
            prepare=prepare,
            synthesise=synthesise,
            backoff=backoff or Backoff(),
            parallel=parallel,
            history=history,
            budgets=budgets or Budgets(),
            tell_budget=tell_budget,
            grace=grace,
            poll=poll,
            now=now,
            clock=clock,
        )
        self._hub = Hub(observers)
        self._driver = Driver(self.store, self.setup, self._hub)

    async def run(self, agent: Agent, prompt: str, **options: Unpack[TurnOptions]) -> TurnResult:
        """Run one turn until it has ended or is paused.

        The options are those of `TurnOptions`. Raises `SessionBusy`, `ConfigError` for an agent that cannot run
        here, and what `Driver.drive` raises; how the turn ends is a value.
        """
        turn_id = new_id()
        begun = await self._begin(turn_id, agent, prompt, **options)
        return await self._drive(turn_id, begun)

    @asynccontextmanager
    async def stream(
        self, agent: Agent, prompt: str, **options: Unpack[TurnOptions]
    ) -> AsyncIterator[AsyncIterator[TurnEvent]]:
        """Run one turn, and follow it: `async with engine.stream(...) as events: async for event in events: ...`.

        The events end with `TurnHalted` or `TurnPaused`. Leaving the block early stops driving; the turn stays as it
        is and can be resumed. Takes and raises what `run` does.
        """
        turn_id = new_id()

        with self._hub.follow(turn_id) as followed:
            begun = await self._begin(turn_id, agent, prompt, **options)
            async with beside(self._drive, turn_id, begun):
                yield followed

    async def resume(self, turn_id: str, answers: Answers | None = None) -> TurnResult:
        """Answer a paused turn, or take up one whose driver is gone, and drive it on.

        `answers` gives, for each interrupt's id, a text, a bool, or a `Reply` (`deny("why")`). Not all need be
        answered; the turn goes on when the last one is. They are written down before anything runs on them, all or
        none; where another process drives the turn they are left to it, and its end or pause is waited for.

        Raises `BadAnswer` when one of them does not fit, or when somebody else was faster: it lists what is open.
        Raises `TurnEnded`, `UnknownTurn`, and without answers `TurnBusy` while another driver has the turn.
        """
        root = root_of(turn_id)
        if root != turn_id:
            raise ConfigError(f"turn {turn_id} is a sub-agent's, and its parent drives it: resume turn {root}")
        if not answers:
            await standing_live(self.store, turn_id)
            return await self._take_up(turn_id)
        replies = await post_answers(self.store, turn_id, answers, now=self.setup.now())
        while True:
            with suppress(TurnBusy):
                await self._take_up(turn_id)
                break
            await anyio.sleep(self.setup.poll)
        return await taken_in(self.store, turn_id, replies)

    @asynccontextmanager
    async def stream_resume(
        self, turn_id: str, answers: Answers | None = None
    ) -> AsyncIterator[AsyncIterator[TurnEvent]]:
        """Do what `resume` does, and follow it, as `stream` follows a new turn.

        The events begin with the first that the journal does not have yet, and end with `TurnHalted` or `TurnPaused`,
        the latter also where not all was answered. Raises in the block what `resume` raises.
        """
        after = (await self.store.facts(turn_id))[-1][0]
        under_way = True

        async def resume() -> None:
            nonlocal under_way
            try:
                await self.resume(turn_id, answers)
            finally:
                under_way = False
                if turn_id not in self._driver.segments:
                    self._hub.close(turn_id)  # nothing may have happened that would have ended the waiting

        async with beside(resume):
            yield until_it_rests(self._follow(turn_id, after, lambda: under_way), turn_id, after, self.get)

    async def steer(self, turn_id: str, text: str) -> None:
        """Say something to a turn that runs. It is taken in before its next model call that may use tools.

        A turn that ends before that returns it as `undelivered`; one that rests keeps it until it goes on. The message
        makes the doom-loop detector forget, and refills no limit. Any process may steer. Raises `UnknownTurn`,
        `TurnEnded`, and `ConfigError` for a message that says nothing. Source: DESIGN 4.15.
        """
        item = steer_item(turn_id, text)
        await standing_live(self.store, turn_id)
        await self.store.post(item)
        if item in await self.store.inbox(turn_id):
            await standing_live(self.store, turn_id)  # it may have ended since it was asked

    async def fork(self, turn_id: str, *, at: int) -> str:
        """Copy the first `at` facts of a turn into a new turn, which `resume` drives on from there. Returns its id.

        Unlike a replay, a fork executes, and what the original did after that place may be done again. The original is
        not touched. Until it is resumed, the fork is an unfinished turn that nobody drives, to `recover` as well.
        Raises what `fork_turn` raises: `ConfigError` for an `at` that is not the end of an event, naming the nearest.
        """
        from .fork import fork_turn  # noqa: PLC0415 (it reads journals back to their events, which no turn does)

        return await fork_turn(self.store, turn_id, at, new_id=f"fork-{new_id()}")

    async def abort(self, turn_id: str) -> None:
        """Stop a turn, in whatever state it is. Nothing happens to one that has ended.

        A turn that rests is ended here; one that is driven is told to stop, by whoever drives it. Raises `UnknownTurn`.
        """
        if (await self.store.get(turn_id)).status.outcome is None:
            await self._abort(turn_id)

    async def recover(self) -> list[TurnResult]:
        """Take up every turn that nobody drives and that does not wait for a person, and drive each to its end.

        Turns that wait are touched too if somebody has answered, or their time to answer is over. A turn that cannot
        run here (its tools or its model are missing) is left alone, with a warning. As many run side by side as a
        batch may have calls (`parallel`).
        """
        return await recover_turns(self.store, self._take_up, now=self.setup.now, at_once=self.setup.parallel)

    async def delete(self, turn_id: str) -> int:
        """Forget a turn and its sub-turns. Returns how many there were.

        What it said is then missing from its session, and from a turn that continues it. Raises `UnknownTurn`,
        `TurnBusy` while it is driven, and `ConfigError` for a sub-agent's turn whose caller has not ended.
        """
        root = root_of(turn_id)
        if root != turn_id and (await self.store.get(root)).status.outcome is None:
            raise ConfigError(
                f"turn {turn_id} is a sub-agent's of turn {root}, which has not ended: abort or delete that"
            )
        return await self.store.delete(turn_id)

    async def prune(self, *, older_than: float) -> int:
        """Delete the turns that ended more than `older_than` seconds ago, with their sub-turns. Returns how many.

        A turn that has not ended stays, however old it is: `abort` ends it.
        """
        deleted = 0
        for row in await self.store.turns(live=False):
            # A sub-agent goes with the turn that began it: one that has not ended may still need its result.
            if root_of(row.id) == row.id and row.updated_at < time.time() - older_than:  # as stores have it
                with suppress(UnknownTurn, TurnBusy):  # gone with its parent, or just let go of
                    deleted += await self.store.delete(row.id)
        return deleted

    def events(self, turn_id: str, after: int = 0) -> AsyncIterator[TurnEvent]:
        """Every event of a turn whose `seq` is above `after`: the journal's first, then live until it halts or pauses.

        Re-attaches to a turn that this engine drives, and reads the journal of one that another process drives.
        Raises `UnknownTurn` when it is iterated.
        """
        return self._follow(turn_id, after, lambda: False)

    async def get(self, turn_id: str) -> TurnResult:
        """How a turn stands now. Raises `UnknownTurn`."""
        return await standing(self.store, turn_id)

    def explain(self, agent: Agent) -> "Certificate":
        """What bounds a turn of this agent here, and who set it. Raises `ConfigError` for what is no agent."""
        from .certificate import certificate  # noqa: PLC0415 (its models take long to make, and no turn needs them)

        setup = self.setup
        limits_for(agent, setup)
        return certificate(
            agent,
            setup.limits,
            callees=partial(callees, setup.tools),
            tools_of=lambda one: setup.tools_for(one).values(),
            budgets=setup.budgets,
        )

    async def aclose(self) -> None:
        """Close the store, and the connections of each model that has an `aclose`."""
        for model in {id(one): one for one in (self.setup.model, *self._made.values())}.values():
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()
        await self.store.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _begin(self, turn_id: str, agent: Agent, prompt: str, **options: Unpack[TurnOptions]) -> Begun:
        """Check everything that can be checked, then write the turn's first facts."""
        session, continues = options.get("session"), options.get("continues")
        started = admit(self.setup, agent, prompt, options)
        if continues is not None:
            before = await self._ended(continues)
            session = session or before.session
            started = started.model_copy(update={"session": session})
        if session is not None:
            await self._supersede(session)
        return await write_turn(self.store, turn_id, agent, started, created_at=self.setup.now(), listeners=self._hub)

    def _follow(self, turn_id: str, after: int, expected: Callable[[], bool]) -> AsyncIterator[TurnEvent]:
        return follow(
            self.store,
            self._hub,
            turn_id,
            after=after,
            is_driven_here=lambda: turn_id in self._driver.segments,
            is_expected=expected,
            poll=self.setup.poll,
        )

    async def _drive(self, turn_id: str, begun: Begun | None = None) -> TurnResult:
        ended = await self._drive_once(turn_id, begun)
        if ended is not None and ended.outcome is not None:
            late = steers(await self.store.inbox(turn_id))
            return replace(ended, undelivered=(*ended.undelivered, *late.values())) if late else ended
        while True:
            # Somebody may have answered just now, and drive it on: that end or pause is waited for.
            driven = await self.store.is_driven(turn_id)
            result = await self.get(turn_id)
            if result.outcome is not None or result.paused or not driven:
                return result
            await anyio.sleep(self.setup.poll)

    async def _drive_once(self, turn_id: str, begun: Begun | None = None) -> TurnResult | None:
        busy = False
        unread = 0
        try:
            return await self._driver.drive(turn_id, begun)
        except TurnBusy:
            busy = True  # its events go on, and so do its followers
            raise
        finally:
            if not busy and turn_id not in self._driver.segments:
                unread = self._hub.close(turn_id)
            if isinstance(sys.exception(), StoreError):
                # Who follows the turn and waits for its events hears of what was written, before the error ends that.
                with anyio.CancelScope(shield=True):
                    for _ in range(unread + 1):
                        await anyio.lowlevel.checkpoint()

    def _model(self, models: Callable[[str], Model], name: str) -> Model:
        """The model of that name, made once: it may have connections, which are closed with the engine."""
        if name not in self._made:
            self._made[name] = models(name)
        return self._made[name]

    async def _take_up(self, turn_id: str) -> TurnResult:
        if any(item.kind is InboxKind.ABORT for item in await self.store.inbox(turn_id)):
            await end_turn(self.store, turn_id, self._hub)  # which needs neither its tools nor its model
        return await self._drive(turn_id)

    async def _supersede(self, session: str) -> None:
        """A new message to a paused turn denies what is pending and ends it (DESIGN 4.12)."""
        for row in await self.store.turns(session=session, live=True):
            if row.status.state is not State.PAUSED:
                raise SessionBusy(session, row.id)
            try:
                await supersede(self.store, row.id, self._hub)
            except TurnBusy:
                raise SessionBusy(session, row.id) from None

    async def _abort(self, turn_id: str) -> None:
        request = abort_item(turn_id)
        await self.store.post(request)
        if turn_id in self._driver.segments:
            self._driver.abort(request)
        elif not await self.store.is_driven(turn_id):
            await end_turn(self.store, turn_id, self._hub)

    async def _ended(self, turn_id: str) -> TurnRow:
        row = await self.store.get(turn_id)
        if row.status.outcome is None:
            raise ConfigError(f"turn {turn_id} has not ended: resume it, or abort it, before going on from it")
        return row


def _by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    named: dict[str, Tool] = {}
    for tool in tools:
        if not isinstance(tool, Tool):
            raise ConfigError(f"{tool!r} is no tool: decorate it with @tool")
        if tool.name in named:
            raise ConfigError(f"two tools are called {tool.name!r}: name one of them with @tool(name=...)")
        named[tool.name] = tool
    return named
