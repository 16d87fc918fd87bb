"""The store in memory: for tests, and for turns that need not outlive their process."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from turnwright.errors import Fenced, SessionBusy, StoreError, TurnBusy, UnknownTurn
from turnwright_states.facts import Fact

from .protocol import Claim, InboxItem, NewTurn, Status, TurnRow

#: The owner of a turn whose driver died, and that nobody drives.
_NOBODY: Final = ""


@dataclass(slots=True)
class _Kept:
    row: TurnRow
    facts: list[Fact]
    inbox: dict[str, InboxItem] = field(default_factory=dict)


class MemoryStore:
    """Keeps turns in this process. It must be used from one event loop."""

    shared = False

    def __init__(self) -> None:
        self._turns: dict[str, _Kept] = {}
        self._driving: set[str] = set()

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status) -> Claim:
        """See `Store.create`."""
        if new.id in self._turns:
            raise StoreError(f"turn {new.id} is there already")
        if new.session is not None:
            for row in await self.turns(session=new.session, live=True):
                raise SessionBusy(new.session, row.id)
        row = TurnRow(new.id, new.session, new.agent, new.model, new.created_at, new.created_at, 1, "memory", status)
        self._turns[new.id] = _Kept(row, list(facts))
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
        kept = self._kept(claim.turn)
        if kept.row.epoch == claim.epoch:
            kept.row = replace(kept.row, owner=_NOBODY if crashed else None)
            self._driving.discard(claim.turn)

    async def append(self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()) -> int:
        """See `Store.append`."""
        kept = self._kept(claim.turn)
        if kept.row.epoch != claim.epoch:
            raise Fenced(claim.turn, claim.epoch)
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

    async def post(self, item: InboxItem) -> bool:
        """See `Store.post`."""
        inbox = self._kept(item.turn).inbox
        if item.id in inbox:
            return False
        inbox[item.id] = item
        return True

    async def inbox(self, turn_id: str) -> list[InboxItem]:
        """See `Store.inbox`."""
        return list(self._kept(turn_id).inbox.values())

    async def aclose(self) -> None:
        """See `Store.aclose`."""
        self._driving.clear()

    def _kept(self, turn_id: str) -> _Kept:
        if turn_id not in self._turns:
            raise UnknownTurn(turn_id)
        return self._turns[turn_id]
