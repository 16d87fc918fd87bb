"""`turnwright fuzz`: what it says, what it writes down, and its exit codes."""

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from turnwright_states.chart import CHART

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli

#: A tool that says so to everybody when it is run for real.
NOISY = """
from pathlib import Path

from turnwright import tool

print("loaded")

@tool
async def reserve(room: str, nights: int = 1) -> str:
    \"""Reserve a room.\"""
    print("reserving")
    Path("reserved.txt").write_text(room)
    return "yours"
"""

#: A tool whose own check takes for granted what a model may leave out.
BROKEN = """
from turnwright.tools import Tool

class Reserve(Tool):
    def asks(self, arguments, context):
        print("asking")
        arguments["nights"]

    async def execute(self, values, context):
        return "yours"

nights = {"type": "object", "properties": {"nights": {"type": "integer"}}}
reserve = Reserve(name="reserve", description="Reserve a room.", parameters=nights)
"""

#: The same with dependencies, without which no call would reach the mistake.
DEPENDENT = """
from turnwright import ToolContext, TurnInfo
from turnwright.tools import Tool

async def make_deps(turn: TurnInfo):
    yield {"hotel": turn.agent}

class Reserve(Tool):
    def asks(self, arguments, context):
        arguments["nights"] if context.deps["hotel"] else None

    async def execute(self, values, context):
        return context.deps["hotel"]

nights = {"type": "object", "properties": {"nights": {"type": "integer"}}}
reserve = Reserve(name="reserve", description="Reserve a room.", parameters=nights)
"""


def pytest_says(cli: "Cli", printed: str) -> str:
    """Return what pytest prints about a printed test."""
    cli.write("test_found.py", printed)
    command = [sys.executable, "-m", "pytest", "-q", "test_found.py"]
    return subprocess.run(command, cwd=cli.folder, capture_output=True, text=True, check=False).stdout


def without_progress(text: str) -> list[str]:
    """Return the lines on standard error without those of the progress, one every two seconds."""
    return [line for line in text.splitlines() if not line.startswith(("playing: ", "rehearsing: ", "reducing "))]


def test_stand_ins_take_the_places_of_the_tools(cli: "Cli") -> None:
    agents, tools = cli.agent("steps: 3", "tools: [reserve]"), cli.write("rooms.py", NOISY)
    output = cli.run(
        "fuzz", "--agents", agents, "--tools", tools, "--examples", "30", "--seed", "1", "--coverage", "r.json"
    )
    assert (output.code, without_progress(output.err)) == (0, ["loaded"])
    assert "played 30 examples, " in output.out
    assert " with Tester and 1 tool: seed 1, " in output.out
    assert "stand-ins replaced the tools: no tool was run (--run-tools runs them)" in output.out
    assert "\n  holds: every fact follows from the ones before (in " in output.out
    assert not (cli.folder / "reserved.txt").exists()
    remaining_files = {path.name for path in cli.folder.iterdir()} - {"__pycache__"}
    assert remaining_files == {"AGENTS.md", "r.json", "rooms.py"}
    rows = json.loads((cli.folder / "r.json").read_text())["rows"]
    assert f"rows of the chart taken: {sum(row['taken'] > 0 for row in rows)} of {len(CHART.rows)}" in output.out
    drawn = cli.run("diagram", "--coverage", "r.json")
    assert (drawn.code, drawn.err) == (0, "")


def test_failure_is_printed_as_a_failing_test(cli: "Cli") -> None:
    """And nothing but the test is on standard output, whatever the tools print. The page's test runs one."""
    agents, tools = cli.agent("steps: 3", "tools: [reserve]"), cli.write("rooms.py", BROKEN)
    output = cli.run("fuzz", "--agents", agents.name, "--tools", tools.name, "--run-tools", "--seed", "1")
    assert output.code == 1
    claim = "no turn fails by a bug of the engine, a tool or a hook"
    assert f"violated: {claim}: KeyError: 'nights'\n" in output.err
    assert "asking\n" in output.err
    command = "turnwright fuzz --agents AGENTS.md --tools rooms.py --run-tools --examples 200 --seed 1"
    assert f"to repeat: {command}\n" in output.err
    assert output.out.startswith(f"# violated: {claim}: \"KeyError: 'nights'\"\n# Found by: {command}\n")
    assert output.out.split("SCENARIO = ")[1].startswith('Scenario(script=(asks_for(("reserve", {})),))\n')
    assert cli.run(*command.split()[1:]).out == output.out


def test_dependencies_of_tools_are_made_and_printed_with_the_test(cli: "Cli") -> None:
    agents, tools = cli.agent("steps: 3", "tools: [reserve]"), cli.write("rooms.py", DEPENDENT)
    output = cli.run("fuzz", "--agents", agents.name, "--tools", tools.name, "--run-tools", "--seed", "1")
    assert (output.code, "KeyError: 'nights'" in output.err) == (1, True)
    assert '\nBUILD = partial(Engine, deps=load_tools_and_deps("rooms.py").make_deps)\n' in output.out
    failure = pytest_says(cli, output.out)
    assert "KeyError: 'nights'" in failure
    assert "1 failed" in failure


