"""The chart, with the path of the turn highlighted."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from turnwright.draw import extract
from turnwright.inspector.views.chart_svg import Lit, chart_svg
from turnwright.inspector.views.pagination import Window
from turnwright.inspector.views.steps import Step
from turnwright.inspector.views.tab_context import TabContext
from turnwright_states import State

#: Steps whose rows a page has in words.
_PAGE: Final = 20
_WORDS = {line.number: (arrow, line) for arrow in extract().arrows for line in arrow.lines}


@dataclass(frozen=True, slots=True)
class Taken:
    """A row of the chart that was taken, in words. `guard` and `reason` are empty where the row has none."""

    number: int
    source: State
    dest: State
    event: str
    guard: str
    reason: str

    @classmethod
    def of(cls, number: int) -> "Taken":
        arrow, line = _WORDS[number]
        return cls(number, arrow.source, arrow.dest, line.event, line.guard, line.reason)


@dataclass(frozen=True, slots=True)
class StateSpan:
    """The rows that one step took, in order."""

    step: Step
    rows: tuple[Taken, ...]


@dataclass(frozen=True, slots=True)
class ChartView:
    """The picture, and the rows that the chosen step took, or the steps one after the other, as many as a page has.

    `full`: the picture has every arrow; else it is the main way.
    `taken` counts what the whole turn took so far, `kinds` how many different rows that were, of `rows`.
    """

    picture: Markup
    full: bool
    way: tuple[StateSpan, ...]
    window: Window
    taken: int
    kinds: int
    rows: int


def view(tab_context: TabContext) -> ChartView:
    """Return the chart with the path of the turn highlighted, and the chosen step's more strongly."""
    turn, step = tab_context.turn, tab_context.step
    counts = Counter(number for one in turn.steps for number in one.rows)
    stands = turn.result.path[-1]
    lit = Lit(counts, None if step is None else frozenset(step.rows), stands, stands.outcome is not None)
    window = Window.of(len(turn.steps) if step is None else 1, _PAGE, tab_context.until)
    shown = turn.steps[window.part] if step is None else (step,)
    way = tuple(StateSpan(one, tuple(map(Taken.of, one.rows))) for one in shown)
    return ChartView(
        chart_svg(lit, full=tab_context.full_chart),
        tab_context.full_chart,
        way,
        window,
        counts.total(),
        len(counts),
        len(_WORDS),
    )
