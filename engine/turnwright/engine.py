"""What an orchestrator embeds: starts turns, follows them, answers them, stops them, takes them up again."""

import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Self, TypedDict, Unpack

import anyio
from pydantic import JsonValue, ValidationError

from turnwright_states import Abort, EndReason, Limits, Started, State, TurnMachine
from turnwright_states.events import AbortReason

from .agent import Agent
from .answers import Reply, read_answer
from .certificate import Certificate, certificate
from .driver import Driver
from .errors import BadAnswer, ConfigError, Fenced, SessionBusy, StoreError, TurnBusy, TurnEnded
from .events import FactEvent, TurnEvent, TurnHalted, TurnPaused, event_of
from .fork import fork_turn
from .hub import Hub, Observer
from .ledger import Ledger
from .message import Message
from .model.protocol import Model
from .model.retry import Backoff
from .pairing import UnpairedError, check_pairing
from .result import TurnResult, result_of
from .setup import Prepare, Price, Setup, Synthesis
from .store import Claim, InboxItem, InboxKind, NewTurn, Status, Store, TurnRow, open_store
from .tasks import beside
from .tools.tool import Tool
from .transcript import Transcript

_LOG = logging.getLogger(__name__)

Answers = Mapping[str, str | bool | Reply]


class TurnOptions(TypedDict, total=False):
    """What a turn may be given beside its agent and its prompt."""

    session: str | None
    """The conversation that it belongs to: the session's earlier turns are what was said before."""
    history: Sequence[Message | Mapping[str, JsonValue]]
    """What was said before, where there is no session: messages, or mappings in the chat completions format. Each
    call in it must have its result."""
    continues: str | None
    """A turn to go on from after a limit stopped it; its session is taken over."""
    context: Mapping[str, JsonValue]
    """Kept with the turn, unread, for whoever resumes it."""


