"""A store around a store: a base for stores that change one thing."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

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

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class StoreCall:
    """One call of a store: the name of the method, and the turn, the claim, the facts and the items that it is given.

    `drives`: the caller drives the turn of the claim that it gets.
    """

    name: str
    turn: str = ""
    claim: Claim | None = None
    facts: Sequence[Fact] = ()
    items: Sequence[InboxItem] = ()
    drives: bool = True


class StoreWrapper:
    """A store that passes every call to `inner`. Override methods to change them, and `around` to change them all."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def enter(self) -> None:
        """Run before each call but `aclose`. Does nothing here."""

    async def around(self, call: StoreCall, make: Callable[[], Awaitable[R]]) -> R:
        """Make a call, whichever it is but `aclose`, after `enter`."""
        del call
        self.enter()
        return await make()

    @property
    def shared(self) -> bool:
        return self.inner.shared

    @property
    def inline(self) -> bool:
        """See `Store.inline`. It is false if a subclass overrides one of these methods, which may suspend."""
        store_type = type(self)
        is_direct = all(
            getattr(store_type, name) is getattr(StoreWrapper, name) for name in ("append", "inbox", "around")
        )
        return is_direct and self.inner.inline

    @property
    def owner(self) -> str:
        return self.inner.owner

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status, *, driven: bool = True) -> Claim:
        call = StoreCall("create", new.id, facts=facts, drives=driven)
        return await self.around(call, lambda: self.inner.create(new, facts, status, driven=driven))

    async def claim(self, turn_id: str, *, abandoned: AbandonedDrivers = NONE_ABANDONED) -> Claim:
        return await self.around(StoreCall("claim", turn_id), lambda: self.inner.claim(turn_id, abandoned=abandoned))

    async def release(self, claim: Claim, *, crashed: bool = False) -> None:
        await self.around(StoreCall("release", claim.turn, claim), lambda: self.inner.release(claim, crashed=crashed))

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        call = StoreCall("append", claim.turn, claim, facts)
        return await self.around(call, lambda: self.inner.append(claim, facts, status, consumed))

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        return await self.around(StoreCall("facts", turn_id), lambda: self.inner.facts(turn_id, after))

    async def claim_spans(self, turn_id: str) -> list[ClaimSpan]:
        return await self.around(StoreCall("claim_spans", turn_id), lambda: self.inner.claim_spans(turn_id))

    async def get(self, turn_id: str) -> TurnRow:
        return await self.around(StoreCall("get", turn_id), lambda: self.inner.get(turn_id))

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
        rows = partial(self.inner.turns, session=session, live=live, limit=limit, before=before)
        return await self.around(StoreCall("turns"), rows)

    async def sessions(self, *, limit: int | None = None, before: int | None = None) -> list[SessionInfo]:
        return await self.around(StoreCall("sessions"), lambda: self.inner.sessions(limit=limit, before=before))

    async def set_title(self, session: str, title: str) -> None:
        await self.around(StoreCall("set_title"), lambda: self.inner.set_title(session, title))

    async def delete_session(self, session: str) -> int:
        return await self.around(StoreCall("delete_session"), lambda: self.inner.delete_session(session))

    async def is_driven(self, turn_id: str) -> bool:
        return await self.around(StoreCall("is_driven", turn_id), lambda: self.inner.is_driven(turn_id))

    async def post(self, *items: InboxItem) -> tuple[InboxItem, ...]:
        return await self.around(StoreCall("post", items=items), lambda: self.inner.post(*items))

    async def inbox(self, turn_id: str) -> list[InboxItem]:
        return await self.around(StoreCall("inbox", turn_id), lambda: self.inner.inbox(turn_id))

    async def requests(self, *kinds: InboxKind) -> list[InboxItem]:
        return await self.around(StoreCall("requests"), lambda: self.inner.requests(*kinds))

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
        return await self.around(StoreCall("delete", turn_id), lambda: self.inner.delete(turn_id))

    async def migrate(self) -> tuple[int, int]:
        return await self.around(StoreCall("migrate"), self.inner.migrate)

    async def aclose(self) -> None:
        await self.inner.aclose()
