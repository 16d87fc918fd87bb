"""A store that dies in the middle of a turn, as a process does: what is in the journal then is all that is left."""

from collections.abc import Sequence

from turnwright.errors import StoreError
from turnwright.store import Claim, InboxItem, NewTurn, Status, Store, TurnRow
from turnwright_states.facts import Fact


class FaultyStore:
    """Passes everything on to `inner` until its `at`-th append, which raises `StoreError`.

    `at` counts from 1; 0 never fails. With `after` the facts are written before it raises, as when the process dies
    between the commit and the next line. From then on the store is dead and everything raises, releasing a turn as
    well, so that whoever drove looks crashed. With `heals` only that one append fails, as when a disk is full for a
    moment.

    `appends` counts the appends that were tried. After a death, `aclose` and open the same place again: what the next
    process would do. (A closed `MemoryStore` keeps its turns and forgets who drove them, so it can be used again.)
    """

    def __init__(self, inner: Store, *, at: int = 0, after: bool = False, heals: bool = False) -> None:
        self.inner = inner
        self.at = at
        self.after = after
        self.heals = heals
        self.appends = 0
        self.dead = False

    @property
    def shared(self) -> bool:
        """See `Store.shared`."""
        return self.inner.shared

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status) -> Claim:
        """See `Store.create`. It is no append, and is not counted."""
        self._need_life()
        return await self.inner.create(new, facts, status)

    async def claim(self, turn_id: str) -> Claim:
        """See `Store.claim`."""
        self._need_life()
        return await self.inner.claim(turn_id)

    async def release(self, claim: Claim, *, crashed: bool = False) -> None:
        """See `Store.release`."""
        self._need_life()
        await self.inner.release(claim, crashed=crashed)

    async def append(self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()) -> int:
        """See `Store.append`. Fails when its turn has come."""
        self._need_life()
        self.appends += 1
        if self.appends != self.at:
            return await self.inner.append(claim, facts, status, consumed)
        self.dead = not self.heals
        if self.after:
            await self.inner.append(claim, facts, status, consumed)
        raise StoreError(f"append {self.at} fails, as it was told to")

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        """See `Store.facts`."""
        self._need_life()
        return await self.inner.facts(turn_id, after)

    async def get(self, turn_id: str) -> TurnRow:
        """See `Store.get`."""
        self._need_life()
        return await self.inner.get(turn_id)

    async def turns(
        self, *, session: str | None = None, live: bool | None = None, limit: int | None = None
    ) -> list[TurnRow]:
        """See `Store.turns`."""
        self._need_life()
        return await self.inner.turns(session=session, live=live, limit=limit)

    async def is_driven(self, turn_id: str) -> bool:
        """See `Store.is_driven`."""
        self._need_life()
        return await self.inner.is_driven(turn_id)

    async def post(self, item: InboxItem) -> bool:
        """See `Store.post`."""
        self._need_life()
        return await self.inner.post(item)

    async def inbox(self, turn_id: str) -> list[InboxItem]:
        """See `Store.inbox`."""
        self._need_life()
        return await self.inner.inbox(turn_id)

    async def aclose(self) -> None:
        """Close `inner`, also when dead: the operating system closes what a dead process had open."""
        await self.inner.aclose()

    def _need_life(self) -> None:
        if self.dead:
            raise StoreError("the store is dead, as it was told to be")
