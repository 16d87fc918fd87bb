"""`turnwright fuzz`: plays random turns with the user's agents and tools, and checks the invariants of each."""

import secrets
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Unpack, cast

import typer
from rich.progress import Progress as Bar

from turnwright._base.regular_files import write_regular
from turnwright._base.words import count
from turnwright.agent import AGENTS_FILE, Agent
from turnwright.agents.files import read_agents
from turnwright.agents.markdown import find_agent, load_agents
from turnwright.cli import process
from turnwright.cli.check_report import exit_code, lines_of_turns
from turnwright.cli.options import (
    AgentsOption,
    MetadataOption,
    RootOption,
    ToolsOption,
    choose_tools,
    read_metadata,
    with_helpers,
)
from turnwright.cli.process import echo
from turnwright.cli.screen import Screen
from turnwright.context import DepsFactory
from turnwright.driver.subagents import agent_tools
from turnwright.errors import ConfigError
from turnwright.rules import make_rule_sets
from turnwright.runtime.engine import Engine
from turnwright.tools import Tool, builtin_tools, load_tools
from turnwright.tools.load import load_tools_and_deps, names_code
from turnwright_states.row_counts import RowCounts
from turnwright_states.verdict import Check
from turnwright_testing.failing_test import FailureOrigin
from turnwright_testing.python_source import code

if TYPE_CHECKING:
    from turnwright_testing.fuzz import Found, FuzzReport, Progress, Target
    from turnwright_testing.play import Build, EngineParts

#: Seeds are below this number, so that people can copy one by hand.
_SEEDS: Final = 1_000_000


def fuzz(
    *,
    agents: AgentsOption = None,
    agent: Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Only this agent of the file.")] = None,
    tools: ToolsOption = None,
    run_tools: Annotated[
        bool,
        typer.Option(
            "--run-tools", help="Run the tools for real, with random arguments. Not for tools that can do harm."
        ),
    ] = False,
    stand_ins: Annotated[
        bool, typer.Option("--stand-ins", help="Never run the tools, also those of agents that are code.")
    ] = False,
    root: RootOption = None,
    metadata: MetadataOption = None,
    examples: Annotated[int, typer.Option("--examples", metavar="N", min=1, help="The number of examples.")] = 200,
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="S", min=0.0, help="Stop after S seconds.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", min=0, help="Repeat the examples of an earlier run.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if a tool never started, or anything else never occurred.")
    ] = False,
    test: Annotated[
        Path | None, typer.Option("--test", metavar="FILE", help="Write the failing test there, not to stdout.")
    ] = None,
    coverage: Annotated[
        Path | None,
        typer.Option("--coverage", metavar="FILE", help="Write the rows taken, for diagram --coverage."),
    ] = None,
    rules_off: Annotated[
        bool,
        typer.Option("--rules-off", help="Let the rules of the agents hold nothing, and print which the turns break."),
    ] = False,
    simulate: Annotated[
        bool,
        typer.Option("--simulate", help="Simulate several processes, with crashes and takeovers."),
    ] = False,
    schedules: Annotated[
        int, typer.Option("--schedules", metavar="N", min=1, help="The number of schedules, with --simulate.")
    ] = 200,
) -> None:
    """Play random turns with your agents and tools, and check them.

    Models, tools, people and streams behave and misbehave, and processes die. Without --agents and --tools, the
    defaults of `run` are used.

    Agents that are code (desk.py:DESK) are rehearsed first: their tools RUN, with values of their domain, and the
    invariants of the module are checked. See the guide: Fuzz your agents.

    Otherwise your tools and sub-agents are NOT run: stand-ins replace them. Only the check of arguments, the approval
    and the loop key of a tool run. A failure is reduced to the smallest example, and printed as a test.

    With --rules-off, the rules of the agents hold nothing: the output says which of them random turns break, and so
    what they prevent.

    With --simulate, sub-agents run, and a seed decides everything. Schedule N has the seed SEED + N - 1, which repeats
    it exactly.

    Exit codes: 0 all checks hold, 1 violated, 2 configuration, 6 inconclusive.
    """
    if coverage is not None and not coverage.parent.is_dir():
        raise ConfigError(f"--coverage {coverage}: there is no folder {coverage.parent}")
    seed = secrets.randbelow(_SEEDS) if seed is None else seed
    options = _Options(agents, agent, tools, root, tuple(metadata or ()))
    if rules_off and (simulate or (names_code(agents or "") and not stand_ins)):
        raise ConfigError("--rules-off plays with stand-ins: leave out --simulate, and give --stand-ins for code")
    if simulate and run_tools:
        raise ConfigError("--simulate runs no tools: leave out --run-tools")
    if simulate:
        checks, rows = _simulate(options, schedules=schedules, seed=seed, seconds=seconds)
    elif names_code(agents or "") and not stand_ins:
        from .desk import DeskOptions, rehearse  # noqa: PLC0415 (Hypothesis is slow to load)

        flags = ["--strict"] if strict else []
        raise typer.Exit(
            rehearse(
                DeskOptions(str(agents), agent or "", tools or "", str(root or Path()), read_metadata(metadata)),
                examples=examples,
                seed=seed,
                seconds=seconds,
                strict=strict,
                test=test,
                command=shlex.join(["turnwright", "fuzz", *options.words(), *flags]),
            )
        )
    else:
        checks, rows = _play(
            options, examples=examples, seed=seed, seconds=seconds, run_tools=run_tools, rules_off=rules_off
        )
    if coverage is not None:
        _write(rows, coverage)
    raise typer.Exit(exit_code(checks))


