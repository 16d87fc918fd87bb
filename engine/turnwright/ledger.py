"""A claimed turn and its journal, kept in step: whatever happens to the turn goes through `feed`.

The machine decides, the store appends in one transaction, and only then do listeners hear of it.
"""

from collections.abc import Callable, Sequence
from typing import Final

import anyio

from turnwright_states import (
    Abort,
    Answered,
    AttemptFailed,
    AwaitPerson,
    BadJournal,
    CallSettled,
    CallStarted,
    CallWaits,
    Concluded,
    Event,
    Expire,
    Fail,
    ModelReplied,
    RunTools,
    Steered,
    Synthesised,
    TurnMachine,
)
from turnwright_states.facts import Fact, TurnStarted

from .errors import StoreError
from .events import TurnEvent, event_of
from .inbox import steers
from .store import Claim, InboxItem, Status, Store
from .transcript import Transcript

Publish = Callable[[TurnEvent], None]

#: Events with which a batch may be over: messages are taken in before, so that CHECK hears of them.
_MAY_SETTLE: Final = (Answered, CallSettled, CallWaits)
#: Events with which the turn may be over: messages that wait then are kept with its end.
_MAY_END: Final = (ModelReplied, AttemptFailed, Synthesised, Concluded, Expire, Abort, Fail)


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

        `consumed` are the inbox items that this event came from. Messages to the turn that wait in its inbox are taken
        in before a batch is over, and kept as undelivered with whatever ends the turn (DESIGN 4.15). Raises what the
        store raises: the machine is then ahead of the journal, and so every later call raises `StoreError`. Take the
        turn up again from its journal.
        """
        # What has happened is written down also when whoever says so is cancelled: a finished call keeps its result.
        # A call that has not started yet may be cancelled while it waits for its turn to be written.
        with anyio.CancelScope(shield=not isinstance(event, CallStarted)):
            async with self._lock:
                waiting: dict[str, str] = {}
                if isinstance(event, _MAY_END):
                    waiting = steers(await self.store.inbox(self.turn_id))
                    event = event.model_copy(update={"undelivered": tuple(waiting.values())}) if waiting else event
                elif isinstance(event, _MAY_SETTLE) and self._is_last():
                    await self._take_in(await self.store.inbox(self.turn_id), event.elapsed)
                await self._feed(event, consumed, at_the_end=tuple(waiting))

    async def take_in(self, items: Sequence[InboxItem], elapsed: float) -> None:
        """Take in the messages to the turn that are among the items of its inbox."""
        with anyio.CancelScope(shield=True):
            async with self._lock:
                await self._take_in(items, elapsed)

    async def drop(self, item_id: str) -> None:
        """Consume the inbox item with this id, which came to nothing: an answer that fits no more, say.

        Raises what the store raises; the item then still waits. After a failed `feed` it raises `StoreError`.
        """
        with anyio.CancelScope(shield=True):
            async with self._lock:
                self._check()
                await self.store.append(self.claim, (), Status.of(self.machine.turn), (item_id,))

    async def _take_in(self, items: Sequence[InboxItem], elapsed: float) -> None:
        for item, text in steers(items).items():
            await self._feed(Steered(text=text, elapsed=elapsed), (item,))

    async def _feed(self, event: Event, consumed: Sequence[str], at_the_end: Sequence[str] = ()) -> None:
        self._check()
        facts = self.machine.feed(event)
        turn, first = self.machine.turn, self.claim.seq + 1
        if turn.state.outcome is not None:
            consumed = (*consumed, *at_the_end)
        self._failed = True
        with anyio.CancelScope(shield=True):
            await self.store.append(self.claim, facts, Status.of(turn), consumed)
        self._failed = False
        for seq, fact in enumerate(facts, start=first):
            self.transcript.add(seq, fact)
            if self.publish is not None:
                self.publish(event_of(self.turn_id, seq, fact, self.transcript))

    def _check(self) -> None:
        if self._failed:
            raise StoreError(f"turn {self.turn_id}: an append failed before; the turn can be resumed")

    def _is_last(self) -> bool:
        """Whether one call alone can still run, or one alone still waits for a person."""
        match self.machine.action:
            case RunTools(calls=calls):
                return len(calls) == 1
            case AwaitPerson(interrupts=(asked,)):
                return bool(asked.call)
            case _:
                return False


def beginning(turn_id: str, facts: Sequence[tuple[int, Fact]]) -> TurnStarted:
    """The fact that a journal begins with. Raises `StoreError` for one that begins otherwise."""
    if not facts or not isinstance(facts[0][1], TurnStarted):
        raise StoreError(f"turn {turn_id}: its journal does not begin with turn_started")
    return facts[0][1]
