"""Fuzz agents and tools: draw scenarios, play them through the real engine, and check every invariant.

What fails is made as small as it can be, and written down as a test that fails in the same way.
"""

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from turnwright.agent import Agent
from turnwright.context import JsonObject
from turnwright.rules import make_rule_sets
from turnwright.runtime.engine import Engine
from turnwright.tools import Tool
from turnwright.tools.errors import holds
from turnwright_states.row_counts import RowCounts
from turnwright_states.verdict import Check

from .behavior import Driven
from .draw import quiet
from .failing_test import FailureOrigin, failing_test
from .invariants import InvariantViolatedError, assert_invariants, check, select_violated
from .json_values import ArgumentValues
from .play import Build, play
from .python_source import Imports, code
from .rules_off import Breach, find_breaches
from .run_report import RunReport, ending_of
from .scenario import Scenario
from .strategies import scenarios

#: Called with the number of examples so far, and whether a failing one is being made smaller.
Progress = Callable[[int, bool], None]

#: Examples that Hypothesis draws in one go. After ten it begins to vary those that it has, and for each of its own
#: ideas it plays five variations: an engine that has seen one of them has mostly seen them all.
_ROUND: Final = 10
#: Examples are meant to be large, and what is slow is the engine that plays them.
_NO_MATTER: Final = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a fuzz run: each of the `agents` with the `tools` that it may use.

    The tools are stand-ins unless `run_tools`; `build` builds the engine (see `play`). Each turn has the `metadata`.
    `values` has strategies for arguments: see `tool_calls` of the strategies. With `rules_off`, the rules of the agents
    hold nothing, and the report says which of them the turns break.
    """

    agents: tuple[Agent, ...]
    tools: tuple[Tool, ...] = ()
    run_tools: bool = False
    build: Build = Engine
    metadata: JsonObject = field(default_factory=dict)
    values: ArgumentValues = field(default_factory=dict)
    rules_off: bool = False

    def play(self, agent: Agent, scenario: Scenario) -> list[Driven]:
        agent = agent.model_copy(update={"rules": ()}) if self.rules_off else agent
        return play(scenario, agent=agent, tools=self.tools, build=self.build, run_tools=self.run_tools)


@dataclass(frozen=True, slots=True)
class Found:
    """A scenario in which an invariant does not hold. `comes_back` is false when it held the next time."""

    agent: Agent
    scenario: Scenario
    checks: tuple[Check, ...]
    comes_back: bool = True


@dataclass(slots=True)
class FuzzReport(RunReport):
    """The result of a run, over the played examples without those that made a failing one smaller.

    `breaches` are the broken rules by their names, with `rules_off`. A rule without a breach is not there.
    """

    examples: int = 0
    found: Found | None = None
    breaches: dict[str, Breach] = field(default_factory=dict)

    def add(self, turns: Sequence[Driven]) -> tuple[Check, ...]:
        """Count one example, and return its violations."""
        self.examples += 1
        self.ends.update(ending_of(turn.facts[-1][1] if turn.facts else None) for turn in turns)
        checks = [result for turn in turns for result in check(turn)]
        self.count(checks)
        return select_violated(checks)

    def add_breaches(self, breaches: Mapping[str, Breach]) -> None:
        """Count the rules that the turns of one example break."""
        for name, breach in breaches.items():
            total = self.breaches.setdefault(name, Breach(name, example=breach.example))
            total.calls += breach.calls
            total.answers += breach.answers
            total.example = min(total.example, breach.example, key=len)


_INTERRUPTED: Final = "it was interrupted"


class _StoppedError(BaseException):
    """The run must stop. Not an `Exception`, which would count as a failing example."""


def fuzz(
    target: Target,
    *,
    examples: int = 200,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress = lambda _examples, _failed: None,
) -> FuzzReport:
    """Play `examples` scenarios drawn from `seed`, until one fails, or `seconds` are over, or Ctrl-C.

    The same target, number and seed draw the same scenarios under one release of
    Hypothesis. Nothing is written to the working directory. Raises `ConfigError` for an agent that cannot run with
    these tools.
    """
    start = time.monotonic()
    with quiet():
        for agent in target.agents:  # an agent that cannot run at all fails before any example
            target.play(agent, Scenario(metadata=target.metadata))
        run = _Run(target, FuzzReport(seed, examples), None if seconds is None else start + seconds, progress)
        run.go()
    run.report.seconds = time.monotonic() - start
    return run.report


class _Run:
    def __init__(self, target: Target, report: FuzzReport, ends: float | None, progress: Progress) -> None:
        self.target = target
        self.report = report
        self._ends = ends
        self._progress = progress
        self._before = RowCounts.now()
        self._cases = _cases_of(target)
        self._interrupted = False

    def go(self) -> None:
        report, seeds = self.report, random.Random(self.report.seed)  # noqa: S311 (repeatable, not secret)
        try:
            with self._hearing_interrupts():
                while report.examples < report.wanted:
                    self._round(min(_ROUND, report.wanted - report.examples), seeds.getrandbits(64))
        except InvariantViolatedError:
            pass
        except Flaky:
            if report.found is not None:
                report.found = replace(report.found, comes_back=False)
        except _StoppedError as stop_error:
            self._stop(str(stop_error))
        except (KeyboardInterrupt, BaseExceptionGroup) as error:
            if not holds(error, KeyboardInterrupt):
                raise
            self._stop(_INTERRUPTED)
        if report.found is None and report.examples < report.wanted and not report.stopped:
            self._stop("it ended")  # whatever else ended it, it is not a pass

    @contextmanager
    def _hearing_interrupts(self) -> Iterator[None]:
        """Ctrl-C stops the run before its next example, and a second one at once.

        An exception that is raised anywhere can be lost anywhere: in a tool that catches it, or in a finaliser.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note_interrupt(_number: int, _frame: object) -> None:
            self._interrupted = True
            signal.signal(signal.SIGINT, signal.default_int_handler)

        before = signal.signal(signal.SIGINT, note_interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _round(self, examples: int, seed: int) -> None:
        @seeded(seed)
        @settings(
            max_examples=examples,
            database=None,  # nothing is left behind in the user's folder
            deadline=None,  # an example takes as long as its steps do
            derandomize=False,
            print_blob=False,
            verbosity=Verbosity.quiet,
            report_multiple_bugs=False,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=_NO_MATTER,
        )
        @given(self._cases)
        def example(case: tuple[Agent, Scenario]) -> None:
            self._example(*case)

        example()

    def _example(self, agent: Agent, scenario: Scenario) -> None:
        if self._interrupted:
            raise _StoppedError(_INTERRUPTED)
        if self._ends is not None and time.monotonic() >= self._ends:
            raise _StoppedError("the time was up")
        report = self.report
        turns = self.target.play(agent, scenario)
        if report.found is None:  # what making it smaller takes is not counted
            report.rows = RowCounts.now() - self._before
            violations = report.add(turns)
            if self.target.rules_off:
                sets = make_rule_sets(agent.rules, f"agent {agent.name!r}")
                report.add_breaches(find_breaches(sets, [[fact for _, fact in turn.facts] for turn in turns]))
        else:
            violations = select_violated(result for turn in turns for result in check(turn))
        self._progress(report.examples, report.found is not None)
        if violations:
            report.found = Found(agent, scenario, violations)
            raise InvariantViolatedError(violations)

    def _stop(self, why: str) -> None:
        if self.report.found is None:
            self.report.stopped = f"{why} after {self.report.examples} of {self.report.wanted} examples"


def _cases_of(target: Target) -> st.SearchStrategy[tuple[Agent, Scenario]]:
    def of(agent: Agent) -> st.SearchStrategy[tuple[Agent, Scenario]]:
        synthesis = target.build is Engine  # another may have one of its own
        drawn_scenarios = scenarios(
            target.tools, agent=agent, run_tools=target.run_tools, synthesis=synthesis, values=target.values
        )
        return st.tuples(
            st.just(agent), drawn_scenarios.map(lambda scenario: replace(scenario, metadata=target.metadata))
        )

    return st.one_of([of(agent) for agent in target.agents])


def as_test(failure: Found, origin: FailureOrigin, *, command: str, run_tools: bool = False) -> str:
    """Return a pytest file that plays the scenario again, and fails with the same invariants. See `failing_test`."""
    imports = Imports()
    names = origin.names(imports)
    arguments = ["SCENARIO", *(f"{name.lower()}={name}" for name in names), *(["run_tools=True"] if run_tools else [])]
    notes = [f"violated: {check.claim}: {check.detail!a}" for check in failure.checks]
    return failing_test(
        "test_every_invariant_holds",
        f"{imports.name(assert_invariants)}({imports.name(play)}({', '.join(arguments)}))",
        names | {"SCENARIO": code(failure.scenario, imports, before=len("SCENARIO = "))},
        imports,
        command=command,
        notes=notes if failure.comes_back else [*notes, "It held when the same was played again."],
    )
