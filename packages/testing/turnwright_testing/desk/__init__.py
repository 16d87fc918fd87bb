"""Fuzzing of an agent as its module states it: real tools, values of the domain, invariants of its outside world."""

from turnwright_testing.reached import Reached

from .desk import Desk, load_desk, load_desks
from .fuzz import CaseFailedError, DeskReport, assert_case, fuzz_desk
from .rehearsal import Fault
from .visit import Visit, Visits

__all__ = [
    "CaseFailedError",
    "Desk",
    "DeskReport",
    "Fault",
    "Reached",
    "Visit",
    "Visits",
    "assert_case",
    "fuzz_desk",
    "load_desk",
    "load_desks",
]
