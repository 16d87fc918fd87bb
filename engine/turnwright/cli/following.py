"""What is heard of a turn that another process may be driving: each fact once, in the order of the journal."""

from collections import deque
from collections.abc import Callable
from typing import Final

import anyio

from turnwright.engine import Engine
from turnwright.events import FactEvent, TurnEndedEvent, TurnEvent, TurnPausedEvent, event_of
from turnwright.store import Store, TurnRow
from turnwright.transcript.transcript import Transcript, reading
from turnwright_states.facts import Fact

_OfFacts: Final = FactEvent | TurnPausedEvent | TurnEndedEvent


class Followed:
    """One turn that is resumed here while another process may still drive it.

    `row` and `facts` are how it stood before, which `hear` is not told; `driven` says that somebody drove it then.
    """

    def __init__(
        self, hear: Callable[[TurnEvent], None], row: TurnRow, facts: list[tuple[int, Fact]], *, driven: bool
    ) -> None:
        self.turn = row.id
        self.driven = driven
        self._epoch = row.epoch
        self._hear = hear
        #: The last fact that `hear` was told of, and the last one that was read.
        self._told = self._read = len(facts)
        with reading(row.id):
            self._transcript = Transcript.of(facts)
        #: What this process does to the turn, as long as it is not known what was done before that.
        self._held: deque[TurnEvent] = deque()
        self._ours = False
        #: Whether nothing is missing between what was told and what this process does.
        self._joined = not driven

    @property
    def open(self) -> list[str]:
        """The ids of the interrupts that are open, as far as is known here."""
        return list(self._transcript.turn.interrupts)

    def observe(self, event: TurnEvent) -> None:
        self._ours = self._ours or event.turn == self.turn
        self._held.append(event)
        self._tell_held()

    async def follow(self, engine: Engine) -> None:
        """Tell what another process does, until this one drives the turn and nothing is missing in between."""
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
            if seq > self._told and not self._is_held(seq):
                self._tell(event_of(self.turn, seq, fact, transcript))
        self._joined = self._joined or held
        self._tell_held()

    async def is_elsewhere(self, store: Store) -> bool:
        """Whether the turn is still with the process that drove it when this one came."""
        return self.driven and (await store.get(self.turn)).epoch == self._epoch

    def _is_held(self, seq: int) -> bool:
        """Whether this process appended the fact, and what its sub-agents did before and after it is held too."""
        return any(event.turn == self.turn and isinstance(event, _OfFacts) and event.seq <= seq for event in self._held)

    def _tell_held(self) -> None:
        while self._held:
            event = self._held[0]
            if event.turn != self.turn:  # a sub-agent's, which has no place of its own in this turn's journal
                if not self._joined:
                    return
                self._hear(self._held.popleft())
                continue
            # A piece has the seq of the last fact before it.
            due = self._told + isinstance(event, _OfFacts)
            if event.seq > due:
                return
            self._held.popleft()
            if event.seq == due:  # else it was told already
                self._joined = True
                self._tell(event)

    def _tell(self, event: TurnEvent) -> None:
        self._told = event.seq
        self._hear(event)
