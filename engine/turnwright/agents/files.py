"""Loading agents from our own Markdown files, from opencode's folders, and from Python."""

import os
from collections.abc import Iterable
from pathlib import Path

from turnwright.agent import Agent
from turnwright.errors import ConfigError
from turnwright.tools.load import names_code
from turnwright_states import Limits

from .markdown import load_agents
from .named_code import agents_of
from .opencode import load_opencode_agents


def read_agents(*sources: str | os.PathLike[str], limits: Limits | None = None) -> list[Agent]:
    """Load the agents of these Markdown files, then of these folders (`.opencode`), then of this code, in order.

    Code is `path/file.py`, which has all its agents at the top level, or `module:name`, an agent or a list of agents.
    `limits` are the engine's; an agent's own limits must fit them. Raises `ConfigError` with every mistake, and for two
    agents with one name.
    """
    base = limits or Limits()
    named = [os.fspath(source) for source in sources]
    code = [source for source in named if names_code(source)]
    folders = [source for source in named if source not in code and Path(source).is_dir()]
    files = [source for source in named if source not in (*code, *folders)]
    in_files = load_agents(*files, limits=base) if files else []
    in_folders = load_opencode_agents(*folders, limits=base) if folders else []
    if folders and not in_folders:
        raise ConfigError(f"{folders[-1]} has no agent/NAME.md: write one, or name a file, like AGENTS.md")
    parts = [("a file", in_files), (", ".join(folders), in_folders)]
    return _together(parts + [(source, agents_of(source, base)) for source in code])


def _together(parts: Iterable[tuple[str, list[Agent]]]) -> list[Agent]:
    """Return all agents. Raises `ConfigError` for two of one name, which are in different parts."""
    found: dict[str, tuple[str, Agent]] = {}
    for place, agents in parts:
        for agent in agents:
            if agent.name in found:
                raise ConfigError(f"agent {agent.name!r} is in {place} and in {found[agent.name][0]}: rename one")
            found[agent.name] = place, agent
    return [agent for _, agent in found.values()]
