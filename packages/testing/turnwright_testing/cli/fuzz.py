"""`turnwright fuzz`: plays random turns with the user's agents and tools, and checks the invariants of each."""

import secrets
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Unpack, cast

import typer

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
from turnwright.context import DepsFactory
from turnwright.driver.subagents import agent_tools
from turnwright.errors import ConfigError
from turnwright.rules import make_rule_sets
from turnwright.runtime.engine import Engine
from turnwright.tools import Tool, builtin_tools, load_tools
from turnwright.tools.load import load_tools_and_deps, names_code
from turnwright_states.row_counts import RowCounts
from turnwright_testing.failing_test import FailureOrigin
from turnwright_testing.python_source import code

from .run_output import ProgressLine, Run, write_for

if TYPE_CHECKING:
    from turnwright_testing.desk import Desk
    from turnwright_testing.fuzz import FuzzReport, Target
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
    for flag, file in (("--coverage", coverage), ("--test", test)):
        if file is not None and not file.parent.is_dir():
            raise ConfigError(f"{flag} {file}: there is no folder {file.parent}")
    seed = secrets.randbelow(_SEEDS) if seed is None else seed
    options = _Options(agents, agent, tools, root, tuple(metadata or ()))
    rehearses = names_code(agents or "") and not stand_ins
    if rules_off and (simulate or rehearses):
        raise ConfigError("--rules-off plays with stand-ins: leave out --simulate, and give --stand-ins for code")
    if simulate and run_tools:
        raise ConfigError("--simulate runs no tools: leave out --run-tools")
    # A tool may print, but not inside a printed test.
    run = Run(seed, seconds, test, process.Output(alone=True))
    if simulate:
        status, rows = _simulate(options, run, schedules)
    elif rehearses:
        status, rows = _rehearse(options, run, examples, strict=strict)
    else:
        status, rows = _play(options, run, examples, run_tools=run_tools, rules_off=rules_off)
    if coverage is not None:
        write_for("--coverage", coverage, rows.to_json())
    raise typer.Exit(status)


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

    def command(self, *more: str) -> str:
        """Return a command that plays or simulates the same, with more options at its end."""
        flags = {"--agents": self.agents, "--agent": self.agent, "--tools": self.tools, "--root": self.root}
        words = [word for flag, value in flags.items() if value is not None for word in (flag, str(value))]
        words += [word for entry in self.metadata for word in ("--metadata", entry)]
        return shlex.join(["turnwright", "fuzz", *words, *more])

    def load_desks(self) -> "dict[str, Desk]":
        """Load the desks of agents that are code, each by the expression that loads it. Raises `ConfigError`."""
        from turnwright_testing.desk import load_desk, load_desks  # noqa: PLC0415 (Hypothesis is slow to load)

        source = str(self.agents)
        places = {"tools": self.tools, "root": None if self.root is None else str(self.root)}
        options = {name: value for name, value in places.items() if value is not None}
        desks = [load_desk(source, self.agent, **options)] if self.agent else load_desks(source, **options)
        metadata = read_metadata(self.metadata)
        return {
            self._desk_code(desk.agent.name, options): replace(desk, metadata=(metadata,)) if metadata else desk
            for desk in desks
        }

    def _desk_code(self, name: str, options: Mapping[str, str]) -> str:
        arguments = [code(self.agents), *([code(name)] if ":" not in str(self.agents) else [])]
        return f"load_desk({', '.join([*arguments, *(f'{key}={code(value)}' for key, value in options.items())])})"

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


def _play(options: _Options, run: Run, examples: int, *, run_tools: bool, rules_off: bool) -> tuple[int, RowCounts]:
    """Play random turns, and print the report, or the failure and its test. Return the exit code and the rows taken."""
    from turnwright_testing import fuzz as runner  # noqa: PLC0415 (Hypothesis is slow to load)

    loaded_code = options.load()
    target = runner.Target(
        loaded_code.agents,
        loaded_code.tools,
        run_tools=run_tools,
        build=loaded_code.build,
        metadata=read_metadata(options.metadata),
        rules_off=rules_off,
    )
    progress = ProgressLine(_names(loaded_code.agents), examples)
    report = runner.fuzz(target, examples=examples, seed=run.seed, seconds=run.seconds, progress=progress.show)
    failure = report.found
    if failure is None:
        run.out.write(*_report_lines(report, target))
    else:
        flags = ["--run-tools"] * run_tools + ["--rules-off"] * rules_off
        command = options.command(*flags, "--examples", str(examples), "--seed", str(run.seed))
        often = "" if failure.comes_back else "; the same example passed when it was repeated, and was not reduced"
        run.fail(
            *(f"violated: {check.claim}: {check.detail}" for check in failure.checks),
            f"found in example {report.examples} of {report.wanted}{often}",
            command=command,
            test=runner.as_test(failure, loaded_code.origin(failure.agent), command=command, run_tools=run_tools),
        )
    return exit_code(report.checks), report.rows


def _rehearse(options: _Options, run: Run, examples: int, *, strict: bool) -> tuple[int, RowCounts]:
    """Rehearse agents that are code. See `_play`."""
    from .desk import rehearse  # noqa: PLC0415 (Hypothesis is slow to load)

    before, command = RowCounts.now(), options.command(*["--strict"] * strict)
    status = rehearse(options.load_desks(), run, examples, strict=strict, command=command)
    return status, RowCounts.now() - before


def _simulate(options: _Options, run: Run, schedules: int) -> tuple[int, RowCounts]:
    """Simulate the agents with their tools and sub-agents. See `_play`."""
    from turnwright_testing.simulation import SimulationTarget, simulate  # noqa: PLC0415 (few runs simulate)

    from .simulate import print_simulation  # noqa: PLC0415 (likewise)

    loaded_code = options.load()
    build = cast("Callable[..., Engine[None]]", loaded_code.build)
    metadata = read_metadata(options.metadata)
    targets = [SimulationTarget(agent, loaded_code.tools, build, metadata) for agent in loaded_code.agents]
    progress = ProgressLine(_names(loaded_code.agents), schedules, verb="simulating", unit="schedule")
    report = simulate(targets, schedules=schedules, seed=run.seed, seconds=run.seconds, progress=progress.show)
    print_simulation(report, run, loaded_code.agents, options.command("--simulate"), loaded_code.origin)
    return exit_code(report.checks), report.rows


def _names(agents: Sequence[Agent]) -> str:
    return ", ".join(agent.name for agent in agents)


def _builder(make_deps: DepsFactory[object]) -> "Build[object]":
    def build(**parts: "Unpack[EngineParts]") -> Engine[object]:
        return Engine(deps=make_deps, **parts)

    return build


def _choose(name: str | None, source: str | None) -> tuple[Agent, ...]:
    if name is None and source is None:
        return (Agent(name="assistant"),)
    agents = read_agents(source or AGENTS_FILE)
    return tuple(agents) if name is None else (find_agent(agents, name),)


def _report_lines(report: "FuzzReport", target: "Target") -> Iterator[str]:
    turns, agents = report.ends.total(), target.agents
    tools = sum(any(agent.may_use(tool.name, delegates=tool.delegates) for agent in agents) for tool in target.tools)
    yield (
        f"played {report.examples} examples, {turns} turns, with {_names(agents)} and {count(tools, 'tool')}:"
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


_STOOD_IN: Final = "stand-ins replaced the tools: no tool was run (--run-tools runs them)"
_RAN: Final = "the tools were run for real"
