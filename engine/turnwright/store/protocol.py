"""What the engine asks of a store (DESIGN 5).

A store keeps three things: the facts of each turn, append-only; one row a turn, with its epoch, its owner and a copy
of its status for queries; and one inbox a turn, which any process may write. It decides nothing.

Whoever drives a turn claims it first. A claim raises the turn's epoch, and every append must find its own epoch still
there: a driver that was overtaken gets `LeaseLostError` and has written nothing.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct

from turnwright_states import EndReason, Outcome, State, Turn
from turnwright_states.facts import Fact

#: Waits until something was written to a turn, or for so many seconds.
Changed = Callable[[float], Awaitable[None]]

#: The owner of a turn that was let go of after a crash, for which the next driver has still to account.
NOBODY: Final = ""


class Queued(StrEnum):
    """The state of a turn that was submitted, and that nobody has begun to drive. The machine does not know it."""

    QUEUED = "QUEUED"

    @property
    def outcome(self) -> None:
        """None: the turn has not ended."""
        return None


#: The state of a turn that waits for its first driver.
QUEUED: Final = Queued.QUEUED


class Status(Struct, frozen=True, gc=False):
    """A copy of where a turn stands, for queries. It can be rebuilt from the facts, all but `QUEUED`.

    One is made for each append: hence a struct, which takes a tenth of the time of a frozen dataclass.
    """

    state: State | Queued
    steps: int = 0
    tool_calls: int = 0
    reason: EndReason | None = None

    def of_epoch(self, epoch: int) -> "Status":
        """The status of a turn's row, whose epoch is 0 until somebody has begun to drive it."""
        return self if epoch or self.outcome is not None else Status(QUEUED, self.steps, self.tool_calls)

    @property
    def outcome(self) -> Outcome | None:
        """The outcome, once there is one."""
        return self.state.outcome

    @classmethod
    def of(cls, turn: Turn) -> "Status":
        """The status of a folded turn."""
        counters = turn.counters
        return cls(turn.state, counters.steps, counters.calls, turn.reason)


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A turn to be: `id` is the caller's, `created_at` in seconds since the epoch of Unix."""

    id: str
    session: str | None
    agent: str
    model: str
    created_at: float


@dataclass(frozen=True, slots=True)
class TurnRow:
    """One turn, as a query shows it.

    `number` counts the turns of a store in the order in which they were made; it goes up also when the clock goes back.
    `owner` is None once its driver let go of it, or `NOBODY` where a crash is still to be accounted for. A driver that
    died is still its owner. `updated_at`: when its last fact was written, or a status after it where the store says so.

    `fault` says why the row cannot be read, and is empty for a sound one. Then nothing else in it is to be relied on:
    what is damaged stands at its default, and `status` says nothing. Only `Store.turns` returns such a row.
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
        """The row of a turn of which nothing but its id is known."""
        return cls(turn_id, None, "", "", 0.0, 0.0, 0, None, Status(State.CHECK), 0, fault)


class ClaimSpan(Struct, frozen=True):
    """Facts that one driver wrote under one claim: from the fact `first` on, up to the next span's.

    A turn that was submitted begins with a span of epoch 0, whose `owner` is the process that submitted it.
    """

    #: The seq of its first fact.
    first: int
    epoch: int
    #: The name of the driver's process, as its `Store.owner` was then.
    owner: str
    #: When its first facts were written, and its last, in seconds since the epoch of Unix, by the driver's clock.
    began: float
    ended: float


class AbandonedDrivers(Struct, frozen=True):
    """Drivers that were given up, as a runtime gives up a worker that it hears nothing of, whether they live or not.

    `owners` are their names, `epochs` those of the claims under which they drove, where these are known.
    """

    owners: frozenset[str] = frozenset()
    epochs: frozenset[int] = frozenset()

    def covers(self, owner: str, epoch: int) -> bool:
        """Whether whoever owns a turn in this epoch was given up. A later claim by the same owner was not."""
        return owner in self.owners and (not self.epochs or epoch in self.epochs)

    @property
    def for_children(self) -> "AbandonedDrivers":
        """The same drivers, of the turn's sub-turns: these have epochs of their own."""
        return AbandonedDrivers(self.owners)


#: Every driver that lives keeps its turns.
NONE_ABANDONED: Final = AbandonedDrivers()


@dataclass(slots=True)
class Claim:
    """The right to append to one turn, as long as `epoch` is the turn's. `seq` is the last fact's place.

    `crashed`: whoever drove the turn before never let go of it. `over`: who was given up when it was claimed,
    and from whom its sub-turns may be taken too. `signs`: the driver's name until it has written facts, the first of
    which keeps it, and None from then on. `waiting`: what waited in the turn's inbox when it was claimed.
    """

    turn: str
    epoch: int
    seq: int
    crashed: bool = False
    over: AbandonedDrivers = NONE_ABANDONED
    signs: str | None = None
    waiting: list["InboxItem"] = field(default_factory=list)


class InboxKind(StrEnum):
    """What other processes may ask of a turn."""

    ABORT = "abort"
    ANSWER = "answer"
    STEER = "steer"


@dataclass(frozen=True, slots=True)
class InboxItem:
    """One request to a turn. `id` is unique among those that wait in the turn's inbox."""

    turn: str
    id: str
    kind: InboxKind
    payload: str = "{}"


