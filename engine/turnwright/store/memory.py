"""The in-memory store, for tests and for turns that end with their process."""

import time
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, islice
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from turnwright.errors import (
    ConfigError,
    LeaseLostError,
    SessionBusyError,
    SessionNotFoundError,
    StoreError,
    TurnBusyError,
    TurnExistsError,
    TurnNotFoundError,
)
from turnwright_states.facts import Fact
from turnwright_states.state import FINAL, State

from .outbox import NoticeCounts, NoticeRow, noticed_facts
from .protocol import (
    NOBODY,
    NONE_ABANDONED,
    RESUMING_KINDS,
    AbandonedDrivers,
    Changed,
    Claim,
    ClaimSpan,
    DueTurn,
    InboxItem,
    InboxKind,
    NewTurn,
    Status,
    TurnRow,
    addressee,
    conflicting_items,
    poll_for_changes,
)
from .sessions import SessionInfo

if TYPE_CHECKING:
    from .annotations import Annotation, AnnotationKind

#: The states in which nothing is due without a request.
_RESTS: Final = FINAL | {State.PAUSED}


@dataclass(slots=True)
class _StoredTurn:
    new: NewTurn
    number: int
    facts: list[Fact]
    #: The number of facts.
    seq: int
    status: Status
    updated_at: float
    #: The last span is still open: it ends at `written_at`.
    spans: list[ClaimSpan]
    #: The time of the last fact.
    written_at: float
    owner: str | None
    epoch: int = 1
    inbox: dict[str, InboxItem] = field(default_factory=dict)

    @property
    def row(self) -> TurnRow:
        """The turn as a query shows it, built per query and not per append."""
        new = self.new
        return TurnRow(
            id=new.id,
            session=new.session,
            agent=new.agent,
            model=new.model,
            created_at=new.created_at,
            updated_at=self.updated_at,
            epoch=self.epoch,
            owner=self.owner,
            status=self.status.of_epoch(self.epoch),
            number=self.number,
        )

    @property
    def claim_spans(self) -> list[ClaimSpan]:
        """The spans of the facts so far. A turn is created with facts, so there is at least one."""
        *past_spans, last = self.spans
        return [*past_spans, ClaimSpan(last.first, last.epoch, last.owner, last.began, self.written_at)]


