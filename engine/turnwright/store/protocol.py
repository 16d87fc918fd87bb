"""The interface of a store (docs/rules.md#journal, docs/rules.md#leases).

A store keeps three things for each turn: its facts, append-only; one row with its epoch, its owner and a copy of its
status for queries; and one inbox, to which any process may write. A store decides nothing.

A driver claims a turn before it drives it. A claim raises the turn's epoch, and an append succeeds only under the
current epoch. A driver that lost the turn gets `LeaseLostError` and has written nothing.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

import anyio
from msgspec import Struct

from turnwright._base.ids import root_of
from turnwright.errors import StoreError, TurnBusyError, TurnNotFoundError, UnreadableTurnError
from turnwright_states import EndReason, Outcome, State, Turn
from turnwright_states.facts import Fact
from turnwright_states.state import FINAL

from .sessions import SessionInfo

#: Waits until something was written to a turn, at most for the given seconds.
Changed = Callable[[float], Awaitable[None]]

#: The owner of a turn that was released after a crash, which the next driver must still record.
NOBODY: Final = ""


class Queued(StrEnum):
    """The state of a submitted turn that has had no driver yet. The machine does not know this state."""

    QUEUED = "QUEUED"

    @property
    def outcome(self) -> None:
        """None: the turn has not ended."""
        return None


#: The state of a turn that waits for its first driver.
QUEUED: Final = Queued.QUEUED


class Status(Struct, frozen=True, gc=False):
    """A copy of a turn's state, for queries. It can be rebuilt from the facts, except `QUEUED`.

    Each append makes one. So it is a struct, which takes a tenth of the time of a frozen dataclass. `expires_at` is the
    time at which the first open interrupt of a paused turn expires, in seconds since the Unix epoch; None if none does.
    """

    state: State | Queued
    steps: int = 0
    tool_calls: int = 0
    reason: EndReason | None = None
    expires_at: float | None = None

    def of_epoch(self, epoch: int) -> "Status":
        """Return the status of a turn's row. Its epoch is 0 until the first driver claims it."""
        return self if epoch or self.outcome is not None else Status(QUEUED, self.steps, self.tool_calls)

    @property
    def outcome(self) -> Outcome | None:
        """The outcome, or None while the turn has not ended."""
        return self.state.outcome

    @property
    def due_at(self) -> float | None:
        """From when on driving the turn does anything without a request: 0 unless it is paused, None for never."""
        if self.state is State.PAUSED:
            return self.expires_at
        return None if self.state in FINAL else 0.0

    @classmethod
    def of(cls, turn: Turn) -> "Status":
        """Return the status of a folded turn."""
        expires_at = None
        if turn.state is State.PAUSED:
            expiries = (interrupt.expires_at for interrupt in turn.interrupts.values())
            expires_at = min((expiry for expiry in expiries if expiry is not None), default=None)
        return cls(turn.state, turn.steps_taken, turn.counters.calls, turn.reason, expires_at)


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A turn that is about to be created. The caller chooses `id`; `created_at` is in seconds since the Unix epoch.

    `title` becomes the title of its session, if it is the session's first turn.
    """

    id: str
    session: str | None
    agent: str
    model: str
    created_at: float
    title: str = ""


@dataclass(frozen=True, slots=True)
class TurnRow:
    """One turn, as a query shows it.

    `number` counts the turns of a store in the order of creation, independent of the clock. `owner` is None after a
    release, or `NOBODY` after a release with a crash that is not yet recorded. A driver that died is still the owner.
    `updated_at` is the time of the last fact, or of a later status in stores that keep it.

    `fault` says why the row cannot be read; it is empty for a sound row. Do not rely on the other fields of a damaged
    row: damaged fields have their defaults, and `status` means nothing. Only `Store.turns` returns damaged rows.
    """

    id: str
    session: str | None
    agent: str
    model: str
    created_at: float
    updated_at: float
    epoch: int
    owner: str | None
    status: Status
    number: int
    fault: str = ""

    @classmethod
    def damaged(cls, turn_id: str, fault: str) -> "TurnRow":
        """Return the row of a turn of which only the id is known."""
        return cls(turn_id, None, "", "", 0.0, 0.0, 0, None, Status(State.CHECK), 0, fault)


class ClaimSpan(Struct, frozen=True):
    """The facts that one driver wrote under one claim: from fact `first` to the fact before the next span.

    A submitted turn begins with a span of epoch 0, whose `owner` is the process that submitted it.
    """

    #: The seq of the span's first fact.
    first: int
    epoch: int
    #: The name of the driver's process, as its `Store.owner` was then.
    owner: str
    #: When the first facts and the last facts were written, in seconds since the Unix epoch, by the driver's clock.
    began: float
    ended: float


class AbandonedDrivers(Struct, frozen=True):
    """Drivers whose turns may be claimed although they may still be alive, such as an unresponsive worker of a runtime.

    `owners` are the names of the drivers. `epochs` are the epochs of their claims, empty if unknown.
    """

    owners: frozenset[str] = frozenset()
    epochs: frozenset[int] = frozenset()

    def covers(self, owner: str, epoch: int) -> bool:
        """Whether this owner of a turn in this epoch was abandoned. A later claim by the same owner is not covered."""
        return owner in self.owners and (not self.epochs or epoch in self.epochs)

    @property
    def for_children(self) -> "AbandonedDrivers":
        """The same drivers for the sub-turns, which have epochs of their own."""
        return AbandonedDrivers(self.owners)


#: No driver is abandoned: a living driver keeps its turns.
NONE_ABANDONED: Final = AbandonedDrivers()


@dataclass(slots=True)
class Claim:
    """The right to append to one turn, as long as `epoch` is the turn's. `seq` is the number of the last fact.

    `crashed`: the driver before this one never released the turn. `abandoned`: drivers from which this claim may take
    the turn and its sub-turns. `unrecorded_owner`: the driver's name until the first append records it, then None.
    `waiting`: the items in the turn's inbox at the time of the claim. `facts`: the turn's (seq, fact) pairs, if the
    store has read them with the claim; the driver takes them. `due_at`: the due time in the turn's row, in
    stores that write it only when it changes.
    """

    turn: str
    epoch: int
    seq: int
    crashed: bool = False
    abandoned: AbandonedDrivers = NONE_ABANDONED
    unrecorded_owner: str | None = None
    waiting: list["InboxItem"] = field(default_factory=list)
    facts: list[tuple[int, Fact]] | None = None
    due_at: float | None = 0.0


class InboxKind(StrEnum):
    """A kind of request that other processes may post to a turn."""

    ABORT = "abort"
    ANSWER = "answer"
    STEER = "steer"
    #: The latest report of a call that waits for its result. A newer one of the same id replaces it.
    PROGRESS = "progress"


@dataclass(frozen=True, slots=True)
class InboxItem:
    """One request to a turn. `id` is unique within the turn's inbox."""

    turn: str
    id: str
    kind: InboxKind
    payload: str = "{}"


