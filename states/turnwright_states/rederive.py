"""Plays the inputs of a journal again from another beginning or with other results, for a fork that changes them.

The facts are the machine's own, so the new journal follows from its inputs as every other one does.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import structs
from msgspec.structs import force_setattr

from . import facts as f
from .chart import CHART, Chart
from .errors import MachineError
from .inputs import Input, ModelRepliedInput, StartedInput
from .machine import TurnMachine
from .replay import FactGroup
from .turn import Turn


class _Player(TurnMachine):
    """A machine that takes the loop keys that tools gave from the facts of the original."""

    __slots__ = ("_keys",)

    def __init__(self, turn: Turn, keys: dict[str, str]) -> None:
        super().__init__(turn, Chart(CHART.rows))  # a replay must not count in this process's `Chart.taken`
        self._keys = keys

    def begin(self, event: StartedInput) -> list[f.Fact]:
        """Begin the turn."""
        return self._begin(event)

    def _decide(self, event: ModelRepliedInput) -> tuple[f.CallMade, ...]:
        return tuple(
            structs.replace(call, key=self._keys[call.id]) if call.own_key and call.id in self._keys else call
            for call in super()._decide(event)
        )


def rederive(
    journal: Sequence[f.Fact],
    groups: Iterable[FactGroup],
    start_input: StartedInput,
    change: Callable[[Input], Input] = lambda event: event,
) -> list[f.Fact] | FactGroup:
    """Return the facts that follow from `start_input` and the inputs of the groups after the first, each one changed.

    Return the first group whose input does not fit any more if the turn takes another course. `groups` are the
    beginning of those that a replay of `journal` found.
    """
    replies = [fact for fact in journal if isinstance(fact, f.ModelReplied)]
    player = _Player(Turn(start_input.limits), {call.id: call.key for fact in replies for call in fact.calls})
    facts = player.begin(start_input)
    for group in tuple(groups)[1:]:
        try:
            facts += player.feed(change(group.event))
        except MachineError:
            return group
    times = {fact.number: fact.started_at for fact in journal if isinstance(fact, f.StepStarted)}
    for fact in facts:
        if isinstance(fact, f.StepStarted):
            force_setattr(fact, "started_at", times.get(fact.number))
    return facts
