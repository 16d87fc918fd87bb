"""The store in memory: for tests, and for turns that need not outlive their process."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from turnwright.errors import Fenced, SessionBusy, StoreError, TurnBusy, UnknownTurn
from turnwright_states.facts import Fact

from .posting import addressee, in_the_way
from .protocol import NOBODY, Claim, InboxItem, NewTurn, Status, TurnRow


@dataclass(slots=True)
class _Kept:
    row: TurnRow
    facts: list[Fact]
    inbox: dict[str, InboxItem] = field(default_factory=dict)


class MemoryStore:
    """Keeps turns in this process. It must be used from one event loop.

    An engine hears at once of what is asked through it. What another engine on the same store asks of a turn that it
    drives, an abort say, it hears between two actions: nobody looks into this store meanwhile.
    """

    shared = False

    def __init__(self) -> None:
        #: In the order in which they were made.
        self._turns: dict[str, _Kept] = {}
        self._numbers = count(1)
        self._driving: set[str] = set()

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status) -> Claim:
        """See `Store.create`."""
        if new.id in self._turns:
            raise StoreError(f"turn {new.id} is there already")
        if new.session is not None:
            for row in await self.turns(session=new.session, live=True):
                raise SessionBusy(new.session, row.id)
        self._turns[new.id] = _Kept(
            TurnRow(
                id=new.id,
                session=new.session,
                agent=new.agent,
                model=new.model,
                created_at=new.created_at,
                updated_at=new.created_at,
                epoch=1,
                owner="memory",
                status=status,
                number=next(self._numbers),
            ),
            list(facts),
        )
        self._driving.add(new.id)
        return Claim(turn=new.id, epoch=1, seq=len(facts))

    async def claim(self, turn_id: str) -> Claim:
        """See `Store.claim`."""
        kept = self._kept(turn_id)
        if turn_id in self._driving:
            raise TurnBusy(turn_id, "this process")
        crashed = kept.row.owner is not None
        kept.row = replace(kept.row, epoch=kept.row.epoch + 1, owner="memory")
        self._driving.add(turn_id)
        return Claim(turn=turn_id, epoch=kept.row.epoch, seq=len(kept.facts), crashed=crashed)

    async def release(self, claim: Claim, *, crashed: bool = False) -> None:
        """See `Store.release`."""
        kept = self._turns.get(claim.turn)
        if kept is not None and kept.row.epoch == claim.epoch:
            kept.row = replace(kept.row, owner=NOBODY if crashed else None)
            self._driving.discard(claim.turn)

    async def append(self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()) -> int:
        """See `Store.append`."""
        kept = self._turns.get(claim.turn)
        if kept is None or kept.row.epoch != claim.epoch:
            raise Fenced(claim.turn, claim.epoch)
        if facts and claim.seq != len(kept.facts):
            raise StoreError(f"turn {claim.turn}: fact {claim.seq + 1} does not follow the last one, {len(kept.facts)}")
        kept.facts.extend(facts)
        kept.row = replace(kept.row, status=status, updated_at=time.time())
        for item in consumed:
            kept.inbox.pop(item, None)
        claim.seq += len(facts)
        return claim.seq

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        """See `Store.facts`."""
        return list(enumerate(self._kept(turn_id).facts[after:], start=after + 1))

    async def get(self, turn_id: str) -> TurnRow:
        """See `Store.get`."""
        return self._kept(turn_id).row

    async def turns(
        self, *, session: str | None = None, live: bool | None = None, limit: int | None = None
    ) -> list[TurnRow]:
        """See `Store.turns`."""
        rows = [kept.row for kept in reversed(self._turns.values())]
        return [
            row
            for row in rows
            if (session is None or row.session == session) and (live is None or live is (row.status.outcome is None))
        ][:limit]

    async def is_driven(self, turn_id: str) -> bool:
        """See `Store.is_driven`."""
        self._kept(turn_id)
        return turn_id in self._driving

    async def post(self, *items: InboxItem) -> tuple[InboxItem, ...]:
        """See `Store.post`."""
        if not items:
            return ()
        inbox = self._kept(addressee(items)).inbox
        blocking = in_the_way(inbox.values(), items)
        if not blocking:
            for item in items:
                inbox.setdefault(item.id, item)
        return blocking

    async def inbox(self, turn_id: str) -> list[InboxItem]:
        """See `Store.inbox`."""
        kept = self._turns.get(turn_id)
        return [] if kept is None else list(kept.inbox.values())

    async def delete(self, turn_id: str) -> int:
        """See `Store.delete`."""
        self._kept(turn_id)
        family = [name for name in self._turns if name == turn_id or name.startswith(f"{turn_id}:")]
        for name in family:
            if name in self._driving:
                raise TurnBusy(name, "this process")
        for name in family:
            del self._turns[name]
        return len(family)

    async def migrate(self) -> tuple[int, int]:
        """See `Store.migrate`. There is but one version."""
        return (1, 1)

    async def aclose(self) -> None:
        """See `Store.aclose`."""
        self._driving.clear()

    def _kept(self, turn_id: str) -> _Kept:
        if turn_id not in self._turns:
            raise UnknownTurn(turn_id)
        return self._turns[turn_id]