class Store(Protocol):
    """A store. Every method raises `StoreError` when it cannot read or write, and then has changed nothing.

    What is damaged of one turn raises `UnreadableTurnError`, a `StoreError`, where that turn is asked for, and does not
    keep anybody from the others.
    """

    @property
    def shared(self) -> bool:
        """Whether other processes may write to the same turns, so that inboxes must be looked at now and then."""
        ...

    @property
    def inline(self) -> bool:
        """Whether the next `append`, and an `inbox` before it, lets nobody else run: nothing in them suspends.

        It holds until somebody else runs, so read it right before. It is never true while an append is under way: who
        finds it true need not wait for one of the same turn. Where it is false, appends of one turn must follow each
        other, and a cancelled one may have been written.
        """
        ...

    @property
    def owner(self) -> str:
        """The name of this process among the drivers: what the rows of turns that it claims from now on will say."""
        ...

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status, *, driven: bool = True) -> Claim:
        """Write a new turn with its first facts, one at least, and claim it, in one transaction.

        Without `driven` nobody drives it yet, its epoch is 0, and whoever drives it is to claim it.

        Raises `SessionBusyError` when another turn of the session has not ended, and `StoreError` for an id that is
        taken.
        """
        ...

    async def claim(self, turn_id: str, *, over: AbandonedDrivers = NONE_ABANDONED) -> Claim:
        """Take the turn: raise its epoch, become its owner. The claim has what waits in the inbox, as with `append`.

        Raises `TurnNotFoundError`, and `TurnBusyError` while a living driver owns it, unless `over` says that it was
        given up.
        """
        ...

    async def release(self, claim: Claim, *, crashed: bool = False) -> None:
        """Let go of the turn. Does nothing when it was taken over since.

        With `crashed`, the next claim is told that a driver died: this one has not accounted for it.
        """
        ...

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        """Append facts, write the status and delete the consumed inbox items, in one transaction.

        Moves `claim.seq` to the last fact, and returns what waits in the inbox then, in the order in which it was
        posted; a damaged item is left out, and `inbox` reports it. Raises `LeaseLostError` when the epoch is another's.
        """
        ...

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        """The facts with a seq above `after`, oldest first. Raises `TurnNotFoundError`."""
        ...

    async def claim_spans(self, turn_id: str) -> list[ClaimSpan]:
        """Who wrote the turn's facts, the first one first. Raises `TurnNotFoundError`.

        A claim that wrote no fact has no span. Nor have facts that a release wrote which did not keep their driver;
        where all are such, nothing is returned.
        """
        ...

    async def get(self, turn_id: str) -> TurnRow:
        """One turn's row. Raises `TurnNotFoundError`."""
        ...

    def has(self, turn_id: str) -> bool | None:
        """Whether the turn is there, or None where only `get` can tell, which may wait for a server."""
        ...

    async def turns(
        self,
        *,
        session: str | None = None,
        live: bool | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[TurnRow]:
        """Turns, the one made last first: of one session, or of all; only live or only ended ones, or both.

        At most `limit`, and only those whose `number` is below `before`: with that of the last one, the next page.
        A turn whose row is damaged is among them, with a `fault`.
        """
        ...

    async def is_driven(self, turn_id: str) -> bool:
        """Whether a living driver owns the turn now. Raises `TurnNotFoundError`."""
        ...

    async def post(self, *items: InboxItem) -> tuple[InboxItem, ...]:
        """Put requests to one turn into its inbox, all of them or none.

        What waits there under the same id with the same kind and payload need not be put there again. Returns what is
        in the way: the items that wait there under one of the ids with something else in them. Then nothing was put
        there; when nothing is in the way, everything was. Raises `TurnNotFoundError`.
        """
        ...

    async def inbox(self, turn_id: str) -> list[InboxItem]:
        """What waits in a turn's inbox, in the order in which it was posted; empty for a turn that is not there."""
        ...

    async def requests(self, *kinds: InboxKind) -> list[InboxItem]:
        """The requests of these kinds that wait in the inboxes of all turns, without those that are damaged."""
        ...

    def watching(self, turn_id: str) -> AbstractAsyncContextManager[Changed]:
        """Watch a turn, which need not be there yet, while the block runs, for somebody who reads its journal again.

        What the block is given waits until something was written to the turn since the last wait (or since the block
        began), at most the seconds that it is given. A store that nobody tells of what others write waits that long
        each time.
        """
        ...

    async def delete(self, turn_id: str) -> int:
        """Forget a turn and its sub-turns, whose ids begin with `{turn_id}:`: rows, facts, inboxes, in one transaction.

        Returns how many turns were deleted. Raises `TurnNotFoundError`, and `TurnBusyError` while a living driver owns
        one of them; then nothing was deleted.
        """
        ...

    async def migrate(self) -> tuple[int, int]:
        """Bring the store to the schema of this release; safe when two do it at once.

        Returns the version before and the one after; a store that is not there yet has version 0. One of an older
        schema raises `ConfigError` at its first use, and says that it must be migrated; a newer one says that
        turnwright must be upgraded, here too.
        """
        ...

    async def aclose(self) -> None:
        """Let go of everything. The store cannot be used afterwards."""
        ...
