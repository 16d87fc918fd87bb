"""A client that makes random calls to a store, and records them."""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final

from turnwright.errors import LeaseLostError, SessionBusyError, StoreError, TurnBusyError, TurnNotFoundError
from turnwright.store import AbandonedDrivers, Claim, InboxItem, InboxKind, NewTurn, Status, Store
from turnwright_states import EndReason, State
from turnwright_states.facts import Fact, ModelReplied

from .calls import Append, ClientCall, Create, Delete, Post, Read, Reading, Release, StoreResult, TakeClaim
from .history import StoreHistory

#: The calls that a client draws, and how often.
_WEIGHTS: Final = {
    "append": 6,
    "append_again": 1,
    "claim": 4,
    "take_over": 1,
    "release": 3,
    "post": 3,
    "facts": 2,
    "get": 2,
    "inbox": 1,
    "is_driven": 1,
    "create": 1,
    "delete": 0.3,
}
_READS: Final[tuple[Reading, ...]] = ("facts", "get", "inbox", "is_driven")
_ERRORS: Final[dict[type[Exception], StoreResult]] = {
    TurnNotFoundError: StoreResult("not_found"),
    TurnBusyError: StoreResult("busy"),
    SessionBusyError: StoreResult("session_busy"),
    LeaseLostError: StoreResult("lease_lost"),
}


