"""Follows one turn: first what its journal has, then what happens, wherever the turn is driven."""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from turnwright.events import FactEvent, TurnEndedEvent, TurnEvent, TurnPausedEvent, event_of
from turnwright.result import TurnResult
from turnwright.store import Store
from turnwright.transcript.transcript import Transcript, reading

from .event_bus import EventBus

#: Seconds without a driver after which whoever waits for a turn is told that no worker runs.
_PATIENCE: Final = 5.0

_LOG = logging.getLogger(__name__)


async def follow(
    store: Store,
    hub: EventBus,
    turn_id: str,
    *,
    after: int,
    is_driven_here: Callable[[], bool],
    poll: float,
    here: bool = True,
    clock: Callable[[], float] = time.monotonic,
    is_expected: Callable[[], bool] = lambda: False,
    is_due: Callable[[], Awaitable[bool]] | None = None,
) -> AsyncIterator[TurnEvent]:
    """Every event of a turn whose `seq` is above `after`, until it halts, pauses, or nobody drives it.

    `is_expected` says that it is about to be driven, and `is_due` that somebody will drive it, as after an answer: then
    its events are waited for, though nobody drives it yet; without `here` it is another process that will. The journal
    of a turn that another process drives is read when the store says that something was written, or every
    `poll_interval` seconds, each fact of it once. A warning says when nobody has driven a turn for some seconds, by
    `clock`, that is waited for. Raises `TurnNotFoundError`.
    """
    journal, seq = _Journal(store, turn_id), after
    undriven = _Undriven(turn_id, clock)
    async with store.watching(turn_id) as changed:
        while True:
            with hub.follow(turn_id) as followed:
                # Asked before the journal is read: what a driver writes before it lets go is then in it.
                driven = await store.is_driven(turn_id)
                expected = is_expected() or (is_due is not None and await is_due())
                before, rests = seq, False
                for event in await journal.grown(seq):
                    seq, rests = event.seq, isinstance(event, TurnPausedEvent | TurnEndedEvent)
                    yield event
                if rests and is_due is not None:
                    rests = not await is_due()
                if not driven and (rests or not expected):
                    if rests or seq == before:
                        return
                    continue  # it went on after it was asked whether it does: what came of that is looked for
                undriven.look(driven=driven or is_driven_here())
                if not is_driven_here() and (driven or not here):
                    await changed(poll)
                    continue
                async for event in _live(followed, journal, seq):
                    seq = max(seq, event.seq)
                    yield event
                    if isinstance(event, TurnPausedEvent | TurnEndedEvent):
                        return


class _Undriven:
    """Warns once of a turn that is waited for and that nobody drives."""

    def __init__(self, turn_id: str, clock: Callable[[], float]) -> None:
        self._turn_id = turn_id
        self._clock = clock
        self._since: float | None = None
        self._warned = False

    def look(self, *, driven: bool) -> None:
        """Take in whether somebody drives the turn now."""
        now = self._clock()
        if driven or self._since is None:
            self._since = now
        elif not self._warned and now - self._since >= _PATIENCE:
            self._warned = True
            _LOG.warning(
                "turn %s is waited for, and no worker has taken it up for %g s: start one (`engine.run_worker()`, or"
                " `turnwright worker`) on the same store, with the agent's tools and model",
                self._turn_id,
                _PATIENCE,
                extra={"turn": self._turn_id},
            )


async def _live(followed: AsyncIterator[TurnEvent], journal: "_Journal", seq: int) -> AsyncIterator[TurnEvent]:
    """What happens from now on to a turn whose journal was read up to `seq`, as long as it is driven here."""
    async for event in followed:
        is_fact = isinstance(event, FactEvent | TurnPausedEvent | TurnEndedEvent)
        if event.seq - is_fact > seq:
            # Another process drove the turn after its journal was read, and before this one took it over.
            for missed in await journal.grown(seq):
                seq = missed.seq
                yield missed
        if event.seq > seq or not is_fact:
            seq = max(seq, event.seq)
            yield event


async def wait_until_idle(
    events: AsyncIterator[TurnEvent], turn_id: str, after: int, stands: Callable[[str], Awaitable[TurnResult]]
) -> AsyncIterator[TurnEvent]:
    """The events, which begin after the fact `after`; and, if the turn rests behind the last, what it waits for.

    Answers to a part of what is asked add facts, but no second pause: who follows would not hear what is still open.
    """
    last: TurnEvent | None = None
    async for last in events:
        yield last
    if not isinstance(last, TurnPausedEvent | TurnEndedEvent):
        turn = await stands(turn_id)
        if turn.paused:
            yield TurnPausedEvent(turn=turn_id, seq=last.seq if last is not None else after, interrupts=turn.interrupts)


class _Journal:
    """A turn's journal, folded as far as it was read."""

    def __init__(self, store: Store, turn_id: str) -> None:
        self._store = store
        self._turn_id = turn_id
        self._seq = 0
        self._transcript = Transcript()

    async def grown(self, after: int) -> list[TurnEvent]:
        """The events of what was written since the last time, without those up to `after`."""
        events: list[TurnEvent] = []
        for seq, fact in await self._store.facts(self._turn_id, self._seq):
            with reading(self._turn_id):
                self._transcript.turn.apply(fact)
                self._transcript.add(seq, fact)
                self._seq = seq
                if seq > after:
                    events.append(event_of(self._turn_id, seq, fact, self._transcript))
        return events