class MemoryStore:
    """Keeps turns in this process, for one event loop. Its methods are described at `Store`.

    An engine acts at once on requests that are made through it. Requests of another engine on the same store, such as
    an abort, are read between two actions, because nothing polls this store.
    """

    shared = False
    owner = "memory"

    def __init__(self) -> None:
        store_type = type(self)
        #: A subclass that overrides these methods may suspend in them.
        self.inline = store_type.append is MemoryStore.append and store_type.inbox is MemoryStore.inbox
        #: In the order in which they were made.
        self._turns: dict[str, _StoredTurn] = {}
        #: The root turns that may be due: neither ended nor paused, or with an inbox, or expired.
        self._awake_roots: dict[str, _StoredTurn] = {}
        #: When the paused root turns expire, in a heap. A turn that is resumed before leaves its entry.
        self._alarms: list[tuple[float, str]] = []
        self._by_session: dict[str, dict[str, _StoredTurn]] = {}
        #: The title of each session and the number of its last turn, the last one created last.
        self._sessions: dict[str, tuple[str, int]] = {}
        self._numbers = count(1)
        self._driven: set[str] = set()
        self._annotations: dict[str, dict[tuple[AnnotationKind, str], Annotation]] = {}
        self._subscriptions: set[str] = set()
        #: The notices by their ids, the oldest first.
        self._notices: dict[str, NoticeRow] = {}

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status, *, driven: bool = True) -> Claim:
        if new.id in self._turns:
            raise TurnExistsError(new.id)
        if new.session is not None:
            for row in await self.turns(session=new.session, live=True):
                raise SessionBusyError(new.session, row.id)
        at = new.created_at
        spans = [ClaimSpan(1, int(driven), self.owner, at, at)]
        turn = _StoredTurn(new, next(self._numbers), list(facts), len(facts), status, at, spans, at, self.owner)
        self._turns[new.id] = turn
        self._place(turn)
        self._notify(new.id, facts, 0, at)
        if new.session is not None:
            title, _ = self._sessions.pop(new.session, (new.title, 0))
            self._sessions[new.session] = (title, turn.number)
            self._by_session.setdefault(new.session, {})[new.id] = turn
        if driven:
            self._driven.add(new.id)
        else:
            turn.epoch, turn.owner = 0, None
        return Claim(turn=new.id, epoch=turn.epoch, seq=len(facts))

    async def claim(self, turn_id: str, *, abandoned: AbandonedDrivers = NONE_ABANDONED) -> Claim:
        turn = self._find_turn(turn_id)
        if turn_id in self._driven and not abandoned.covers(turn.owner or NOBODY, turn.epoch):
            raise TurnBusyError(turn_id, "this process")
        has_crashed = turn.owner is not None
        turn.epoch, turn.owner = turn.epoch + 1, self.owner
        self._driven.add(turn_id)
        waiting = list(turn.inbox.values())
        return Claim(turn_id, turn.epoch, turn.seq, crashed=has_crashed, unrecorded_owner=self.owner, waiting=waiting)

    async def release(self, claim: Claim, *, crashed: bool = False) -> None:
        turn = self._turns.get(claim.turn)
        if turn is not None and turn.epoch == claim.epoch:
            turn.owner = NOBODY if crashed else None
            self._driven.discard(claim.turn)

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        turn = self._turns.get(claim.turn)
        if turn is None or turn.epoch != claim.epoch:
            raise LeaseLostError(claim.turn, claim.epoch)
        now = time.time()
        if facts:
            if claim.seq != turn.seq:
                raise StoreError(f"turn {claim.turn}: fact {claim.seq + 1} does not follow the last one, {turn.seq}")
            if claim.unrecorded_owner is not None:
                turn.spans = [
                    *turn.claim_spans,
                    ClaimSpan(claim.seq + 1, claim.epoch, claim.unrecorded_owner, now, now),
                ]
                claim.unrecorded_owner = None
            turn.written_at = now
            if self._subscriptions:
                self._notify(claim.turn, facts, claim.seq, now)
            turn.facts += facts
            turn.seq = claim.seq = claim.seq + len(facts)
        before, turn.status = turn.status.state, status
        turn.updated_at = now
        for item in consumed:
            turn.inbox.pop(item, None)
        if status.state in _RESTS or before in _RESTS or consumed:
            self._place(turn)
        return list(turn.inbox.values()) if turn.inbox else []

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        return list(enumerate(self._find_turn(turn_id).facts[after:], start=after + 1))

    async def claim_spans(self, turn_id: str) -> list[ClaimSpan]:
        return self._find_turn(turn_id).claim_spans

    async def get(self, turn_id: str) -> TurnRow:
        return self._find_turn(turn_id).row

    def has(self, turn_id: str) -> bool:
        return turn_id in self._turns

    async def turns(
        self,
        *,
        session: str | None = None,
        live: bool | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[TurnRow]:
        turns = self._turns if session is None else self._by_session.get(session, {})
        newest = reversed(turns.values())
        if session is not None and live:
            newest = islice(newest, 1)  # the others have ended: else this one could not have been created
        rows = (
            turn.row
            for turn in newest
            if (live is None or live is (turn.status.outcome is None)) and (before is None or turn.number < before)
        )
        return list(islice(rows, limit))

    async def sessions(self, *, limit: int | None = None, before: int | None = None) -> list[SessionInfo]:
        infos = (
            self._session(session, title, number)
            for session, (title, number) in reversed(self._sessions.items())
            if before is None or number < before
        )
        return list(islice(infos, limit))

    def _session(self, session: str, title: str, number: int) -> SessionInfo:
        turns = self._by_session[session]
        first, last = next(iter(turns.values())), next(reversed(turns.values()))
        return SessionInfo(
            id=session,
            title=title,
            turns=len(turns),
            created_at=first.new.created_at,
            updated_at=last.updated_at,
            open_turn=last.new.id if last.status.outcome is None else None,
            number=number,
        )

    async def set_title(self, session: str, title: str) -> None:
        if session not in self._sessions:
            raise SessionNotFoundError(session)
        self._sessions[session] = (title, self._sessions[session][1])

    async def delete_session(self, session: str) -> int:
        if session not in self._sessions:
            raise SessionNotFoundError(session)
        return self._delete([*self._by_session[session]])

    async def is_driven(self, turn_id: str) -> bool:
        self._find_turn(turn_id)
        return turn_id in self._driven

    async def post(self, *items: InboxItem) -> tuple[InboxItem, ...]:
        if not items:
            return ()
        turn = self._find_turn(addressee(items))
        inbox = turn.inbox
        blocking = conflicting_items(inbox.values(), items)
        if not blocking:
            inbox.update((item.id, item) for item in items)
            self._place(turn)
        return blocking

    async def inbox(self, turn_id: str) -> list[InboxItem]:
        turn = self._turns.get(turn_id)
        return list(turn.inbox.values()) if turn is not None and turn.inbox else []

    async def requests(self, *kinds: InboxKind) -> list[InboxItem]:
        waiting = (item for turn in self._turns.values() for item in turn.inbox.values())
        return [item for item in waiting if item.kind in kinds]

    async def due(
        self,
        now: float,
        *,
        limit: int | None = None,
        idle: float = 0.0,
        skipped: Collection[str] = (),
        claim: bool = False,
    ) -> list[DueTurn]:
        while self._alarms and self._alarms[0][0] <= now:
            _, name = heappop(self._alarms)
            if name in self._turns and self._turns[name].status.state not in FINAL:
                self._awake_roots[name] = self._turns[name]
        turns = sorted(self._awake_roots.values(), key=lambda turn: turn.number)
        due_turns = (turn for turn in turns if self._is_due(turn, now, idle, skipped))
        rows = [turn.row for turn in islice(due_turns, limit)]
        return [DueTurn(row, await self.claim(row.id) if claim else None) for row in rows]

    def _place(self, turn: _StoredTurn) -> None:
        """Keep a root turn among those that may be due, or set its alarm: a sweep reads no turn that only waits."""
        name, due_at = turn.new.id, turn.status.due_at
        if ":" in name:
            return
        if turn.status.state not in FINAL and (due_at == 0 or _is_requested(turn)):
            self._awake_roots[name] = turn
            return
        self._awake_roots.pop(name, None)
        if due_at is not None:
            heappush(self._alarms, (due_at, name))

    def _is_due(self, turn: _StoredTurn, now: float, idle: float, skipped: Collection[str]) -> bool:
        if turn.new.id in self._driven or turn.new.id in skipped or (idle and turn.updated_at > now - idle):
            return False
        if _is_requested(turn):
            return True
        due_at = turn.status.due_at
        return due_at is not None and due_at <= now

    def watching(self, turn_id: str) -> AbstractAsyncContextManager[Changed]:
        return poll_for_changes(turn_id)

    async def delete(self, turn_id: str) -> int:
        self._find_turn(turn_id)
        return self._delete([turn_id])

    def _notify(self, turn_id: str, facts: Sequence[Fact], seq: int, at: float) -> None:
        """Write a notice of each of these facts for each subscription."""
        for place, kind in noticed_facts(turn_id, facts, seq) if self._subscriptions else ():
            for name in sorted(self._subscriptions):
                notice = NoticeRow(name, turn_id, place, kind, at)
                self._notices[notice.id] = notice

    async def subscribe(self, names: Collection[str]) -> None:
        """See `OutboxStore.subscribe`."""
        self._subscriptions |= set(names)

    async def unsubscribe(self, name: str) -> bool:
        """See `OutboxStore.unsubscribe`."""
        self._notices = {key: notice for key, notice in self._notices.items() if notice.name != name}
        is_subscribed = name in self._subscriptions
        self._subscriptions.discard(name)
        return is_subscribed

    async def lease_notices(self, names: Collection[str], now: float, until: float, limit: int) -> list[NoticeRow]:
        """See `OutboxStore.lease_notices`."""
        due_notices = [
            notice
            for notice in self._notices.values()
            if notice.name in names and notice.next_at is not None and notice.next_at <= now
        ]
        due_notices = sorted(due_notices, key=lambda notice: notice.next_at or 0.0)[:limit]
        self._notices |= {notice.id: replace(notice, next_at=until) for notice in due_notices}
        return due_notices

    async def delivered(self, notice: NoticeRow) -> None:
        """See `OutboxStore.delivered`."""
        self._notices.pop(notice.id, None)

    async def failed(self, notice: NoticeRow, error: str, next_at: float | None) -> None:
        """See `OutboxStore.failed`."""
        if notice.id in self._notices:
            self._notices[notice.id] = replace(notice, tries=notice.tries + 1, next_at=next_at, error=error)

    async def notices(self) -> list[NoticeRow]:
        """See `OutboxStore.notices`."""
        return list(self._notices.values())

    async def count_notices(self) -> NoticeCounts:
        """See `OutboxStore.count_notices`."""
        failed_count = sum(notice.next_at is None for notice in self._notices.values())
        return NoticeCounts(len(self._notices) - failed_count, failed_count)

    async def retry_notices(self) -> int:
        """See `OutboxStore.retry_notices`."""
        waiting = [notice for notice in self._notices.values() if notice.next_at != 0.0]
        self._notices |= {notice.id: replace(notice, tries=0, next_at=0.0) for notice in waiting}
        return len(waiting)

    async def annotate(self, *annotations: "Annotation") -> None:
        """See `AnnotationStore.annotate`."""
        for annotation in annotations:
            self._find_turn(annotation.turn)
        for annotation in annotations:
            self._annotations.setdefault(annotation.turn, {})[annotation.kind, annotation.name] = annotation

    async def unannotate(self, turn_id: str, kind: "AnnotationKind", name: str) -> bool:
        """See `AnnotationStore.unannotate`."""
        return self._annotations.get(turn_id, {}).pop((kind, name), None) is not None

    async def annotations(self, turn_ids: Sequence[str]) -> "list[Annotation]":
        """See `AnnotationStore.annotations`."""
        by_turn = (self._annotations.get(turn_id, {}).values() for turn_id in dict.fromkeys(turn_ids))
        return [
            entry
            for entries in by_turn
            for entry in sorted(entries, key=lambda entry: (entry.at, entry.kind, entry.name))
        ]

    async def migrate(self) -> tuple[int, int]:
        """See `Store.migrate`. There is only one version."""
        return (1, 1)

    async def aclose(self) -> None:
        self._driven.clear()

    def _delete(self, turn_ids: Sequence[str]) -> int:
        family = [name for name in self._turns if any(name == root or name.startswith(f"{root}:") for root in turn_ids)]
        for name in family:
            if name in self._driven:
                raise TurnBusyError(name, "this process")
        for name in family:
            self._annotations.pop(name, None)
            self._awake_roots.pop(name, None)
            self._notices = {key: notice for key, notice in self._notices.items() if notice.turn != name}
            session = self._turns.pop(name).new.session
            if session is not None:
                del self._by_session[session][name]
                if not self._by_session[session]:
                    del self._by_session[session], self._sessions[session]
        return len(family)

    def _find_turn(self, turn_id: str) -> _StoredTurn:
        if turn_id not in self._turns:
            raise TurnNotFoundError(turn_id)
        return self._turns[turn_id]


def _is_requested(turn: _StoredTurn) -> bool:
    """Whether an abort or an answer waits in the turn's inbox."""
    return bool(turn.inbox) and any(item.kind in RESUMING_KINDS for item in turn.inbox.values())


def open_memory(address: str, *, create: bool) -> MemoryStore:  # noqa: ARG001 (there is never a store to find)
    """Open a new store for `memory:`. Raises `ConfigError` if the address has more than the scheme."""
    if address not in ("memory:", "memory://"):
        raise ConfigError("store memory:...: nothing may follow: write memory:, or sqlite:///relative.db for a file")
    return MemoryStore()
