"""A claimed turn and its journal, kept in step: every change of the turn goes through `feed`.

The machine decides, the store appends in one transaction, and then listeners receive the events.
"""

import logging
import time
import traceback
from collections.abc import AsyncIterator, Callable, Container, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import anyio
from msgspec.structs import force_setattr, replace

from turnwright.errors import LeaseLostError, StoreError, UnreadableTurnError
from turnwright.status import limit_reached
from turnwright.store import Claim, InboxItem, Status, Store
from turnwright.transcript.events import StreamEvent, event_of
from turnwright.transcript.transcript import Transcript, reading
from turnwright_states import (
    AbortInput,
    AnsweredInput,
    CallStartedInput,
    EndReason,
    Input,
    InvalidJournalError,
    State,
    SteeredInput,
    Turn,
    TurnMachine,
)
from turnwright_states.facts import Fact, ModelReplied, Paused, StepStarted, Stopping, TurnStarted
from turnwright_states.state import FINAL

from .inbox import steers
from .result import TurnResult, result_from

if TYPE_CHECKING:
    from turnwright.model.prices import PriceOf
    from turnwright.model.protocol import Model
    from turnwright.tools.batch_context import Execute

    from .held_events import HeldEvents

_LOG = logging.getLogger(__name__)
# A library must not write to a program's stderr, which the standard library would otherwise do with warnings.
logging.getLogger("turnwright").addHandler(logging.NullHandler())


class SegmentObserver(Protocol):
    """Observes one segment, from its claim to its release, as a context manager."""

    def __enter__(self) -> object:
        """Driving begins."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None:
        """The turn is released."""
        ...

    def journaled(self, facts: Sequence[Fact]) -> None:
        """Receive facts that were journaled."""
        ...

    def observed(self, model: "Model", price: "PriceOf | None", timed_out: Callable[[], bool]) -> "Model":
        """Wrap the model. `timed_out` says whether a canceled attempt has used up its time."""
        ...

    @property
    def execute(self) -> "Execute":
        """Executes a call around its tool."""
        ...


class Listeners(Protocol):
    """Receives the events of followed turns. No event is made for other turns."""

    @property
    def followed(self) -> Container[str]:
        """The followed turns."""
        ...

    def publish(self, event: StreamEvent) -> None:
        """Pass an event on."""
        ...

    @property
    def observe_segment(self) -> "Callable[[TurnJournal], SegmentObserver] | None":
        """Makes the observer of a segment from its journal; None without telemetry."""
        ...


class JournalFold:
    """A turn's journal, read once and folded: for checks before driving, and then for the driver.

    `facts` are (seq, fact) pairs, oldest first. `machine` is the machine that made them, if it is at hand; else each of
    them must lead to the state of its hash. With `keep_facts` the driver adds the facts that it writes. Raises
    `UnreadableTurnError` for an invalid journal.
    """

    __slots__ = (
        "facts",
        "keep_facts",
        "machine",
        "seq",
        "started",
        "transcript",
        "turn_id",
    )

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
            self.machine = machine or _resume_verified(turn_id, facts)
            self.transcript = Transcript.following(self.machine.turn, facts)
        self.seq = facts[-1][0]

    @classmethod
    async def read(cls, store: Store, turn_id: str, *, keep_facts: bool = False) -> "JournalFold":
        """Read a turn's journal. Raises `TurnNotFoundError` and `StoreError`."""
        return cls(turn_id, await store.facts(turn_id), keep_facts=keep_facts)

    @classmethod
    def to_end(cls, turn_id: str, facts: Sequence[tuple[int, Fact]]) -> "JournalFold":
        """Fold the journal of a turn that is only ended: its facts are trusted, as readers do.

        Raises `UnreadableTurnError` if a machine cannot end the turn that they describe.
        """
        with reading(turn_id):
            fold = cls(turn_id, facts, TurnMachine.resume(fact for _, fact in facts))
            fold.machine.copy().feed(AbortInput())
        return fold

    async def catch_up(self, store: Store) -> None:
        """Read what was written since."""
        new = await store.facts(self.turn_id, self.seq)
        with reading(self.turn_id):
            for seq, fact in new:
                self.machine.apply(fact)
                self.transcript.add(seq, fact)
                self.seq = seq
        self.facts += new

    @property
    def segment(self) -> int:
        """The number of the current segment, from 1; of a paused turn, the one that the answers start."""
        return 1 + sum(isinstance(fact, Paused) for _, fact in self.facts)

    def result(self) -> TurnResult:
        """Return the current result, without the messages in the inbox."""
        return result_from(self.turn_id, self.transcript)


