"""Agents written in Python on the command line: `module:NAME`, `file.py` and `file.py:NAME`, for every command."""

from typing import TYPE_CHECKING

import anyio
import pytest

from turnwright import Agent, Engine, agent_tool, tool
from turnwright.config import load_config
from turnwright.context import TurnContext
from turnwright.model import ScriptedModel, asks_for

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Endpoint

DESK = '''
from turnwright import Agent, Trip, TurnContext, agent_tool, input_guardrail, tool


@tool(needs_approval=True)
def close(ticket: int) -> str:
    """Close a ticket."""
    return f"closed {ticket}"


@input_guardrail(run_in_parallel=False)
async def on_topic(ctx: TurnContext, prompt: str) -> Trip | None:
    return Trip("Ask about tickets.") if "weather" in prompt else None


def instructions(ctx: TurnContext) -> str:
    return f"Help with tickets, turn {len(ctx.turn_id)}."


READER = Agent(name="Reader", mode="subagent", description="Reads tickets.", instructions=instructions, steps=3)
read = agent_tool(READER)
DESK = Agent(name="Desk", instructions=instructions, guardrails=[on_topic], steps=5, tools=("close", "Reader"))
NIGHT = Agent(name="Night", steps=2, tools=())
EVERYBODY = [DESK, NIGHT]
'''
SOURCES = ("desk:DESK", "desk.py:DESK", "desk.py")


@pytest.fixture(autouse=True)
def _desk(cli: "Cli") -> None:
    cli.write("desk.py", DESK)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("desk:DESK", ["Desk"]),
        ("desk.py:NIGHT", ["Night"]),
        ("desk:EVERYBODY", ["Desk", "Night"]),
        ("./desk.py", ["Reader", "Desk", "Night"]),
    ],
)
def test_agents_are_listed_from_code(cli: "Cli", source: str, names: list[str]) -> None:
    for arguments in ((source,), ("--agents", source)):
        done = cli.run("agents", *arguments, "--json")
        assert (done.code, [event["name"] for event in done.events]) == (0, names)


def test_agents_argument_and_option_are_listed_together(cli: "Cli") -> None:
    done = cli.run("agents", "desk.py:NIGHT", "--agents", "desk:DESK", "--json")
    assert [event["name"] for event in done.events] == ["Night", "Desk"]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("desk:close", "desk:close: is not an agent, and no list of agents, but <FunctionTool close>"),
        ("desk:DAY", "desk:DAY: there is no agent of this name: it has READER, DESK, NIGHT"),
        ("nowhere:DESK", "there is no module 'nowhere'"),
        ("nowhere.py", "there is no file nowhere.py"),
        ("empty.py", "empty.py has no agents: write one at the top level, such as DESK = Agent(name=...)"),
        ("twice.py", "twice.py has two agents with the name 'A': rename one of them"),
        ("broken.py", "broken.py cannot be loaded: ZeroDivisionError: division by zero"),
    ],
)
def test_wrong_code_is_a_usage_error(cli: "Cli", source: str, problem: str) -> None:
    cli.write("empty.py", "from turnwright import Agent\n")
    cli.write("twice.py", "from turnwright import Agent\none, two = Agent(name='A'), Agent(name='A')\n")
    cli.write("broken.py", "1 / 0\n")
    for command in (("agents", source), ("explain", "--agents", source), ("run", "hi", "--agents", source)):
        done = cli.run(*command)
        assert (done.code, problem in done.err) == (2, True), done.err


def test_agent_from_code_is_explained_and_drawn(cli: "Cli") -> None:
    """The remedy for unknown tools works as typed. A sub-agent that is a tool of the module is not added again."""
    unknown = cli.run("explain", "--agents", "desk:DESK")
    assert "unknown tools: close, Reader: name their module with --tools" in unknown.err
    for command in (
        ("explain", "--agents", "desk:DESK", "--tools", "desk.py"),
        ("explain", "--agents", "desk.py", "--agent", "Desk", "--tools", "desk.py"),
        ("diagram", "--agents", "desk.py", "--tools", "desk"),
        ("agents", "desk.py", "--tools", "desk.py"),
        ("agents", "--diff", "desk:NIGHT", "desk.py", "--tools", "desk.py"),
    ):
        done = cli.run(*command)
        assert (done.code, done.err) == (0, ""), command
        assert "Desk" in done.out


