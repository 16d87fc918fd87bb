"""One journal that several simulated processes share, and each process's handle to it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol, TypeVar

import anyio
import anyio.lowlevel

from turnwright.errors import StoreError
from turnwright.store import (
    NONE_ABANDONED,
    AbandonedDrivers,
    Claim,
    ClaimSpan,
    InboxItem,
    InboxKind,
    MemoryStore,
    NewTurn,
    SessionInfo,
    Status,
    TurnRow,
)
from turnwright_states.facts import Fact
from turnwright_testing.faults import StoreWrapper

R = TypeVar("R")


#: A call fails, or its process dies, before or after it is made.
Fault = Literal["", "fail before", "fail after", "die before", "die after"]


class Weather(Protocol):
    """Decides what happens to the calls of a store."""

    def delay(self, where: str) -> float:
        """Return how long a part of a call takes, in seconds."""
        ...

    def fault(self, action: str) -> Fault:
        """Return what happens to a call."""
        ...

    def note(self, process: str, action: str) -> None:
        """Write a line of the trace."""
        ...


class Disk(MemoryStore):
    """The data of all processes. A call is atomic, and sees who lives as the calling process would."""

    def __init__(self) -> None:
        super().__init__()
        #: The processes whose locks are held.
        self.held_locks: set[str] = set()

    def seen_by(self, owner: str, driven_turns: dict[str, int]) -> None:
        """Look at the turns as this process does: it knows its own turns, and of others whether their process lives."""
        self.owner = owner
        self._driven = {
            name
            for name, stored_turn in self._turns.items()
            if stored_turn.owner
            and (name in driven_turns if stored_turn.owner == owner else stored_turn.owner in self.held_locks)
        }

    def facts_now(self, turn: str) -> list[Fact]:
        """Return the facts of a turn that are written; none if there is no such turn."""
        stored_turn = self._turns.get(turn)
        return [] if stored_turn is None else stored_turn.facts

    def epoch_of(self, turn: str) -> int:
        """Return how often a turn was claimed."""
        return self._turns[turn].epoch

    def inbox_of(self, turn: str) -> str:
        """Return the payloads that wait in a turn's inbox, as one text."""
        return " ".join(item.payload for item in self._turns[turn].inbox.values())

    def turns_now(self) -> list[str]:
        """Return the ids of all turns, in the order of their creation."""
        return list(self._turns)


