"""Scripted models, fault injection, strategies and suites, for tests of your agents.

A store that fails on purpose, whole turns as values and as recordings, and what must hold of any turn. These are
imported by themselves: `store_suite`, `model_suite`, `runtime_suite` and `plugin` need pytest; `strategies` and `fuzz`
need Hypothesis.

A script, a recording and the choices of a simulation decide alike what happens next. Another source of decisions
overrides one method for each part of the world: `FlakyModel.next_line` for replies, `behavior.Stage.choose` for calls,
and `FaultyStore.fault`, or `around`, for the store. `hook_script.DecidedCode` asks one function about hooks, guardrails
and validators.
"""

from .behavior import Asks, Behavior, Driven, Execution, Floods, Hangs, Raises, Returns, Runs, Waits
from .faults import FaultyStore
from .flaky import Broke, Cut, FlakyModel, Line, Stalls, Unfinished
from .hook_script import Consulted, GuardrailScript, HookScript, Refuses
from .invariants import INVARIANTS, InvariantViolatedError, assert_invariants, check
from .play import Build, EngineParts, play
from .playback import PlaybackError, playback, results_of
from .recording import At, Recorded, Recording
from .scenario import Answers, Crash, Leaves, Person, Scenario

__all__ = [
    "INVARIANTS",
    "Answers",
    "Asks",
    "At",
    "Behavior",
    "Broke",
    "Build",
    "Consulted",
    "Crash",
    "Cut",
    "Driven",
    "EngineParts",
    "Execution",
    "FaultyStore",
    "FlakyModel",
    "Floods",
    "GuardrailScript",
    "Hangs",
    "HookScript",
    "InvariantViolatedError",
    "Leaves",
    "Line",
    "Person",
    "PlaybackError",
    "Raises",
    "Recorded",
    "Recording",
    "Refuses",
    "Returns",
    "Runs",
    "Scenario",
    "Stalls",
    "Unfinished",
    "Waits",
    "assert_invariants",
    "check",
    "play",
    "playback",
    "results_of",
]
