"""One turn as its store has it: the source of every tab of its page."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.to_thread

from turnwright.errors import StoreError, UnreadableTurnError
from turnwright.journal.message_history import messages_before
from turnwright.journal.result import TurnResult, result_of
from turnwright.journal.subturns import sub_turns
from turnwright.journal.turn_journal import first_fact
from turnwright.message import Message
from turnwright.runtime.engine import Engine
from turnwright.store import Annotation, AnnotationStore, ClaimSpan, InboxItem, Store, TurnRow
from turnwright.transcript.transcript import reading
from turnwright_states import facts as f
from turnwright_states.replay import Replayed, replay
from turnwright_states.verdict import Verdict

from .steps import Step, SubAgent, steps_of

Journal = Sequence[tuple[int, f.Fact]]

#: How many turns are kept, and at how many places each.
_TURNS: Final = 8
_PLACES: Final = 4

#: The history of a turn without one.
_NOTHING: Final[tuple[Message, ...]] = ()


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """A turn in its state after the fact `at`.

    `facts` and `steps` go as far as that; `journal` has every fact, and `replayed` is what a replay made of them all.
    `claim_spans` say which driver wrote what. `driven`: somebody drives it now. `inbox` is what still waits there.
    `children` are the sub-agents' turns, by the call that they belong to.
    """

    row: TurnRow
    at: int
    journal: Journal
    started: f.TurnStarted
    replayed: Replayed
    claim_spans: tuple[ClaimSpan, ...]
    driven: bool
    inbox: tuple[InboxItem, ...]
    children: dict[str, TurnRow]
    result: TurnResult
    steps: tuple[Step, ...]

    @property
    def facts(self) -> Journal:
        return self.journal[: self.at]

    @property
    def length(self) -> int:
        return len(self.journal)

    @property
    def cut(self) -> bool:
        """Whether the shown state is an earlier one."""
        return self.at < self.length

    @property
    def places(self) -> tuple[int, ...]:
        """The facts after which the turn can be shown: the last of each event."""
        return _places(self.replayed, self.length)

    @property
    def fault(self) -> str:
        """The journal's fault; empty if each fact follows from those before."""
        check = self.replayed.check
        return "" if check.verdict is Verdict.HOLDS else check.detail

    @property
    def has_standing_approvals(self) -> bool:
        """Whether an approval of this turn covers equal calls, or one of its session covered a call of this turn."""
        return any(
            (isinstance(fact, f.Answered) and fact.always)
            or (isinstance(fact, f.CallStarted) and any("approval" in decision for decision in fact.decisions))
            for _, fact in self.facts
        )

    def step(self, key: str | None) -> Step | None:
        return next((step for step in self.steps if step.key == key), None)

    def step_of(self, call: str) -> Step | None:
        """Return the step that made a call, by the call's id."""
        return next((step for step in self.steps if step.call(call)), None)


async def read_turn(store: Store, turn_id: str, at: int | None = None) -> TurnRecord:
    return await Turns(store).read(turn_id, at)


@dataclass(frozen=True, slots=True)
class _Standing:
    """The state of a turn at a place of its journal."""

    at: int
    result: TurnResult
    steps: tuple[Step, ...]


@dataclass(slots=True)
class _CachedTurn:
    """A cached turn: its facts, their replay, and its state at the last shown places.

    `creation` says which turn it is: an id can be used again.
    """

    creation: tuple[int, float]
    journal: Journal = ()
    replayed: Replayed | None = None
    standings: OrderedDict[int, _Standing] = field(default_factory=OrderedDict)
    reading: anyio.Lock = field(default_factory=anyio.Lock)


