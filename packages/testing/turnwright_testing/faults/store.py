"""A store that dies in the middle of a turn, as a process does: only the journal is left."""

from collections.abc import Sequence

from turnwright.errors import StoreError
from turnwright.store import Claim, InboxItem, Status, Store
from turnwright_states.facts import Fact

from .wrapper import StoreWrapper


class FaultyStore(StoreWrapper):
    """A store that passes all calls to `inner` until its `at`-th append, which raises `StoreError`.

    `at` counts from 1; 0 never fails. A kind of fact as `at` means the first append with such a fact. With `after` the
    facts are written before it raises, as when the process dies between the commit and the next line. From then on the
    store is dead and everything raises, releases included, so that the driver looks crashed. With `heals` only that one
    append fails, as when a disk is full for a moment.

    `appends` counts the appends that were tried; `create` is none of them. After a death, `aclose` and open the same
    place again: what the next process would do. (A closed `MemoryStore` keeps its turns and forgets who drove them, so
    it can be used again.)
    """

    def __init__(self, inner: Store, *, at: int | type[Fact] = 0, after: bool = False, heals: bool = False) -> None:
        super().__init__(inner)
        self.at = at
        self.after = after
        self.heals = heals
        self.appends = 0
        self.dead = self.failed = False

    def enter(self) -> None:
        """Raise `StoreError` when the store is dead. It can still be closed: the operating system would do that."""
        if self.dead:
            raise StoreError("the store is dead, as planned")

    @property
    def inline(self) -> bool:
        """See `StoreWrapper.inline`. To fail takes no time."""
        own = type(self)
        return own.append is FaultyStore.append and own.inbox is FaultyStore.inbox and self.inner.inline

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        self.enter()
        self.appends += 1
        if not self._fails(facts):
            return await self.inner.append(claim, facts, status, consumed)
        self.dead, self.failed = not self.heals, True
        if self.after:
            await self.inner.append(claim, facts, status, consumed)
        raise StoreError(f"append {self.appends} fails, as planned")

    def _fails(self, facts: Sequence[Fact]) -> bool:
        if isinstance(self.at, int):
            return self.appends == self.at
        return not self.failed and any(type(fact) is self.at for fact in facts)
