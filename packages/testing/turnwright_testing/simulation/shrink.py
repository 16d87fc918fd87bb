"""Makes the choices of a failing schedule simpler, as long as it fails in the same way."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from .choices import Made
from .schedule import Schedule

_MOST: Final = 400
#: A schedule with these choices.
Run = Callable[[Made], Schedule]


def shrink(schedule: Schedule, run: Run, *, progress: Callable[[], None] = lambda: None) -> Schedule:
    """Return a schedule in which one of the same claims does not hold, with fewer choices that are not 0.

    At most 400 schedules are run.
    """
    claims = {violation.claim for violation in schedule.violations}
    best, remaining = _trim(schedule, run), _MOST
    again = True
    while again and remaining > 0:
        again = False
        for choices in _simpler(best.choices):
            if remaining <= 0:
                break
            remaining -= 1
            progress()
            attempt = run(choices)
            if claims & {violation.claim for violation in attempt.violations} and _size(attempt.choices) < _size(
                best.choices
            ):
                best, again = attempt, True
                break
    return best


def plain(choices: Made) -> dict[str, tuple[int, ...]]:
    """Return the choices without the zeros at the ends of their streams."""
    short_choices = {stream: _without_zeros(numbers) for stream, numbers in choices.items()}
    return {stream: numbers for stream, numbers in sorted(short_choices.items()) if numbers}


def _trim(schedule: Schedule, run: Run) -> Schedule:
    """Return the schedule as its choices repeat it."""
    again = run(plain(schedule.choices))
    return again if again.violations else schedule


def _size(choices: Made) -> tuple[int, int, int]:
    """Return what is made smaller: the choices that are not 0, their sum, and the number of all."""
    every = [number for numbers in choices.values() for number in numbers]
    return sum(number > 0 for number in every), sum(every), len(every)


def _simpler(choices: Made) -> Iterator[Mapping[str, Sequence[int]]]:
    """Return simpler choices, those first that leave most out."""
    plain_choices = plain(choices)
    for stream in plain_choices:
        yield {name: numbers for name, numbers in plain_choices.items() if name != stream}
    longest = max((len(numbers) for numbers in plain_choices.values()), default=0)
    size = longest
    while size:
        for stream, numbers in plain_choices.items():
            for begin in range(0, len(numbers), size):
                if any(numbers[begin : begin + size]):
                    block = (0,) * len(numbers[begin : begin + size])
                    yield {
                        **plain_choices,
                        stream: _without_zeros((*numbers[:begin], *block, *numbers[begin + size :])),
                    }
                    yield {**plain_choices, stream: (*numbers[:begin], *numbers[begin + size :])}
        size //= 2
    for stream, numbers in plain_choices.items():
        for place, number in enumerate(numbers):
            for lower in sorted({1, number // 2, number - 1}) if number > 1 else ():
                yield {**plain_choices, stream: (*numbers[:place], lower, *numbers[place + 1 :])}


def _without_zeros(numbers: Sequence[int]) -> tuple[int, ...]:
    last = max((place for place, number in enumerate(numbers) if number), default=-1)
    return tuple(numbers[: last + 1])
