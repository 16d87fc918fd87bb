"""Drives a turn in front of a person: shows its events, handles signals, and asks what a paused turn waits for.

The first Ctrl-C aborts the turn, and the second leaves at once. SIGTERM, with which containers and services are
stopped, does not end the turn: the process releases it, and another process can resume it. A turn that the workers of
a service drive continues when the person leaves: each of its facts is shown once, in the order of the journal.
"""

import math
import signal
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Protocol

import anyio
import typer

from turnwright._base.background_task import background_task
from turnwright.errors import InvalidAnswerError
from turnwright.journal.answers import Answer
from turnwright.journal.result import TurnResult
from turnwright.runtime.engine import Engine
from turnwright.store import Store, TurnRow
from turnwright.store.address import outlives_process
from turnwright.transcript.events import FactEvent, TurnEndedEvent, TurnEvent, TurnPausedEvent, event_of
from turnwright.transcript.transcript import Transcript, reading
from turnwright_states.facts import Fact

from . import codes, process
from .display import Display
from .engines import Opening
from .process import ORDERLY, QuitError, RepeatedSignal
from .prompts import ask
from .stores import password_hint
from .summary import ended_by, resumed_by

Work = Callable[[Engine], Awaitable[TurnResult]]
Answers = Mapping[str, str | Answer]


class Resume(Protocol):
    """Posts answers to the turn, and drives it until it ends or pauses again."""

    def __call__(self, engine: Engine, answers: Answers) -> Awaitable[TurnResult]: ...


#: Seconds between two looks at whether the tools have finished.
_LOOK: Final = 0.02

_BY_CTRL_C: Final = "left at once"
_BY_SIGTERM: Final = "stopped by SIGTERM"


_OfFacts: Final = FactEvent | TurnPausedEvent | TurnEndedEvent


class FollowedTurn:
    """A turn that this process resumes while another process may still drive it.

    `row` and `facts` are its state before that; `show` gets only later events. `driven`: another process drove it then.
    """

    def __init__(
        self, show: Callable[[TurnEvent], None], row: TurnRow, facts: list[tuple[int, Fact]], *, driven: bool
    ) -> None:
        self.turn = row.id
        self.driven = driven
        self._epoch = row.epoch
        self._show = show
        #: The last fact that `show` got, and the last one that was read.
        self._shown_seq = self._read = len(facts)
        with reading(row.id):
            self._transcript = Transcript.of(facts)
        #: The events of this process, until everything before them was shown.
        self._held_events: deque[TurnEvent] = deque()
        self._ours = False
        #: Whether nothing is missing between the last shown event and the events of this process.
        self._joined = not driven

    @property
    def open(self) -> list[str]:
        """The ids of the open interrupts, as far as this process knows."""
        return list(self._transcript.turn.interrupts)

    def observe(self, event: TurnEvent) -> None:
        self._ours = self._ours or event.turn == self.turn
        self._held_events.append(event)
        self._show_held()

    async def follow(self, engine: Engine) -> None:
        """Show what another process does, until this one drives the turn and nothing is missing in between."""
        while not self._ours or self._held_events:
            await self.catch_up(engine.store)
            await anyio.sleep(engine.setup.poll_interval)

    async def catch_up(self, store: Store) -> None:
        transcript, had_held = self._transcript, bool(self._held_events)
        for seq, fact in await store.facts(self.turn, after=self._read):
            with reading(self.turn):
                transcript.turn.apply(fact)
                transcript.add(seq, fact)
            self._read = seq
            if seq > self._shown_seq and not self._is_held(seq):
                self._show_event(event_of(self.turn, seq, fact, transcript))
        self._joined = self._joined or had_held
        self._show_held()

    async def is_elsewhere(self, store: Store) -> bool:
        """Whether the process that drove the turn before still drives it."""
        return self.driven and (await store.get(self.turn)).epoch == self._epoch

    def _is_held(self, seq: int) -> bool:
        """Whether this process appended the fact. Then the events of its sub-agents are held as well."""
        return any(
            event.turn == self.turn and isinstance(event, _OfFacts) and event.seq <= seq for event in self._held_events
        )

    def _show_held(self) -> None:
        while self._held_events:
            event = self._held_events[0]
            if event.turn != self.turn:  # a sub-agent's event has no sequence number in this turn's journal
                if not self._joined:
                    return
                self._show(self._held_events.popleft())
                continue
            # A delta has the sequence number of the last fact before it.
            next_seq = self._shown_seq + isinstance(event, _OfFacts)
            if event.seq > next_seq:
                return
            self._held_events.popleft()
            if event.seq == next_seq:  # else it was shown already
                self._joined = True
                self._show_event(event)

    def _show_event(self, event: TurnEvent) -> None:
        self._shown_seq = event.seq
        self._show(event)