#: The kinds of items that resume a paused turn.
RESUMING_KINDS: Final = frozenset({InboxKind.ABORT, InboxKind.ANSWER})


class DueTurn(Struct, frozen=True):
    """A turn that a driver may resume: its row, and its claim if it was claimed.

    `error` says why it cannot be claimed, such as a damaged row or inbox. Then it has no claim.
    """

    row: TurnRow
    claim: Claim | None = None
    error: StoreError | None = None


class Store(Protocol):
    """A store of turns. Every method raises `StoreError` if it cannot read or write, and then has changed nothing.

    Reading a damaged turn raises `UnreadableTurnError`, a `StoreError`. The other turns stay readable.
    """

    @property
    def shared(self) -> bool:
        """Whether other processes may write to the same turns. If so, drivers poll the inboxes."""
        ...

    @property
    def inline(self) -> bool:
        """Whether the next `append`, and an `inbox` before it, run without suspending.

        Read it right before the call: it may change when another task runs. It is never true during an append, so a
        caller that reads true need not wait for another append of the turn. If it is false, appends of one turn must
        run one after the other, and a canceled append may have been written.
        """
        ...

    @property
    def owner(self) -> str:
        """The name of this process among the drivers, written to the row of each turn that it claims."""
        ...

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status, *, driven: bool = True) -> Claim:
        """Write a new turn with its first facts, at least one, and claim it, in one transaction.

        With `driven=False` the turn is not claimed, and its epoch is 0.

        Raises `SessionBusyError` if another turn of the session has not ended, and `TurnExistsError` if the
        id exists, which is checked first.
        """
        ...

    async def claim(self, turn_id: str, *, abandoned: AbandonedDrivers = NONE_ABANDONED) -> Claim:
        """Claim the turn: raise its epoch and become its owner. The claim contains the items of the turn's inbox.

        Raises `TurnNotFoundError`, and `TurnBusyError` while a living driver owns the turn that is not in `abandoned`.
        """
        ...

    async def release(self, claim: Claim, *, crashed: bool = False) -> None:
        """Release the turn. Does nothing if another driver has claimed it since.

        With `crashed`, the next claim has `crashed` set, because this driver did not record the earlier crash.
        """
        ...

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """Append facts, write the status and delete the consumed inbox items, in one transaction.

        Moves `claim.seq` to the last fact. Returns the items that are in the inbox then, in the order of posting,
        without damaged items, which `inbox` reports. Raises `LeaseLostError` if the turn's epoch is not the claim's.
        """
        ...

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        """Return the facts with a seq above `after`, oldest first. Raises `TurnNotFoundError`."""
        ...

    async def claim_spans(self, turn_id: str) -> list[ClaimSpan]:
        """Return who wrote the turn's facts, one span per claim, oldest first. Raises `TurnNotFoundError`.

        A claim that wrote no fact has no span.
        """
        ...

    async def get(self, turn_id: str) -> TurnRow:
        """Return one turn's row. Raises `TurnNotFoundError`."""
        ...

    def has(self, turn_id: str) -> bool | None:
        """Whether the turn exists, or None if the store must ask a server: call `get` then."""
        ...

    async def turns(
        self,
        *,
        session: str | None = None,
        live: bool | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[TurnRow]:
        """Return turns, newest first: of one session or of all, only live ones, only ended ones, or both.

        Returns at most `limit` turns, and only turns whose `number` is below `before`. For the next page, pass the
        last row's `number`. Damaged rows are included, with a `fault`.
        """
        ...

    async def sessions(self, *, limit: int | None = None, before: int | None = None) -> list[SessionInfo]:
        """Return sessions, those with the newest turns first: at most `limit`, with a `number` below `before`.

        A session exists from the creation of its first turn to the deletion of its last one. For the next page, pass
        the last session's `number`.
        """
        ...

    async def set_title(self, session: str, title: str) -> None:
        """Replace the title of a session. Raises `SessionNotFoundError`."""
        ...

    async def delete_session(self, session: str) -> int:
        """Delete all turns of a session and their sub-turns, as `delete` does, in one transaction.

        A turn that is created meanwhile stays, and so does the session. Returns the number of deleted turns. Raises
        `SessionNotFoundError`, and `TurnBusyError` while a living driver owns one of the turns; then nothing was
        deleted.
        """
        ...

    async def is_driven(self, turn_id: str) -> bool:
        """Whether a living driver owns the turn now. Raises `TurnNotFoundError`."""
        ...

    async def post(self, *items: InboxItem) -> tuple[InboxItem, ...]:
        """Put requests to one turn into its inbox, all of them or none.

        An item that is there already, with the same id, kind and payload, is not added again. Returns the conflicting
        items: items in the inbox with one of the ids and another content. If there is one, nothing was added. An item
        of the kind `progress` replaces one of its id. Raises `TurnNotFoundError`.
        """
        ...

    async def inbox(self, turn_id: str) -> list[InboxItem]:
        """Return the items of a turn's inbox in the order of posting. Empty for a turn that does not exist."""
        ...

    async def requests(self, *kinds: InboxKind) -> list[InboxItem]:
        """Return the requests of these kinds in the inboxes of all turns, without damaged ones."""
        ...

    async def due(
        self,
        now: float,
        *,
        limit: int | None = None,
        idle: float = 0.0,
        skipped: Collection[str] = (),
        claim: bool = False,
    ) -> list[DueTurn]:
        """Return at most `limit` turns that are due and that no living driver owns, in the order of creation.

        A turn is due if driving it does anything: it has not ended, and is not paused, has an abort or an answer in its
        inbox, or has an interrupt that expires by `now`. Left out are sub-turns, which the driver of the root turn
        drives, turns with an id in `skipped`, and turns that were written to in the last `idle` seconds. With `claim`
        each turn is claimed, and turns that another driver is claiming are left out.

        The default reads all turns that have not ended, and claims one turn after the other. A store with many turns
        should do it in a query.
        """
        rows = [row for row in reversed(await self.turns(live=True)) if root_of(row.id) == row.id]
        requested_turns = {item.turn for item in await self.requests(*RESUMING_KINDS)}
        living: dict[str, bool] = {}
        due_turns: list[DueTurn] = []
        for row in rows:
            if len(due_turns) == limit:
                break
            if row.id in skipped or not (row.fault or row.id in requested_turns or is_due(row, now)):
                continue
            try:
                if row.fault:
                    raise UnreadableTurnError(row.id, row.fault)
                if idle and row.updated_at > now - idle:  # clocks of machines differ
                    continue
                if row.owner and (row.owner == self.owner or row.owner not in living):
                    # Whether another process lives is asked once, not for each of its turns.
                    living[row.owner] = await self.is_driven(row.id)
                if not row.owner or not living[row.owner]:
                    due_turns.append(DueTurn(row, await self.claim(row.id) if claim else None))
            except (TurnBusyError, TurnNotFoundError):
                continue  # another driver has claimed it, or it was deleted
            except StoreError as error:
                due_turns.append(DueTurn(row, error=error))
        return due_turns

    def watching(self, turn_id: str) -> AbstractAsyncContextManager[Changed]:
        """Watch a turn, which need not exist yet, while the block runs.

        The context value is a function. It waits until something was written to the turn since the last wait (or since
        the block began), at most for the given seconds. A store without notifications always waits that long.
        """
        ...

    async def delete(self, turn_id: str) -> int:
        """Delete a turn and its sub-turns, whose ids begin with `{turn_id}:`, in one transaction.

        Deletes rows, facts, inboxes, and a session without any other turn. Returns the number of deleted turns. Raises
        `TurnNotFoundError`, and `TurnBusyError` while a living driver owns one of the turns; then nothing was deleted.
        """
        ...

    async def migrate(self) -> tuple[int, int]:
        """Migrate the store to the schema of this release. Two processes may do this at once.

        Returns the version before and the version after; a new store had version 0. Raises `ConfigError` for a store
        of a newer release. Every other method raises `ConfigError` while the store has an older schema.
        """
        ...

    async def aclose(self) -> None:
        """Release all locks and connections. The store cannot be used afterwards."""
        ...


@asynccontextmanager
async def poll_for_changes(turn_id: str) -> AsyncIterator[Changed]:  # noqa: ARG001 (others need it)
    """Watch a turn of a store that sends no notifications: each wait takes its full time."""
    yield anyio.sleep


def is_due(row: TurnRow, now: float) -> bool:
    """Whether driving the turn does anything at the time `now`, apart from what its inbox asks for."""
    due_at = row.status.due_at
    return due_at is not None and due_at <= now


def is_read_only(store: Store) -> bool:
    """Whether nothing can be written to a store, which then has a true attribute `read_only`."""
    return getattr(store, "read_only", False)


def addressee(items: Sequence[InboxItem]) -> str:
    """Return the one turn that the items of a post are for.

    Raises `ValueError` for items of several turns, and for two different items with one id.
    """
    turns = {item.turn for item in items}
    if len(turns) != 1:
        raise ValueError(f"a post is for one turn, not for {', '.join(sorted(turns)) or 'none'}")
    twice = {item.id for item in items if any(item.id == second.id and item != second for second in items)}
    if twice:
        raise ValueError(f"a post has one item under an id, not several that differ: {', '.join(sorted(twice))}")
    return turns.pop()


def conflicting_items(waiting: Iterable[InboxItem], items: Sequence[InboxItem]) -> tuple[InboxItem, ...]:
    """Return the waiting items that have the id of one of `items` and another content, in the order of `waiting`.

    A report of progress is in conflict with none, because it replaces an older one.
    """
    items_by_id = {item.id: item for item in items if item.kind is not InboxKind.PROGRESS}
    return tuple(item for item in waiting if items_by_id.get(item.id, item) != item)
