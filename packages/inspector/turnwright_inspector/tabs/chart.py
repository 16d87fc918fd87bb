"""The chart, with the path of the turn highlighted."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from turnwright_inspector.views.chart_svg import Lit, chart_svg
from turnwright_inspector.views.pagination import Window
from turnwright_inspector.views.path_svg import path_svg
from turnwright_inspector.views.steps import Step
from turnwright_inspector.views.turn_record import TabContext, TurnRecord
from turnwright_proof.draw import extract
from turnwright_states import State
from turnwright_states import facts as f
from turnwright_states.chart import CHART

#: Steps whose rows a page has in words, and the most facts of a state.
_PAGE: Final = 20
_FACTS: Final = 100
_NUMBERS: Final = {row: number for number, row in enumerate(CHART.rows, start=1)}
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
class StateFact:
    """A fact that led into a state, out of it, or that was recorded in it: its place in the journal, and its words."""

    seq: int
    kind: str
    summary: str


@dataclass(frozen=True, slots=True)
class ChartView:
    """The picture, and the rows that the chosen step took, or the steps one after the other, as many as a page has.

    `full`: the picture has every row; else those that the turn takes. `lit` is what is highlighted, `row_numbers` are
    those of the whole turn. `transitions` counts what the turn took so far, `kinds` how many different rows that were,
    of `rows`. `state` is the chosen state: `facts` are the last of its facts, of `facts_in_all`.
    """

    lit: Lit
    row_numbers: frozenset[int]
    full: bool
    way: tuple[StateSpan, ...]
    window: Window
    transitions: int
    kinds: int
    rows: int
    last: tuple[int, ...]
    state: State | None
    facts: tuple[StateFact, ...]
    facts_in_all: int

    def picture(self, link: Callable[..., str]) -> Markup:
        """The drawing, whose states lead to their facts by `link`."""

        def address(state: State) -> str:
            return link(tab="chart", state=state)

        return chart_svg(self.lit, address) if self.full else path_svg(self.lit, self.row_numbers, address)


def view(tab_context: TabContext) -> ChartView:
    """Return the chart with the path of the turn highlighted, and the chosen step's more strongly."""
    turn, step = tab_context.turn, tab_context.step
    counts = Counter(number for way_step in turn.steps for number in way_step.rows)
    stands = turn.result.path[-1]
    window = Window.of(len(turn.steps) if step is None else 1, _PAGE, tab_context.until)
    shown_steps = turn.steps[window.part] if step is None else (step,)
    state = State.__members__.get(tab_context.state)
    facts = [] if state is None else list(_facts_in(turn, state))
    return ChartView(
        lit=Lit(counts, None if step is None else frozenset(step.rows), stands, stands.outcome is not None),
        row_numbers=frozenset(_NUMBERS[row] for row in turn.replayed.rows),
        full=tab_context.full_chart,
        way=tuple(StateSpan(way_step, tuple(map(Taken.of, way_step.rows))) for way_step in shown_steps),
        window=window,
        transitions=counts.total(),
        kinds=len(counts),
        rows=len(_WORDS),
        last=next(
            (tuple(_NUMBERS[row] for row in group.rows) for group in turn.replayed.groups if group.last == turn.at), ()
        ),
        state=state,
        facts=tuple(facts[-_FACTS:]),
        facts_in_all=len(facts),
    )


def _facts_in(turn: TurnRecord, state: State) -> Iterator[StateFact]:
    tools = f.tool_names(fact for _, fact in turn.journal)
    visited_seqs = {
        seq
        for group in turn.replayed.groups
        if any(state in (row.source, row.dest) for row in group.rows)
        for seq in range(group.first, group.last + 1)
    }
    for seq, fact in turn.facts:
        if seq in visited_seqs or fact.state is state:
            yield StateFact(seq, fact.kind, fact.summary(tools))
