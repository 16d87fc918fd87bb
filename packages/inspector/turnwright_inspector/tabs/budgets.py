"""The tab of limits: the amounts that the turn and the chosen step have used."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from turnwright.agents.bounds import EXACTNESS, bounds_of
from turnwright_inspector.views.turn_record import Journal, TabContext
from turnwright_states import EndReason, Limits, State, Turn
from turnwright_states import facts as f
from turnwright_states.turn import fold


@dataclass(frozen=True, slots=True)
class Gauge:
    """One bound: `amount` of `most` (None: there is no such limit), in `unit`.

    `by_step` is what the chosen step used of it. `stopped`: it is why the turn was stopped; `also`: it held then too.
    `formula` says how the bound comes about, `exact` whether it can be overshot, `set_with` names the setting.
    """

    name: str
    amount: float
    most: float | None
    unit: str
    by_step: float | None
    formula: str
    exact: str
    set_with: str
    stopped: bool
    also: bool

    @property
    def share(self) -> float:
        """The used share, at most 1."""
        return 0.0 if self.most is None else 1.0 if not self.most else min(self.amount, self.most) / self.most


@dataclass(frozen=True, slots=True)
class BudgetsView:
    """The gauges of the limits that are counted, and the bounds that each step is under, with their values."""

    gauges: tuple[Gauge, ...]
    other_bounds: tuple[tuple[str, float | None, str], ...]


#: What of each bound is used, by its name in `bounds_of`, and in which unit.
_USED: Final[dict[str, tuple[Callable[[Turn, Journal], float], str]]] = {
    "cap": (lambda turn, _: turn.steps_taken, "steps"),
    "tool calls": (lambda turn, _: turn.counters.calls, "calls"),
    "tokens": (lambda turn, _: turn.tokens, "tokens"),
    "cost": (lambda turn, _: turn.cost, ""),
    "seconds": (lambda turn, _: turn.seconds_used, "s"),
    "model calls": (lambda turn, facts: sum(_is_model_call(fact, turn.limits) for _, fact in facts), "calls"),
    "pauses": (lambda _, facts: sum(isinstance(fact, f.Paused) for _, fact in facts), "pauses"),
}


def view(tab_context: TabContext) -> BudgetsView:
    """Return the used amounts at the shown place in the journal."""
    turn, step = tab_context.turn, tab_context.step
    now, limits = fold(fact for _, fact in turn.facts), turn.started.limits
    before = None if step is None else turn.journal[: step.first - 1]
    after = None if step is None else turn.journal[: step.last]
    gauges, other_bounds = [], []
    for bound in bounds_of(limits):
        if bound.name not in _USED:
            other_bounds.append((bound.name, bound.value, bound.formula))
            continue
        count, unit = _USED[bound.name]
        by_step = None
        if before is not None and after is not None:
            by_step = count(fold(fact for _, fact in after), after)
            by_step -= count(fold(fact for _, fact in before), before) if before else 0.0
        gauges.append(
            Gauge(
                name="steps" if bound.name == "cap" else bound.name,
                amount=count(now, turn.facts),
                most=bound.value,
                unit=unit,
                by_step=by_step,
                formula=bound.formula,
                exact=EXACTNESS[bound.exactness],
                set_with=bound.settings[0],
                stopped=_is(bound.reason, now.reason),
                also=bound.reason is not None and bound.reason in now.also_reached,
            )
        )
    return BudgetsView(tuple(gauges), tuple(other_bounds))


def _is(bound: EndReason | None, reason: EndReason | None) -> bool:
    return bound is not None and bound is reason


def _is_model_call(fact: f.Fact, limits: Limits) -> bool:
    if isinstance(fact, f.Concluded):
        return limits.asks_for_conclusion
    # An attempt that failed among the tools was one at a synthesis. A review and a cleared conversation are not calls.
    is_failure = isinstance(fact, f.AttemptFailed) and fact.state not in (State.TOOL_EXEC, State.REVIEW)
    summary = isinstance(fact, f.Compacted) and not fact.cleared
    return is_failure or summary or isinstance(fact, f.ModelReplied)
