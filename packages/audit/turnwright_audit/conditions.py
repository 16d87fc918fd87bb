"""Conditions under which an audit fails: `loops>1%,unpaired>0`."""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from .distribution import QUANTILES
from .totals import MICRO, Totals

#: Each count, and what 100 % of it is.
_COUNTS: Final[dict[str, tuple[Callable[[Totals], int], Callable[[Totals], int]]]] = {
    "loops": (lambda totals: totals.looping, lambda totals: totals.runs),
    "unpaired": (lambda totals: totals.unpaired, lambda totals: totals.calls),
    "orphans": (lambda totals: totals.orphans, lambda totals: totals.results),
    "errors": (lambda totals: totals.errors, lambda totals: totals.results),
    "denied": (lambda totals: totals.denied, lambda totals: totals.results),
    "cut": (lambda totals: totals.cut, lambda totals: totals.runs),
    "failed": (lambda totals: totals.failed, lambda totals: totals.succeeded + totals.failed),
    "rules": (lambda totals: totals.breaking.runs, lambda totals: totals.runs),
    "failed_requests": (lambda totals: totals.failed_requests, lambda totals: totals.steps),
}
_DISTRIBUTIONS: Final = ("steps", "calls", "tokens", "cost")
_SHARES: Final = (*QUANTILES, "max")
_FORM: Final = re.compile(
    r"(?P<name>[a-z_]+)(?:\.(?P<share>\w+))?\s*(?P<sign>>=?)\s*(?P<most>\d+(?:\.\d+)?)\s*(?P<percent>%?)"
)


class InvalidConditionError(ValueError):
    """A condition that cannot be read. The message says why."""


class Condition(NamedTuple):
    """A condition: `text` as it was written, and its parts."""

    text: str
    name: str
    share: str | None
    sign: str
    most: float
    percent: bool

    def value(self, totals: Totals) -> float:
        """Return the number, or the percentage, that the condition is about."""
        if self.share:
            quantile = getattr(totals.all, self.name).shares()[self.share]
            return quantile / MICRO if self.name == "cost" else float(quantile)
        count, whole = _COUNTS[self.name]
        return 100 * count(totals) / max(whole(totals), 1) if self.percent else float(count(totals))

    def lacks(self, totals: Totals) -> str:
        """Return what no run has, so that the condition cannot be checked; empty if it can."""
        if not totals.runs:
            return ""
        if self.name in ("tokens", "cost") and not getattr(totals.all, self.name).n:
            return f"no {self.name}"
        return "no label" if self.name == "failed" and not totals.all.labeled else ""

    def holds(self, totals: Totals) -> bool:
        """Return whether the condition holds, so that the audit fails."""
        value = self.value(totals)
        return value >= self.most if self.sign == ">=" else value > self.most


def parse_conditions(text: str) -> list[Condition]:
    """Parse conditions with commas between them. Raises `InvalidConditionError`."""
    return [_condition(part.strip()) for part in text.split(",")]


def _condition(text: str) -> Condition:
    match = _FORM.fullmatch(text)
    if match is None:
        raise InvalidConditionError(f"{text!r} is not a condition: write NAME>NUMBER, NAME>NUMBER% or NAME.p99>NUMBER")
    name, share, sign, most, percent = match.groups()
    if share is None and name not in _COUNTS:
        sizes = f"{', '.join(_DISTRIBUTIONS)} with {', '.join(_SHARES)}, as in steps.p99"
        raise InvalidConditionError(f"{text!r}: NAME must be one of {', '.join(_COUNTS)}; or {sizes}")
    if share is not None and (name not in _DISTRIBUTIONS or share not in _SHARES or percent):
        raise InvalidConditionError(f"{text!r}: write {', '.join(_DISTRIBUTIONS)} with {', '.join(_SHARES)}, without %")
    return Condition(text, name, share, sign, float(most), bool(percent))
