"""A failure that a fuzz run found, written as a test that fails in the same way."""

from dataclasses import dataclass

from turnwright.agent import Agent
from turnwright_states.verdict import Check

from .invariants import assert_invariants
from .play import play
from .python_source import Imports, code
from .scenario import Scenario


@dataclass(frozen=True, slots=True)
class Found:
    """A scenario in which an invariant does not hold. `comes_back` is false when it held the next time."""

    agent: Agent
    scenario: Scenario
    checks: tuple[Check, ...]
    comes_back: bool = True


@dataclass(frozen=True, slots=True)
class FailureOrigin:
    """The Python expressions with which a test builds the agent, its tools and the engine.

    `imported` are the classes and the functions in the expressions. Without `build` it is `Engine`.
    """

    imported: tuple[object, ...]
    agent: str
    tools: str
    build: str = ""


def as_test(failure: Found, origin: FailureOrigin, *, command: str, run_tools: bool = False) -> str:
    """A pytest file that plays the scenario again, and fails with the same invariants. `command` found it.

    It needs no Hypothesis. Where the origin names files, it is to be run where the command was.
    """
    imports = Imports()
    for thing in origin.imported:
        imports.name(thing)
    arguments = ["SCENARIO", "agent=AGENT", "tools=TOOLS"]
    arguments += ["build=BUILD"] if origin.build else []
    arguments += ["run_tools=True"] if run_tools else []
    sources = {"AGENT": origin.agent, "TOOLS": origin.tools} | ({"BUILD": origin.build} if origin.build else {})
    scenario = code(failure.scenario, imports, before=len("SCENARIO = "))
    called = f"{imports.name(assert_invariants)}({imports.name(play)}({', '.join(arguments)}))"
    return "\n".join(
        [
            *_head(failure, command),
            "",
            *imports.lines(),
            "",
            *(f"{name} = {source}" for name, source in sources.items()),
            f"SCENARIO = {scenario}",
            "",
            "",
            "def test_every_invariant_holds() -> None:",
            f"    {called}",
            "",
        ]
    )


def _head(failure: Found, command: str) -> list[str]:
    """Return the violations as comments, because a tool's text could end a docstring."""
    violated = [f"# violated: {check.claim}: {check.detail!a}" for check in failure.checks]
    moody = [] if failure.comes_back else ["# It held when the same was played again."]
    return [f"# Found by: {command}", *violated, *moody]
