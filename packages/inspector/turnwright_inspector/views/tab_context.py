"""The input of a tab's view."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from turnwright.engine import Engine
from turnwright.message import Message

from .steps import Step
from .sub_agents import SubAgent
from .turn_record import TurnRecord


@dataclass(frozen=True, slots=True)
class TabContext:
    """A turn, and its chosen step; None for the whole turn.

    `store` is the address of the store as commands take it, without a password. `history` is what was said before, for
    a tab that asks for it. `until` is where what a tab shows of many rows ends; None leaves it to the tab.
    `full_chart`: the chart is shown with every row, not only with those that the turn takes. `state` is the name of a
    state whose facts are shown; empty for none. `zoom` is a part of the turn's time, and `below` has the turns of
    sub-agents, by call, for a tab that asks for them.
    """

    engine: Engine
    turn: TurnRecord
    step: Step | None
    store: str
    history: Sequence[Message]
    until: int | None = None
    full_chart: bool = False
    state: str = ""
    zoom: str = ""
    below: Mapping[str, SubAgent] = field(default_factory=dict)