@dataclass
class StoreClient:
    """One task of a process that uses `store`.

    `turns` are the ids that it calls for; those that contain a slash belong to the session before it. `names` are the
    names of other processes, whose turns it may take.
    """

    name: str
    store: Store
    history: StoreHistory
    draw: Random
    turns: Sequence[str]
    names: Sequence[str] = ()
    claims: list[Claim] = field(default_factory=list)
    _numbers: "count[int]" = field(default_factory=count)
    _last: tuple[Claim, Append] | None = None
    #: The turn and the epoch of claims whose turn has ended. The machine writes nothing but ended states from then on.
    _over: set[tuple[str, int]] = field(default_factory=set)

    async def act(self) -> None:
        """Make one random call."""
        (kind,) = self.draw.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        turn = self.draw.choice(self.turns)
        if kind in _READS:
            await self.read(turn, kind, self.draw.choice((0, 0, 2)))
        elif kind == "create":
            await self.create(turn, driven=not self._one_in(3))
        elif kind == "delete":
            await self._do(Delete(turn, self.store.owner))
        elif kind == "post":
            items = {
                f"q{self.draw.randrange(4)}": f'"{self.draw.randrange(2)}"' for _ in range(self.draw.choice((1, 1, 2)))
            }
            await self._do(Post(turn, tuple(items.items())))
        elif kind == "append_again" and self._last is not None:
            claim, call = self._last
            await self._do(call, claim)
        elif kind in ("append", "append_again", "release") and self.claims:
            claim = self.draw.choice(self.claims) if self._one_in(5) else self.claims[-1]
            if kind == "release":
                await self._do(Release(claim.turn, claim.epoch, self._one_in(5)), claim)
            else:
                await self.append(claim)
        else:
            names = [*self.names, self.store.owner]
            await self.claim(turn, tuple(sorted(set(names))) if kind == "take_over" else ())

    async def create(self, turn: str, *, driven: bool = True) -> None:
        session = turn.partition("/")[0] if "/" in turn else None
        await self._do(Create(turn, self.store.owner, self._marks(2), next(self._numbers), session, driven))

    async def claim(self, turn: str, abandoned: tuple[str, ...] = ()) -> None:
        result = await self._do(TakeClaim(turn, self.store.owner, abandoned))
        if result is not None and result.status == "ok":
            row = await self.read(turn, "get")
            if row is not None and row.flag:
                self._over.add((turn, result.epoch))

    async def append(self, claim: Claim) -> None:
        ends = (claim.turn, claim.epoch) in self._over or self._one_in(10)
        marks = self._marks(self.draw.choice((0, 1, 1, 2)))
        consumed_ids = tuple(item.id for item in claim.waiting if self._one_in(2))
        call = Append(claim.turn, claim.epoch, claim.seq, marks, next(self._numbers), ends, consumed_ids)
        if marks:
            self._last = copy(claim), call
        await self._do(call, claim)
        if ends:
            self._over.add((claim.turn, claim.epoch))

    async def read(self, turn: str, reading: Reading, after: int = 0) -> StoreResult | None:
        """Read one thing of a turn, and return the recorded result."""
        after = after if reading == "facts" else 0
        return await self._do(Read(turn, reading, after, self.store.owner if reading == "is_driven" else ""))

    async def read_all(self) -> None:
        """Read every turn: what was lost shows here, if nowhere before."""
        for turn in self.turns:
            for reading in _READS:
                await self.read(turn, reading)

    def _one_in(self, number: int) -> bool:
        return self.draw.randrange(number) == 0

    def _marks(self, number: int) -> tuple[str, ...]:
        return tuple(f"{self.name}.{next(self._numbers)}" for _ in range(number))

    async def _do(self, call: ClientCall, claim: Claim | None = None) -> StoreResult | None:
        """Make a call, under this claim, and record it. Returns None if nobody knows its result."""
        number, note = self.history.begin(self.name, call), ""
        try:
            result = await self._make(call, claim or Claim(call.turn, 0, 0))
        except tuple(_ERRORS) as error:
            result = _ERRORS[type(error)]
        except StoreError as error:
            if "not known" in str(error):
                return None  # the server was lost during the write
            result, note = StoreResult("error"), str(error)
        self.history.end(number, result, note)
        return result

    async def _make(self, call: ClientCall, claim: Claim) -> StoreResult:  # noqa: C901, PLR0911 (a case a call: flat)
        store = self.store
        match call:
            case Create():
                new = NewTurn(call.turn, call.session, "agent", "model", 1_700_000_000.0)
                status = Status(State.STREAM, call.number)
                claim = await store.create(new, _facts(call.marks), status, driven=call.driven)
                if call.driven:
                    self.claims.append(claim)
                return StoreResult(epoch=claim.epoch, seq=claim.seq)
            case TakeClaim():
                claim = await store.claim(call.turn, abandoned=AbandonedDrivers(frozenset(call.abandoned)))
                self.claims.append(claim)
                return StoreResult(epoch=claim.epoch, seq=claim.seq, items=_ids(claim.waiting), flag=claim.crashed)
            case Release():
                await store.release(claim, crashed=call.crashed)
                return StoreResult()
            case Append():
                end = Status(State.ABORTED, call.number, 0, EndReason.ABORTED)
                status = end if call.ends else Status(State.STREAM, call.number)
                claim.waiting = await store.append(claim, _facts(call.marks), status, call.consumed)
                return StoreResult(seq=claim.seq, items=_ids(claim.waiting))
            case Post():
                items = [InboxItem(call.turn, name, InboxKind.STEER, payload) for name, payload in call.items]
                return StoreResult(items=_ids(await store.post(*items)))
            case Delete():
                return StoreResult(number=await store.delete(call.turn))
            case Read(what="facts"):
                return StoreResult(items=tuple(mark_of(fact) for _, fact in await store.facts(call.turn, call.after)))
            case Read(what="get"):
                row = await store.get(call.turn)
                ended_too = row.status.outcome is not None
                return StoreResult(epoch=row.epoch, number=row.status.steps, owner=row.owner, flag=ended_too)
            case Read(what="inbox"):
                return StoreResult(items=_ids(await store.inbox(call.turn)))
            case Read():
                return StoreResult(flag=await store.is_driven(call.turn))


def mark_of(fact: Fact) -> str:
    """Return the mark of a fact that a client wrote, which is unique in the history."""
    return fact.text if isinstance(fact, ModelReplied) else fact.kind


def _facts(marks: Sequence[str]) -> list[Fact]:
    return [ModelReplied(text=mark, state=State.STREAM, elapsed=0.0, hash="") for mark in marks]


def _ids(items: Iterable[InboxItem]) -> tuple[str, ...]:
    return tuple(item.id for item in items)
