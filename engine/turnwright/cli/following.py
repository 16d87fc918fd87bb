"""Follows a turn that another process may drive: each fact once, in the order of the journal."""

from collections import deque
from collections.abc import Callable
from typing import Final

import anyio

from turnwright.engine import Engine
from turnwright.events import FactEvent, TurnEndedEvent, TurnEvent, TurnPausedEvent, event_of
from turnwright.store import Store, TurnRow
from turnwright.transcript.reading import reading
from turnwright.transcript.transcript import Transcript
from turnwright_states.facts import Fact

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
        self._shown = self._read = len(facts)
        with reading(row.id):
            self._transcript = Transcript.of(facts)
        #: The events of this process, until everything before them was shown.
        self._held: deque[TurnEvent] = deque()
        self._ours = False
        #: Whether nothing is missing between the last shown event and the events of this process.
        self._joined = not driven

    @property
    def open(self) -> list[str]:
        """The ids of the open interrupts, as far as this process knows."""
        return list(self._transcript.turn.interrupts)

    def observe(self, event: TurnEvent) -> None:
        self._ours = self._ours or event.turn == self.turn
        self._held.append(event)
        self._show_held()

    async def follow(self, engine: Engine) -> None:
        """Show what another process does, until this one drives the turn and nothing is missing in between."""
        while not self._ours or self._held:
            await self.catch_up(engine.store)
            await anyio.sleep(engine.setup.poll_interval)

    async def catch_up(self, store: Store) -> None:
        transcript, held = self._transcript, bool(self._held)
        for seq, fact in await store.facts(self.turn, after=self._read):
            with reading(self.turn):
                transcript.turn.apply(fact)
                transcript.add(seq, fact)
            self._read = seq
            if seq > self._shown and not self._is_held(seq):
                self._show_event(event_of(self.turn, seq, fact, transcript))
        self._joined = self._joined or held
        self._show_held()

    async def is_elsewhere(self, store: Store) -> bool:
        """Whether the process that drove the turn before still drives it."""
        return self.driven and (await store.get(self.turn)).epoch == self._epoch

    def _is_held(self, seq: int) -> bool:
        """Whether this process appended the fact. Then the events of its sub-agents are held as well."""
        return any(event.turn == self.turn and isinstance(event, _OfFacts) and event.seq <= seq for event in self._held)

    def _show_held(self) -> None:
        while self._held:
            event = self._held[0]
            if event.turn != self.turn:  # a sub-agent's event has no sequence number in this turn's journal
                if not self._joined:
                    return
                self._show(self._held.popleft())
                continue
            # A delta has the sequence number of the last fact before it.
            due = self._shown + isinstance(event, _OfFacts)
            if event.seq > due:
                return
            self._held.popleft()
            if event.seq == due:  # else it was shown already
                self._joined = True
                self._show_event(event)

    def _show_event(self, event: TurnEvent) -> None:
        self._shown = event.seq
        self._show(event)
