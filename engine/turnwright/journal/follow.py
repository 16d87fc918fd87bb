"""Follows one turn, wherever it is driven: first its journal, then its live events."""

import logging
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Final

import anyio

from turnwright._base.background_task import background_task
from turnwright._base.ids import child_id
from turnwright.errors import TurnNotFoundError
from turnwright.store import Store
from turnwright.transcript.events import FactEvent, StreamEvent, TurnEndedEvent, TurnPausedEvent, event_of
from turnwright.transcript.transcript import Transcript, reading
from turnwright_states.facts import CallSettled, CallWaiting, Fact, ModelReplied
from turnwright_states.state import FINAL

from .event_bus import EventBus, EventQueue, Subscription
from .result import TurnResult
from .subturns import leased_calls

#: The events that follow from one fact each, and those that end a stream.
_OF_FACTS: Final = frozenset({FactEvent, TurnPausedEvent, TurnEndedEvent})
_LAST: Final = frozenset({TurnPausedEvent, TurnEndedEvent})
#: Seconds without a driver after which a warning is logged.
_PATIENCE: Final = 5.0

_LOG = logging.getLogger(__name__)


async def follow(  # noqa: C901 (one loop, which reads in the order of the events)
    store: Store,
    hub: EventBus,
    turn_id: str,
    *,
    after: int,
    is_driven_here: Callable[[], bool],
    poll_interval: float,
    here: bool = True,
    clock: Callable[[], float] = time.monotonic,
    is_expected: Callable[[], bool] = lambda: False,
    is_due: Callable[[], Awaitable[bool]] | None = None,
    subagents: Mapping[str, int] | None = None,
    subscription: Subscription | None = None,
) -> AsyncGenerator[StreamEvent, None]:
    """Yield every event of a turn with a `seq` above `after`, until it ends, pauses, or nobody drives it.

    `is_expected` says that this process is about to drive it, `is_due` that some process will, as after an answer. Then
    its events are awaited without a driver. With `here=False` only other processes will drive it.

    `subscription` receives the turn's events since before the first one is requested. So none of their texts is lost.

    With `subagents`, the events of its sub-agents' turns come before those that follow from them: of each turn those
    with a seq above the number that it has there, or all.

    The journal of a turn that another process drives is read when the store reports a change, or every `poll_interval`
    seconds, each fact once. A warning is logged if an awaited turn has no driver for some seconds, by `clock`. Raises
    `TurnNotFoundError`.
    """
    journals = _Journals(store, subagents)
    journal = journals.of(turn_id, after)
    undriven = _Undriven(turn_id, clock)
    async with store.watching(turn_id) as wait_for_change:
        while True:
            event_feed = subscription or hub.follow(turn_id, subagents=subagents is not None)
            subscription = None
            with event_feed as queue:
                is_driven, expects_driver = await _look(store, turn_id, is_driven_here, is_expected, is_due)
                grew = rests = False
                async for event in journal.read_growth(partial(_last_seq_before, queue)):
                    grew = True
                    if event.turn == turn_id:
                        rests = isinstance(event, TurnPausedEvent) and not expects_driver
                    yield event
                if journal.has_ended:
                    return
                is_late = bool(queue.unread)  # the turn continued between the subscription and this read
                if not is_late and not is_driven and (rests or not expects_driver):
                    if rests or not grew:
                        return
                    continue  # it continued after the question: read what followed
                undriven.look(driven=is_driven or is_driven_here())
                comes_here = is_late or is_driven_here() or (here and not is_driven)
                if not comes_here and not await _wait(partial(wait_for_change, poll_interval), queue, is_driven_here):
                    continue
                async with aclosing(_live(queue, journals)) as live:
                    async for event in live:
                        yield event
                        if event.turn != turn_id or type(event) not in _LAST:
                            continue
                        if not is_late or type(event) is TurnEndedEvent:
                            return


async def read_events(
    store: Store, turn_id: str, *, after: int, subagents: Mapping[str, int] | None = None
) -> list[StreamEvent]:
    """Return what `follow` yields of the journal as it is now. Raises `TurnNotFoundError`."""
    journal = _Journals(store, subagents).of(turn_id, after)
    return [event async for event in journal.read_growth(lambda _: math.inf)]


