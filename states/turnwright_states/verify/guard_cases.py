"""Which row each small configuration of the counters chooses.

A guard sees a counter only through its atoms: compared with 0, or with one other counter. So a few values of each are
all that the guards tell apart (a test holds them against values of any size), and what is found over them is found
over all.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple

from turnwright_states.counters import NAMES, Counters
from turnwright_states.guards import WORDS, Guard
from turnwright_states.limits import Limits
from turnwright_states.state import State, Trigger

from .cycles import Placed


class Assumption(NamedTuple):
    """What the machine guarantees whenever it fires this trigger in this state, and why the guards need not ask."""

    source: State
    trigger: Trigger
    holds: Guard
    why: str


#: All that the lint takes from the machine; the walk checks that it is so.
ASSUMED: Final = (
    Assumption(
        State.TOOL_EXEC,
        Trigger.SETTLED,
        Guard("not waiting > 0 or not pauses_left == 0"),
        "a call that wants a person when no pause is left is settled at once, so none waits then (DESIGN 2)",
    ),
)

#: The signs of Promela that stand next to a name, turned into spaces.
_SIGNS: Final = str.maketrans("()!", "   ")


def names_in(guards: Iterable[Guard]) -> tuple[str, ...]:
    """The counters and flags that the guards use, shorthands written out, in the order of `NAMES`."""
    used = {word for guard in guards for word in guard.promela.translate(_SIGNS).split()}
    return tuple(name for name in NAMES if name in used)


def _values() -> dict[str, Sequence[int | bool]]:
    """For each name the values that the atoms tell apart: numbers up to one above the largest in an atom."""
    numbers = range(max(int(word) for atom in WORDS for word in atom.split() if word.isdigit()) + 2)
    usual = Counters(Limits())
    return {name: (False, True) if isinstance(getattr(usual, name), bool) else numbers for name in NAMES}


_VALUES: Final = _values()


class Choice(NamedTuple):
    """What one configuration chooses: the first of the rows that holds, or None. The next one changes `counters`."""

    counters: Counters
    names: tuple[str, ...]
    taken: Placed | None

    @property
    def shown(self) -> str:
        """The configuration, for a message."""
        return ", ".join(f"{name} = {int(getattr(self.counters, name))}" for name in self.names)


def guard_cases(group: Sequence[Placed], also: Iterable[Guard], assumed: Iterable[Assumption]) -> Iterator[Choice]:
    """Every small configuration of the counters that a pair's rows and the guards `also` use, and the row it takes.

    Configurations that an assumption about the pair rules out are left out.
    """
    pair = group[0].row[:2]
    ruled = [one.holds for one in assumed if (one.source, one.trigger) == pair]
    names = names_in([placed.row.guard for placed in group] + [*also, *ruled])
    counters = Counters(Limits())
    guards = [(placed.row.guard.holds, placed) for placed in group]
    for values in product(*(_VALUES[name] for name in names)):
        for name, value in zip(names, values, strict=True):
            setattr(counters, name, value)
        if all(guard.holds(counters) for guard in ruled):
            yield Choice(counters, names, next((placed for holds, placed in guards if holds(counters)), None))
