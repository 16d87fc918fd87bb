"""Loading agents from our own Markdown files, from opencode's folders, and from Python."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from turnwright.agent import AGENTS_FILE, Agent
from turnwright.errors import ConfigError
from turnwright.tools.load import names_code
from turnwright_states import Limits

from .front_matter import UnreadableFileError, read_text
from .markdown import defines_agents, load_agents, names_in
from .named_code import agents_of
from .opencode import AGENT_FOLDERS, load_opencode_agents

_OPENCODE_FOLDERS: Final = (".opencode", "opencode")
#: The folders of other programs with Markdown files in `agents` whose keys and tools are not ours.
_FOREIGN_FOLDERS: Final = {
    ".claude": "Claude Code",
    ".cursor": "Cursor",
    ".gemini": "Gemini CLI",
    ".github": "GitHub Copilot",
}


def read_agents(*sources: str | os.PathLike[str], limits: Limits | None = None) -> list[Agent]:
    """Load the agents of these Markdown files, then of these folders, then of this code, in order.

    A folder is one like `.opencode`, or it or its `agents` has Markdown files, of which `README.md` is not read. Code
    is `path/file.py`, with all its agents at the top level, or `module:name`, an agent or a list of agents. `limits`
    are the engine's; an agent's own limits must fit them. Raises `ConfigError` with every mistake, for two agents with
    one name, and for a folder of agents of another program, such as `.claude`.
    """
    base = limits or Limits()
    files: list[str] = []
    folders: list[str] = []
    code: list[str] = []
    for source in map(str, map(Path, sources)):
        if names_code(source):
            code.append(source)
            continue
        _refuse_foreign(Path(source))
        if not Path(source).is_dir():
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
    paths = [*_list_markdown(folder / "agents"), *sorted(map(str, folder.glob("*.agent.md")))]
    return tuple(paths) or (AGENTS_FILE,)


def _refuse_foreign(source: Path) -> None:
    """Raise `ConfigError` for a source with agents of another program, and for a part of a folder like `.opencode`."""
    path = source.absolute()
    for folder in (path / "agents", path, *path.parents):
        program = _FOREIGN_FOLDERS.get(folder.parent.name)
        if program and folder.name == "agents" and folder.exists():
            raise ConfigError(
                f"{source} has agents of {program}, whose keys and tools are not Turnwright's: copy each to"
                " agents/NAME.md with its `name`, `description` and text, and list in `tools` the tools of yours that"
                " it may use"
            )
        if folder.name in AGENT_FOLDERS and folder.parent.name == ".opencode" and folder.parent != path:
            raise ConfigError(f"{source} is a part of opencode's folder: name {folder.parent}")


def _markdown_in(folder: Path) -> list[str]:
    """Return the Markdown files of a folder or of its `agents`. A folder like `.opencode` has none of ours."""
    if not any((folder / name).is_dir() for name in AGENT_FOLDERS):
        return _list_markdown(folder)
    if folder.name in _OPENCODE_FOLDERS or (folder / "agent").is_dir():
        return []
    files = _list_markdown(folder / "agents")
    return files if any(map(_names_agents, files)) else []


def _list_markdown(folder: Path) -> list[str]:
    return sorted(str(file) for file in folder.glob("*.md") if file.name.casefold() != "readme.md")


def _names_agents(file: str) -> bool:
    """Whether the agents of a file have a `name`. opencode names an agent by its file."""
    with suppress(UnreadableFileError):
        return bool(names_in(read_text(Path(file))))
    return False


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
