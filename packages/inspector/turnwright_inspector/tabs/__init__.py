"""The tabs of a turn's page, in their order: each module makes the view that the template of its name shows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from turnwright_inspector.views.turn_record import TabContext, TurnRecord

from . import budgets, chart, journal, reproduce, request, rules, timeline, transcript


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab. Its template `tabs/{name}.html` receives the result of `view`, which runs in a thread of its own.

    `history`: it shows what was said before the turn. `below`: it shows the turns of sub-agents. `applies` returns
    whether a turn has it.
    """

    name: str
    title: str
    view: Callable[[TabContext], object]
    history: bool = False
    below: bool = False
    applies: Callable[[TurnRecord], bool] = lambda _: True


TABS: Final = {
    tab.name: tab
    for tab in (
        Tab("transcript", "Transcript", transcript.view, history=True),
        Tab("timeline", "Timeline", timeline.view, below=True),
        Tab("request", "Request", request.view, history=True),
        Tab("chart", "Chart", chart.view),
        Tab("budgets", "Limits", budgets.view),
        Tab("rules", "Rules", rules.view, applies=lambda turn: bool(turn.started.rules)),
        Tab("journal", "Journal", journal.view),
        Tab("reproduce", "Reproduce", reproduce.view, history=True),
    )
}

__all__ = ["TABS", "Tab"]
