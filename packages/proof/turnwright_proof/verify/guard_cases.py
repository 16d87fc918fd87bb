"""The row that each small configuration of the counters chooses.

A guard compares a counter only with 0 or with one other counter. So guards distinguish only a few values of each, and a
result for these holds for all values. A test compares them with values of any size.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple

from turnwright_states.counters import NAMES, Counters
from turnwright_states.guards import WORDS, Guard
from turnwright_states.limits import Limits
from turnwright_states.state import State, Trigger

from .cycles import Placed


class Assumption(NamedTuple):
    """A guarantee of the machine for this trigger in this state, which the guards need not check, and its reason."""

    source: State
    trigger: Trigger
    holds: Guard
    why: str


#: All guarantees that the lint needs. The walk checks them.
ASSUMED: Final = (
    Assumption(
        State.TOOL_EXEC,
        Trigger.SETTLED,
        Guard("not waiting > 0 or not pauses_left == 0"),
        "without a pause left, a call that needs a person is settled at once, so none waits",
    ),
    Assumption(
        State.STREAM,
        Trigger.OVERSIZED,
        Guard("compactions_left > 0"),
        "the machine refuses the input when no compaction is left",
    ),
)


def names_in(guards: Iterable[Guard]) -> tuple[str, ...]:
    """Return the counters and flags that the guards use, also within shorthands, in the order of `NAMES`."""
    used_words = {word for guard in guards for word in re.findall(r"\w+", guard.expanded)}
    return tuple(name for name in NAMES if name in used_words)


def _values() -> dict[str, Sequence[int | bool]]:
    """Return the values of each name that atoms distinguish: numbers up to one above the largest in an atom."""
    numbers = range(max(int(word) for atom in WORDS for word in atom.split() if word.isdigit()) + 2)
    usual = Counters(Limits())
    return {name: (False, True) if isinstance(getattr(usual, name), bool) else numbers for name in NAMES}


_VALUES: Final = _values()


class Choice(NamedTuple):
    """One configuration and the first row that holds, or None. The next configuration reuses `counters`."""

    counters: Counters
    names: tuple[str, ...]
    taken: Placed | None

    @property
    def shown(self) -> str:
        """The configuration as text for a message."""
        return ", ".join(f"{name} = {int(getattr(self.counters, name))}" for name in self.names)


def guard_cases(group: Sequence[Placed], also: Iterable[Guard], assumptions: Iterable[Assumption]) -> Iterator[Choice]:
    """Yield every small configuration of the counters in a pair's rows and in the guards `also`, with its row.

    Configurations that contradict an assumption about the pair are left out.
    """
    pair = group[0].row[:2]
    assumed_guards = [assumption.holds for assumption in assumptions if (assumption.source, assumption.trigger) == pair]
    names = names_in([placed_row.row.guard for placed_row in group] + [*also, *assumed_guards])
    counters = Counters(Limits())
    guards = [(placed_row.row.guard.holds, placed_row) for placed_row in group]
    for values in product(*(_VALUES[name] for name in names)):
        for name, value in zip(names, values, strict=True):
            setattr(counters, name, value)
        if all(guard.holds(counters) for guard in assumed_guards):
            yield Choice(counters, names, next((placed_row for holds, placed_row in guards if holds(counters)), None))
