"""An event loop on a virtual clock, in which a choice decides which ready task runs next."""

import asyncio
from bisect import insort
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, Final, TypeVar

from turnwright_testing.clock import SkippingLoop

T = TypeVar("T")

#: Callbacks of one schedule, far more than a turn needs that ends.
_MOST: Final = 100_000


class NobodyRunsError(Exception):
    """Every task waits, and no timer is set: they would wait for ever."""


class NeverRestsError(Exception):
    """The tasks go on without an end."""


class SimulatedLoop(SkippingLoop):
    """The loop. `choose` picks one of so many ready callbacks; 0 is the one that was ready first.

    The order depends on nothing else, neither on memory addresses nor on hash seeds: tasks that became ready in one
    step are sorted by their age. The callbacks of a round run before those of the next, so no task is passed over for
    ever.
    """

    def __init__(self, choose: Callable[[int], int]) -> None:
        super().__init__()
        self._ready = ReadyCallbacks(choose)
        self._skipping.when_idle = _nobody_runs

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end, and close the loop. Tasks that are left are canceled."""
        asyncio.set_event_loop(self)
        try:
            return self.run_until_complete(work)
        finally:
            try:
                self._cancel_the_rest()
            finally:
                asyncio.set_event_loop(None)
                self.close()

    def _cancel_the_rest(self) -> None:
        self._ready.restart()
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        if tasks:
            try:
                self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            except (NobodyRunsError, NeverRestsError):
                self.set_exception_handler(lambda _loop, _context: None)  # they were reported once
        self.run_until_complete(self.shutdown_asyncgens())


def _nobody_runs() -> None:
    """Raise `NobodyRunsError`: neither a thread nor a signal will wake a task."""
    raise NobodyRunsError("every task waits for another one, and no timer is set")


class ReadyCallbacks:
    """Takes the place of the deque of ready callbacks of `asyncio.BaseEventLoop`."""

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose = choose
        self._waiting: list[tuple[int, int, int, asyncio.Handle]] = []
        self._ages: dict[object, int] = {}
        self._seqs = count()
        self._round = 0
        self._ran = 0

    def append(self, handle: asyncio.Handle) -> None:
        """Add a callback. One of a task is sorted by the task's age among those that were added in the same step."""
        owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]  # noqa: SLF001 (asyncio has no other way)
        age = self._ages.setdefault(owner, len(self._ages) + 1) if isinstance(owner, asyncio.Task) else 0
        insort(self._waiting, (self._ran, age, next(self._seqs), handle))

    def popleft(self) -> asyncio.Handle:
        """Remove and return the chosen callback of this round."""
        if self._round == 0:
            self._round = len(self._waiting)
        place = self._choose(self._round) if self._round > 1 else 0
        self._round -= 1
        self._ran += 1
        if self._ran > _MOST:
            raise NeverRestsError(f"no end after {_MOST:,} callbacks")
        return self._waiting.pop(place)[-1]

    def restart(self) -> None:
        """Begin the count of callbacks anew."""
        self._ran = self._round = 0
        self._waiting = [(0, *entry) for _, *entry in self._waiting]  # type: ignore[misc]

    def clear(self) -> None:
        """Remove all callbacks."""
        self._waiting.clear()

    def __len__(self) -> int:
        return len(self._waiting)
