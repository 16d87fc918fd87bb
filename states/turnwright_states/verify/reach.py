"""Can a turn end like that? A shortest way to an end, over all cases at once, or the word that there is none.

The machine that ships is fed with everything that its surroundings may do, breadth first, so the first way found in a
case is a shortest one there. The cases are searched in rounds, each deeper than the one before, and the shortest way of
the first round that has one is a shortest way of all.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from turnwright_states.inputs import Input
from turnwright_states.state import FINAL, State

from .case import Case
from .configuration import Key, WalkedMachine, key_of
from .environment import Environment
from .path import Path, retrace
from .walk import MOST

#: How deep each round looks, in events; the last has no bound.
DEPTHS: Final = (1, 2, 3, 4, 5, 6, 9, None)


@dataclass(frozen=True, slots=True)
class Goal:
    """Where a way must lead, and what it must pass.

    `ends` are ends as "outcome/reason"; one of them must be reached. `states` must all be passed, and `events` must all
    happen: names of the chart's triggers, or of the machine's events (`event_name`).
    """

    ends: frozenset[str]
    states: frozenset[State] = frozenset()
    events: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A way to the goal: feed `events` to a turn of `case`, one after the other."""

    case: Case
    events: tuple[Input, ...]

    @property
    def path(self) -> Path:
        """The way through the chart, its beginning first."""
        return retrace(self.case, self.events)[0]


class Search(NamedTuple):
    """What a search saw. `whole`: there is nothing more to see, in any depth. `cut`: it met too many configurations."""

    witness: Counterexample | None
    configurations: int
    whole: bool
    cut: bool = False


Each = Callable[[Callable[[Case], Search], Sequence[Case]], Iterable[Search]]
_Seen = frozenset[str]


class _Node(NamedTuple):
    """A configuration on the frontier: how it was reached, and what of the goal's conditions was passed."""

    machine: WalkedMachine
    seen: _Seen
    #: The events that led here, latest first, as nested pairs: frontiers share them.
    events: "_Events"


_Events = tuple[Input, "_Events"] | None


def reach(cases: Sequence[Case], goal: Goal, *, each: Each = map, most: int = MOST) -> Search:
    """A shortest way to the goal over all the cases, or none.

    `each` maps a search over cases, as `map` does: that is how several processes share the work. `most` bounds the
    configurations of one case; a search that was cut there is not whole.
    """
    left, configurations, cut, before = list(cases), 0, False, 0
    for depth in DEPTHS:
        searches: list[Search] = []
        for one in each(partial(search, goal=goal, depth=depth, most=most), left):
            searches.append(one)
            if one.witness is not None and len(one.witness.events) == before + 1:
                break  # no way is shorter
        found = [one.witness for one in searches if one.witness is not None]
        if found:
            best = min(found, key=lambda witness: len(witness.events))
            return Search(best, configurations + sum(one.configurations for one in searches), whole=False)
        cut |= any(one.cut for one in searches)
        configurations += sum(one.configurations for one in searches if one.whole or one.cut)
        left = [case for case, one in zip(left, searches, strict=True) if not one.whole and not one.cut]
        before = depth or before
    return Search(None, configurations, whole=not cut, cut=cut)


def search(case: Case, goal: Goal, *, depth: int | None = None, most: int = MOST) -> Search:
    """A shortest way to the goal in one case, of at most `depth` events (None: of any length)."""
    around, wanted = Environment(case), _wanted(goal)
    begun, _ = WalkedMachine.start(case.started)
    assert isinstance(begun, WalkedMachine)  # noqa: S101 (start builds its own class)
    root = _Node(begun, _passed(begun, None) & wanted, None)
    known: set[tuple[Key, _Seen]] = {(key_of(begun.turn), root.seen)}
    frontier, gone = [root], 0
    while frontier and (depth is None or gone < depth):
        gone += 1
        beyond: list[_Node] = []
        for node in frontier:
            for event in around.moves(node.machine.turn, node.machine.action):
                there = _led(node, event, wanted)
                if there.machine.state in FINAL:
                    end = f"{there.machine.state.outcome}/{there.machine.turn.reason}"
                    if end in goal.ends and there.seen == wanted:
                        return Search(Counterexample(case, _unwound(there.events)), len(known), whole=False)
                    continue
                key = key_of(there.machine.turn), there.seen
                if key in known:
                    continue
                if len(known) >= most:
                    return Search(None, len(known), whole=False, cut=True)
                known.add(key)
                beyond.append(there)
        frontier = beyond
    return Search(None, len(known), whole=not frontier)


def _led(node: _Node, event: Input, wanted: _Seen) -> _Node:
    machine = node.machine.twin()
    machine.feed(event)
    return _Node(machine, node.seen | (_passed(machine, event) & wanted), (event, node.events))


def _wanted(goal: Goal) -> _Seen:
    return goal.events | {f"in {state}" for state in goal.states}


def _passed(machine: WalkedMachine, event: Input | None) -> _Seen:
    """What of a goal's conditions the last event met."""
    rows = machine.rows
    named = {event_name(type(event))} if event is not None else set()
    states = {row.source for row in rows} | {row.dest for row in rows}
    return frozenset(named | {str(row.trigger) for row in rows} | {f"in {state}" for state in states})


def event_name(kind: type[Input]) -> str:
    """The name of a machine's event as a goal spells it: `call_waiting` for `CallWaitingInput`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in kind.title()).lstrip("_")


def _unwound(events: _Events) -> tuple[Input, ...]:
    way: list[Input] = []
    while events is not None:
        event, events = events
        way.append(event)
    return tuple(reversed(way))