def test_ctrl_c_is_inconclusive(cli: "Cli") -> None:
    """The results until then are printed, and nothing counts as passed."""
    tools = cli.write("rooms.py", NOISY)
    child = cli.start("fuzz", "--tools", tools, "--run-tools", "--examples", "100000")
    cli.await_file("reserved.txt")
    output = child.interrupt().done()
    assert output.code == 6
    assert "inconclusive: it was interrupted after " in output.out
    assert "holds" not in output.out


def test_run_out_of_time_is_inconclusive(cli: "Cli") -> None:
    output = cli.run("fuzz", "--examples", "100000", "--seconds", "0.001", "--seed", "7")
    assert (output.code, output.err) == (6, "")
    assert "inconclusive: the time was up after 0 of 100000 examples" in output.out


def test_missing_seed_is_drawn_and_printed(cli: "Cli") -> None:
    first, second = (cli.run("fuzz", "--examples", "1").out.split(" seed ")[1].split(",")[0] for _ in range(2))
    assert first != second
    assert cli.run("fuzz", "--examples", "1", "--seed", first).code == 0


def test_configuration_mistake_is_a_single_line(cli: "Cli") -> None:
    cli.agent("steps: 3", "tools: [nowhere]")
    for flags, text in (
        (["--agents", "none.md"], "none.md"),
        (["--agents", "AGENTS.md"], "there is no tool 'nowhere'"),
        (["--agent", "Nobody"], "Nobody"),
        (["--tools", "none.py"], "there is no file none.py"),
        (["--coverage", "no/rows.json"], "--coverage no/rows.json: there is no folder no"),
        (["--test", "no/test_found.py"], "--test no/test_found.py: there is no folder no"),
        (["--root", "none"], "--root none: is not a folder"),
    ):
        output = cli.run("fuzz", *flags, "--examples", "1")
        assert (output.code, output.out) == (2, "")
        assert text in output.err
        assert output.err.count("\n") == 1


#: An agent with a sub-agent, which may not call itself.
TEAM = """---
name: Lead
steps: 3
tools: [reserve, Helper]
---
Lead.

---
name: Helper
description: Helps.
mode: subagent
---
Help.
"""


def test_stand_ins_take_the_places_of_sub_agents(cli: "Cli") -> None:
    cli.write("AGENTS.md", TEAM)
    tools = cli.write("rooms.py", NOISY)
    options = ("fuzz", "--agents", "AGENTS.md", "--tools", tools, "--examples", "20", "--seed", "1")
    output = cli.run(*options)
    assert output.code == 0
    assert " with Lead, Helper and 7 tools: seed 1, " in output.out
    assert cli.run(*options, "--run-tools", "--agent", "Lead").code == 0


def test_failure_of_an_agent_with_sub_agents_is_a_failing_test(cli: "Cli") -> None:
    cli.write("AGENTS.md", TEAM)
    cli.write("rooms.py", BROKEN)
    output = cli.run("fuzz", "--agent", "Lead", "--tools", "rooms.py", "--run-tools", "--seed", "1")
    assert (output.code, "KeyError: 'nights'" in output.err) == (1, True)
    assert ', *agent_tools(load_agents("AGENTS.md"))]\n' in output.out
    assert "KeyError: 'nights'" in pytest_says(cli, output.out)


#: Dependencies and instructions that need metadata.
PERSONAL = (
    NOISY
    + """

async def make_deps(turn):
    return turn.metadata["user"]
"""
)
TEMPLATE = "---\nname: Clerk\n---\nYou serve {{ metadata.user }}.\n"


def test_metadata_reaches_make_deps_and_templates(cli: "Cli") -> None:
    cli.write("hotel.py", PERSONAL)
    cli.write("AGENTS.md", TEMPLATE)
    options = ("fuzz", "--agent", "Clerk", "--tools", "hotel.py", "--seed", "1")
    without = cli.run(*options, "--examples", "1")
    assert without.code == 2
    assert "user" in without.err
    assert cli.run(*options, "--examples", "3", "--metadata", "user=ann").code == 0
    simulated = cli.run(*options, "--simulate", "--schedules", "3", "--metadata", "user=ann")
    assert simulated.code == 0
    assert "inconclusive" not in simulated.out


#: An agent that is code, with a tool that says so when it runs, and an invariant that its tool breaks.
DESK = """
from pathlib import Path

from turnwright import Agent, tool

METADATA = ({"user": "ann"},)
NIGHTS = []

def reset():
    NIGHTS.clear()

@tool
async def reserve(nights: int = 1) -> str:
    \"""Reserve a room.\"""
    NIGHTS.append(nights)
    return "yours"

@tool
async def unused() -> str:
    \"""Do nothing.\"""
    return ""

def invariant_few_nights():
    for nights in NIGHTS:
        assert nights <= 7, f"{nights} nights"

DESK = Agent(name="Hotel", tools=("reserve",))
"""