def test_several_agents_from_code_are_chosen_by_name(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Good night.")
    several = cli.run("run", "hi", "--agents", "desk.py")
    assert "desk.py has several agents: choose one with --agent: Desk, Night" in several.err
    assert cli.run("run", "hi", "--agents", "desk.py", "--agent", "Night").code == 0


@pytest.mark.parametrize("source", SOURCES)
def test_turn_of_an_agent_from_code_is_run_and_resumed(cli: "Cli", endpoint: "Endpoint", source: str) -> None:
    """Its functions and guardrails are loaded again, from any folder if it is a file."""
    endpoint.calls(("close", {"ticket": 7})).says("Closed.")
    flags = ("--agents", source, "--agent", "Desk", "--tools", "desk.py")
    tripped = cli.run("run", "The weather?", *flags)
    assert (tripped.code, endpoint.requests) == (1, [])
    paused = cli.run("run", "Close 7", *flags, "--json")
    assert paused.code == 3
    done = cli.run("resume", paused.turn, "--approve", paused.interrupts[0]["id"], "--json")
    assert (done.code, done.last["text"]) == (0, "Closed.")
    assert endpoint.requests[-1].messages[0]["content"] == "Help with tickets, turn 16."


@pytest.mark.parametrize("source", SOURCES)
def test_turn_of_a_program_is_resumed_with_an_agent_from_code(cli: "Cli", endpoint: "Endpoint", source: str) -> None:
    """The error without it names the flag."""
    endpoint.says("Closed.")
    turn = paused_turn(cli)
    flags = ("--base-url", endpoint.url, "--tools", "desk.py")
    refused = cli.run("resume", turn, "--approve", "approval-1", *flags)
    assert refused.code == 2
    assert "not its guardrails, instructions" in refused.err
    assert "--agents MODULE:NAME" in refused.err
    done = cli.run("resume", turn, "--approve", "approval-1", *flags, "--agents", source, "--json")
    assert (done.code, done.last["text"]) == (0, "Closed.")


def test_turn_of_a_program_is_continued_as_each_error_advises(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Go on.")
    turn = paused_turn(cli, steps=1)
    cli.run(
        "resume",
        turn,
        "--approve",
        "approval-1",
        "--base-url",
        endpoint.url,
        "--agents",
        "desk.py",
        "--tools",
        "desk.py",
    )
    begun = ("run", "--continue", turn, "Go on")
    assert "name a model with --model" in cli.run(*begun).err
    continued = (*begun, "--model", "m", "--base-url", endpoint.url, "--tools", "desk.py")
    assert "name the source of the agent with --agents" in cli.run(*continued).err
    done = cli.run(*continued, "--agents", "desk:DESK", "--json")
    assert (done.code, done.last["text"]) == (0, "Go on.")


def test_worker_drives_turns_of_agents_from_code(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Closed.")
    turn = paused_turn(cli)
    cli.run("answer", turn, "--approve", "approval-1")
    first = cli.start("worker", "--tools", "desk.py", "--json")
    assert "not its guardrails, instructions" in first.until("refused")["why"]
    first.terminate().done()
    cli.write("turnwright.toml", 'agents = ["desk:DESK"]\ntools = "desk.py"\n')
    second = cli.start("worker", "--json")
    assert second.until("settled")["outcome"] == "finished"
    second.terminate().done()


def test_call_of_a_sub_agent_from_code_is_answered_and_resumed(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.says("Read.")

    async def begin() -> str:
        reader = agent_tool(Agent(name="Reader", mode="subagent", description="Reads.", steps=3), needs_approval=True)
        model = ScriptedModel(asks_for(("Reader", {"prompt": "read 7"})), name="m")
        async with Engine(model=model, tools=[reader], store=f"sqlite:///{cli.folder}/turns.db") as engine:
            return (await engine.run(Agent(name="Lead"), "Read")).id

    turn = anyio.run(begin)
    change = ("--arguments", '{"prompt": "read 8"}')
    refused = cli.run("answer", turn, *change)
    assert (refused.code, "name them with --tools, and sub-agents with --agents" in refused.err) == (2, True)
    done = cli.run("answer", turn, *change, "--agents", "desk.py")
    assert (done.code, f"turn {turn}: recorded approval-1" in done.out) == (0, True), done.err
    lacks = cli.run("resume", turn, "--base-url", endpoint.url)
    assert "its open calls need the tools Reader: give them (--tools, --agents)" in lacks.err
    done = cli.run("resume", turn, "--base-url", endpoint.url, "--agents", "desk.py", "--json")
    assert (done.code, done.last["text"]) == (0, "Read.")
    assert endpoint.requests[0].messages[-1]["content"] == "read 8"


def test_configuration_names_agents_from_code(cli: "Cli") -> None:
    """A file starts at the folder of the configuration, and a module where the command runs."""
    cli.write("turnwright.toml", 'agents = ["desk.py:DESK", "desk:NIGHT"]\n')
    done = cli.run("agents", "--json")
    assert [event["name"] for event in done.events] == ["Desk", "Night"]
    settings = load_config(cli.folder, environ={}).settings
    assert settings.agents == (f"{cli.folder}/desk.py:DESK", "desk:NIGHT")
    config = cli.run("config", "--agent", "Night")
    assert (config.code, "desk:NIGHT: agent 'Night'" in config.out) == (0, True)
    assert "`turnwright explain --agent Night` prints all limits" in config.out
    assert cli.run("explain", "--agent", "Night").code == 0


def test_turn_with_a_missing_source_is_resumed_with_another(cli: "Cli", endpoint: "Endpoint") -> None:
    endpoint.calls(("ask_user_input", {"question": "Which?"})).says("That one.")
    cli.write("old.py", DESK.replace('"close", "Reader"', '"ask_user_input",'))
    turn = cli.run("run", "Close one", "--agents", "old.py:DESK", "--json").turn
    (cli.folder / "old.py").rename(cli.folder / "new.py")
    answer = ("--answer", "question-1=7")
    gone = cli.run("resume", turn, *answer)
    assert gone.code == 2
    assert "or name other sources with --agents" in gone.err
    assert cli.run("resume", turn, *answer, "--agents", "new.py:DESK").code == 0


@pytest.mark.slow
def test_agent_from_code_is_fuzzed(cli: "Cli") -> None:
    for flags in (("--examples", "5"), ("--simulate", "--schedules", "2")):
        done = cli.run("fuzz", "--agents", "desk.py", "--tools", "desk.py", *flags)
        assert (done.code, "with Reader, Desk, Night" in done.out) == (0, True), done.err


def paused_turn(cli: "Cli", steps: int = 5) -> str:
    """Begin a turn of the agent Desk in this process, in the store of the commands, up to its approval."""

    @tool(needs_approval=True)
    def close(ticket: int) -> str:
        """Close a ticket."""
        return f"closed {ticket}"

    def instructions(ctx: TurnContext) -> str:
        return f"Help, {ctx.agent}."

    desk = Agent(name="Desk", instructions=instructions, guardrails=[], tools=("close",), steps=steps)

    async def begin() -> str:
        model = ScriptedModel(asks_for(("close", {"ticket": 7})), name="m")
        async with Engine(model=model, tools=[close], store=f"sqlite:///{cli.folder}/turns.db") as engine:
            return (await engine.run(desk, "Close 7")).id

    return anyio.run(begin)
