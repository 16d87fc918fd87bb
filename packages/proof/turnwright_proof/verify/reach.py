"""The search for a shortest path to an end, over all cases.

The shipped machine is fed with every input of the environment, breadth first, so the first path found in a case is a
shortest one there. The cases are searched in rounds, each deeper than the one before, and the shortest path of the
first round that has one is a shortest path of all.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from turnwright_states.inputs import Input
from turnwright_states.state import FINAL, State

from .case import Case
from .configuration import Key, WalkedMachine
from .environment import Environment
from .path import Path, retrace
from .walk import MOST

#: The depth of each round, in inputs; the last has no bound.
DEPTHS: Final = (1, 2, 3, 4, 5, 6, 9, None)


@dataclass(frozen=True, slots=True)
class Goal:
    """The end of the path, and the states and events on it.

    `ends` are ends as "outcome/reason"; one of them must be reached. All `states` must be passed, and all `events` must
    occur: names of the chart's triggers, or of the machine's inputs (`event_name`).
    """

    ends: frozenset[str]
    states: frozenset[State] = frozenset()
    events: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A path to the goal: feed `events` to a turn of `case`, one after the other."""

    case: Case
    events: tuple[Input, ...]

    @property
    def path(self) -> Path:
        """The path through the chart, its beginning first."""
        return retrace(self.case, self.events)[0]


class Search(NamedTuple):
    """The result of a search. `whole`: it covered every depth. `cut`: it stopped at too many configurations."""

    witness: Counterexample | None
    configurations: int
    whole: bool
    cut: bool = False


Each = Callable[[Callable[[Case], Search], Sequence[Case]], Iterable[Search]]
_Seen = frozenset[str]


class _SearchNode(NamedTuple):
    """A configuration on the frontier: how it was reached, and what of the goal's conditions was passed."""

    machine: WalkedMachine
    marks: _Seen
    #: The events that led here, latest first, as nested pairs: frontiers share them.
    events: "_Events"


_Events = tuple[Input, "_Events"] | None


def reach(cases: Sequence[Case], goal: Goal, *, each: Each = map, most: int = MOST) -> Search:
    """Search all cases for a shortest path to the goal.

    `each` maps a search over cases, as `map` does, so that several processes can share the work. `most` bounds the
    configurations of one case; a search that reached it is not whole.
    """
    waiting, configurations, is_cut, before = list(cases), 0, False, 0
    for depth in DEPTHS:
        searches: list[Search] = []
        for search_result in each(partial(search, goal=goal, depth=depth, most=most), waiting):
            searches.append(search_result)
            if search_result.witness is not None and len(search_result.witness.events) == before + 1:
                break  # no path is shorter
        witnesses = [search_result.witness for search_result in searches if search_result.witness is not None]
        if witnesses:
            best = min(witnesses, key=lambda witness: len(witness.events))
            return Search(
                best, configurations + sum(search_result.configurations for search_result in searches), whole=False
            )
        is_cut |= any(search_result.cut for search_result in searches)
        configurations += sum(
            search_result.configurations for search_result in searches if search_result.whole or search_result.cut
        )
        waiting = [
            case
            for case, search_result in zip(waiting, searches, strict=True)
            if not search_result.whole and not search_result.cut
        ]
        before = depth or before
    return Search(None, configurations, whole=not is_cut, cut=is_cut)


def search(case: Case, goal: Goal, *, depth: int | None = None, most: int = MOST) -> Search:
    """Search one case for a shortest path to the goal, of at most `depth` inputs (None: of any length)."""
    around, wanted_marks = Environment(case), _list_wanted(goal)
    first_machine, _ = WalkedMachine.start(case.started)
    root = _SearchNode(first_machine, _list_passed(first_machine, None) & wanted_marks, None)
    known_nodes: set[tuple[Key, _Seen]] = {(around.key_of(first_machine.turn), root.marks)}
    frontier, rounds = [root], 0
    while frontier and (depth is None or rounds < depth):
        rounds += 1
        beyond: list[_SearchNode] = []
        for node in frontier:
            for event in around.moves(node.machine.turn, node.machine.action):
                next_node = _lead(node, event, wanted_marks)
                if next_node.machine.state in FINAL:
                    end = f"{next_node.machine.state.outcome}/{next_node.machine.turn.reason}"
                    if end in goal.ends and next_node.marks == wanted_marks:
                        return Search(Counterexample(case, _unwound(next_node.events)), len(known_nodes), whole=False)
                    continue
                key = around.key_of(next_node.machine.turn), next_node.marks
                if key in known_nodes:
                    continue
                if len(known_nodes) >= most:
                    return Search(None, len(known_nodes), whole=False, cut=True)
                known_nodes.add(key)
                beyond.append(next_node)
        frontier = beyond
    return Search(None, len(known_nodes), whole=not frontier)


def _lead(node: _SearchNode, event: Input, wanted_marks: _Seen) -> _SearchNode:
    machine = node.machine.twin()
    machine.feed(event)
    return _SearchNode(machine, node.marks | (_list_passed(machine, event) & wanted_marks), (event, node.events))


def _list_wanted(goal: Goal) -> _Seen:
    return goal.events | {f"in {state}" for state in goal.states}


def _list_passed(machine: WalkedMachine, event: Input | None) -> _Seen:
    """Return the conditions that the last input met, as a goal names them."""
    rows = machine.rows
    event_names = {event_name(type(event))} if event is not None else set()
    states = {row.source for row in rows} | {row.dest for row in rows}
    return frozenset(event_names | {str(row.trigger) for row in rows} | {f"in {state}" for state in states})


def event_name(kind: type[Input]) -> str:
    """Return the name of an input as a goal spells it: `call_waiting` for `CallWaitingInput`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in kind.title()).lstrip("_")


def _unwound(events: _Events) -> tuple[Input, ...]:
    way: list[Input] = []
    while events is not None:
        event, events = events
        way.append(event)
    return tuple(reversed(way))
