"""Record the runs of `turnwright demo audit`: turns of scripted models under limits that stop nobody."""

import gzip
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import msgspec

from turnwright import Agent, CallView, Engine, Limits, Reject, ToolContext, Usage, before_tool, tool
from turnwright.model import ModelResponse, ScriptedModel, asks_for
from turnwright.store import MemoryStore
from turnwright_audit.trajectories.atif import Extra, Trajectory
from turnwright_audit.trajectories.journal_run import run_of

TARGET = Path(__file__).parents[1] / "packages" / "audit" / "turnwright_audit" / "demo_runs.jsonl.gz"
LIMITS = Limits(steps=60, tool_calls=None, doom_threshold=None)
Call = tuple[str, dict[str, str]]
#: The share of careful runs that succeed.
MOST = 0.85
#: The rounds of a run, and whether it succeeds.
Script = tuple[list[Call], bool]


@tool(read_only=True)
async def read_file(path: str) -> str:
    """Read a file."""
    return f"# {path}\ndef total(items): return sum(items)"


@tool
async def edit_file(path: str, find: str) -> str:
    """Replace a text in a file."""
    if "old" in find:
        raise ValueError(f"no match in {path}")
    return f"changed {path}"


@tool(read_only=True)
async def run_tests(target: str) -> str:
    """Run the tests."""
    return f"{target}: 1 failed, 4 passed in 0.{random.randint(10, 99)}s"  # noqa: S311 (a duration)


@tool
async def delete_branch(name: str) -> str:
    """Delete a branch."""
    return f"deleted {name}"


class Build:
    """A build that others run, which ends some time."""

    def __init__(self) -> None:
        self.percent = 0

    async def build_status(self) -> str:
        """Return the status of the build."""
        self.percent += 15
        return f"building: {min(self.percent, 100)} percent"


@before_tool(tools=["delete_branch"])
async def deny(_: ToolContext[object], call: CallView) -> Reject | None:
    """Deny every deletion."""
    return Reject("deletions need a person") if call.tool == "delete_branch" else None


def careful(dice: random.Random) -> Script:
    """Read some files, edit some, run the tests once after each edit."""
    calls: list[Call] = [("read_file", {"path": f"src/part_{number}.py"}) for number in range(dice.randint(1, 6))]
    for number in range(dice.randint(1, 4)):
        calls.append(("edit_file", {"path": f"src/part_{number}.py", "find": f"line {number}"}))
        calls.append(("run_tests", {"target": f"part_{number}"}))
    return calls, dice.random() < MOST


def thorough(dice: random.Random) -> Script:
    """Take many steps, none of them twice."""
    return [("read_file", {"path": f"src/deep/{number}.py"}) for number in range(dice.randint(22, 34))], True


def stuck_on_tests(dice: random.Random) -> Script:
    """Run the same tests again and again without a change."""
    return [("read_file", {"path": "src/part_0.py"}), *[("run_tests", {"target": "all"})] * dice.randint(9, 20)], False


def waits_for_the_build(dice: random.Random) -> Script:
    """Poll a build until it is done."""
    return [("build_status", {})] * dice.randint(5, 8), True


def edits_blindly(dice: random.Random) -> Script:
    """Try other arguments after the same error."""
    return [
        ("edit_file", {"path": "src/part_1.py", "find": f"old {number}"}) for number in range(dice.randint(6, 14))
    ], False


def wants_to_delete(dice: random.Random) -> Script:
    """Ask for the same denied call again and again."""
    return [("delete_branch", {"name": "release"})] * dice.randint(4, 9), False


def reads_in_circles(dice: random.Random) -> Script:
    """Read the same five files again and again."""
    files: list[Call] = [("read_file", {"path": f"docs/{name}.md"}) for name in "abcde"]
    return files * dice.randint(3, 4), False


KINDS: dict[Callable[[random.Random], Script], int] = {
    careful: 34,
    thorough: 3,
    stuck_on_tests: 4,
    waits_for_the_build: 4,
    edits_blindly: 3,
    wants_to_delete: 2,
    reads_in_circles: 2,
}


def replies(calls: list[Call]) -> Iterator[ModelResponse]:
    """The replies of a scripted model: a call in each, and an answer."""
    for number, (name, arguments) in enumerate(calls):
        yield asks_for((name, arguments), usage=used(number))
    yield ModelResponse(text="Done.", usage=used(len(calls)))


def used(number: int) -> Usage:
    """The usage of a reply: each request repeats the conversation so far."""
    return Usage(input_tokens=1200 + 400 * number, output_tokens=60, cost=0.002 + 0.0006 * number)


async def record(script: Script, name: str, model: str) -> Trajectory:
    """Run a turn, and return it as a small trajectory that is the same each time."""
    calls, success = script
    store = MemoryStore()
    tools = [read_file, edit_file, run_tests, delete_branch, tool(Build().build_status)]
    scripted = ScriptedModel(*replies(calls), name=model)
    async with Engine(model=scripted, tools=tools, store=store, limits=LIMITS, hooks=[deny]) as engine:
        turn = await engine.run(Agent(name="Fixer"), "Fix the failing test.")
        run = run_of([fact for _, fact in await store.facts(turn.id)])
    notes = run.run_notes
    notes.run, notes.success = name, success
    notes.limits = notes.spent = notes.hash = None
    run.extra = Extra(turnwright=notes)
    run.session_id = run.trajectory_id = run.final_metrics = None
    for step in run.steps:
        step.timestamp = None
        step.extra = None
        for call in step.tool_calls or ():
            call.extra = None
        for result in step.observation.results if step.observation else ():
            own = result.extra and result.extra.turnwright
            if own:
                own.started_at = own.ended_at = own.order = None
    return run


async def main() -> None:
    """Write the runs."""
    dice = random.Random(7)  # noqa: S311 (no secret)
    random.seed(7)
    lines = []
    for kind, count in KINDS.items():
        for number in range(count):
            model = dice.choice(("scripted-small", "scripted-large"))
            run = await record(kind(dice), f"{kind.__name__.replace('_', '-')}-{number + 1}", model)
            lines.append(msgspec.json.encode(run))
    dice.shuffle(lines)
    TARGET.write_bytes(gzip.compress(b"\n".join(lines) + b"\n", mtime=0))
    sys.stdout.write(f"{TARGET.name}: {len(lines)} runs, {TARGET.stat().st_size / 1024:.0f} KiB\n")


if __name__ == "__main__":
    anyio.run(main)
