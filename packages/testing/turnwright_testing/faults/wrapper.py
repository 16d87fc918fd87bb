"""A store around a store: a base for stores that change one thing."""

from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager

from turnwright.store import (
    NONE_ABANDONED,
    AbandonedDrivers,
    Changed,
    Claim,
    ClaimSpan,
    DueTurn,
    InboxItem,
    InboxKind,
    NewTurn,
    SessionInfo,
    Status,
    Store,
    TurnRow,
)
from turnwright_states.facts import Fact


class StoreWrapper:
    """A store that passes every call to `inner`. Override methods to change them; `enter` is called before each."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def enter(self) -> None:
        """Run before each call but `aclose`. Does nothing here."""

    @property
    def shared(self) -> bool:
        return self.inner.shared

    @property
    def inline(self) -> bool:
        """See `Store.inline`. It is false if a subclass overrides one of these methods, which may suspend."""
        own = type(self)
        is_direct = own.append is StoreWrapper.append and own.inbox is StoreWrapper.inbox
        return is_direct and self.inner.inline

    @property
    def owner(self) -> str:
        return self.inner.owner

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status, *, driven: bool = True) -> Claim:
        self.enter()
        return await self.inner.create(new, facts, status, driven=driven)

    async def claim(self, turn_id: str, *, abandoned: AbandonedDrivers = NONE_ABANDONED) -> Claim:
        self.enter()
        return await self.inner.claim(turn_id, abandoned=abandoned)

    async def release(self, claim: Claim, *, crashed: bool = False) -> None:
        self.enter()
        await self.inner.release(claim, crashed=crashed)

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        self.enter()
        return await self.inner.append(claim, facts, status, consumed)

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        self.enter()
        return await self.inner.facts(turn_id, after)

    async def claim_spans(self, turn_id: str) -> list[ClaimSpan]:
        self.enter()
        return await self.inner.claim_spans(turn_id)

    async def get(self, turn_id: str) -> TurnRow:
        self.enter()
        return await self.inner.get(turn_id)

    def has(self, turn_id: str) -> bool | None:
        """See `Store.has`. It is not entered."""
        return self.inner.has(turn_id)

    async def turns(
        self,
        *,
        session: str | None = None,
        live: bool | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[TurnRow]:
        self.enter()
        return await self.inner.turns(session=session, live=live, limit=limit, before=before)

    async def sessions(self, *, limit: int | None = None, before: int | None = None) -> list[SessionInfo]:
        self.enter()
        return await self.inner.sessions(limit=limit, before=before)

    async def set_title(self, session: str, title: str) -> None:
        self.enter()
        await self.inner.set_title(session, title)

    async def delete_session(self, session: str) -> int:
        self.enter()
        return await self.inner.delete_session(session)

    async def is_driven(self, turn_id: str) -> bool:
        self.enter()
        return await self.inner.is_driven(turn_id)

    async def post(self, *items: InboxItem) -> tuple[InboxItem, ...]:
        self.enter()
        return await self.inner.post(*items)

    async def inbox(self, turn_id: str) -> list[InboxItem]:
        self.enter()
        return await self.inner.inbox(turn_id)

    async def requests(self, *kinds: InboxKind) -> list[InboxItem]:
        self.enter()
        return await self.inner.requests(*kinds)

    async def due(
        self,
        now: float,
        *,
        limit: int | None = None,
        idle: float = 0.0,
        skipped: Collection[str] = (),
        claim: bool = False,
    ) -> list[DueTurn]:
        """See `Store.due`. The default is used, whose calls a subclass may have overridden."""
        return await Store.due(self, now, limit=limit, idle=idle, skipped=skipped, claim=claim)

    def watching(self, turn_id: str) -> AbstractAsyncContextManager[Changed]:
        return self.inner.watching(turn_id)

    async def delete(self, turn_id: str) -> int:
        self.enter()
        return await self.inner.delete(turn_id)

    async def migrate(self) -> tuple[int, int]:
        self.enter()
        return await self.inner.migrate()

    async def aclose(self) -> None:
        await self.inner.aclose()