async def _look(
    store: Store,
    turn_id: str,
    is_driven_here: Callable[[], bool],
    is_expected: Callable[[], bool],
    is_due: Callable[[], Awaitable[bool]] | None,
) -> tuple[bool, bool]:
    """Return whether a turn is driven, and whether it is or will be."""
    # In this order: an expected turn becomes a driven one, and before its release its driver writes the facts that are
    # read last. So none of them is missed, and a pause that was answered is not the last. Of a turn that is driven here
    # the store is not asked: its driver publishes what comes.
    if is_driven_here():
        return True, True
    expects_driver = is_expected() or (is_due is not None and await is_due())
    return await store.is_driven(turn_id), expects_driver


class _Undriven:
    """A single warning about an awaited turn without a driver."""

    def __init__(self, turn_id: str, clock: Callable[[], float]) -> None:
        self._turn_id = turn_id
        self._clock = clock
        self._since: float | None = None
        self._warned = False

    def look(self, *, driven: bool) -> None:
        """Note whether the turn is driven now."""
        now = self._clock()
        if driven or self._since is None:
            self._since = now
        elif not self._warned and now - self._since >= _PATIENCE:
            self._warned = True
            _LOG.warning(
                "turn %s has had no worker for %g s: start one (`engine.run_worker()`, or"
                " `turnwright worker`) on the same store, with the agent's tools and model",
                self._turn_id,
                _PATIENCE,
                extra={"turn": self._turn_id},
            )


async def _wait(change: Callable[[], Awaitable[None]], queue: EventQueue, is_driven_here: Callable[[], bool]) -> bool:
    """Wait for `change`, a change in the store, or until a driver of this process has the turn.

    Returns whether it has the turn, or has published something of it.
    """

    async def wait_for_driver() -> None:
        while not is_driven_here() and not queue.unread and not queue.is_closed:
            await queue.wait()
        scope.cancel()

    with anyio.CancelScope() as scope:
        async with background_task(wait_for_driver):
            await change()
    return is_driven_here() or bool(queue.unread)


def _last_seq_before(queue: EventQueue, turn_id: str) -> float:
    """Return the last fact of a turn before the events of it that wait; infinity if none waits."""
    return next((_seq_before(event) for event in queue.unread if event.turn == turn_id), math.inf)


def _seq_before(event: StreamEvent) -> int:
    """Return the last fact of the event's turn before the event. A piece of a text has the number of that fact."""
    return event.seq - (type(event) in _OF_FACTS)


async def _live(queue: EventQueue, journals: "_Journals") -> AsyncGenerator[StreamEvent, None]:
    """Yield the live events of turns driven here, whose journals were read."""
    journal = None
    async for event in queue:
        if journal is None or journal.turn_id != event.turn:
            journal = journals.of(event.turn)
        is_fact = type(event) in _OF_FACTS
        if event.seq - is_fact > journal.last_seq:
            # Another process drove the turn between that read and this driver's claim. Its events end before this one.
            queue.unread.appendleft(event)
            async for late_event in journal.read_growth(partial(_last_seq_before, queue)):
                yield late_event
            queue.unread.popleft()
        if event.seq > journal.last_seq:
            journal.last_seq = event.seq
            yield event
        elif not is_fact:
            yield event


async def wait_until_idle(
    events: AsyncIterator[StreamEvent], turn_id: str, after: int, current_result: Callable[[str], Awaitable[TurnResult]]
) -> AsyncGenerator[StreamEvent, None]:
    """Yield the events after the fact `after`, and finally a pause event if the turn is paused without one.

    Answers to some of the open interrupts add facts but no second pause, and a follower must learn what is still open.
    """
    seq, rests = after, False
    async for event in events:
        yield event
        if event.turn == turn_id:
            seq, rests = event.seq, isinstance(event, TurnPausedEvent | TurnEndedEvent)
    if not rests:
        turn = await current_result(turn_id)
        if turn.paused:
            yield TurnPausedEvent(turn=turn_id, seq=seq, interrupts=turn.interrupts)


