"""Loading agents from our own Markdown files, from opencode's folders, and from Python."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from turnwright.agent import AGENTS_FILE, Agent
from turnwright.errors import ConfigError
from turnwright.tools.load import names_code
from turnwright_states import Limits

from .front_matter import UnreadableFileError, read_text
from .markdown import defines_agents, load_agents
from .named_code import agents_of
from .opencode import AGENT_FOLDERS, load_opencode_agents


def read_agents(*sources: str | os.PathLike[str], limits: Limits | None = None) -> list[Agent]:
    """Load the agents of these Markdown files, then of these folders, then of this code, in order.

    A folder is one like `.opencode`, or has Markdown files, of which `README.md` is not read. Code is `path/file.py`,
    with all its agents at the top level, or `module:name`, an agent or a list of agents. `limits` are the engine's; an
    agent's own limits must fit them. Raises `ConfigError` with every mistake, and for two agents with one name.
    """
    base = limits or Limits()
    files: list[str] = []
    folders: list[str] = []
    code: list[str] = []
    for source in map(str, map(Path, sources)):
        if names_code(source):
            code.append(source)
        elif not Path(source).is_dir():
            files.append(source)
        elif markdown := _markdown_in(Path(source)):
            files += markdown
        else:
            folders.append(source)
    in_files = load_agents(*files, limits=base) if files else []
    in_folders = load_opencode_agents(*folders, limits=base) if folders else []
    if folders and not in_folders:
        raise ConfigError(f"{folders[-1]} has no NAME.md and no agent/NAME.md: write one, or name a file")
    parts = [("a file", in_files), (", ".join(folders), in_folders)]
    return _join_parts(parts + [(source, agents_of(source, base)) for source in code])


def default_sources() -> tuple[str, ...]:
    """Return the files of agents in the working folder: `AGENTS.md`, or else `agents/*.md` and `*.agent.md`.

    An `AGENTS.md` of the open standard is the last choice: it is one plain assistant.
    """
    file, folder = Path(AGENTS_FILE), Path()
    with suppress(UnreadableFileError):
        if file.is_file() and defines_agents(read_text(file)):
            return (AGENTS_FILE,)
    paths = [*_markdown_in(folder / "agents"), *sorted(map(str, folder.glob("*.agent.md")))]
    return tuple(paths) or (AGENTS_FILE,)


def _markdown_in(folder: Path) -> list[str]:
    """Return the Markdown files of a folder that is not like `.opencode`."""
    if any((folder / name).is_dir() for name in AGENT_FOLDERS):
        return []
    return sorted(str(file) for file in folder.glob("*.md") if file.name.casefold() != "readme.md")


def _join_parts(parts: Iterable[tuple[str, list[Agent]]]) -> list[Agent]:
    """Return all agents. Raises `ConfigError` for two of one name, which are in different parts."""
    agents_by_name: dict[str, tuple[str, Agent]] = {}
    for place, agents in parts:
        for agent in agents:
            if agent.name in agents_by_name:
                raise ConfigError(
                    f"agent {agent.name!r} is in {place} and in {agents_by_name[agent.name][0]}: rename one"
                )
            agents_by_name[agent.name] = place, agent
    return [agent for _, agent in agents_by_name.values()]
