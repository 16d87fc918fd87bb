"""Loading agents from our own Markdown files and from opencode's folders."""

import os
from pathlib import Path

from turnwright.agent import Agent
from turnwright.errors import ConfigError
from turnwright_states import Limits

from .markdown import load_agents
from .opencode import load_opencode_agents


def read_agents(*paths: str | os.PathLike[str], limits: Limits | None = None) -> list[Agent]:
    """Load the agents of these files, then those of these folders (`.opencode`), in order.

    `limits` are the engine's; an agent's own limits must fit them. Raises `ConfigError` with every mistake, and for two
    agents with one name.
    """
    base = limits or Limits()
    folders = [path for path in paths if Path(path).is_dir()]
    files = [path for path in paths if path not in folders]
    found = load_agents(*files, limits=base) if files or not folders else []
    names = {agent.name for agent in found}
    in_folders = load_opencode_agents(*folders, limits=base) if folders else []
    if folders and not in_folders:
        raise ConfigError(f"{folders[-1]} has no agent/NAME.md: write one, or name a file, like AGENTS.md")
    for agent in in_folders:
        if agent.name in names:
            raise ConfigError(f"agent {agent.name!r} is in {', '.join(map(str, folders))} and in a file: rename one")
        found.append(agent)
    return found
