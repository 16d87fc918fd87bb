"""The outbox of a store: notices for subscribers, written in the transaction of the facts that they are about.

So a notice exists exactly if its fact does, whichever process wrote it (docs/rules.md#outbox).
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from turnwright._base.words import count
from turnwright.errors import ConfigError
from turnwright_states import InterruptKind
from turnwright_states import facts as f


class NoticeRow(Struct, frozen=True):
    """A notice that is to be delivered to the subscriber `name`: about the fact `seq` of a turn, written at `at`.

    `tries` counts the failed deliveries. `next_at` is the time of the next one; None if the delivery was given up.
    `error` is that of the last one. Times are in seconds since the Unix epoch.
    """

    name: str
    turn: str
    seq: int
    kind: str
    at: float
    tries: int = 0
    next_at: float | None = 0.0
    error: str = ""

    @property
    def id(self) -> str:
        """The receiver's key against duplicates."""
        return f"{self.turn}/{self.seq}/{self.name}"

    @property
    def status(self) -> str:
        """The state of the delivery in words: `failed` once it was given up, or the number of failed deliveries."""
        return "failed" if self.next_at is None else count(self.tries, "failed delivery", "failed deliveries")


class NoticeCounts(NamedTuple):
    """The number of notices that wait for their delivery, and of those that were given up."""

    pending: int
    failed: int


class NoticedFact(NamedTuple):
    """A fact that subscribers are notified of."""

    seq: int
    kind: str


def noticed_facts(turn_id: str, facts: Iterable[f.Fact], seq: int) -> Sequence[NoticedFact]:
    """Return the facts after fact `seq` that subscribers are notified of: those of root turns alone."""
    notices: Sequence[NoticedFact] = ()
    if ":" in turn_id:
        return notices
    for place, fact in enumerate(facts, seq + 1):
        if type(fact) not in _KINDS:
            continue
        if isinstance(fact, f.CallWaiting) and not any(
            interrupt.kind is InterruptKind.RESULT for interrupt in fact.interrupts
        ):
            continue
        notices = (*notices, NoticedFact(place, _KINDS[type(fact)]))
    return notices


#: The kinds of notices: a call waits for its result, the turn paused, the turn ended.
_KINDS: Final[dict[type[f.Fact], str]] = {f.CallWaiting: "handed_out", f.Paused: "paused", f.TurnEnded: "ended"}


@runtime_checkable
class OutboxStore(Protocol):
    """The optional ability of a store to notify subscribers. Every method raises `StoreError`, as those of `Store` do.

    `Store.append` and `Store.create` write a notice for each subscription in their transaction. Notices are deleted
    with their turn.
    """

    async def subscribe(self, names: Collection[str]) -> None:
        """Subscribe these names to notices, from now on. A name that is subscribed stays so."""
        ...

    async def unsubscribe(self, name: str) -> bool:
        """End a subscription, and delete its notices. Returns whether there was one."""
        ...

    async def lease_notices(self, names: Collection[str], now: float, until: float, limit: int) -> list[NoticeRow]:
        """Return at most `limit` notices of these subscribers that are to be delivered by `now`, the oldest first.

        Nobody else gets them before `until`.
        """
        ...

    async def delivered(self, notice: NoticeRow) -> None:
        """Delete a notice, because it was delivered."""
        ...

    async def failed(self, notice: NoticeRow, error: str, next_at: float | None) -> None:
        """Note a failed delivery, and when to try again; None gives it up."""
        ...

    async def notices(self) -> list[NoticeRow]:
        """Return all notices, the oldest first."""
        ...

    async def count_notices(self) -> NoticeCounts:
        """Return how many notices wait, and how many were given up."""
        ...

    async def retry_notices(self) -> int:
        """Deliver the notices again that were given up or wait. Returns their number."""
        ...


def outbox_store(store: object) -> OutboxStore:
    """Return the store if it has an outbox. Raises `ConfigError` otherwise."""
    if not isinstance(store, OutboxStore):
        raise ConfigError("this store has no outbox for subscribers: give it the methods of `OutboxStore`")
    return store