@dataclass(frozen=True, slots=True)
class _Options:
    """The options that say what is played or simulated."""

    agents: str | None
    agent: str | None
    tools: str | None
    root: Path | None
    metadata: tuple[str, ...]

    @property
    def source(self) -> str | None:
        """The file, the folder or the code with the agents."""
        return self.agents or (AGENTS_FILE if self.agent else None)

    def words(self) -> list[str]:
        """Return the options of a command that plays or simulates the same."""
        flags = {"--agents": self.agents, "--agent": self.agent, "--tools": self.tools, "--root": self.root}
        words = [word for flag, value in flags.items() if value is not None for word in (flag, str(value))]
        return words + [word for entry in self.metadata for word in ("--metadata", entry)]

    def load(self) -> "_Loaded":
        """Load the agents and their tools. Raises `ConfigError`."""
        loaded_tools = choose_tools(self.tools, self.root or Path())
        helpers = [] if self.source is None else agent_tools(read_agents(self.source))
        return _Loaded(
            self,
            agents=_choose(self.agent, self.agents),
            tools=with_helpers(loaded_tools.tools, helpers),
            build=cast("Build", Engine if loaded_tools.make_deps is None else _builder(loaded_tools.make_deps)),
            makes_deps=loaded_tools.make_deps is not None,
            helps=bool(helpers),
        )


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The agents and the tools that are played or simulated. `helps`: the source has sub-agents."""

    options: _Options
    agents: tuple[Agent, ...]
    tools: tuple[Tool, ...]
    build: "Build"
    makes_deps: bool
    helps: bool

    def origin(self, agent: Agent) -> FailureOrigin:
        """Return what a test imports and makes."""
        source, tools = self.options.source, self.options.tools
        objects: list[object] = [Path, builtin_tools]
        tools_code = f"*builtin_tools(Path({code(str(self.options.root or Path()))}))"
        if tools is not None:
            objects.append(load_tools)
            tools_code += f", *load_tools({code(tools)})"
        # Users import the public function, which reads Markdown files.
        reader = read_agents if source is None or names_code(source) or Path(source).is_dir() else load_agents
        agents_code = f"{reader.__name__}({code(source)})"
        if source is None:
            objects.append(Agent)
            expression = f"Agent(name={code(agent.name)})"
        else:
            objects += [find_agent, reader]
            expression = f"find_agent({agents_code}, {code(agent.name)})"
        # A tool of the module wins over a built-in tool of the same name.
        all_tools, build = f"list({{tool.name: tool for tool in [{tools_code}]}}.values())", ""
        if self.helps:
            objects.append(agent_tools)
            all_tools = f"[*{all_tools}, *agent_tools({agents_code})]"
        if tools is not None and self.makes_deps:
            objects += [partial, Engine, load_tools_and_deps]
            build = f"partial(Engine, deps=load_tools_and_deps({code(tools)}).make_deps)"
        return FailureOrigin(tuple(objects), agent=expression, tools=all_tools, build=build)


def _play(
    options: _Options, *, examples: int, seed: int, seconds: float | None, run_tools: bool, rules_off: bool
) -> tuple[list[Check], RowCounts]:
    """Play random turns, and print the report, or the failure and its test. Return the checks and the rows taken."""
    from turnwright_testing import fuzz as runner  # noqa: PLC0415 (Hypothesis is slow to load)

    out = process.Output(alone=True)  # a tool may print, but not inside a printed test
    loaded_code = options.load()
    target = runner.Target(
        loaded_code.agents,
        loaded_code.tools,
        run_tools=run_tools,
        build=loaded_code.build,
        metadata=read_metadata(options.metadata),
        rules_off=rules_off,
    )
    with _bar(examples) as progress:
        report = runner.fuzz(target, examples=examples, seed=seed, seconds=seconds, progress=progress)
    run = ["--run-tools"] * run_tools + ["--rules-off"] * rules_off
    command = shlex.join(
        ["turnwright", "fuzz", *options.words(), *run, "--examples", str(examples), "--seed", str(seed)]
    )
    if report.found is None:
        out.write(*_report_lines(report, target))
    else:
        _print_found(report, report.found, command)
        test = runner.as_test(
            report.found, loaded_code.origin(report.found.agent), command=command, run_tools=run_tools
        )
        out.write(test.removesuffix("\n"))
    return report.checks, report.rows


def _simulate(options: _Options, *, schedules: int, seed: int, seconds: float | None) -> tuple[list[Check], RowCounts]:
    """Simulate the agents with their tools and sub-agents. See `_play`."""
    from turnwright_testing.simulation import SimulationTarget, simulate  # noqa: PLC0415 (few runs simulate)

    from .simulate import print_simulation  # noqa: PLC0415 (likewise)

    loaded_code = options.load()
    build = cast("Callable[..., Engine[None]]", loaded_code.build)
    metadata = read_metadata(options.metadata)
    targets = [SimulationTarget(agent, loaded_code.tools, build, metadata) for agent in loaded_code.agents]
    with _bar(schedules) as progress:
        report = simulate(targets, schedules=schedules, seed=seed, seconds=seconds, progress=progress)
    command = shlex.join(["turnwright", "fuzz", "--simulate", *options.words()])
    print_simulation(report, loaded_code.agents, command, loaded_code.origin)
    return report.checks, report.rows


def _builder(make_deps: DepsFactory[object]) -> "Build[object]":
    def build(**parts: "Unpack[EngineParts]") -> Engine[object]:
        return Engine(deps=make_deps, **parts)

    return build


def _choose(name: str | None, source: str | None) -> tuple[Agent, ...]:
    if name is None and source is None:
        return (Agent(name="assistant"),)
    agents = read_agents(source or AGENTS_FILE)
    return tuple(agents) if name is None else (find_agent(agents, name),)


@contextmanager
def _bar(examples: int) -> "Iterator[Progress]":
    console = Screen(err=True)
    with Bar(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("playing", total=examples)

        def show(count: int, smaller: bool) -> None:
            bar.update(task, completed=count, description="reducing" if smaller else "playing")

        yield show


def _write(rows: RowCounts, file: Path) -> None:
    try:
        write_regular(file, rows.to_json().encode())
    except OSError as error:
        raise ConfigError(f"--coverage {file}: cannot be written: {error.strerror}") from None


def _report_lines(report: "FuzzReport", target: "Target") -> Iterator[str]:
    turns, agents = report.ends.total(), target.agents
    names = ", ".join(agent.name for agent in agents)
    tools = sum(any(agent.may_use(tool.name, delegates=tool.delegates) for agent in agents) for tool in target.tools)
    yield (
        f"played {report.examples} examples, {turns} turns, with {names} and {count(tools, 'tool')}:"
        f" seed {report.seed}, {report.seconds:.1f} s"
    )
    yield _RAN if target.run_tools else _STOOD_IN
    yield from report.lines()
    yield from lines_of_turns(report.ends, report.rows)
    if target.rules_off:
        yield from _lines_of_breaches(report, target)


def _lines_of_breaches(report: "FuzzReport", target: "Target") -> Iterator[str]:
    """Return a line for each rule of the agents: what breaks it where nothing holds it."""
    yield "without the rules:"
    sets = [rules for agent in target.agents for rules in make_rule_sets(agent.rules, f"agent {agent.name!r}")]
    names = dict.fromkeys(rule.name for rules in sets for rule in rules.rules)
    for name in names:
        breach = report.breaches.get(name)
        if breach is None:
            yield f"  {name}: not broken in {count(report.examples, 'example')}"
            continue
        kinds = [(breach.calls, "call"), (breach.answers, "answer")]
        counts = " and ".join(count(number, kind) for number, kind in kinds if number)
        yield f"  {name}: broken by {counts}: {breach.example}"
    if not names:
        yield "  the agents have no rules"


def _print_found(report: "FuzzReport", failure: "Found", command: str) -> None:
    for check in failure.checks:
        echo(f"violated: {check.claim}: {check.detail}", err=True)
    often = "" if failure.comes_back else "; the same example passed when it was repeated, and was not reduced"
    echo(f"found in example {report.examples} of {report.wanted}{often}", err=True)
    echo(f"to repeat: {command}", err=True)
    echo("a test that fails in this way is on stdout: save it in a file, and run pytest", err=True)


_STOOD_IN: Final = "stand-ins replaced the tools: no tool was run (--run-tools runs them)"
_RAN: Final = "the tools were run for real"
