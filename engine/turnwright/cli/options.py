"""The options that several commands share, and what they mean."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from pydantic import ValidationError

from turnwright.agent import Agent
from turnwright.agents.files import read_agents
from turnwright.agents.markdown import find_agent
from turnwright.driver.subagents import AgentTool, agent_tools, primary_agents
from turnwright.errors import ConfigError
from turnwright.model.providers import PROVIDERS
from turnwright.store.address import SCHEMES
from turnwright.tools import Tool, builtin_tools, load_tools

if TYPE_CHECKING:
    from turnwright.config.config import Config

DEFAULT_STORE: Final = "sqlite:///turns.db"

#: The flags that are settings of the configuration, by key.
FLAGS: Final[Mapping[str, str]] = {
    "limits.steps": "--steps",
    "model": "--model",
    "base_url": "--base-url",
    "timeout": "--timeout",
    "agents": "--agents",
    "tools": "--tools",
    "mcp": "--mcp",
    "root": "--root",
}


def configuration(file: Path | None = None, given: Mapping[str, object] | None = None) -> "Config":
    """The settings as they hold for this command. `given` are the values of its flags; None is one not given.

    Raises `ConfigError` with every mistake.
    """
    from turnwright.config.config import load_config  # noqa: PLC0415 (commands without settings need not wait for it)

    said = {key: value for key, value in ({} if given is None else given).items() if value is not None}
    return load_config(file=file, overrides=said, flags=FLAGS)


def _store(context: typer.Context, value: str) -> str:
    # By name: which click it comes from differs by the release of typer.
    source = context.get_parameter_source("store")
    if source is not None and source.name != "DEFAULT":
        return value
    return configuration(context.params.get("config")).settings.store


TurnArgument = Annotated[str, typer.Argument(help="The turn's id, or the beginning of it.")]
StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="URL",
        callback=_store,
        help=f"{', '.join(one.example for one in SCHEMES)}, or one that a package adds.",
    ),
]
ToolsOption = Annotated[
    str | None,
    typer.Option("--tools", metavar="MODULE", help="A module or a .py file whose @tool functions are offered."),
]
McpOption = Annotated[
    list[Path] | None,
    typer.Option("--mcp", metavar="FILE", help="MCP servers whose tools are offered, as in mcp.json; may be repeated."),
]
BaseUrlOption = Annotated[
    str | None, typer.Option("--base-url", metavar="URL", help="The model's endpoint, such as .../v1.")
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="How long an endpoint may be silent: to connect, to begin its answer, and inside it.",
    ),
]
RootOption = Annotated[
    Path | None, typer.Option("--root", metavar="DIR", help="The folder that the built-in tools may read [default: .].")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON event a line.")]
AgentsOption = Annotated[
    Path | None, typer.Option("--agents", metavar="FILE", help="The file with the agents, or a folder like .opencode.")
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", is_eager=True, help="The configuration [default: turnwright.toml, here or above]."
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--temporal-address", metavar="HOST:PORT", help="The Temporal server that has turns driven by its workers."
    ),
]
NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", metavar="NAME", help="The namespace there [default: default].")
]
QueueOption = Annotated[
    str | None, typer.Option("--queue", metavar="NAME", help="The task queue there [default: turnwright].")
]
AgentQueuesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--agent-queue", metavar="AGENT=QUEUE", help="An agent whose turns have another one; may be repeated."
    ),
]
ServesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--serves",
        metavar="QUEUE",
        help="Take turns from this task queue alone; may be repeated [default: all of them].",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="ID",
        help=f"The model: {', '.join(one.help for one in PROVIDERS)}, or PROVIDER:ID of one that a package adds.",
    ),
]
AgentOption = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="The agent to run.")]
JsonLinesOption = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]
JsonObjectOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
ApproveOption = Annotated[
    list[str] | None, typer.Option("--approve", metavar="ID", help="Approve what an interrupt asks.")
]
RejectOption = Annotated[
    list[str] | None, typer.Option("--reject", metavar="ID[=WORDS]", help="Reject it, with words for the model.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFlags:
    """The flags that change the engine of a turn that has begun (see `with_shared_options`)."""

    tools: ToolsOption = None
    mcp: McpOption = None
    base_url: BaseUrlOption = None
    timeout: TimeoutOption = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFlags(EngineFlags):
    """The flags of an engine that drives the turns of others."""

    root: RootOption = None
    agents: AgentsOption = None
    model: ModelOption = None


def first_given(flags: EngineFlags) -> str | None:
    """Return the first of these flags that was given, as people write it."""
    given = (one.name for one in fields(flags) if getattr(flags, one.name) not in (None, []))
    return next((f"--{name.replace('_', '-')}" for name in given), None)


def choose_agent(name: str | None, file: Path | None, said: "Config") -> tuple[Agent, list[AgentTool]]:
    """The agent of that name, or the only one that is no sub-agent, or one without a file that just answers.

    With it the sub-agents that stand beside it. Raises `ConfigError` when there is none of that name, or several and
    no name.
    """
    if name is None and file is None:
        return Agent(name="assistant", instructions="Use the tools where they help. Answer briefly."), []
    found = read_agents(*(said.agent_files() if file is None else (file,)), limits=said.limits())
    helpers = agent_tools(found)
    if name is not None:
        return find_agent(found, name), helpers
    primary = primary_agents(found)
    if len(primary) != 1:
        names = ", ".join(one.name for one in primary or found)
        what = "several agents" if primary else "sub-agents"
        raise ConfigError(f"{file} has {what}: choose one with --agent: {names}")
    return primary[0], helpers


def with_steps(agent: Agent, steps: int | None) -> Agent:
    if steps is None:
        return agent
    try:
        return Agent.model_validate(agent.to_json() | {"steps": steps})
    except ValidationError as error:
        raise ConfigError(f"--steps: {error.errors()[0]['msg']}") from None


def choose_tools(module: str | None, root: Path) -> list[Tool]:
    """The built-in tools, confined to `root`, and the module's, which win where a name is the same.

    Raises `ConfigError` for a root that is no folder and a module that cannot be loaded.
    """
    if not root.is_dir():
        raise ConfigError(f"--root {root}: is no folder")
    tools = {tool.name: tool for tool in builtin_tools(root)}
    if module is not None:
        tools |= {tool.name: tool for tool in load_tools(module)}
    return list(tools.values())