def execute(
    display: Display,
    opening: Opening,
    work: Work,
    *,
    followed_turn: FollowedTurn | None = None,
    resume: Resume | None = None,
) -> None:
    """Drive a turn, show it, and exit with the turn's exit code.

    `followed_turn` is the turn where another process may drive it. With `resume` a person is asked when it
    pauses.
    """

    async def drive() -> tuple[TurnResult, int, bool]:
        async with opening as engine:
            result = await drive_interactively(display, engine, work, followed_turn)
            quit_ = False
            if resume is not None:
                result, quit_ = await answered_by_person(display, engine, result, resume, followed_turn)
            return result, len(await engine.store.facts(result.id)), quit_

    try:
        result, seq, quit_ = anyio.run(drive)
    except QuitError as quit_error:
        process.say_last(str(quit_error))
        raise typer.Exit(quit_error.code) from None
    if quit_:
        display.say_paused(result)
    else:
        display.close(result, seq)
    raise typer.Exit(codes.exit_code(result))


async def answered_by_person(
    display: Display, engine: Engine, result: TurnResult, resume: Resume, followed_turn: FollowedTurn | None = None
) -> tuple[TurnResult, bool]:
    """Ask a person each time the turn pauses. Returns the result, and whether the person left the turn paused."""
    while result.paused and len(result.answered) < len(result.interrupts):
        try:
            answers = ask(result)
        except KeyboardInterrupt:
            process.echo()
            return result, True
        if answers is None:
            return result, True
        try:
            result = await drive_interactively(display, engine, partial(resume, answers=answers), followed_turn)
        except InvalidAnswerError as error:  # its time is over, or another person was faster
            result = await engine.get(result.id)
            if not result.paused or len(result.answered) < len(result.interrupts):
                process.say(str(error))
                continue
            process.say(f"turn {result.id} was answered elsewhere meanwhile: it continues with that answer")
            result = await drive_interactively(display, engine, partial(resume, answers={}), followed_turn)
    return result, False


async def drive_interactively(
    display: Display, engine: Engine, work: Work, followed_turn: FollowedTurn | None = None
) -> TurnResult:
    """Drive a turn until it ends or pauses, with its events on the display. Raises `QuitError` when a signal asks."""
    with display, anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        # The loop reads a signal from a file descriptor and needs no Python handler, so that ours can be set: it is
        # called also while a tool blocks the loop or ignores its cancellation.
        patience = engine.setup.cancel_grace + ORDERLY
        signal.signal(signal.SIGINT, RepeatedSignal((math.inf, ORDERLY), _farewell(display, _BY_CTRL_C)))
        signal.signal(signal.SIGTERM, RepeatedSignal((patience,), _farewell(display, _BY_SIGTERM)))
        try:
            async with background_task(_handle_signals, signals, display, engine, followed_turn):
                return await work(engine)
        except QuitError:
            if display.view.state.outcome is None:
                raise
            return await engine.get(display.view.turn)  # it ended before the signal could stop it


async def _handle_signals(
    signals: AsyncIterator[signal.Signals], display: Display, engine: Engine, followed_turn: FollowedTurn | None
) -> None:
    was_asked = False
    async for number in signals:
        code, how = (codes.TERMINATED, _BY_SIGTERM) if number == signal.SIGTERM else (codes.ABORTED, _BY_CTRL_C)
        if not display.service and followed_turn is not None and await followed_turn.is_elsewhere(engine.store):
            command = f"turnwright abort {followed_turn.turn}{display.flags}"
            raise QuitError(code, f"{how}; another process drives turn {followed_turn.turn}: `{command}` stops it")
        if number == signal.SIGTERM and not display.service:
            await _finish_tools(display, engine)
        if number == signal.SIGTERM or was_asked or not display.view.turn:
            raise QuitError(code, _farewell(display, how)())
        was_asked = True
        await engine.abort(display.view.turn)
        display.view.told_to_stop = True


async def _finish_tools(display: Display, engine: Engine) -> None:
    """Wait a moment, so that a tool that is about to finish does not lose its result."""
    with anyio.move_on_after(engine.setup.cancel_grace):
        while display.view.in_tool:  # noqa: ASYNC110 (a display has no event to wait for)
            await anyio.sleep(_LOOK)


def _farewell(display: Display, how: str) -> Callable[[], str]:
    def say() -> str:
        turn = display.view.turn
        if not turn:
            return f"{how}, before the turn started"
        if not outlives_process(display.store):
            return f"{how}; turn {turn} is lost, because its store was in memory"
        hint = f" ({password_hint(display.store)})" if password_hint(display.store) else ""
        is_stopping, elsewhere = display.view.told_to_stop, display.view.begun_elsewhere
        if display.service:
            continues = f"the workers {'end' if is_stopping else 'continue'} turn {turn}"
            return f"{how}; {continues}: `turnwright resume {turn}{display.flags}` follows it{hint}"
        if is_stopping:
            ends = ended_by(turn, display.flags, elsewhere=elsewhere)
            return f"{how}; turn {turn} was asked to stop and has not ended: {ends} ends it{hint}"
        again = resumed_by(turn, display.flags, elsewhere=elsewhere)
        return f"{how}; turn {turn} has not ended: {again} resumes it{'' if elsewhere else hint}"

    return say