class Engine:
    """Drives turns in this process, on any number of tasks of one event loop.

    `model` serves agents that name none; `models` finds the one that an agent names. `tools` is what agents may use.
    `store` is a store or its address (`memory:`, `sqlite:///turns.db`). `limits` are the defaults that an agent's own
    are laid over; its `ceiling` binds every agent. `prices` gives the cost of a model's tokens by its name.

    `prepare(messages)` may change what is sent to a model, never what is stored. `synthesise(batch)` is offered each
    finished batch, and ends the turn when it returns a text. Each of `observers` is called with every event.

    Raises `ConfigError` for a store that cannot be opened, and for two tools of one name. Source: DESIGN 8.
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
    ) -> None:
        self.limits = limits or Limits()
        self.store = open_store(store) if isinstance(store, str) else store
        self.setup = Setup(
            model=model,
            models=models,
            tools=_by_name(tools),
            prices=prices or {},
            prepare=prepare,
            synthesise=synthesise,
            backoff=backoff or Backoff(),
            parallel=parallel,
            grace=grace,
        )
        self._hub = Hub(observers)
        self._driver = Driver(self.store, self.setup, self._hub.publish)

    async def run(self, agent: Agent, prompt: str, **options: Unpack[TurnOptions]) -> TurnResult:
        """Run one turn until it has ended or is paused.

        The options are those of `TurnOptions`. Raises `SessionBusy`, `ConfigError` for an agent that cannot run
        here, and what `Driver.drive` raises; how the turn ends is a value.
        """
        turn_id = _new_id()
        claim = await self._begin(turn_id, agent, prompt, **options)
        return await self._drive(turn_id, claim)

    @asynccontextmanager
    async def stream(
        self, agent: Agent, prompt: str, **options: Unpack[TurnOptions]
    ) -> AsyncIterator[AsyncIterator[TurnEvent]]:
        """Run one turn, and follow it: `async with engine.stream(...) as events: async for event in events: ...`.

        The events end with `TurnHalted` or `TurnPaused`. Leaving the block early stops driving; the turn stays as it
        is and can be resumed. Takes and raises what `run` does.
        """
        turn_id = _new_id()

        with self._hub.follow(turn_id) as followed:
            claim = await self._begin(turn_id, agent, prompt, **options)
            async with beside(self._drive, turn_id, claim):
                yield followed

    async def resume(self, turn_id: str, answers: Answers | None = None) -> TurnResult:
        """Answer a paused turn, or take up one whose driver is gone, and drive it on.

        `answers` gives, for each interrupt's id, a text, a bool, or a `Reply` (`deny("why")`). Not all need be
        answered; the turn goes on when the last one is. Raises `BadAnswer` (and answers nothing) when one of them
        does not fit, `TurnEnded`, `UnknownTurn`, and `TurnBusy` while another driver has the turn.
        """
        before = await self._live(turn_id)
        replies = {name: read_answer(before.pending, name, answer) for name, answer in (answers or {}).items()}
        posted = {item.id: item.payload for item in await self.store.inbox(turn_id)}
        items = [_answer(turn_id, name, reply) for name, reply in replies.items()]
        for name, item in zip(replies, items, strict=True):
            if posted.get(item.id, item.payload) != item.payload:
                open_ids = [one.id for one in before.pending]
                raise BadAnswer(name, "somebody else has answered it, and the first answer stands", open_ids)
        for item in items:
            await self.store.post(item)
        return await self._drive(turn_id)

    async def fork(self, turn_id: str, *, at: int) -> str:
        """Copy the first `at` facts of a turn into a new turn, which `resume` drives on from there. Returns its id.

        Unlike a replay, a fork executes, and what the original did after that place may be done again. The original is
        not touched. Until it is resumed, the fork is an unfinished turn that nobody drives, to `recover` as well.
        Raises what `fork_turn` raises: `ConfigError` for an `at` that is not the end of an event, naming the nearest.
        """
        return await fork_turn(self.store, turn_id, at, new_id=f"fork-{_new_id()}")

    async def abort(self, turn_id: str) -> None:
        """Stop a turn, in whatever state it is. Nothing happens to one that has ended.

        A turn that rests is ended here; one that is driven is told to stop, by whoever drives it. Raises `UnknownTurn`.
        """
        if (await self.store.get(turn_id)).status.outcome is None:
            await self._abort(turn_id, EndReason.ABORTED)

    async def recover(self) -> list[TurnResult]:
        """Take up every turn that nobody drives and that does not wait for a person, and drive each to its end.

        Turns that wait are touched too if somebody has answered, or their time to answer is over. A turn that cannot
        run here (its tools or its model are missing) is left alone, with a warning.
        """
        results: list[TurnResult] = []
        for row in await self.store.turns(live=True):
            try:
                if await self.store.is_driven(row.id) or not await self._is_due(row):
                    continue
                results.append(await self._drive(row.id))
            except (ConfigError, StoreError) as error:
                _LOG.warning("turn %s is left alone: %s", row.id, error)
            except (TurnBusy, Fenced):
                continue  # another driver has it
        return results

    async def events(self, turn_id: str, after: int = 0) -> AsyncIterator[TurnEvent]:
        """Every event of a turn whose `seq` is above `after`: the journal's first, then live until it halts or pauses.

        Re-attaches to a turn that this engine drives, and reads the journal of one that another process drives.
        Raises `UnknownTurn`.
        """
        seq = after
        while True:
            with self._hub.follow(turn_id) as followed:
                for event in await self._recorded(turn_id, seq):
                    seq = event.seq
                    yield event
                if not await self.store.is_driven(turn_id):
                    return
                if turn_id not in self._driver.segments:
                    await anyio.sleep(self.setup.poll)
                    continue
                async for event in followed:
                    if event.seq > seq or not isinstance(event, FactEvent | TurnPaused | TurnHalted):
                        seq = max(seq, event.seq)
                        yield event
                    if isinstance(event, TurnPaused | TurnHalted):
                        return

    async def get(self, turn_id: str) -> TurnResult:
        """How a turn stands now. Raises `UnknownTurn`."""
        return result_of(turn_id, await self.store.facts(turn_id))

    def explain(self, agent: Agent) -> Certificate:
        """What bounds a turn of this agent here, and who set it. Raises `ConfigError` for what is no agent."""
        self._limits_for(agent)
        return certificate(agent, self.limits)

    async def aclose(self) -> None:
        """Close the store, and the model's connections if it has an `aclose`."""
        close = getattr(self.setup.model, "aclose", None)
        if close is not None:
            await close()
        await self.store.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _begin(self, turn_id: str, agent: Agent, prompt: str, **options: Unpack[TurnOptions]) -> Claim:
        """Check everything that can be checked, then write the turn's first facts."""
        session, continues = options.get("session"), options.get("continues")
        history = _messages(options.get("history", ()))
        try:
            prompt.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"the prompt is no text: its character {error.start} is half a pair") from None
        limits = self._limits_for(agent)
        model = self.setup.model_for(agent)
        self.setup.tools_for(agent)
        if limits.cost is not None and model.name not in self.setup.prices:
            raise ConfigError(
                f"agent {agent.name!r}: cost: a cost budget needs the price of model {model.name!r}:"
                " give the engine prices={name: Price(input=..., output=...)}"
            )
        if continues is not None:
            before = await self._ended(continues)
            session = session or before.session
        if session is not None:
            await self._supersede(session)
        started = Started(
            prompt=prompt,
            limits=limits,
            session=session,
            model=model.name,
            agent=agent.to_json(),
            history=tuple(message.model_dump(mode="json") for message in history),
            synthesis=self.setup.synthesise is not None,
            continues=continues,
            context=options.get("context", {}),
        )
        machine, facts = TurnMachine.start(started)
        new = NewTurn(id=turn_id, session=session, agent=agent.name, model=model.name, created_at=time.time())
        status = Status.of(machine.turn)
        claim = await self.store.create(new, facts, status)
        for seq, fact in enumerate(facts, start=1):
            self._hub.publish(event_of(turn_id, seq, fact, machine.turn, ""))
        return claim

    def _limits_for(self, agent: Agent) -> Limits:
        if not isinstance(agent, Agent):
            raise ConfigError(f"{agent!r} is no agent: write Agent(name=...)")
        try:
            return agent.limits_for(self.limits)
        except ValidationError as error:
            raise ConfigError(f"agent {agent.name!r}: {error.errors()[0]['msg']}") from None

    async def _drive(self, turn_id: str, claim: Claim | None = None) -> TurnResult:
        try:
            await self._driver.drive(turn_id, claim)
        finally:
            if turn_id not in self._driver.segments:
                self._hub.close(turn_id)
        return await self.get(turn_id)

    async def _supersede(self, session: str) -> None:
        """A new message to a paused turn denies what is pending and ends it (DESIGN 4.12)."""
        for row in await self.store.turns(session=session, live=True):
            if row.status.state is not State.PAUSED or await self.store.is_driven(row.id):
                raise SessionBusy(session, row.id)
            await self._abort(row.id, EndReason.SUPERSEDED)

    async def _abort(self, turn_id: str, reason: AbortReason) -> None:
        payload = json.dumps({"reason": reason})
        await self.store.post(InboxItem(turn_id, "abort", InboxKind.ABORT, payload))
        segment = self._driver.segments.get(turn_id)
        if segment is not None:
            segment.poke()
        elif not await self.store.is_driven(turn_id):
            await self._end_resting(turn_id, Abort(reason=reason))

    async def _end_resting(self, turn_id: str, event: Abort) -> None:
        """End a turn that nobody drives. Neither its tools nor its model are needed for that."""
        with suppress(TurnBusy):  # somebody was faster, and finds the abort in the inbox
            claim = await self.store.claim(turn_id)
            try:
                ledger = await Ledger.open(self.store, claim, self._hub.publish)
                if ledger.machine.turn.state.outcome is None:
                    await ledger.feed(event, ("abort",))
            finally:
                with anyio.CancelScope(shield=True):
                    await self.store.release(claim)

    async def _live(self, turn_id: str) -> TurnResult:
        result = await self.get(turn_id)
        if result.outcome is not None and result.reason is not None:
            raise TurnEnded(turn_id, result.outcome, result.reason)
        return result

    async def _ended(self, turn_id: str) -> TurnRow:
        row = await self.store.get(turn_id)
        if row.status.outcome is None:
            raise ConfigError(f"turn {turn_id} has not ended: resume it, or abort it, before going on from it")
        return row

    async def _is_due(self, row: TurnRow) -> bool:
        if row.status.state is not State.PAUSED:
            return True
        if await self.store.inbox(row.id):
            return True
        now = self.setup.now()
        asked = Transcript.of(await self.store.facts(row.id)).turn.interrupts.values()
        return any(one.expires_at is not None and one.expires_at <= now for one in asked)

    async def _recorded(self, turn_id: str, after: int) -> list[TurnEvent]:
        facts = await self.store.facts(turn_id)
        transcript = Transcript()
        events: list[TurnEvent] = []
        for seq, fact in facts:
            transcript.turn.apply(fact)
            transcript.add(seq, fact)
            if seq > after:
                events.append(event_of(turn_id, seq, fact, transcript.turn, transcript.text))
        return events


