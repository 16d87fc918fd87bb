"""The choices of one schedule, and the world that makes them. They are drawn from a seed, or repeated to reduce it."""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from random import Random
from typing import Protocol, TypeVar

from turnwright.model.protocol import ModelRequest
from turnwright_testing.behavior import Execution
from turnwright_testing.faults.store import Fault

T = TypeVar("T")

#: The choices of a schedule by stream. A stream has the choices of one kind, in the order in which they were made.
Made = Mapping[str, Sequence[int]]


class Choices:
    """Chooses by number. Number 0 is always the simplest choice: no delay, no fault, the first task, a plain answer.

    With `given`, each stream repeats these choices, and its later ones are 0. Otherwise they are drawn from `seed`.
    """

    def __init__(self, seed: int, old_choices: Made | None = None) -> None:
        self._random = Random(seed)  # noqa: S311 (repeatable, not secret)
        self._old_choices = old_choices
        self.made: dict[str, list[int]] = {}

    def below(self, stream: str, options: int) -> int:
        """Choose a number below `options`."""
        return self._keep(stream, options, lambda: int(self._random.random() * options))

    def weighted(self, stream: str, weights: Sequence[int]) -> int:
        """Choose a place of `weights`, each as often as its weight says."""
        return self._keep(stream, len(weights), lambda: self._draw_weighted(weights))

    def one_in(self, stream: str, number: int) -> bool:
        """Choose True once in so many times."""
        return bool(self._keep(stream, 2, lambda: int(self._random.random() * number) == 1))

    def of(self, stream: str, options: Sequence[T]) -> T:
        """Choose one of the options."""
        return options[self.below(stream, len(options))]

    def _draw_weighted(self, weights: Sequence[int]) -> int:
        point = self._random.random() * sum(weights)
        return next(place for place, upto in enumerate(accumulate(weights)) if point < upto)

    def _keep(self, stream: str, options: int, draw: Callable[[], int]) -> int:
        numbers = self.made.setdefault(stream, [])
        if self._old_choices is None:
            number = draw()
        else:
            repeated_numbers = self._old_choices.get(stream, ())
            number = min(repeated_numbers[len(numbers)], options - 1) if len(numbers) < len(repeated_numbers) else 0
        numbers.append(number)
        return number


class Surroundings(Protocol):
    """The surroundings of the models, the tools and the stores of all processes."""

    choices: Choices

    async def pause(self, where: str) -> None:
        """Let some time pass."""
        ...

    def fault(self) -> Fault:
        """Choose what happens to a call of a store."""
        ...

    def asked(self, process: str, request: ModelRequest) -> None:
        """Note that a process calls the model."""
        ...

    def executed(self, process: str, execution: Execution) -> None:
        """Note that a tool's work begins."""
        ...

    def submitted(self, execution: Execution, /) -> None:
        """Begin a job whose result comes from outside."""
        ...

    def note(self, process: str, action: str) -> None:
        """Write a line of the trace."""
        ...
