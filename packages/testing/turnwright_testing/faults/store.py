"""A store that dies in the middle of a turn, as a process does: only the journal is left."""

from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

from turnwright.errors import StoreError
from turnwright.store import Store
from turnwright_states.facts import Fact

from .wrapper import StoreCall, StoreWrapper

R = TypeVar("R")

#: A call fails, or its process dies, before or after it is made.
Fault = Literal["", "fail before", "fail after", "die before", "die after"]


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