class TurnJournal:
    """A claimed turn whose journal was folded up to the claim."""

    __slots__ = (
        "_failed",
        "_inline",
        "_inline_ended",
        "_lock",
        "_logged",
        "_now",
        "_overtaken",
        "_state",
        "admitted",
        "claim",
        "fold",
        "held_events",
        "listeners",
        "machine",
        "observer",
        "started",
        "store",
        "transcript",
        "unwritten",
        "waiting",
    )

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
        #: Holds events back, if replies are reviewed (docs/rules.md#guardrails).
        self.held_events: HeldEvents | None = None
        #: The inbox, as returned by the last append or the claim; None if more may have come since.
        self.waiting: Sequence[InboxItem] | None = claim.waiting
        #: The messages in the inbox that input guardrails have passed, by item; None if there are no guardrails.
        self.admitted: set[str] | None = None
        self.listeners = listeners
        #: Observes the segment, if the engine has telemetry.
        self.observer = (
            None if listeners is None or listeners.observe_segment is None else listeners.observe_segment(self)
        )
        if not fold.keep_facts:
            fold.facts = []
        self._state = self.machine.turn.state
        self._logged = _LOG.isEnabledFor(logging.INFO)
        #: Made on demand: a lock takes as much memory as three messages.
        self._lock: anyio.Lock | None = None
        #: Whether an append without the lock is under way, and what is set when it ends, if something waits for it.
        self._inline = False
        self._inline_ended: anyio.Event | None = None
        self._failed = self._overtaken = False
        #: The facts of a reply that are written with its calls' first results (docs/rules.md#repeatable-steps).
        self.unwritten: Sequence[Fact] = ()

    @classmethod
    async def open(
        cls,
        store: Store,
        claim: Claim,
        listeners: Listeners | None = None,
        now: Callable[[], float] = time.time,
        fold: JournalFold | None = None,
    ) -> "TurnJournal":
        """Fold the journal of a claimed turn: only the new facts if it is `fold`. Raises `StoreError`.

        `now` returns seconds since the Unix epoch.
        """
        facts, claim.facts = claim.facts, None
        if fold is None and facts is not None:
            fold = JournalFold(claim.turn, facts)
        reads = fold is None or fold.seq != claim.seq
        if fold is None:
            fold = await JournalFold.read(store, claim.turn)
        elif reads:
            await fold.catch_up(store)
        journal = cls(store, claim, fold, listeners, now=now)
        if reads:
            journal.waiting = None
        return journal

    @property
    def turn_id(self) -> str:
        """The turn's id."""
        return self.claim.turn

    def result(self) -> TurnResult:
        """Return the current result, without the messages in the inbox."""
        return result_from(self.turn_id, self.transcript)

    @property
    def is_followed(self) -> bool:
        """Whether the turn is followed."""
        return self.listeners is not None and self.claim.turn in self.listeners.followed

    def log(self, facts: Sequence[Fact]) -> None:
        """Log journaled facts, if logging is on."""
        if self._logged:
            try:
                _log_facts(self.claim.turn, facts, self.machine.turn)
            except Exception:  # noqa: BLE001 (an embedder's handler or filter; the turn continues)
                # `logging` does the same with errors of its own handlers.
                if logging.raiseExceptions:
                    traceback.print_exc()

    def publish(self, event: StreamEvent) -> None:
        """Pass an event to the followers, unless it is held back."""
        if self.listeners is not None:
            if self.held_events is None:
                self.listeners.publish(event)
            else:
                self.pass_on(self.held_events.take(event))

    def pass_on(self, events: Sequence[StreamEvent]) -> None:
        """Pass events to the followers that were held back."""
        if self.listeners is not None:
            for event in events:
                self.listeners.publish(event)

    async def feed(
        self, event: Input, *more_events: Input, consumed_items: Sequence[str] = (), deferred: bool = False
    ) -> None:
        """Feed the machine, append its facts, then publish the events.

        `more_events` share the append: starts of calls that start together, or outcomes that came together. A
        `deferred` reply whose calls start with it shares the append of the next input; if none follows, call `write`.

        `consumed_items` are the inbox items that the input came from. Messages that wait in the inbox are fed before a
        batch ends after which the turn may stop, or kept as undelivered with an input that ends the turn
        (docs/rules.md#messages).

        Raises what the store raises. The machine is then ahead of the journal, so every later call raises `StoreError`,
        or again `LeaseLostError`: resume the turn from its journal.
        """
        # If nothing suspends during the append, nothing can interleave or cancel it. A lock and two shields would cost
        # more than the rest of this. If the store must wait for another process after all, `_hold_lock` waits as well.
        if self.store.inline and not self._inline:
            self._inline = True
            try:
                await self._take(event, more_events, consumed_items, deferred=deferred)
            finally:
                self._inline = False
                if self._inline_ended is not None:
                    self._inline_ended.set()
            return
        # A result is written even if its task is canceled: a finished call keeps it. A call that has not started yet
        # may be canceled while it waits for the lock.
        async with self._hold_lock(shield=not isinstance(event, CallStartedInput)):
            with anyio.CancelScope(shield=True):
                await self._take(event, more_events, consumed_items, deferred=deferred)

    async def write(self) -> None:
        """Append the facts that wait for the next input, if there are any. Raises what the store raises."""
        async with self._hold_lock():
            if self.unwritten:
                await self._feed(None, (), ())

    async def take_in(self, items: Sequence[InboxItem], elapsed: float) -> None:
        """Feed the messages to the turn among these inbox items."""
        if items:
            async with self._hold_lock():
                await self._take_in(items, elapsed)

    async def drop(self, item_id: str) -> None:
        """Consume the inbox item with this id without feeding it, for example an answer that is no longer valid.

        Raises what the store raises; the item then still waits. After a failed `feed` it raises `StoreError`.
        """
        async with self._hold_lock():
            self.need_written()
            self.waiting = await self.store.append(self.claim, (), Status.of(self.machine.turn), (item_id,))

    async def inbox(self) -> Sequence[InboxItem]:
        """Return what waits in the inbox. It is read if the turn had to wait since the last append."""
        if self.waiting is None:
            self.waiting = await self.store.inbox(self.claim.turn)
        return self.waiting

    def need_written(self) -> None:
        """Raise the error of a call after a failed append, if one failed: the machine is ahead of the journal."""
        if self._failed:
            raise self._ahead()

    @asynccontextmanager
    async def _hold_lock(self, *, shield: bool = True) -> AsyncIterator[None]:
        if self._lock is None:
            self._lock = anyio.Lock()
        with anyio.CancelScope(shield=shield):
            async with self._lock:
                while self._inline:
                    self._inline_ended = anyio.Event()
                    await self._inline_ended.wait()
                yield

    async def _take_in(self, items: Sequence[InboxItem], elapsed: float) -> None:
        for item, text in steers(items).items():
            if self.admitted is not None and item not in self.admitted:
                continue  # it waits for the input guardrails
            await self._feed(SteeredInput(text=text, elapsed=elapsed), (), (item,))

    async def _take(
        self, event: Input, more_events: Sequence[Input], consumed_items: Sequence[str], *, deferred: bool
    ) -> None:
        late: tuple[str, ...] = ()
        if type(event) is not AnsweredInput:  # an answer is fed at once; other inputs took time
            self.waiting = None
        if self.machine.may_end_with(event, *more_events):
            waiting = steers(await self.inbox())
            if waiting:
                late = tuple(waiting)
                last = more_events[-1] if more_events else event  # of several inputs, the last one may end the batch
                last = replace(last, undelivered=tuple(waiting.values()))
                event, more_events = (event, (*more_events[:-1], last)) if more_events else (last, more_events)
        elif self.machine.takes_messages_before(event, *more_events):
            items = await self.inbox()
            if items:
                await self._take_in(items, event.elapsed)
        await self._feed(event, more_events, consumed_items, at_the_end=late, deferred=deferred)

    async def _feed(  # noqa: C901, PLR0912 (in parts it would take more calls per step)
        self,
        event: Input | None,
        more_events: Sequence[Input],
        consumed_items: Sequence[str],
        at_the_end: Sequence[str] = (),
        *,
        deferred: bool = False,
    ) -> None:
        if self._failed:
            raise self._ahead()
        claim, machine = self.claim, self.machine
        facts = [] if event is None else machine.feed(event)
        self._failed = True  # until all that the machine has taken is written
        for item in more_events:
            if not machine.is_obsolete(item):
                facts += machine.feed(item)
        earlier = self.unwritten
        if earlier:
            facts[:0], self.unwritten = earlier, ()
        elif deferred and machine.turn.state is State.TOOL_EXEC and machine.turn.runnable():
            self.unwritten, self.waiting, self._failed = facts, (), False
            return
        if machine.turn.state is State.STREAM:  # a step may have begun
            stamp(facts, self._now())
        turn, seq = machine.turn, claim.seq
        consumed_items = (*consumed_items, *at_the_end) if turn.state in FINAL else consumed_items
        try:
            self.waiting = await self.store.append(claim, facts, Status.of(turn), consumed_items)
        except LeaseLostError:
            self._overtaken = True
            raise
        self._failed = False
        listeners = self.listeners
        is_followed = listeners is not None and claim.turn in listeners.followed
        fold = self.fold
        fold.seq = claim.seq
        if fold.keep_facts:
            fold.facts += enumerate(facts, seq + 1)
        if earlier or turn.state is not self._state:
            # Read once per state, which saves two calls per step. Logging that is switched on later starts with the
            # next state.
            level = logging.WARNING if self._state is State.TEXT_ONLY else logging.INFO
            self._state, self._logged = turn.state, _LOG.isEnabledFor(level)
        if self._logged:
            self.log(facts)
        if self.observer is not None:
            self.observer.journaled(facts)
        if listeners is None or not is_followed:
            self.transcript.add(seq + 1, *facts)
            return
        publish = listeners.publish if self.held_events is None else self.publish
        for place, fact in enumerate(facts, seq + 1):
            self.transcript.add(place, fact)
            publish(event_of(claim.turn, place, fact, self.transcript))

    def _ahead(self) -> StoreError | LeaseLostError:
        """Return the error of a call after a failed append: of two calls at once, both are overtaken or both failed."""
        if self._overtaken:
            return LeaseLostError(self.turn_id, self.claim.epoch)
        return StoreError(f"turn {self.turn_id}: an earlier append failed: resume the turn")


