"""A claimed turn and its journal, kept in step: whatever happens to the turn goes through `feed`.

The machine decides, the store appends in one transaction, and only then do listeners hear of it.
"""

import logging
import time
import traceback
from collections.abc import Callable, Container, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import anyio
from msgspec.structs import force_setattr

from turnwright.errors import StoreError, UnreadableTurnError
from turnwright.events import TurnEvent, event_of
from turnwright.result import StatePath, TurnResult, stands
from turnwright.store import Claim, InboxItem, Status, Store
from turnwright.transcript.transcript import Transcript, reading
from turnwright_states import AnsweredInput, CallStartedInput, Input, State, SteeredInput, TurnMachine
from turnwright_states.facts import Fact, Paused, StepStarted, TurnStarted
from turnwright_states.state import FINAL

from .inbox import steers

if TYPE_CHECKING:
    from turnwright.model.protocol import Model
    from turnwright.tools.batch_context import Execute

    from .dependencies import Price

_LOG = logging.getLogger(__name__)
# A library does not write to a program's stderr unasked, warnings neither: without this the standard library would.
logging.getLogger("turnwright").addHandler(logging.NullHandler())


class Listeners(Protocol):
    """Those who follow turns. No event is made for a turn that nobody follows."""

    @property
    def followed(self) -> Container[str]:
        """The turns that somebody follows."""
        ...

    def publish(self, event: TurnEvent) -> None:
        """Pass an event on."""
        ...

    @property
    def stretches(self) -> "Callable[[TurnJournal], Stretch] | None":
        """What gives whoever observes the stretch of driving that begins with a journal, if anybody does."""
        ...


class Stretch(Protocol):
    """Observes one stretch of driving a turn, from a claim to its release: a block, in which all of it happens."""

    def __enter__(self) -> object:
        """Driving begins."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None:
        """The turn is released."""
        ...

    def journalled(self, facts: Sequence[Fact]) -> None:
        """Hear of facts that are in the journal."""
        ...

    def observed(self, model: "Model", price: "Price | None", timed_out: Callable[[], bool]) -> "Model":
        """Give the model, wrapped: `timed_out` says whether an attempt that is canceled has used up its time."""
        ...

    @property
    def execute(self) -> "Execute":
        """What executes a call around its tool."""
        ...


class JournalFold:
    """A turn's journal as it was read once, folded: for whoever checks something by it, and then for its driver.

    `facts` are (seq, fact) pairs, oldest first, and `machine` what made them, if that is at hand. With `keep_facts` the
    driver adds what it writes. Raises `UnreadableTurnError` when they are no journal of a turn.
    """

    def __init__(
        self,
        turn_id: str,
        facts: Sequence[tuple[int, Fact]],
        machine: TurnMachine | None = None,
        *,
        keep_facts: bool = False,
    ) -> None:
        self.turn_id = turn_id
        self.facts = list(facts)
        self.keep_facts = keep_facts
        self.started = first_fact(turn_id, facts)
        with reading(turn_id):
            self.machine = machine or TurnMachine.resume(fact for _, fact in facts)
            self.transcript = Transcript.following(self.machine.turn, facts)
        self.path = StatePath(fact for _, fact in facts)
        self.seq, self.last = facts[-1]

    @classmethod
    async def read(cls, store: Store, turn_id: str, *, keep_facts: bool = False) -> "JournalFold":
        """Read a turn's journal. Raises `TurnNotFoundError` and `StoreError`."""
        return cls(turn_id, await store.facts(turn_id), keep_facts=keep_facts)

    async def catch_up(self, store: Store) -> None:
        """Read what was written since."""
        new = await store.facts(self.turn_id, self.seq)
        with reading(self.turn_id):
            for seq, fact in new:
                self.machine.turn.apply(fact)
                self.transcript.add(seq, fact)
                self.seq, self.last = seq, fact
        self.path.extend(fact for _, fact in new)
        self.facts += new

    @property
    def segment(self) -> int:
        """The stretch that the turn is in, counted from 1; while it is paused, the one that the answers begin."""
        return 1 + sum(isinstance(fact, Paused) for _, fact in self.facts)

    def result(self) -> TurnResult:
        """How the turn stands, without what its inbox still has."""
        return stands(self.turn_id, self.transcript, self.path, self.last)