def _answer(turn_id: str, interrupt: str, reply: Reply) -> InboxItem:
    payload = json.dumps({"interrupt": interrupt, "decision": reply.decision, "text": reply.text})
    return InboxItem(turn_id, f"answer:{interrupt}", InboxKind.ANSWER, payload)


def _new_id() -> str:
    return secrets.token_hex(8)


def _messages(history: Sequence[Message | Mapping[str, JsonValue]]) -> list[Message]:
    """The history as messages. Raises `ConfigError`, naming the message, for one that no provider would take."""
    messages: list[Message] = []
    for number, message in enumerate(history):
        try:
            messages.append(message if isinstance(message, Message) else Message.from_chat(message))
        except ValidationError as error:
            raise ConfigError(f"history: message {number}: {error.errors()[0]['msg']}") from None
        except ValueError as error:
            raise ConfigError(f"history: message {number}: {error}") from None
    try:
        check_pairing(messages)
    except UnpairedError as error:
        raise ConfigError(f"history: {error}: a provider would refuse it") from None
    return messages


def _by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    named: dict[str, Tool] = {}
    for tool in tools:
        if not isinstance(tool, Tool):
            raise ConfigError(f"{tool!r} is no tool: decorate it with @tool")
        if tool.name in named:
            raise ConfigError(f"two tools are called {tool.name!r}: name one of them with @tool(name=...)")
        named[tool.name] = tool
    return named
