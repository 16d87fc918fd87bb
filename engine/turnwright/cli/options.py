"""The options that several commands share, and what they mean."""

import os
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import ValidationError

from turnwright.agent import Agent
from turnwright.agents_md import find_agent, load_agents
from turnwright.errors import ConfigError
from turnwright.model.local import LocalModel
from turnwright.model.local_weights import LOCAL_MODEL, local_model_available, missing_message
from turnwright.model.openai_chat import OpenAIChat
from turnwright.model.protocol import Model
from turnwright.tools import Tool, builtin_tools, load_tools

DEFAULT_STORE: Final = "sqlite:///turns.db"
DEFAULT_MODEL: Final = "gpt-5-mini"
LOCAL: Final = "local"
#: Seconds to connect, however long a server may take to answer.
CONNECT_TIMEOUT: Final = 10.0

StoreOption = Annotated[
    str, typer.Option("--store", metavar="URL", help="memory:, sqlite:///relative.db or sqlite:////absolute.db.")
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
        envvar="TURNWRIGHT_TIMEOUT",
        help="How long an endpoint may be silent: to connect, to begin its answer, and inside it.",
    ),
]
RootOption = Annotated[
    Path | None, typer.Option("--root", metavar="DIR", help="The folder that the built-in tools may read [default: .].")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON event a line.")]
AgentsOption = Annotated[
    Path | None, typer.Option("--agents", metavar="FILE", help="The file with the agents [default: AGENTS.md].")
]
AgentOption = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="The agent to run.")]


def choose_agent(name: str | None, file: Path | None) -> Agent:
    """The agent of that name, or the file's only one, or one without a file that just answers.

    Raises `ConfigError` when there is none of that name, or several and no name.
    """
    if name is None and file is None:
        return Agent(name="assistant", instructions="Use the tools where they help. Answer briefly.")
    found = load_agents(file or Path("AGENTS.md"))
    if name is not None:
        return find_agent(found, name)
    if len(found) != 1:
        raise ConfigError(f"{file} has several agents: choose one with --agent: {', '.join(one.name for one in found)}")
    return found[0]


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

    `timeout` is how many seconds an endpoint may be silent. Raises `ConfigError`, naming the ways to get a model,
    when nothing is configured and no model is installed.
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
    if not timeout > 0:
        raise ConfigError(f"--timeout {timeout:g}: must be above 0 seconds")
    return OpenAIChat(
        name,
        base_url=base_url,
        connect_timeout=min(timeout, CONNECT_TIMEOUT),
        first_byte_timeout=timeout,
        idle_timeout=timeout,
    )


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