def test_tools_of_an_agent_in_code_run_and_a_fault_is_named_first(cli: "Cli") -> None:
    """The command that repeats it plays so many examples, however long they take."""
    cli.write("desk.py", DESK)
    output = cli.run("fuzz", "--agents", "desk.py:DESK", "--seed", "1")
    assert output.code == 1
    lines = without_progress(output.err)
    assert lines[0].startswith("violated: reserve: invariant_few_nights: ")
    number = lines[1].removeprefix("found in example ").partition(" ")[0]
    command = f"turnwright fuzz --agents desk.py:DESK --examples {number} --seconds inf --seed 1"
    assert lines[-1] == f"to repeat: {command}"
    assert output.out.startswith(f"# {lines[0]}\n# Found by: {command}\n")
    assert cli.run(*command.split()[1:]).out == output.out
    assert "1 failed" in pytest_says(cli, output.out)


def test_failing_case_and_rows_are_written_to_files(cli: "Cli") -> None:
    """Of a rehearsal, and of turns with stand-ins."""
    cli.write("desk.py", DESK)
    agents, tools = cli.agent("steps: 3", "tools: [reserve]"), cli.write("rooms.py", BROKEN)
    stand_ins = ("--agents", agents.name, "--tools", tools.name, "--run-tools")
    for number, options in enumerate([("--agents", "desk.py:DESK"), stand_ins]):
        file, rows = f"test_found {number}.py", f"rows_{number}.json"
        output = cli.run("fuzz", *options, "--seed", "1", "--test", file, "--coverage", rows)
        assert (output.code, output.out) == (1, "")
        assert f"a test that fails in this way is in {file}: run pytest '{file}'\n" in output.err
        assert "# Found by: turnwright fuzz " in (cli.folder / file).read_text()
        assert any(row["taken"] for row in json.loads((cli.folder / rows).read_text())["rows"])


def test_warning_of_a_rehearsal_is_an_error_with_strict(cli: "Cli") -> None:
    """The hook never decides anything."""
    hook = "@before_tool\nasync def silent(ctx, call):\n    return None\n\nDESK = Agent(hooks=[silent], "
    source = DESK.replace("nights <= 7", "nights > -float('inf')").replace("DESK = Agent(", hook)
    cli.write("desk.py", source.replace("import Agent", "import Agent, before_tool"))
    options = ("fuzz", "--agents", "desk.py:DESK", "--seed", "1", "--examples", "5")
    output = cli.run(*options)
    assert (output.code, "\nwarning: hook silent never decided anything\n" in output.out) == (0, True)
    assert "\n  tool reserve: asked for " in output.out
    assert cli.run(*options, "--strict").code == 1


def test_stand_ins_replace_the_tools_of_an_agent_in_code(cli: "Cli") -> None:
    cli.write("desk.py", DESK)
    output = cli.run("fuzz", "--agents", "desk.py:DESK", "--tools", "desk.py", "--stand-ins", "--examples", "5")
    assert (output.code, "stand-ins replaced the tools" in output.out) == (0, True)


def test_rules_that_hold_nothing_show_their_breaches(cli: "Cli") -> None:
    """With the rules on, no call breaks them, so nothing is shown without `--rules-off`."""
    never = "{name: never-first, before: reserve, need: '@user if text == \"never said\"'}"
    rule = f"rules: [{never}, {{name: rare, at_most: 1000, of: reserve}}]"
    agents, tools = cli.agent("steps: 3", "tools: [reserve]", rule), cli.write("rooms.py", NOISY)
    options = ("--agents", agents, "--tools", tools, "--examples", "20", "--seed", "1")
    output = cli.run("fuzz", *options, "--rules-off")
    assert output.code == 0
    lines = output.out.partition("without the rules:\n")[2].splitlines()
    assert [line.partition(" by ")[0] for line in lines] == [
        "  never-first: broken",
        "  rare: not broken in 20 examples",
    ]
    assert "reserve(" in lines[0]
    assert "without the rules" not in cli.run("fuzz", *options).out


def test_rules_are_switched_off_for_stand_ins_only(cli: "Cli") -> None:
    output = cli.run("fuzz", "--rules-off", "--simulate")
    assert (output.code, "--rules-off plays with stand-ins" in output.err) == (2, True)


def test_error_of_the_users_reset_is_no_bug_of_ours(cli: "Cli") -> None:
    cli.write("desk.py", f"{DESK}\ndef reset():\n    raise OSError('no disk')\n")
    output = cli.run("fuzz", "--agents", "desk.py:DESK", "--seed", "1")
    line = len(DESK.splitlines()) + 3
    why = f"turnwright: OSError: no disk ({cli.folder / 'desk.py'}, line {line})"
    assert (output.code, output.err.splitlines()) == (1, [why])
