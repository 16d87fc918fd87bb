"""The turns of a conversation, as doors start, answer and follow them. The engine drives them, not a request."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Unpack

import anyio
from msgspec.structs import replace
from pydantic import JsonValue

from turnwright._base.ids import root_of
from turnwright.agent import Agent
from turnwright.driver.admission import TurnOptions
from turnwright.errors import (
    ConfigError,
    InvalidAnswerError,
    SessionBusyError,
    TurnBusyError,
    TurnNotFoundError,
    need_kind,
    need_list,
)
from turnwright.journal.answers import Answer, parse_answer
from turnwright.runtime.engine import Engine
from turnwright.runtime.handle import TurnHandle
from turnwright.store import TurnRow
from turnwright.transcript.events import FactEvent, StreamEvent, TurnEndedEvent, TurnPausedEvent
from turnwright.transcript.interrupt import Interrupt
from turnwright_protocols.client_tools import client_tools_in, settleable
from turnwright_states import InterruptKind, State
from turnwright_states import facts as f

#: Seconds in which a turn that a new message replaces must have ended, and between two looks.
_PATIENCE: Final = 10.0
_PAUSE: Final = 0.05

#: Why an answer is refused, for the client.
UNFIT_ANSWER: Final = "the answer does not fit an open question of the turn"
NOT_AUTHORIZED: Final = "the app does not let you answer this"

AnswerValue = str | bool | Answer
#: Chooses the interrupts of a pause that the client can answer.
Choose = Callable[[Sequence[Interrupt]], Sequence[Interrupt]]


def agents_by_name(agents: Sequence[Agent]) -> dict[str, Agent]:
    """Return agents by their names, as clients write them.

    Raises `ConfigError` without agents, for anything else, and for two agents of one name.
    """
    need_list("agents", agents)
    if not agents:
        raise ConfigError("agents: give at least one agent to serve")
    by_name: dict[str, Agent] = {}
    for agent in agents:
        need_kind("agents", agent, Agent, "a list of Agent(name=...)")
        if by_name.setdefault(agent.name.lower(), agent) is not agent:
            raise ConfigError(f"agents: two have the name {agent.name!r}, in whatever case: rename one of them")
    return by_name


def agents_by_slug(agents: Sequence[Agent], noun: str) -> dict[str, Agent]:
    """Return agents by the names of their `noun`, with `_` for characters that are none of `a-z`, `0-9`, `_` and `-`.

    Raises what `agents_by_name` does, and `ConfigError` for two agents of one such name.
    """
    by_slug: dict[str, Agent] = {}
    for name, agent in agents_by_name(agents).items():
        slug = re.sub(r"[^a-z0-9_-]+", "_", name)
        if by_slug.setdefault(slug, agent) is not agent:
            other_noun = f"the {noun} of agent {by_slug[slug].name!r}"
            why = f"its {noun} would be called {slug}, like {other_noun}: rename one of them"
            raise ConfigError(f"agent {agent.name!r}: {why}")
    return by_slug


def need_id(turn_id: str) -> None:
    """Raise `TurnNotFoundError` for a text that is not an id of a turn, and that some stores cannot look up."""
    if not turn_id.isprintable():
        raise TurnNotFoundError(turn_id)


async def find_turn(engine: Engine, session: str, turn_id: str) -> TurnRow:
    """Return a turn of a session. Raises `TurnNotFoundError`, also for a turn of another session."""
    need_id(turn_id)
    row = await engine.store.get(turn_id)
    if row.session != session or root_of(turn_id) != turn_id:
        raise TurnNotFoundError(turn_id)
    return row


async def find_open_turn(engine: Engine, session: str) -> TurnRow | None:
    """Return the turn of a session that runs or is paused, if there is one."""
    return next(iter(root_turns(await engine.turns(session=session, live=True))), None)


def root_turns(rows: Iterable[TurnRow]) -> list[TurnRow]:
    """Return the turns without those of sub-agents."""
    return [row for row in rows if root_of(row.id) == row.id]


def start_of(events: Sequence[StreamEvent]) -> f.TurnStarted | None:
    """Return the first fact of a turn's events, if it is the turn's start."""
    first = events[0].fact if events and isinstance(events[0], FactEvent) else None
    return first if isinstance(first, f.TurnStarted) else None


def is_paused(row: TurnRow) -> bool:
    """Return whether a turn waits for a person."""
    return row.status.state is State.PAUSED


async def open_interrupts(engine: Engine, turn_id: str) -> list[Interrupt]:
    """Return the interrupts of a paused turn that have no answer yet."""
    turn = await engine.get(turn_id)
    return [interrupt for interrupt in turn.interrupts if interrupt.id not in turn.answered]


async def start_in_session(
    engine: Engine, agent: Agent, prompt: str, **options: Unpack[TurnOptions]
) -> TurnHandle[str]:
    """Start a turn. A running turn of its session is aborted first, as a paused one is superseded.

    Raises `SessionBusyError` if that takes too long, and what `Engine.start` raises.
    """
    with anyio.move_on_after(_PATIENCE) as patience:
        while True:
            try:
                return await engine.start(agent, prompt, **options)
            except SessionBusyError as busy:
                if patience.deadline - anyio.current_time() < 2 * _PAUSE:
                    raise
                await engine.abort(busy.turn)
            await anyio.sleep(_PAUSE)
    raise SessionBusyError(options.get("session") or "", "")


async def abort_turn(engine: Engine, turn_id: str) -> None:
    """Abort a turn, and wait until it has ended. A driver that just paused the turn may still hold it.

    Raises `TurnBusyError` if that takes too long.
    """
    with anyio.move_on_after(_PATIENCE):
        while True:
            await engine.abort(turn_id)
            if (await engine.store.get(turn_id)).status.outcome is not None:
                return
            await anyio.sleep(_PAUSE)
    raise TurnBusyError(turn_id, "another driver")


def answerable_by_text(interrupts: Sequence[Interrupt]) -> str:
    """Return the id of the only open interrupt, if a message may answer it; else an empty text.

    An approval needs an explicit answer.
    """
    kinds = (InterruptKind.QUESTION, InterruptKind.UNKNOWN_OUTCOME, InterruptKind.DOOM_LOOP)
    return interrupts[0].id if len(interrupts) == 1 and interrupts[0].kind in kinds else ""


def accepts_text(interrupts: Sequence[Interrupt], text: str) -> str:
    """Return the id of the only open interrupt if the text is an answer to it; else an empty text."""
    interrupt = answerable_by_text(interrupts)
    try:
        return interrupt if interrupt and parse_answer(tuple(interrupts), interrupt, text) else ""
    except InvalidAnswerError:
        return ""


def answerable_by(user: str) -> Choose:
    """Return what chooses the interrupts that the person at a client can answer.

    A result comes from elsewhere. Where several people must approve, each has a name, and approves once.
    """

    def is_answerable(interrupt: Interrupt) -> bool:
        return interrupt.kind is not InterruptKind.RESULT and (not interrupt.is_shared or user != "")

    return without_approved(user, lambda interrupts: [*filter(is_answerable, interrupts)])


def without_approved(user: str, choose: Choose) -> Choose:
    """Return what chooses the same interrupts, without those that this user has approved and others must approve."""

    def is_open(interrupt: Interrupt) -> bool:
        return user not in {*interrupt.approved_by, *(answer.by for answer in interrupt.approvals_so_far)} - {""}

    return lambda interrupts: [*filter(is_open, choose(interrupts))]


def for_client(event: StreamEvent, choose: Choose) -> StreamEvent | None:
    """Return a pause with the interrupts that the client can answer, None without any; and another event as it is."""
    if not isinstance(event, TurnPausedEvent):
        return event
    interrupts = tuple(choose(event.interrupts))
    return replace(event, interrupts=interrupts) if interrupts else None


def without_waits(events: Sequence[StreamEvent], client_tools: Collection[str] = ()) -> list[StreamEvent]:
    """Return the events of a turn without its waits for results that others than the client owe.

    The client has `client_tools`, and those that the turn's first fact declares.
    """
    turn_start = start_of(events)
    declared_tools = () if turn_start is None else client_tools_in(turn_start)
    choose = partial(settleable, client_tools={*client_tools, *declared_tools})
    client_events = (for_client(event, choose) for event in events)
    return [event for event in client_events if event is not None]


def events_for_client(
    engine: Engine, handle: TurnHandle[str], after: int, choose: Choose
) -> AsyncGenerator[StreamEvent, None]:
    """Return the events of a turn until it ends, or pauses with a question to the client: see `for_client`.

    While the turn waits for others, no process drives it. When it is due, this engine drives it on, as a worker would.
    """
    return _events_for_client(engine, handle, handle.events(after), after, choose)


async def _events_for_client(
    engine: Engine, handle: TurnHandle[str], events: AsyncIterator[StreamEvent], seq: int, choose: Choose
) -> AsyncGenerator[StreamEvent, None]:
    while True:
        last: StreamEvent | None = None
        async for last in events:
            seq = last.seq
            if (event := for_client(last, choose)) is not None:
                yield event
        if not isinstance(last, TurnPausedEvent | TurnEndedEvent) and (await engine.get(handle.id)).paused:
            # Paused since before these events, or ever since: some answers may have come.
            last = TurnPausedEvent(handle.id, seq, tuple(await open_interrupts(engine, handle.id)))
            if (event := for_client(last, choose)) is not None:
                yield event
        if not isinstance(last, TurnPausedEvent) or choose(last.interrupts):
            return
        async with engine.store.watching(handle.id) as wait_for_change:
            while not await engine.store.facts(handle.id, seq):
                await handle.result()
                await wait_for_change(engine.setup.poll_interval)
        events = handle.events(seq)


class PausedTurn:
    """A turn that was paused, as a client answers it: its events so far, and the interrupts of a pause.

    That is the last pause with an interrupt that `is_answered`, because a client may repeat its answers; or else the
    last one of all.
    """

    def __init__(
        self, events: Sequence[StreamEvent], is_answered: Callable[[Interrupt], bool] = lambda _: False
    ) -> None:
        pauses = [event for event in reversed(events) if isinstance(event, TurnPausedEvent)]
        answered_pauses = (pause for pause in pauses if any(map(is_answered, pause.interrupts)))
        pause = next(answered_pauses, next(iter(pauses), None))
        #: The events up to the pause, which the client has, and the seq of that pause.
        self.events = [event for event in events if pause is not None and event.seq <= pause.seq]
        self.seq = 0 if pause is None else pause.seq
        self.interrupts = () if pause is None else pause.interrupts
        self.started = start_of(events)
        self._answers = [
            event.fact
            for event in events
            if isinstance(event, FactEvent) and event.seq > self.seq and isinstance(event.fact, f.Answered)
        ]

    @classmethod
    async def read(
        cls, engine: Engine, turn_id: str, is_answered: Callable[[Interrupt], bool] = lambda _: False
    ) -> "PausedTurn":
        """Read the journal of a turn. Raises `TurnNotFoundError`."""
        need_id(turn_id)
        return cls(await engine.snapshot(turn_id), is_answered)

    def note(self, door: str) -> Mapping[str, JsonValue] | None:
        """Return what a door noted about the turn when it started it; None for another door's turn."""
        note = None if self.started is None else self.started.metadata.get(door)
        return note if isinstance(note, Mapping) else None

    def without_known(self, answers: Mapping[str, AnswerValue], by: str) -> dict[str, AnswerValue]:
        """Return the answers to the pause that the journal does not have: a client may send them again."""
        return {name: answer for name, answer in answers.items() if not self._is_known(name, answer, by)}

    def _is_known(self, name: str, answer: AnswerValue, by: str) -> bool:
        is_shared = any(interrupt.id == name and interrupt.is_shared for interrupt in self.interrupts)
        facts = [fact for fact in self._answers if fact.interrupt == name and (fact.by == by or not is_shared)]
        if not facts:
            return False
        parsed_answer = parse_answer(self.interrupts, name, answer, by=by)
        values = (parsed_answer.decision, parsed_answer.text, parsed_answer.given, parsed_answer.always)
        return values in [(fact.decision, fact.text, fact.given, fact.always) for fact in facts]


async def answer_turn(
    engine: Engine,
    agent: Agent,
    paused_turn: PausedTurn,
    turn_id: str,
    answers: Mapping[str, AnswerValue],
    *,
    by: str,
    via: str,
) -> TurnHandle[str]:
    """Answer a paused turn, which the engine then drives on. The same answers again change nothing.

    Raises `InvalidAnswerError`, `TurnAlreadyEndedError` and what `Engine.attach` raises.
    """
    handle = engine.attach(turn_id, agent)
    if new_answers := paused_turn.without_known(answers, by):
        await handle.answer(new_answers, by=by, via=via)
    return handle
