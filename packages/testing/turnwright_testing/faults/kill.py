"""A process that ends itself with SIGKILL at a chosen place: nothing after that place is done, no handler runs."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NoReturn

from turnwright.store import NONE_ABANDONED, AbandonedDrivers, Claim, InboxItem, NewTurn, Status, Store
from turnwright_states.facts import Fact

from .wrapper import StoreWrapper

#: What a driver does to a store: every transaction of driving is one of these.
Write = Literal["create", "claim", "append", "release"]


@dataclass(frozen=True, slots=True)
class KillAt:
    """The place to die: at a transaction of the process, before it begins, or `after` it returned.

    `what` is the kind of the transaction (`create`, `claim`, `append`, `release`), and it is the `number`-th one of
    its kind in this process, from 1. With `fact` only those count that write a fact of this kind (`call_settled`);
    with `seq` instead of a number, it is the one that writes the fact at this place of the journal.
    """

    what: Write = "append"
    number: int = 1
    after: bool = False
    fact: str = ""
    seq: int = 0


class KillingStore(StoreWrapper):
    """Passes everything on to `inner`, and kills this process at `at`. For the driver's process, not for yours."""

    def __init__(self, inner: Store, at: KillAt) -> None:
        super().__init__(inner)
        self._at = at
        self._write_count = 0

    @property
    def inline(self) -> bool:
        """See `StoreWrapper.inline`. To die takes no time."""
        return self.inner.inline

    async def create(self, new: NewTurn, facts: Sequence[Fact], status: Status, *, driven: bool = True) -> Claim:
        with self._perilous("create", facts):
            return await self.inner.create(new, facts, status, driven=driven)

    async def claim(self, turn_id: str, *, abandoned: AbandonedDrivers = NONE_ABANDONED) -> Claim:
        with self._perilous("claim"):
            return await self.inner.claim(turn_id, abandoned=abandoned)

    async def append(
        self, claim: Claim, facts: Sequence[Fact], status: Status, consumed: Sequence[str] = ()
    ) -> list[InboxItem]:
        with self._perilous("append", facts, claim.seq):
            return await self.inner.append(claim, facts, status, consumed)

    async def release(self, claim: Claim, *, crashed: bool = False) -> None:
        with self._perilous("release"):
            await self.inner.release(claim, crashed=crashed)

    @contextmanager
    def _perilous(self, write: Write, facts: Sequence[Fact] = (), seq: int = 0) -> Iterator[None]:
        doomed = self._is_it(write, facts, seq)
        if doomed and not self._at.after:
            kill_this_process()
        yield
        if doomed:
            kill_this_process()

    def _is_it(self, write: Write, facts: Sequence[Fact], seq: int) -> bool:
        at = self._at
        if write != at.what or (at.fact and all(fact.kind != at.fact for fact in facts)):
            return False
        if at.seq:
            return seq < at.seq <= seq + len(facts)
        self._write_count += 1
        return self._write_count == at.number


def kill_this_process() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL was survived")
