"""How far `turnwright verify` is with its walks, on a terminal: a share, and how long the rest will take."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.progress import BarColumn, Progress, TextColumn

from turnwright_states.verify import Case

from .screen import Screen

#: Seconds that a process takes for a walk of weight 1, and with how much weight that guess counts: until walks have
#: been timed here, it alone says how long all of them will take.
_GUESS: Final = 0.01
_GUESSED: Final = 500.0


def weight(case: Case) -> float:
    """Return a guess at a walk's size. The long ones begin first."""
    limits = case.limits
    wide = case.widest**2 * (2 if limits.doom_threshold is None else 6) * (1 + limits.max_pauses)
    return wide * limits.allowance * (1 + case.delegates)


class Estimate:
    """How long walks will take, by those that are through."""

    def __init__(self, total: float, processes: int, now: Callable[[], float] = time.monotonic) -> None:
        self._total, self._processes, self._now = max(total, 1.0), processes, now
        self._began = now()
        self.done = 0.0

    def __str__(self) -> str:
        """Say the share that is through, and how long the rest takes: ` 42 %, about 9 s left`."""
        spent = (self._now() - self._began) * self._processes
        each = (spent + _GUESS * _GUESSED) / (self.done + _GUESSED)
        left = (self._total - self.done) * each / self._processes
        words = f"{left:.0f} s" if left < 90 else f"{left / 60:.0f} min"  # noqa: PLR2004 (seconds that are said as such)
        return f"{100 * self.done / self._total:>3.0f} %, about {words} left"


@contextmanager
def walking(cases: Sequence[Case], processes: int, *, quiet: bool) -> Iterator[Callable[[Case], None]]:
    """Show a bar while cases are walked, which whoever walks them tells of each. It is there at once.

    It stands on stderr, or where that is no terminal, on stdout; nowhere if neither is one.
    """
    screen = Screen(err=sys.stderr.isatty() or quiet)
    estimate = Estimate(sum(map(weight, cases)), processes)
    columns = (TextColumn("walking"), BarColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("", total=sum(map(weight, cases)) or 1.0, left=estimate)

        def walked(case: Case) -> None:
            estimate.done += weight(case)
            bar.update(task, completed=estimate.done)

        yield walked
