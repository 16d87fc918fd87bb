"""The choices of one schedule. They are drawn from a seed, or given to repeat and to reduce a run."""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from random import Random
from typing import TypeVar

T = TypeVar("T")

#: The choices of a schedule by stream. A stream has the choices of one kind, in the order in which they were made.
Made = Mapping[str, Sequence[int]]


class Choices:
    """Chooses by number. Number 0 is always the simplest choice: no delay, no fault, the first task, a plain answer.

    With `given`, each stream repeats these choices, and its later ones are 0. Otherwise they are drawn from `seed`.
    """

    def __init__(self, seed: int, repeated: Made | None = None) -> None:
        self._random = Random(seed)  # noqa: S311 (repeatable, not secret)
        self._repeated = repeated
        self.made: dict[str, list[int]] = {}

    def below(self, stream: str, options: int) -> int:
        """Choose a number below `options`."""
        return self._keep(stream, options, lambda: int(self._random.random() * options))

    def weighted(self, stream: str, weights: Sequence[int]) -> int:
        """Choose a place of `weights`, each as often as its weight says."""
        return self._keep(stream, len(weights), lambda: self._weighted(weights))

    def one_in(self, stream: str, number: int) -> bool:
        """Choose True once in so many times."""
        return bool(self._keep(stream, 2, lambda: int(self._random.random() * number) == 1))

    def of(self, stream: str, options: Sequence[T]) -> T:
        """Choose one of the options."""
        return options[self.below(stream, len(options))]

    def _weighted(self, weights: Sequence[int]) -> int:
        drawn = self._random.random() * sum(weights)
        return next(place for place, upto in enumerate(accumulate(weights)) if drawn < upto)

    def _keep(self, stream: str, options: int, draw: Callable[[], int]) -> int:
        numbers = self.made.setdefault(stream, [])
        if self._repeated is None:
            number = draw()
        else:
            repeated_numbers = self._repeated.get(stream, ())
            number = min(repeated_numbers[len(numbers)], options - 1) if len(numbers) < len(repeated_numbers) else 0
        numbers.append(number)
        return number