class Turns:
    """Reads turns of a store. What it has read of the last few is kept: a journal only grows.

    Of those, facts that are known are not read again, and a replay is made where there are new ones.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cached: OrderedDict[str, _CachedTurn] = OrderedDict()

    async def read(self, turn_id: str, at: int | None = None) -> TurnRecord:
        """Read a turn in its state after the fact `at`, or at the nearest place before it.

        Raises `TurnNotFoundError`, and `StoreError` for a journal that cannot be read.
        """
        store, row = self._store, await self._store.get(turn_id)
        cache_entry = self._of(row)
        # Of several who look at one turn, one reads it.
        async with cache_entry.reading:
            new = await store.facts(turn_id, len(cache_entry.journal))
            if new or cache_entry.replayed is None:
                journal = (*cache_entry.journal, *new)
                cache_entry.replayed = await anyio.to_thread.run_sync(replay, journal)
                cache_entry.journal = journal
                cache_entry.standings.clear()
            facts, replay_result = cache_entry.journal, cache_entry.replayed
            turn_start = first_fact(turn_id, facts)
            places = _places(replay_result, len(facts))
            place = max((candidate for candidate in places if at is None or candidate <= at), default=places[0])
            if place not in cache_entry.standings:
                cache_entry.standings[place] = await anyio.to_thread.run_sync(
                    _find_standing, turn_id, facts, replay_result, place
                )
            standing = cache_entry.standings[place]
            while len(cache_entry.standings) > _PLACES:
                cache_entry.standings.popitem(last=False)
        return TurnRecord(
            row=row,
            at=standing.at,
            journal=facts,
            started=turn_start,
            replayed=replay_result,
            claim_spans=tuple(await store.claim_spans(turn_id)),
            driven=await store.is_driven(turn_id),
            inbox=tuple(await store.inbox(turn_id)),
            children=await sub_turns(store, turn_id, facts),
            result=standing.result,
            steps=standing.steps,
        )

    def _of(self, row: TurnRow) -> _CachedTurn:
        creation, cache_entry = (row.number, row.created_at), self._cached.get(row.id)
        if cache_entry is None or cache_entry.creation != creation:
            cache_entry = self._cached[row.id] = _CachedTurn(creation)
        self._cached.move_to_end(row.id)
        while len(self._cached) > _TURNS:
            self._cached.popitem(last=False)
        return cache_entry


def _find_standing(turn_id: str, facts: Journal, replay_result: Replayed, place: int) -> _Standing:
    try:
        result = result_of(turn_id, facts[:place])
    except UnreadableTurnError as error:  # somebody changed the journal, so that not even a fold can go on
        if not replay_result.groups:
            raise UnreadableTurnError(turn_id, f"its journal cannot be read: {replay_result.check.detail}") from error
        place = replay_result.groups[-1].last
        result = result_of(turn_id, facts[:place])
    with reading(turn_id):
        steps = steps_of(facts[:place], [group for group in replay_result.groups if group.last <= place])
    return _Standing(place, result, steps)


async def history_of(store: Store, turn: TurnRecord) -> Sequence[Message]:
    """Return the messages before the turn, as its model received them; none if they cannot be read."""
    with suppress(StoreError):
        return await messages_before(store, turn.row.id, turn.started)
    return _NOTHING


async def annotations_of(store: Store, turn_id: str) -> tuple[Annotation, ...] | None:
    """Return the tags, notes and scores of a turn; None if the store keeps none."""
    return tuple(await store.annotations([turn_id])) if isinstance(store, AnnotationStore) else None


def _places(replay_result: Replayed, length: int) -> tuple[int, ...]:
    ends = [group.last for group in replay_result.groups]
    return tuple(ends) if ends and ends[-1] == length else (*ends, length)


@dataclass(frozen=True, slots=True)
class TabContext:
    """A turn, and its chosen step; None for the whole turn.

    `store` is the address of the store as commands take it, without a password. `history` is what was said before, for
    a tab that asks for it. `until` is where what a tab shows of many rows ends; None leaves it to the tab.
    `full_chart`: the chart is shown with every row, not only with those that the turn takes. `state` is the name of a
    state whose facts are shown; empty for none. `zoom` is a part of the turn's time, and `below` has the turns of
    sub-agents, by call, for a tab that asks for them.
    """

    engine: Engine
    turn: TurnRecord
    step: Step | None
    store: str
    history: Sequence[Message]
    until: int | None = None
    full_chart: bool = False
    state: str = ""
    zoom: str = ""
    below: Mapping[str, SubAgent] = field(default_factory=dict)