class ProcessStore(StoreWrapper):
    """The handle of the process `owner`. Calls take time and fail as the weather says.

    `inline`: writes take no time, as those of a local file.
    """

    @property
    def shared(self) -> bool:
        return True

    def __init__(self, disk: Disk, owner: str, weather: Weather, *, inline: bool) -> None:
        super().__init__(disk)
        self._disk = disk
        self._owner = owner
        self._weather = weather
        self._inline = inline
        #: The epochs of the turns that this process drives.
        self.driven_turns: dict[str, int] = {}
        self.dead = False
        #: Ends the process.
        self.die: Callable[[], None] = self.close
        #: Whether a call has failed on purpose.
        self.failed = False
        disk.held_locks.add(owner)

    @property
    def owner(self) -> str:
        return self._owner

    @property
    def inline(self) -> bool:
        return self._inline

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status, *, driven: bool = True) -> Claim:
        def done(claim: Claim) -> None:
            if driven:
                self.driven_turns[new.id] = claim.epoch

        try:
            return await self._do(
                f"create {new.id}", lambda: self._disk.create(new, facts, status, driven=driven), done, writes=True
            )
        except BaseException:
            self.driven_turns.pop(new.id, None)  # the claim is lost: the turn is left as after a crash
            raise

    async def claim(self, turn_id: str, *, abandoned: AbandonedDrivers = NONE_ABANDONED) -> Claim:
        mine: list[Claim] = []

        def done(claim: Claim) -> None:
            self.driven_turns[turn_id] = claim.epoch
            mine.append(claim)

        try:
            return await self._do(
                f"claim {turn_id}", lambda: self._disk.claim(turn_id, abandoned=abandoned), done, writes=True
            )
        except BaseException:
            if mine and self.driven_turns.get(turn_id) == mine[0].epoch:
                del self.driven_turns[turn_id]
            raise

    async def release(self, claim: Claim, *, crashed: bool = False) -> None:
        try:
            await self._do(f"release {claim.turn}", lambda: self._disk.release(claim, crashed=crashed), writes=True)
        finally:
            if self.driven_turns.get(claim.turn) == claim.epoch:
                del self.driven_turns[claim.turn]

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        kinds = " ".join(fact.kind for fact in facts)
        action = f"append {claim.turn} {claim.epoch}/{claim.seq} {kinds}"
        return await self._do(action, lambda: self._disk.append(claim, facts, status, consumed), writes=True)

    async def facts(self, turn_id: str, after: int = 0) -> list[tuple[int, Fact]]:
        return await self._do("facts", lambda: self._disk.facts(turn_id, after))

    async def claim_spans(self, turn_id: str) -> list[ClaimSpan]:
        return await self._do("claim_spans", lambda: self._disk.claim_spans(turn_id))

    async def get(self, turn_id: str) -> TurnRow:
        return await self._do("get", lambda: self._disk.get(turn_id))

    def has(self, turn_id: str) -> bool | None:  # noqa: ARG002 (it asks nobody)
        """See `Store.has`. The answer is never known without a call, as with a server."""
        return None

    async def turns(
        self,
        *,
        session: str | None = None,
        live: bool | None = None,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[TurnRow]:
        return await self._do("turns", lambda: self._disk.turns(session=session, live=live, limit=limit, before=before))

    async def sessions(self, *, limit: int | None = None, before: int | None = None) -> list[SessionInfo]:
        return await self._do("sessions", lambda: self._disk.sessions(limit=limit, before=before))

    async def is_driven(self, turn_id: str) -> bool:
        return await self._do("is_driven", lambda: self._disk.is_driven(turn_id))

    async def post(self, *items: InboxItem) -> tuple[InboxItem, ...]:
        action = f"post {' '.join(item.id for item in items)}"
        return await self._do(action, lambda: self._disk.post(*items), writes=True)

    async def inbox(self, turn_id: str) -> list[InboxItem]:
        return await self._do("inbox", lambda: self._disk.inbox(turn_id), local=True)

    async def requests(self, *kinds: InboxKind) -> list[InboxItem]:
        return await self._do("requests", lambda: self._disk.requests(*kinds))

    async def _do(
        self,
        action: str,
        call: Callable[[], Awaitable[R]],
        done: Callable[[R], None] = lambda _: None,
        *,
        writes: bool = False,
        local: bool = False,
    ) -> R:
        """Make a call. What it returns is known to this process only after a while."""
        self._need_life()
        fault = self._weather.fault(action)
        waits = not (self._inline and (writes or local))
        if waits:
            await self._wait("store")
        if fault.endswith("before"):
            raise self._failed(fault, f"{action}: not made")
        self._look()
        result = await call()
        done(result)
        if writes:
            self._weather.note(self._owner, action)
        if fault.endswith("after"):
            raise self._failed(fault, f"{action}: it is not known whether the last write was made")
        if waits:
            await self._wait("answer")
        return result

    def close(self) -> None:
        """Release the lock: the process is dead."""
        self.dead = True
        self._disk.held_locks.discard(self._owner)

    def _failed(self, fault: Fault, why: str) -> StoreError:
        self.failed = True
        self._weather.note(self._owner, f"{fault}: {why}")
        if fault.startswith("die"):
            self.die()
        return StoreError(f"{why}, as chosen")

    def _need_life(self) -> None:
        if self.dead:
            raise StoreError(f"process {self._owner} is dead")

    def _look(self) -> None:
        self._need_life()
        self._disk.seen_by(self._owner, self.driven_turns)

    async def _wait(self, where: str) -> None:
        seconds = self._weather.delay(where)
        if seconds:
            await anyio.sleep(seconds)
        else:
            await anyio.lowlevel.checkpoint()
