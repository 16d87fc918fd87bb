"""Decide whether a history of concurrent calls has an order that a sequential model allows.

The search is that of Wing and Gong with the cache of Lowe: a set of calls that leads to a state is tried once.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

C = TypeVar("C")
R = TypeVar("R")
S = TypeVar("S", bound=Hashable)
C_contra = TypeVar("C_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class SequentialModel(Protocol[S, C_contra, R_co]):
    """An object that does one call after the other."""

    @property
    def initial(self) -> S:
        """The state before the first call."""
        ...

    def outcomes(self, state: S, call: C_contra) -> Iterable[tuple[R_co, S]]:
        """Return each result that the call may have in this state, with the state after it."""
        ...


@dataclass(frozen=True, slots=True)
class Operation(Generic[C, R]):
    """One call of a history. `began` and `ended` are times of one clock, in any unit.

    `result` and `ended` are None for a call whose result nobody knows, because its process died or lost its server.
    It may have been done at any time after `began`, or never.
    """

    client: str
    call: C
    began: int
    ended: int | None = None
    result: R | None = None
    #: Anything more about the result, such as the text of an error. It decides nothing.
    note: str = ""

    def __str__(self) -> str:
        result = "unknown" if self.ended is None else str(self.result)
        return f"{self.client}: {self.call} -> {result}{self.note and f' ({self.note})'}"


@dataclass(frozen=True, slots=True)
class Linearization(Generic[C, R]):
    """The result of a search: the longest order that was found, and why it goes no further.

    `states` is the number of states that were looked at. `stuck` is empty if the whole history has an order. Otherwise
    each entry is a call that could come next, and the results that the model would allow.
    """

    order: Sequence[Operation[C, R]]
    states: int
    stuck: Sequence[tuple[Operation[C, R], Sequence[R]]] = field(default=())

    def __str__(self) -> str:
        if not self.stuck:
            return f"{len(self.order)} calls have an order"
        lines = ["no order of the calls explains their results. The longest one:"]
        lines += [f"  {operation}" for operation in self.order] or ["  (empty)"]
        lines.append("each call that could come next has another result than a store may give then:")
        lines += [f"  {operation}, expected {' or '.join(map(str, results))}" for operation, results in self.stuck]
        return "\n".join(lines)


def linearize(model: SequentialModel[S, C, R], operations: Iterable[Operation[C, R]]) -> Linearization[C, R]:
    """Find an order of the operations that the model allows, and that keeps the order of those that do not overlap."""
    return _Search(model, operations).run()


class _Search(Generic[S, C, R]):
    """Sets of operations are the bits of a number, in the order of `self._ops`."""

    def __init__(self, model: SequentialModel[S, C, R], operations: Iterable[Operation[C, R]]) -> None:
        self._model = model
        self._ops = sorted(operations, key=lambda operation: operation.began)
        self._needed = sum(1 << place for place, operation in enumerate(self._ops) if operation.ended is not None)
        self._visited: set[tuple[int, S]] = set()

    def run(self) -> Linearization[C, R]:
        order: list[int] = []
        longest: tuple[list[int], int, S] = ([], 0, self._model.initial)
        stack = [self._list_next(0, self._model.initial)]
        is_done = self._needed == 0
        while stack and not is_done:
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
                del order[len(stack) - 1 :]
                continue
            place, done_set, state = step
            order.append(place)
            stack.append(self._list_next(done_set, state))
            if len(order) > len(longest[0]):
                longest = ([*order], done_set, state)
            is_done = done_set & self._needed == self._needed
        places, done_set, state = longest
        stuck_ops = () if is_done else tuple(self._stuck(done_set, state))
        return Linearization([self._ops[place] for place in places], len(self._visited), stuck_ops)

    def _list_next(self, done_set: int, state: S) -> Iterator[tuple[int, int, S]]:
        """Return each operation that may come next, with the set and the state after it, unless these were seen."""
        for place in self._candidates(done_set):
            operation, after = self._ops[place], done_set | 1 << place
            for result, following in self._model.outcomes(state, operation.call):
                if (operation.ended is None or operation.result == result) and (after, following) not in self._visited:
                    self._visited.add((after, following))
                    yield place, after, following

    def _candidates(self, done_set: int) -> Iterator[int]:
        """Return the operations that began before every other one that is left had ended."""
        first_end: int | None = None
        for place, operation in enumerate(self._ops):
            if done_set >> place & 1:
                continue
            if first_end is not None and operation.began > first_end:
                return
            yield place
            if operation.ended is not None:
                first_end = operation.ended if first_end is None else min(first_end, operation.ended)

    def _stuck(self, done_set: int, state: S) -> Iterator[tuple[Operation[C, R], Sequence[R]]]:
        for place in self._candidates(done_set):
            operation = self._ops[place]
            if operation.ended is not None:
                yield operation, tuple(result for result, _ in self._model.outcomes(state, operation.call))
