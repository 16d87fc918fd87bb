"""`turnwright fuzz`: draws whole turns for the user's agents and tools, and checks what must hold of each."""

import secrets
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.progress import Progress as Bar

from turnwright.agent import Agent
from turnwright.agents.markdown import find_agent, load_agents
from turnwright.errors import ConfigError
from turnwright.testing.fuzz_failure import FailureOrigin, Found, as_test
from turnwright.testing.python_source import code
from turnwright.tools import builtin_tools, load_tools
from turnwright_states import Trigger
from turnwright_states.chart import CHART

from . import process
from .check_report import exit_code
from .options import AgentsOption, RootOption, ToolsOption, choose_tools
from .process import echo
from .screen import Screen

if TYPE_CHECKING:
    from turnwright.testing.fuzz import FuzzReport, Progress, Target

#: Seeds that people can copy by hand.
_SEEDS: Final = 1_000_000
_AGENTS: Final = Path("AGENTS.md")


def fuzz(
    *,
    agents: AgentsOption = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Only this agent of the file.")] = None,
    tools: ToolsOption = None,
    run_tools: Annotated[
        bool,
        typer.Option("--run-tools", help="Run the tools for real, with made-up arguments: not if they can do harm."),
    ] = False,
    root: RootOption = None,
    examples: Annotated[int, typer.Option("--examples", metavar="N", min=1, help="How many examples to play.")] = 200,
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="S", min=0.0, help="Give up after S seconds.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", min=0, help="Play the examples of an earlier run again.")
    ] = None,
    coverage: Annotated[
        Path | None,
        typer.Option("--coverage", metavar="FILE", help="Write which rows were taken: see diagram --coverage."),
    ] = None,
) -> None:
    """Play made-up turns with your agents and tools, and check what must hold of every turn.

    A scripted model obeys and disobeys; tools work, fail, hang and ask;
    people answer, or leave; streams break off, and processes die.
    Without --agents and --tools, the defaults of `run` are played.

    Your tools are NOT run. Stand-ins with their names, schemas and settings
    take their places. Only what decides about a call runs: the check of its
    arguments, its approval, its loop key. --run-tools runs them for real.

    What fails is made as small as it can be, and printed as a test.

    Exit codes: 0 all held, 1 violated, 2 configuration, 6 inconclusive.
    """
    try:
        from turnwright.testing import fuzz as runner  # noqa: PLC0415 (Hypothesis is optional, and slow to load)
    except ModuleNotFoundError as missing:
        if missing.name != "hypothesis":
            raise
        raise ConfigError("fuzz needs Hypothesis: pip install 'turnwright[testing]'") from None
    if coverage is not None and not coverage.parent.is_dir():
        raise ConfigError(f"--coverage {coverage}: there is no folder {coverage.parent}")
    folder = root or Path()
    out = process.Output(alone=True)  # a tool may print, and a printed test must not be torn
    target = runner.Target(_choose(agent, agents), tuple(choose_tools(tools, folder)), run_tools=run_tools)
    seed = secrets.randbelow(_SEEDS) if seed is None else seed
    with _bar(examples) as progress:
        report = runner.fuzz(target, examples=examples, seed=seed, seconds=seconds, progress=progress)
    if coverage is not None:
        _write(report, coverage)
    command = _command(agents, agent, tools, root, run_tools=run_tools, examples=examples, seed=seed)
    if report.found is None:
        out.write(*_told(report, target))
    else:
        origin = _origin(report.found.agent, agents or (_AGENTS if agent else None), tools, folder)
        _tell_found(report, report.found, command)
        out.write(as_test(report.found, origin, command=command, run_tools=run_tools).removesuffix("\n"))
    raise typer.Exit(exit_code(report.checks))


def _choose(name: str | None, file: Path | None) -> tuple[Agent, ...]:
    if name is None and file is None:
        return (Agent(name="assistant"),)
    agents = load_agents(file or _AGENTS)
    return tuple(agents) if name is None else (find_agent(agents, name),)


@contextmanager
def _bar(examples: int) -> "Iterator[Progress]":
    console = Screen(err=True)
    with Bar(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("playing", total=examples)

        def show(played: int, smaller: bool) -> None:
            bar.update(task, completed=played, description="making it smaller" if smaller else "playing")

        yield show


def _write(report: "FuzzReport", file: Path) -> None:
    try:
        report.rows.write(file)
    except OSError as error:
        raise ConfigError(f"--coverage {file}: cannot be written: {error.strerror}") from None


def _told(report: "FuzzReport", target: "Target") -> Iterator[str]:
    turns = sum(report.ends.values())
    names = ", ".join(agent.name for agent in target.agents)
    yield (
        f"played {report.examples} examples, {turns} turns, of {names} with {len(target.tools)} tools:"
        f" seed {report.seed}, {report.seconds:.1f} s"
    )
    yield _RAN if target.run_tools else _STOOD_IN
    if report.stopped:
        yield f"inconclusive: {report.stopped}"
    for one in report.checks:
        yield f"  {one.verdict}: {one.claim}" + ("" if report.stopped or not one.detail else f" ({one.detail})")
    yield "ended:"
    for end, count in report.ends.most_common():
        yield f"  {end:<28} {count:>6,}"
    yield f"rows of the chart taken: {report.rows.covered} of {len(report.rows.taken)}"
    for number, name in report.rows.untaken:
        bug = " (only a bug takes it)" if CHART.rows[number - 1].trigger is Trigger.FAIL else ""
        yield f"  never: {number:>2}  {name}{bug}"


def _tell_found(report: "FuzzReport", found: Found, command: str) -> None:
    for one in found.checks:
        echo(f"violated: {one.claim}: {one.detail}", err=True)
    often = "" if found.comes_back else "; it held when the same was played again, and was made no smaller"
    echo(f"found in example {report.examples} of {report.wanted}{often}", err=True)
    echo(f"the same again: {command}", err=True)
    echo("the test that fails so is on stdout: put it into a file, and run pytest there", err=True)


def _command(
    agents: Path | None,
    agent: str | None,
    tools: str | None,
    root: Path | None,
    *,
    run_tools: bool,
    examples: int,
    seed: int,
) -> str:
    flags = {"--agents": agents, "--agent": agent, "--tools": tools, "--root": root}
    words = [word for flag, value in flags.items() if value is not None for word in (flag, str(value))]
    run = ["--run-tools"] if run_tools else []
    return shlex.join(["turnwright", "fuzz", *words, *run, "--examples", str(examples), "--seed", str(seed)])


def _origin(agent: Agent, file: Path | None, tools: str | None, root: Path) -> FailureOrigin:
    imported: list[object] = [Path, builtin_tools]
    offered = f"*builtin_tools(Path({code(str(root))}))"
    if tools is not None:
        imported.append(load_tools)
        offered += f", *load_tools({code(tools)})"
    if file is None:
        imported.append(Agent)
        made = f"Agent(name={code(agent.name)})"
    else:
        imported += [find_agent, load_agents]
        made = f"find_agent(load_agents({code(str(file))}), {code(agent.name)})"
    # A tool of the module wins over a built-in one of its name.
    return FailureOrigin(
        tuple(imported), agent=made, tools=f"list({{tool.name: tool for tool in [{offered}]}}.values())"
    )


_STOOD_IN: Final = "stand-ins took the places of the tools: none of them was run (--run-tools runs them)"
_RAN: Final = "the tools were run for real"