def stamp(facts: Sequence[Fact], now: float) -> None:
    """Set the start time of steps in facts that are not published yet. `now` is in seconds since the Unix epoch."""
    for fact in facts:
        if type(fact) is StepStarted:
            text = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
            force_setattr(fact, "started_at", f"{text[:-6]}Z")


def _log_facts(turn_id: str, facts: Sequence[Fact], turn: Turn) -> None:
    """Log the facts that a turn was just fed: a line for each new state (INFO), and for each fact (DEBUG).

    `turn` is its state after them. No line contains text of a model, a tool or a person, so that logs hold no content
    and cannot be forged. An ending is not a warning, even a failure: the caller reads the result.
    """
    step = turn.counters.steps - sum(isinstance(fact, StepStarted) for fact in facts)
    for fact in facts:
        step += isinstance(fact, StepStarted)
        level, text = fact.log_line(turn)
        if not _LOG.isEnabledFor(level):
            continue
        if isinstance(fact, Stopping):
            # The loop's tools are left out, because a model may have made their names up.
            text = "doom loop" if fact.reason is EndReason.DOOM_LOOP else limit_reached(turn, fact.reason)
        fields: dict[str, object] = {"turn": turn_id, "step": step, "state": str(fact.state), **fact.log_fields()}
        call = turn.batch.get(str(fields.get("call", "")))
        if call is not None and not call.made.refused:  # a model may have made up the name of a refused call
            fields["tool"] = call.name
        _LOG.log(level, "turn %s: %s", turn_id, text, extra=fields)