class TurnJournal:
    """One claimed turn, whose journal was folded up to the claim."""

    def __init__(
        self,
        store: Store,
        claim: Claim,
        fold: JournalFold,
        listeners: Listeners | None = None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self._now = now
        self.claim = claim
        self.fold = fold
        self.started, self.machine, self.transcript = fold.started, fold.machine, fold.transcript
        #: What waits in the inbox, as far as the last append or the claim told; None where more may have come since.
        self.waiting: Sequence[InboxItem] | None = claim.waiting
        self.listeners = listeners
        #: Who observes this stretch of driving, if anybody does.
        self.stretch = None if listeners is None or listeners.stretches is None else listeners.stretches(self)
        if not fold.keep_facts:
            fold.facts = []
        self._state = self.machine.turn.state
        self._logged = _LOG.isEnabledFor(logging.INFO)
        #: Made when it is needed: it holds as much memory as three messages.
        self._lock: anyio.Lock | None = None
        self._failed = False

    @classmethod
    async def open(
        cls,
        store: Store,
        claim: Claim,
        listeners: Listeners | None = None,
        now: Callable[[], float] = time.time,
        known: JournalFold | None = None,
    ) -> "TurnJournal":
        """Fold a claimed turn: only what was written since, where it is `known`. Raises `StoreError`.

        `now` gives seconds since the epoch of Unix.
        """
        reads = known is None or known.seq != claim.seq
        if known is None:
            known = await JournalFold.read(store, claim.turn)
        elif reads:
            await known.catch_up(store)
        journal = cls(store, claim, known, listeners, now=now)
        if reads:
            journal.waiting = None
        return journal

    @property
    def turn_id(self) -> str:
        """The turn's id."""
        return self.claim.turn

    def result(self) -> TurnResult:
        """How the turn stands, without what its inbox still has."""
        return self.fold.result()

    @property
    def heard(self) -> bool:
        """Whether anybody follows the turn."""
        return self.listeners is not None and self.claim.turn in self.listeners.followed

    def log(self, facts: Sequence[Fact]) -> None:
        """Log facts that are in the journal, where anybody listens to that."""
        if self._logged:
            # Most programs log no turns, and need not load what says them in words.
            from .turn_log import tell  # noqa: PLC0415

            try:
                tell(_LOG, self.claim.turn, facts, self.machine.turn)
            except Exception:  # noqa: BLE001 (an embedder's handler or filter; the turn goes on)
                # As `logging` itself does with what its own handlers raise.
                if logging.raiseExceptions:
                    traceback.print_exc()

    def publish(self, event: TurnEvent) -> None:
        """Tell those who follow the turn, if any do."""
        if self.listeners is not None:
            self.listeners.publish(event)

    async def feed(self, event: Input, *more: Input, consumed: Sequence[str] = ()) -> None:
        """Let the machine decide, append what follows, then tell the listeners. `more` are calls that start with it.

        `consumed` are the inbox items that this event came from. Messages to the turn that wait in its inbox are taken
        in before a batch is over, and kept as undelivered with whatever ends the turn (DESIGN 4.15). Raises what the
        store raises: the machine is then ahead of the journal, and so every later call raises `StoreError`. Take the
        turn up again from its journal.
        """
        # Where nothing suspends before the append is over, nobody can cut in, nor cancel it; a lock and two shields
        # cost more than all the rest of this.
        if self.store.inline:
            await self._take(event, more, consumed)
            return
        # What has happened is written down also when whoever says so is cancelled: a finished call keeps its result.
        # A call that has not started yet may be cancelled while it waits for its turn to be written.
        with anyio.CancelScope(shield=not isinstance(event, CallStartedInput)):
            async with self._locked():
                with anyio.CancelScope(shield=True):
                    await self._take(event, more, consumed)

    async def take_in(self, items: Sequence[InboxItem], elapsed: float) -> None:
        """Take in the messages to the turn that are among the items of its inbox."""
        if items:
            with anyio.CancelScope(shield=True):
                async with self._locked():
                    await self._take_in(items, elapsed)

    async def drop(self, item_id: str) -> None:
        """Consume the inbox item with this id, which came to nothing: an answer that fits no more, say.

        Raises what the store raises; the item then still waits. After a failed `feed` it raises `StoreError`.
        """
        with anyio.CancelScope(shield=True):
            async with self._locked():
                if self._failed:
                    raise self._ahead()
                self.waiting = await self.store.append(self.claim, (), Status.of(self.machine.turn), (item_id,))

    async def inbox(self) -> Sequence[InboxItem]:
        """What waits in the inbox. It is read where nothing was written since the turn last had to wait."""
        if self.waiting is None:
            self.waiting = await self.store.inbox(self.claim.turn)
        return self.waiting

    def _locked(self) -> anyio.Lock:
        if self._lock is None:
            self._lock = anyio.Lock()
        return self._lock

    async def _take_in(self, items: Sequence[InboxItem], elapsed: float) -> None:
        for item, text in steers(items).items():
            await self._feed(SteeredInput(text=text, elapsed=elapsed), (), (item,))

    async def _take(self, event: Input, more: Sequence[Input], consumed: Sequence[str]) -> None:
        late: tuple[str, ...] = ()
        if type(event) is not AnsweredInput:  # which is fed as soon as it was found: all else took its time
            self.waiting = None
        if self.machine.may_end_with(event):
            waiting = steers(await self.inbox())
            if waiting:
                late = tuple(waiting)
                event = event.model_copy(update={"undelivered": tuple(waiting.values())})
        elif self.machine.takes_messages_before(event):
            await self._take_in(await self.inbox(), event.elapsed)
        await self._feed(event, more, consumed, at_the_end=late)

    async def _feed(
        self, event: Input, more: Sequence[Input], consumed: Sequence[str], at_the_end: Sequence[str] = ()
    ) -> None:
        if self._failed:
            raise self._ahead()
        claim, machine = self.claim, self.machine
        facts = machine.feed(event)
        self._failed = True  # until all that the machine has taken is written
        for one in more:
            facts += machine.feed(one)
        if machine.turn.state is State.STREAM:  # a step may have begun
            stamp(facts, self._now())
        turn, seq = machine.turn, claim.seq
        consumed = (*consumed, *at_the_end) if turn.state in FINAL else consumed
        self.waiting = await self.store.append(claim, facts, Status.of(turn), consumed)
        self._failed = False
        heard = self.listeners is not None and claim.turn in self.listeners.followed
        fold = self.fold
        fold.seq, fold.last = claim.seq, facts[-1]
        fold.path.extend(facts)
        if fold.keep_facts:
            fold.facts += enumerate(facts, seq + 1)
        if turn.state is not self._state:
            # Asked once a state: who switches the log on while a turn runs sees it go on, and a step costs two calls.
            level = logging.WARNING if self._state is State.TEXT_ONLY else logging.INFO
            self._state, self._logged = turn.state, _LOG.isEnabledFor(level)
        if self._logged:
            self.log(facts)
        if self.stretch is not None:
            self.stretch.journalled(facts)
        for fact in facts:
            seq += 1
            self.transcript.add(seq, fact)
            if heard:
                self.publish(event_of(claim.turn, seq, fact, self.transcript))

    def _ahead(self) -> StoreError:
        return StoreError(f"turn {self.turn_id}: an append failed before; the turn can be resumed")


def stamp(facts: Sequence[Fact], now: float) -> None:
    """Write down when a step began, in facts that nobody has seen yet. `now` is in seconds since the epoch of Unix."""
    for fact in facts:
        if type(fact) is StepStarted:
            text = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
            force_setattr(fact, "started_at", f"{text[:-6]}Z")


def first_fact(turn_id: str, facts: Sequence[tuple[int, Fact]]) -> TurnStarted:
    """The fact that a journal begins with. Raises `UnreadableTurnError` for one that begins otherwise."""
    if not facts or not isinstance(facts[0][1], TurnStarted):
        raise UnreadableTurnError(turn_id, "its journal does not begin with turn_started")
    return facts[0][1]
