"""The proof that every path ends: the lint of the chart, and the walk over everything that a turn can reach."""

from .abilities import Abilities, AgentRows, rows_of
from .case import Case
from .claims import Property, ViolationError
from .configuration import WalkedMachine
from .environment import Environment
from .findings import ENDS, findings
from .grid import BOUND, campaign, grid
from .lint import lint
from .path import Edge, Path, retrace
from .reach import Counterexample, Goal, Search, event_name, reach, search
from .walk import MOST, Walk, walk

__all__ = [
    "BOUND",
    "ENDS",
    "MOST",
    "Abilities",
    "AgentRows",
    "Case",
    "Counterexample",
    "Edge",
    "Environment",
    "Goal",
    "Path",
    "Property",
    "Search",
    "ViolationError",
    "Walk",
    "WalkedMachine",
    "campaign",
    "event_name",
    "findings",
    "grid",
    "lint",
    "reach",
    "retrace",
    "rows_of",
    "search",
    "walk",
]