class _Journals:
    """The journals of a turn and of its sub-agents' turns. `last_seqs` has the last known facts of the latter."""

    def __init__(self, store: Store, last_seqs: Mapping[str, int] | None) -> None:
        self._store = store
        self._last_seqs = last_seqs
        self._journals: dict[str, _Journal] = {}

    def of(self, turn_id: str, after: int = 0) -> "_Journal":
        """Return the journal of a turn, which is passed on from its fact `after` on."""
        journal = self._journals.get(turn_id)
        if journal is None:
            last_seq = after if self._last_seqs is None else self._last_seqs.get(turn_id, after)
            below = None if self._last_seqs is None else self
            journal = self._journals[turn_id] = _Journal(self._store, turn_id, last_seq, below)
        return journal


class _Journal:
    """A turn's journal, folded as far as it was read. Its events were passed on up to the fact `last_seq`.

    `below` has the journals of its sub-agents' turns, if they are followed.
    """

    def __init__(self, store: Store, turn_id: str, last_seq: int, below: _Journals | None) -> None:
        self._store = store
        self.turn_id = turn_id
        #: The last fact that was read, and those that were read and wait for their pieces.
        self._read_seq = 0
        self._facts: deque[tuple[int, Fact]] = deque()
        #: The last fact of the transcript.
        self._seq = 0
        self._transcript = Transcript()
        self._below = below
        #: The journals of open calls of sub-agents, by call.
        self._open: dict[str, _Journal] = {}
        self.last_seq = last_seq
        from .held_events import HeldEvents  # noqa: PLC0415 (many programs follow no journal)

        self._held_events = HeldEvents()

    @property
    def has_ended(self) -> bool:
        """Whether the turn has ended, as far as its journal was read."""
        return self._transcript.turn.state in FINAL

    async def read_growth(self, bound: Callable[[str], float]) -> AsyncIterator[StreamEvent]:
        """Yield the events that were written since the last call, without those that were passed on.

        `bound` returns the last fact of a turn that is wanted: what follows will come live, with the pieces of texts.
        The verdict on a reply that was read is read too.
        """
        self._facts.extend(await self._store.facts(self.turn_id, self._read_seq))
        self._read_seq = self._facts[-1][0] if self._facts else self._read_seq
        last = bound(self.turn_id)  # after the read: of facts that were published since, the pieces came before
        while self._facts and (self._facts[0][0] <= last or self._held_events.reviews):
            seq, fact = self._facts.popleft()
            with reading(self.turn_id):
                self._transcript.turn.apply(fact)
                self._transcript.add(seq, fact)
                self._seq = seq
                # Facts that were followed live decide too about a reply that is kept back since an earlier read.
                events = self._held_events.take(event_of(self.turn_id, seq, fact, self._transcript))
            if self._below is not None:
                async for event in self._follow_calls(fact, self._below, bound):
                    yield event
            for event in events:
                if event.seq > self.last_seq:
                    self.last_seq = event.seq
                    yield event
        for journal in [*self._open.values()]:
            async for event in _below(journal, bound):
                yield event

    async def _follow_calls(
        self, fact: Fact, below: _Journals, bound: Callable[[str], float]
    ) -> AsyncIterator[StreamEvent]:
        """Yield the events of a sub-agent's turn that came before the result or the question of its call."""
        if isinstance(fact, ModelReplied):
            for call in leased_calls([fact]):
                self._open[call] = below.of(child_id(self.turn_id, call))
        elif isinstance(fact, CallSettled | CallWaiting) and fact.call in self._open:
            if self._seq > self.last_seq:
                async for event in _below(self._open[fact.call], bound):
                    yield event
            if isinstance(fact, CallSettled):
                del self._open[fact.call]


async def _below(journal: _Journal, bound: Callable[[str], float]) -> AsyncIterator[StreamEvent]:
    """Yield the new events of a sub-agent's turn, which may not have begun."""
    with suppress(TurnNotFoundError):
        async for event in journal.read_growth(bound):
            yield event
