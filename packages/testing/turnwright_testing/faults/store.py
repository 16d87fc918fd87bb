"""Stores that die in the middle of a turn, alone or with their process: only the journal is left."""

import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, NoReturn, TypeVar

from turnwright.errors import StoreError
from turnwright.store import Store
from turnwright_states.facts import Fact

from .wrapper import StoreCall, StoreWrapper

R = TypeVar("R")

#: A call fails, or its process dies, before or after it is made.
Fault = Literal["", "fail before", "fail after", "die before", "die after"]
#: What a process does to a store: every transaction of driving, and of a person who answers, is one of these.
Write = Literal["create", "claim", "append", "release", "post"]


class FaultyStore(StoreWrapper):
    """A store that passes all calls to `inner` until its `at`-th append, which raises `StoreError`.

    `at` counts from 1; 0 never fails. A kind of fact as `at` means the first append with such a fact. With `after` the
    facts are written before it raises, as when the process dies between the commit and the next line. From then on the
    store is dead and everything raises, releases included, so that the driver looks crashed. With `heals` only that one
    append fails, as when a disk is full for a moment. Override `fault` for another plan.

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
        store_type = type(self)
        is_direct = all(
            getattr(store_type, name) is getattr(FaultyStore, name) for name in ("append", "inbox", "around")
        )
        return is_direct and self.inner.inline

    async def around(self, call: StoreCall, make: Callable[[], Awaitable[R]]) -> R:
        """Make a call, or let it fail as planned."""
        self.enter()
        self.appends += call.name == "append"
        fault = self.fault(call)
        if fault.endswith("before"):
            raise self.fail(fault, call)
        result = await make()
        if fault.endswith("after"):
            raise self.fail(fault, call)
        return result

    def fault(self, call: StoreCall) -> Fault:
        """Plan what happens to a call, before it is made."""
        if call.name != "append" or not self._is_chosen(call):
            return ""
        if self.heals:
            return "fail after" if self.after else "fail before"
        return "die after" if self.after else "die before"

    def fail(self, fault: Fault, call: StoreCall) -> StoreError:
        """Let a call fail, or the process die. Return the error of the call."""
        self.dead, self.failed = self.dead or fault.startswith("die"), True
        number = f" {self.appends}" if call.name == "append" else ""
        return StoreError(f"{call.name}{number} fails, as planned")

    def _is_chosen(self, call: StoreCall) -> bool:
        if isinstance(self.at, int):
            return self.appends == self.at
        return not self.failed and any(type(fact) is self.at for fact in call.facts)


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
