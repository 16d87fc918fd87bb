"""Suggests limits from the runs that went well, and says what these limits would have done."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from turnwright_states import MAX_STEPS, Limits

from .distribution import Distribution
from .loops import THRESHOLDS
from .measure import RunMeasure
from .totals import MICRO, Tally, Totals
from .trials import Trial

#: A limit is this quantile of the good runs, rounded up.
SHARE: Final = 0.99
#: The share of good runs that a doom-loop threshold may stop.
_FEW: Final = 0.01
_DEFAULT: Final = Limits()
#: The limits that front matter has outside its `budget`.
_OWN_FIELDS: Final = ("steps", "doom_threshold")


class Suggestion(Struct):
    """Suggested limits with their effect on all runs, and the effect of the defaults.

    They come from so many `runs`: those that succeeded (`labeled`), or else those that gave an answer.
    """

    trial: Trial
    labeled: bool
    runs: int
    effect: Tally
    defaults: Tally

    @property
    def limits(self) -> dict[str, int | float | None]:
        """The arguments of `Limits` that differ from their defaults."""
        trial = self.trial
        limits: dict[str, int | float | None] = {"steps": trial.steps, "tool_calls": trial.tool_calls}
        limits |= {name: value for name in ("tokens", "cost") if (value := getattr(trial, name)) is not None}
        threshold = trial.limits().doom_threshold
        return limits if threshold == _DEFAULT.doom_threshold else {**limits, "doom_threshold": threshold}

    @property
    def python(self) -> str:
        """The limits as Python."""
        return f"Limits({', '.join(f'{name}={_number(value)}' for name, value in self.limits.items())})"

    @property
    def front_matter(self) -> list[str]:
        """The limits as lines of an agent's front matter."""
        fields = {
            name: "null" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
            for name, value in self.limits.items()
        }
        budget = ", ".join(f"{name}: {fields[name]}" for name in fields if name not in _OWN_FIELDS)
        return [*(f"{name}: {fields[name]}" for name in _OWN_FIELDS if name in fields), f"budget: {{{budget}}}"]


def defaults() -> Trial:
    """Return the default limits as a trial."""
    return Trial(
        steps=_DEFAULT.cap,
        tool_calls=_DEFAULT.call_limit,
        max_calls_per_step=_DEFAULT.max_calls_per_step,
        loops=(f"{_DEFAULT.doom_compare}:{_DEFAULT.doom_threshold}",),
    )


def suggest(totals: Totals, runs: Iterable[RunMeasure]) -> Suggestion | None:
    """Return suggested limits; None if no run went well. `runs` are all runs once more."""
    has_labels = totals.good.runs > 0
    good = totals.good if has_labels else totals.finished
    if not good.runs:
        return None
    trial = Trial(
        steps=min(rounded_up(good.steps.quantile(SHARE)), MAX_STEPS),
        tool_calls=rounded_up(good.calls.quantile(SHARE)),
        tokens=_limit(good.tokens, good.runs),
        cost=None if (cost := _limit(good.cost, good.runs)) is None else cost / MICRO,
        loops=_loops(totals, good.runs if has_labels else 0),
    )
    suggestion = Suggestion(trial, has_labels, good.runs, Tally(), Tally())
    default = defaults()
    for run in runs:
        suggestion.effect.take(trial, run.measured, run.success)
        suggestion.defaults.take(default, run.measured, run.success)
    return suggestion


def _loops(totals: Totals, good: int) -> tuple[str, ...]:
    """Return the lowest threshold, from the default on, that stops few of the good runs; none if there is none."""
    for threshold in THRESHOLDS[1:]:
        name = f"{_DEFAULT.doom_compare}:{threshold}"
        tally = totals.tallies.get(f"doom_threshold {name}")
        if tally is None or tally.succeeded <= _FEW * good or not good:
            return (name,)
    return ()


def _limit(distribution: Distribution, runs: int) -> int | None:
    """Return the limit on a usage, if it is known for at least half of the runs."""
    return rounded_up(distribution.quantile(SHARE)) if 2 * distribution.n >= runs else None


def rounded_up(number: int) -> int:
    """Return the number rounded up: to fives below 50, to tens below 200, and to two digits above."""
    if number <= 50:  # noqa: PLR2004
        step = 5
    elif number <= 200:  # noqa: PLR2004
        step = 10
    else:
        step = 10 ** (len(str(number)) - 2)
    return max(-(-number // step) * step, step)


def _number(value: float | None) -> str:
    return f"{value:_}" if isinstance(value, int) else "None" if value is None else f"{value:g}"
