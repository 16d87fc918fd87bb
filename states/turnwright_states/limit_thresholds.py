"""When a limit comes near: four fifths of it are used."""

from collections.abc import Collection
from math import inf
from typing import Final, NamedTuple

from .limits import Limits

#: LimitThresholds out of reach, each of the kind of number that it is compared with, which is quicker.
_NEVER: Final = (10**30, 10**30, 10**30, inf, inf)


class LimitThresholds(NamedTuple):
    """Four times each limit that is set and was not noticed yet; out of reach where there is none.

    A limit is near once five times what is used is as much. Four fifths without fractions: 0.8 is no binary number.
    """

    steps: float
    tool_calls: float
    tokens: float
    cost: float
    seconds: float

    @classmethod
    def of(cls, limits: Limits, noticed: Collection[str], steps: int = 0) -> "LimitThresholds":
        """The marks of these limits, but for those whose names are in `noticed`. `steps` have begun.

        Steps are noticed while at least one more remains, and again at each of them where the limits say so.
        """
        cap, budgets = limits.cap, (limits.call_limit, limits.tokens, limits.cost, limits.seconds)
        due = -(-4 * cap // 5)
        if "steps" in noticed:
            due = max(due, steps + 1) if limits.step_notices == "each" else cap
        marks = zip(cls._fields[1:], budgets, _NEVER[1:], strict=True)
        rest = (4 * one if one and name not in noticed else never for name, one, never in marks)
        return cls(5 * due if due < cap else _NEVER[0], *rest)
