"""A failing schedule, written as a test that fails in the same way."""

from turnwright.context import JsonObject
from turnwright_testing.fuzz_failure import FailureOrigin
from turnwright_testing.python_source import Imports, code

from .schedule import Schedule, SimulationTarget, assert_schedule, run_schedule
from .shrink import plain


def as_schedule_test(schedule: Schedule, origin: FailureOrigin, *, command: str, metadata: JsonObject) -> str:
    """Return a pytest file that runs the schedule again. `command` found it, and the origin names files from there."""
    imports = Imports()
    for thing in origin.imported:
        imports.name(thing)
    build = [f"build={origin.build}"] if origin.build else []
    metadata_argument = [f"metadata={code(metadata, imports)}"] if metadata else []
    target = f"{imports.name(SimulationTarget)}({', '.join(['AGENT', 'tuple(TOOLS)', *build, *metadata_argument])})"
    choices = code(plain(schedule.choices), imports, before=len("CHOICES = "))
    run = f"{imports.name(run_schedule)}({target}, {schedule.seed}, choices=CHOICES)"
    called = f"{imports.name(assert_schedule)}({run})"
    return "\n".join(
        [
            f"# Found by: {command}",
            *(f"# violated: {check.claim}: {check.detail!a}" for check in schedule.violations),
            "",
            *imports.lines(),
            "",
            f"AGENT = {origin.agent}",
            f"TOOLS = {origin.tools}",
            f"CHOICES = {choices}",
            "",
            "",
            "def test_every_promise_holds() -> None:",
            f"    {called}",
            "",
        ]
    )
