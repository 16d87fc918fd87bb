"""Sources of agents: whose files they are, by their folder and by what is in them."""

from pathlib import Path

import pytest

from turnwright.agents.files import read_agents
from turnwright.errors import ConfigError

OURS = "---\nname: Clerk\nbudget: 10\ntools: [read_file]\n---\nBe kind.\n"
OPENCODES = "---\ndescription: Reviews.\ntools:\n  write: false\n---\nYou review.\n"
CLAUDE_CODES = "---\nname: reviewer\ndescription: Reviews.\ntools: Read, Bash\nmodel: inherit\n---\nYou review.\n"


def write(root: Path, path: str, text: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def names(source: Path) -> list[str]:
    return [agent.name for agent in read_agents(source)]


def refusal(source: Path) -> str:
    with pytest.raises(ConfigError) as raised:
        read_agents(source)
    return str(raised.value)


def test_agents_folder_of_a_project_has_agents_of_ours(tmp_path: Path) -> None:
    write(tmp_path, "agents/clerk.md", OURS)
    write(tmp_path, "agents/README.md", "# Agents\n")
    write(tmp_path, "CHANGELOG.md", "# Changes\n")
    assert names(tmp_path) == names(tmp_path / "agents") == ["Clerk"]


def test_mistake_in_an_agents_folder_is_one_of_our_format(tmp_path: Path) -> None:
    write(tmp_path, "agents/clerk.md", OURS)
    write(tmp_path, "agents/night.md", OURS.replace("name", "nam"))
    (tmp_path / "agents/other.md").write_bytes(b"\xff")
    assert "night.md:2: nam: is unknown: did you mean `name`?" in refusal(tmp_path)


@pytest.mark.parametrize("folder", [".opencode/agent", ".opencode/agents", "opencode/agents", "own/agents"])
def test_folder_like_that_of_opencode_has_its_agents(tmp_path: Path, folder: str) -> None:
    source = write(tmp_path, f"{folder}/review.md", OPENCODES).parents[1]
    assert names(source) == ["review"]
    if source.name != "own":  # a `name` does not make it ours
        write(tmp_path, f"{folder}/second.md", OPENCODES.replace("---\nd", "---\nname: Second\nd"))
        assert names(source) == ["review", "Second"]


def test_part_of_an_opencode_folder_names_the_folder(tmp_path: Path) -> None:
    file = write(tmp_path, ".opencode/agent/review.md", OPENCODES)
    for source in (file, file.parent):
        assert refusal(source) == f"{source} is a part of opencode's folder: name {tmp_path / '.opencode'}"


@pytest.mark.parametrize(
    ("folder", "program"),
    [(".claude", "Claude Code"), (".cursor", "Cursor"), (".gemini", "Gemini CLI"), (".github", "GitHub Copilot")],
)
def test_agents_of_another_program_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, program: str
) -> None:
    file = write(tmp_path, f"{folder}/agents/reviewer.md", CLAUDE_CODES)
    nested = write(tmp_path, f"{folder}/agents/team/lead.md", CLAUDE_CODES)
    monkeypatch.chdir(tmp_path / folder)
    for source in (tmp_path / folder, file.parent, file, nested, Path(), Path("agents"), Path("agents/reviewer.md")):
        problem = refusal(source)
        assert problem.startswith(f"{source} has agents of {program}, whose keys and tools are not Turnwright's: copy")


def test_work_tree_in_the_folder_of_another_program_is_read(tmp_path: Path) -> None:
    file = write(tmp_path, ".claude/worktrees/fix/agents/clerk.md", OURS)
    for source in (file, file.parent, file.parents[1]):
        assert names(source) == ["Clerk"]
    assert "has no NAME.md and no agent/NAME.md" in refusal(tmp_path / ".claude")
