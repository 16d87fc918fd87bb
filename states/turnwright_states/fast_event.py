"""The event that `transitions.Machine` is given here: the stock one's choice, in a fraction of its time.

A trigger of the stock `Event` looks for callbacks of the machine, of the event, of both states, resolves names in a
model, and wraps all that it hands over: 12 us and 145 calls of functions. A turn has nothing but a state, and its
guards are data. So the guards of a state's transitions become one expression, which says which of them is taken: a
twentieth of that time, and 4 calls. A test holds the two against each other, on every row and in every configuration
that a walk meets.

The transitions are the machine's own, read from `Event.transitions` at each trigger. No copy of them decides: whoever
adds a transition to the machine that runs, takes one away or leads it elsewhere changes the next trigger.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

from transitions import Event as StockEvent
from transitions import Transition

from .counters import Counters
from .guards import Guard, first_of
from .state import State


class HasState(Protocol):
    """What the machine moves: a plain object with a `state`."""

    state: State


Callback = Callable[[Counters], object]

#: The states by their names: a look-up in the enumeration itself costs three calls.
_STATES: Final = dict(State.__members__)


_CONDITIONS: Final[Callable[[Transition], list[Any]]] = attrgetter("conditions")


class _Choice(NamedTuple):
    """The guards of a state's transitions as they were when they were compiled, and what they were compiled to."""

    conditions: list[list[Any]]
    place_of: Callable[[Counters], int]


class FastEvent(StockEvent):
    """`transitions.Event` for a model that has nothing but a state, and guards that are data.

    A trigger takes the first transition of the machine's own whose guards hold, calls its `before`, moves the model,
    and calls its `after`. The guards of a state are compiled once, and again when they are no longer those that the
    state's transitions have: after `Machine.add_transition` and `Machine.remove_transition`, and after a change of the
    lists or of their `conditions` by hand. Where a transition leads and what it calls is read from it each time.

    Of what `add_transition` takes, `conditions` and `unless` are guards, and `before` and `after` are functions, which
    are given the counters; there is no `history_processor`. Callbacks of states and of the machine are never called.
    For all of that, give the chart the stock event.
    """

    def __init__(self, name: str, machine: Any) -> None:  # noqa: ANN401 (as the stock event)
        super().__init__(name, machine)
        self._choices: dict[str, _Choice] = {}

    def add_transition(self, transition: Transition) -> None:
        """Add a transition. Raises `TypeError` for a condition that is no guard, and for a callback by its name."""
        if transition.prepare:
            raise TypeError("a lean event prepares nothing")
        for condition in transition.conditions:
            _guard(condition.func)
        for callback in (*transition.before, *transition.after):
            if not callable(callback):
                raise TypeError(f"the callbacks of a lean event are functions, and {callback!r} is none")
        super().add_transition(transition)

    # The stock signature takes anything; ours takes what the guards need.
    def trigger(self, model: HasState, counters: Counters) -> bool:  # type: ignore[override]
        """Take the first transition of the model's state whose guards hold. False if there is none."""
        state = model.state
        if state not in self.transitions:
            return False
        ways = self.transitions[state]
        conditions = list(map(_CONDITIONS, ways))  # quicker than a comprehension, which is a call
        if state not in self._choices or self._choices[state].conditions != conditions:
            self._choices[state] = _compiled(ways)
        place = self._choices[state].place_of(counters)
        if place < 0:
            return False
        way = ways[place]
        for callback in way.before:
            callback(counters)  # type: ignore[operator]  # `add_transition` refuses names
        if way.dest is not None:
            model.state = _STATES[way.dest]
        for callback in way.after:
            callback(counters)  # type: ignore[operator]  # likewise
        return True


def _compiled(ways: list[Transition]) -> _Choice:
    guards = [[(_guard(one.func), bool(one.target)) for one in way.conditions] for way in ways]
    return _Choice([[*way.conditions] for way in ways], first_of(guards))


def _guard(condition: object) -> Guard:
    if not isinstance(condition, Guard):
        raise TypeError(f"the conditions of a lean event are guards, and {condition!r} is none")
    return condition
