"""Makes the choices of a failing schedule simpler, as long as it fails in the same way."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from .choices import Made
from .schedule import Schedule

#: A schedule with these choices.
Run = Callable[[Made], Schedule]


def shrink(found: Schedule, run: Run, *, most: int = 400, progress: Callable[[], None] = lambda: None) -> Schedule:
    """Return a schedule in which one of the same claims does not hold, with fewer choices that are not 0.

    At most `most` schedules are run.
    """
    claims = {one.claim for one in found.violations}
    best, left = _trimmed(found, run), most
    again = True
    while again and left > 0:
        again = False
        for choices in _simpler(best.choices):
            if left <= 0:
                break
            left -= 1
            progress()
            tried = run(choices)
            if claims & {one.claim for one in tried.violations} and _size(tried.choices) < _size(best.choices):
                best, again = tried, True
                break
    return best


def plain(choices: Made) -> dict[str, tuple[int, ...]]:
    """Return the choices without the zeros at the ends of their streams."""
    trimmed = {stream: _without_zeros(made) for stream, made in choices.items()}
    return {stream: made for stream, made in sorted(trimmed.items()) if made}


def _trimmed(found: Schedule, run: Run) -> Schedule:
    """Return the schedule as its choices repeat it."""
    again = run(plain(found.choices))
    return again if again.violations else found


def _size(choices: Made) -> tuple[int, int, int]:
    """Return what is made smaller: the choices that are not 0, their sum, and the number of all."""
    every = [number for made in choices.values() for number in made]
    return sum(number > 0 for number in every), sum(every), len(every)


def _simpler(choices: Made) -> Iterator[Mapping[str, Sequence[int]]]:
    """Return simpler choices, those first that leave most out."""
    known = plain(choices)
    for stream in known:
        yield {name: made for name, made in known.items() if name != stream}
    longest = max((len(made) for made in known.values()), default=0)
    size = longest
    while size:
        for stream, made in known.items():
            for begin in range(0, len(made), size):
                if any(made[begin : begin + size]):
                    block = (0,) * len(made[begin : begin + size])
                    yield {**known, stream: _without_zeros((*made[:begin], *block, *made[begin + size :]))}
                    yield {**known, stream: (*made[:begin], *made[begin + size :])}
        size //= 2
    for stream, made in known.items():
        for place, number in enumerate(made):
            for lower in sorted({1, number // 2, number - 1}) if number > 1 else ():
                yield {**known, stream: (*made[:place], lower, *made[place + 1 :])}


def _without_zeros(made: Sequence[int]) -> tuple[int, ...]:
    last = max((place for place, number in enumerate(made) if number), default=-1)
    return tuple(made[: last + 1])
