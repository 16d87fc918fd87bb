"""Follows one turn, wherever it is driven: first its journal, then its live events."""

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Final

from turnwright.events import FactEvent, TurnEndedEvent, TurnEvent, TurnPausedEvent, event_of
from turnwright.result import TurnResult
from turnwright.store import Store
from turnwright.transcript.reading import reading
from turnwright.transcript.transcript import Transcript

from .event_bus import EventBus

#: Seconds without a driver after which a warning is logged.
_PATIENCE: Final = 5.0

_LOG = logging.getLogger(__name__)


async def follow(
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
) -> AsyncIterator[TurnEvent]:
    """Yield every event of a turn with a `seq` above `after`, until it ends, pauses, or nobody drives it.

    `is_expected` says that this process is about to drive it, `is_due` that some process will, as after an answer. Then
    its events are awaited without a driver. With `here=False` only other processes will drive it.

    The journal of a turn that another process drives is read when the store reports a change, or every `poll_interval`
    seconds, each fact once. A warning is logged if an awaited turn has no driver for some seconds, by `clock`. Raises
    `TurnNotFoundError`.
    """
    journal, seq = _Journal(store, turn_id), after
    undriven = _Undriven(turn_id, clock)
    async with store.watching(turn_id) as changed:
        while True:
            with hub.follow(turn_id) as followed:
                # In this order: an expected turn becomes a driven one, and before its release its driver writes the
                # facts that are read last. So none of them is missed, and a pause that was answered is not the last.
                expected = is_expected() or (is_due is not None and await is_due())
                driven = await store.is_driven(turn_id)
                before, rests = seq, False
                for event in await journal.grown(seq):
                    seq = event.seq
                    rests = isinstance(event, TurnEndedEvent) or (isinstance(event, TurnPausedEvent) and not expected)
                    yield event
                if not driven and (rests or not expected):
                    if rests or seq == before:
                        return
                    continue  # it continued after the question: read what followed
                undriven.look(driven=driven or is_driven_here())
                if not is_driven_here() and (driven or not here):
                    await changed(poll_interval)
                    continue
                async with aclosing(_live(followed, journal, seq)) as live:
                    async for event in live:
                        seq = max(seq, event.seq)
                        yield event
                        if isinstance(event, TurnPausedEvent | TurnEndedEvent):
                            return


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


async def _live(followed: AsyncIterator[TurnEvent], journal: "_Journal", seq: int) -> AsyncGenerator[TurnEvent, None]:
    """Yield the live events of a turn driven here, whose journal was read up to `seq`."""
    async for event in followed:
        is_fact = isinstance(event, FactEvent | TurnPausedEvent | TurnEndedEvent)
        if event.seq - is_fact > seq:
            # Another process drove the turn between that read and this driver's claim.
            for missed in await journal.grown(seq):
                seq = missed.seq
                yield missed
        if event.seq > seq or not is_fact:
            seq = max(seq, event.seq)
            yield event


async def wait_until_idle(
    events: AsyncIterator[TurnEvent], turn_id: str, after: int, current_result: Callable[[str], Awaitable[TurnResult]]
) -> AsyncIterator[TurnEvent]:
    """Yield the events after the fact `after`, and finally a pause event if the turn is paused without one.

    Answers to some of the open interrupts add facts but no second pause, and a follower must learn what is still open.
    """
    last: TurnEvent | None = None
    async for last in events:
        yield last
    if not isinstance(last, TurnPausedEvent | TurnEndedEvent):
        turn = await current_result(turn_id)
        if turn.paused:
            yield TurnPausedEvent(turn=turn_id, seq=last.seq if last is not None else after, interrupts=turn.interrupts)


class _Journal:
    """A turn's journal, folded as far as it was read."""

    def __init__(self, store: Store, turn_id: str) -> None:
        self._store = store
        self._turn_id = turn_id
        self._seq = 0
        self._transcript = Transcript()
        from .held_events import HeldEvents  # noqa: PLC0415 (many programs follow no journal)

        self._held = HeldEvents()

    async def grown(self, after: int) -> list[TurnEvent]:
        """Return the events that were written since the last call, without those up to `after`."""
        events: list[TurnEvent] = []
        for seq, fact in await self._store.facts(self._turn_id, self._seq):
            with reading(self._turn_id):
                self._transcript.turn.apply(fact)
                self._transcript.add(seq, fact)
                self._seq = seq
                # Facts that were followed live decide too about a reply that is kept back since an earlier read.
                passed = self._held.take(event_of(self._turn_id, seq, fact, self._transcript))
                events += [event for event in passed if event.seq > after]
        return events
