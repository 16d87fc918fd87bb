"""A process that ends itself with SIGKILL at a chosen place: nothing after that place is done, no handler runs."""

import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, NoReturn, TypeVar

from turnwright.store import Store

from .wrapper import StoreCall, StoreWrapper

R = TypeVar("R")

#: What a process does to a store: every transaction of driving, and of a person who answers, is one of these.
Write = Literal["create", "claim", "append", "release", "post"]


@dataclass(frozen=True, slots=True)
class KillAt:
    """The place to die: at a transaction of the process, before it begins, or `after` it returned.

    `what` is the kind of the transaction (`create`, `claim`, `append`, `release`, `post`), and it is the `number`-th
    one of its kind in this process, from 1. With `fact` only those count that write a fact of this kind
    (`call_settled`); with `seq` instead of a number, it is the one that writes the fact at this place of the journal.
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

    async def around(self, call: StoreCall, make: Callable[[], Awaitable[R]]) -> R:
        """Make a call, and kill this process before it, or after it, if it is the one."""
        is_doomed = self._is_doomed(call)
        if is_doomed and not self._at.after:
            kill_this_process()
        result = await super().around(call, make)
        if is_doomed:
            kill_this_process()
        return result

    def _is_doomed(self, call: StoreCall) -> bool:
        at = self._at
        if call.name != at.what or (at.fact and all(fact.kind != at.fact for fact in call.facts)):
            return False
        if at.seq:
            seq = 0 if call.claim is None else call.claim.seq
            return seq < at.seq <= seq + len(call.facts)
        self._write_count += 1
        return self._write_count == at.number


def kill_this_process() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL was survived")
