"""A claimed turn and its journal, kept in step: whatever happens to the turn goes through `feed`.

The machine decides, the store appends in one transaction, and only then do listeners hear of it.
"""

from collections.abc import Callable, Sequence

import anyio

from turnwright_states import BadJournal, Event, TurnMachine
from turnwright_states.facts import Fact, TurnStarted

from .errors import StoreError
from .events import TurnEvent, event_of
from .store import Claim, Status, Store
from .transcript import Transcript

Publish = Callable[[TurnEvent], None]


class Ledger:
    """One claimed turn, folded from `facts`.

    Raises `StoreError` when they are no journal of a turn.
    """

    def __init__(
        self, store: Store, claim: Claim, facts: Sequence[tuple[int, Fact]], publish: Publish | None = None
    ) -> None:
        self.store = store
        self.claim = claim
        self.started = beginning(claim.turn, facts)
        try:
            self.machine = TurnMachine.resume(fact for _, fact in facts)
        except BadJournal as error:
            raise StoreError(f"turn {claim.turn}: {error}") from error
        self.transcript = Transcript.following(self.machine.turn, facts)
        self.publish = publish
        self._lock = anyio.Lock()
        self._failed = False

    @classmethod
    async def open(cls, store: Store, claim: Claim, publish: Publish | None = None) -> "Ledger":
        """Read the journal of a claimed turn. Raises `StoreError`."""
        return cls(store, claim, await store.facts(claim.turn), publish)

    @property
    def turn_id(self) -> str:
        """The turn's id."""
        return self.claim.turn

    async def feed(self, event: Event, consumed: Sequence[str] = ()) -> None:
        """Let the machine decide, append what follows, then tell the listeners.

        `consumed` are the inbox items that this event came from. Raises what the store raises: the machine is then
        ahead of the journal, and so every later call raises `StoreError`. Take the turn up again from its journal.
        """
        async with self._lock:
            if self._failed:
                raise StoreError(f"turn {self.turn_id}: an append failed before; the turn can be resumed")
            facts = self.machine.feed(event)
            turn, first = self.machine.turn, self.claim.seq + 1
            self._failed = True
            with anyio.CancelScope(shield=True):
                await self.store.append(self.claim, facts, Status.of(turn), consumed)
            self._failed = False
            for seq, fact in enumerate(facts, start=first):
                self.transcript.add(seq, fact)
                if self.publish is not None:
                    self.publish(event_of(self.turn_id, seq, fact, turn, self.transcript.text))


def beginning(turn_id: str, facts: Sequence[tuple[int, Fact]]) -> TurnStarted:
    """The fact that a journal begins with. Raises `StoreError` for one that begins otherwise."""
    if not facts or not isinstance(facts[0][1], TurnStarted):
        raise StoreError(f"turn {turn_id}: its journal does not begin with turn_started")
    return facts[0][1]
