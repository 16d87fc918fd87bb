"""One journal that several simulated processes share, and each process's handle to it."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from turnwright.errors import StoreError
from turnwright.store import Claim, MemoryStore
from turnwright_states.facts import Fact
from turnwright_testing.faults import FaultyStore
from turnwright_testing.faults.store import Fault
from turnwright_testing.faults.wrapper import StoreCall

from .choices import Surroundings

R = TypeVar("R")

#: The calls that write, for the trace.
_WRITES: Final = ("create", "claim", "release", "append", "post")


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


class ProcessStore(FaultyStore):
    """The handle of the process `owner`. Calls take time and fail as the world chooses.

    `inline`: writes take no time, as those of a local file.
    """

    inner: Disk

    def __init__(self, disk: Disk, owner: str, world: Surroundings, *, inline: bool) -> None:
        super().__init__(disk)
        self._owner = owner
        self._world = world
        self._inline = inline
        #: The epochs of the turns that this process drives.
        self.driven_turns: dict[str, int] = {}
        #: Ends the process.
        self.die: Callable[[], None] = self.close
        disk.held_locks.add(owner)

    @property
    def shared(self) -> bool:
        return True

    @property
    def owner(self) -> str:
        return self._owner

    @property
    def inline(self) -> bool:
        return self._inline

    def has(self, turn_id: str) -> bool | None:  # noqa: ARG002 (it asks nobody)
        """See `Store.has`. The answer is never known without a call, as with a server."""
        return None

    async def around(self, call: StoreCall, make: Callable[[], Awaitable[R]]) -> R:
        """Make a call. What it returns is known to this process only after a while."""
        claim = call.claim if call.name == "release" else None
        action = _action(call)
        try:
            self.enter()
            fault = self._world.fault()
            writes = call.name in _WRITES
            waits = not (self._inline and (writes or call.name == "inbox"))
            if waits:
                await self._world.pause("store")
            self._fail(fault, "before", action)
            self.enter()
            self.inner.seen_by(self._owner, self.driven_turns)
            result = await make()
            if isinstance(result, Claim) and call.drives:
                claim, self.driven_turns[result.turn] = result, result.epoch
            if writes:
                self._world.note(self._owner, action)
            self._fail(fault, "after", action)
            if waits:
                await self._world.pause("answer")
        except BaseException:
            self._forget(claim)  # the turn is left as after a crash
            raise
        if call.name == "release":
            self._forget(claim)
        return result

    def close(self) -> None:
        """Release the lock: the process is dead."""
        self.dead = True
        self.inner.held_locks.discard(self._owner)

    def _fail(self, fault: Fault, when: str, action: str) -> None:
        if not fault.endswith(when):
            return
        self.failed = True
        outcome = "not made" if when == "before" else "it is not known whether the last write was made"
        self._world.note(self._owner, f"{fault}: {action}: {outcome}")
        if fault.startswith("die"):
            self.die()
        raise StoreError(f"{action}: {outcome}, as chosen")

    def _forget(self, claim: Claim | None) -> None:
        if claim is not None and self.driven_turns.get(claim.turn) == claim.epoch:
            del self.driven_turns[claim.turn]


def _action(call: StoreCall) -> str:
    """Return the line of a call in the trace."""
    if call.name == "append" and call.claim is not None:
        kinds = " ".join(fact.kind for fact in call.facts)
        return f"append {call.turn} {call.claim.epoch}/{call.claim.seq} {kinds}"
    if call.name in _WRITES:
        return " ".join([call.name, *filter(None, [call.turn]), *(item.id for item in call.items)])
    return call.name