def unsigned(fact: Fact) -> Fact:
    """Return a fact without signed reasoning, which only the model that wrote it accepts."""
    return replace(fact, reasoning_details=()) if isinstance(fact, ModelReplied) else fact


def _resume_verified(turn_id: str, facts: Sequence[tuple[int, Fact]]) -> TurnMachine:
    """Return the machine of a turn that may continue. Raises `UnreadableTurnError` for a damaged journal."""
    try:
        machine = TurnMachine.resume((fact for _, fact in facts), verify=True)
        if facts[-1][0] == len(facts):
            return machine
        why = f"its journal has {len(facts)} facts, and the last one is fact {facts[-1][0]}"
    except InvalidJournalError as error:
        why = str(error)
    try:
        JournalFold.to_end(turn_id, facts)
    except UnreadableTurnError:
        raise UnreadableTurnError(turn_id, why) from None
    raise UnreadableTurnError(turn_id, why, can_end=True)


def first_fact(turn_id: str, facts: Sequence[tuple[int, Fact]]) -> TurnStarted:
    """Return the first fact of a journal. Raises `UnreadableTurnError` if it is not `turn_started`."""
    if not facts or not isinstance(facts[0][1], TurnStarted):
        raise UnreadableTurnError(turn_id, "its journal does not begin with turn_started")
    return facts[0][1]
