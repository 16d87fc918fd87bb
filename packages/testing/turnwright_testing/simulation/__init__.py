"""Simulates an engine: one seed decides the order of tasks, all answers and all faults, on a virtual clock.

    report = simulate([SimulationTarget(AGENT, TOOLS)], schedules=1000)

A schedule has several processes that share a journal, with people and accidents around them. The same seed gives the
same journals and the same trace. See docs/how-to/fuzz-your-agents.md.
"""

from .campaign import SimulationReport, simulate
from .schedule import Schedule, SimulationTarget, assert_schedule, run_schedule

__all__ = ["Schedule", "SimulationReport", "SimulationTarget", "assert_schedule", "run_schedule", "simulate"]
