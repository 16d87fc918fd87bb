"""The options that several commands share, and what they mean."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from pydantic import ValidationError

from turnwright.agent import Agent
from turnwright.agent_files import read_agents
from turnwright.agents_md import find_agent
from turnwright.errors import ConfigError
from turnwright.model.local import LocalModel
from turnwright.model.local_weights import LOCAL_MODEL, local_model_available, missing_message
from turnwright.model.openai_chat import OpenAIChat
from turnwright.model.protocol import Model
from turnwright.subagent import AgentTool
from turnwright.team import agent_tools, primary_agents
from turnwright.tools import Tool, builtin_tools, load_tools

if TYPE_CHECKING:
    from turnwright.config import Config

DEFAULT_STORE: Final = "sqlite:///turns.db"
DEFAULT_MODEL: Final = "gpt-5-mini"
LOCAL: Final = "local"
#: Seconds to connect, however long a server may take to answer.
CONNECT_TIMEOUT: Final = 10.0

#: The flags that are settings of the configuration, by key.
FLAGS: Final[Mapping[str, str]] = {
    "limits.steps": "--steps",
    "model": "--model",
    "base_url": "--base-url",
    "timeout": "--timeout",
    "agents": "--agents",
    "tools": "--tools",
    "root": "--root",
}


def configuration(file: Path | None = None, given: Mapping[str, object] | None = None) -> "Config":
    """The settings as they hold for this command. `given` are the values of its flags; None is one not given.

    Raises `ConfigError` with every mistake.
    """
    from turnwright.config import load_config  # noqa: PLC0415 (commands without settings need not wait for it)

    said = {key: value for key, value in ({} if given is None else given).items() if value is not None}
    return load_config(file=file, overrides=said, flags=FLAGS)


def _store(context: typer.Context, value: str) -> str:
    # By name: which click it comes from differs by the release of typer.
    source = context.get_parameter_source("store")
    if source is not None and source.name != "DEFAULT":
        return value
    return configuration(context.params.get("config")).settings.store


TurnArgument = Annotated[str, typer.Argument(help="The turn's id.")]
StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="URL",
        callback=_store,
        help="memory:, sqlite:///relative.db, sqlite:////absolute.db or postgresql://user@host/name.",
    ),
]
ToolsOption = Annotated[
    str | None,
    typer.Option("--tools", metavar="MODULE", help="A module or a .py file whose @tool functions are offered."),
]
BaseUrlOption = Annotated[
    str | None, typer.Option("--base-url", metavar="URL", help="An OpenAI-compatible endpoint, such as .../v1.")
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
AgentOption = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="The agent to run.")]


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
    """The agent with another step limit. Raises `ConfigError` for one that is out of range."""
    if steps is None:
        return agent
    try:
        return Agent.model_validate(agent.to_json() | {"steps": steps})
    except ValidationError as error:
        raise ConfigError(f"--steps: {error.errors()[0]['msg']}") from None


def choose_model(name: str | None, base_url: str | None, timeout: float | None = None) -> Model:
    """The model that the flags and the environment name, else the embedded one.

    `timeout` is how many seconds an endpoint may be silent, above 0. Raises `ConfigError`, naming the ways to get a
    model, when nothing is configured and no model is installed.
    """
    endpoint = base_url or os.environ.get("OPENAI_BASE_URL", "").strip()
    configured = bool(endpoint or os.environ.get("OPENAI_API_KEY"))
    if name in (LOCAL, LOCAL_MODEL) or (name is None and not configured):
        if not local_model_available():
            raise ConfigError(missing_message())
        return LocalModel()
    if name is None:
        # A server of one model takes any name; OpenAI's needs a real one.
        name = "default" if endpoint else DEFAULT_MODEL
    if timeout is None:
        return OpenAIChat(name, base_url=base_url)
    return OpenAIChat(
        name,
        base_url=base_url,
        connect_timeout=min(timeout, CONNECT_TIMEOUT),
        first_byte_timeout=timeout,
        idle_timeout=timeout,
    )


def models_for(
    served: Model, agent: Agent, base_url: str | None, timeout: float | None = None
) -> Callable[[str], Model]:
    """The models of a turn's agents by name: `served` is its own agent's, whatever that one names."""
    made = {name: served for name in (served.name, name_of(served), agent.model) if name is not None}

    def find(name: str) -> Model:
        if name not in made:
            made[name] = choose_model(name, base_url, timeout)
        return made[name]

    return find


def name_of(model: Model) -> str:
    """What `--model` calls this model."""
    return LOCAL if isinstance(model, LocalModel) else model.name


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
