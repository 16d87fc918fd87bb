"""opencode: which tools an agent has, as its `tools` and `permission` say, and which sub-agents."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turnwright import Agent, ConfigError
from turnwright.agents.opencode import load_opencode_agents
from turnwright.driver.subagents import agent_tools
from turnwright.model.scripted import ScriptedModel

if TYPE_CHECKING:
    from .conftest import Play

pytestmark = pytest.mark.anyio

FILES = {
    "build": "mode: primary",
    "plan": "mode: subagent\ntools:\n  note: false",
    "lead": "mode: subagent\npermission:\n  task: allow",
    "review": "mode: all\ntools:\n  '*': false\n  look: true\n  webfetch: true",
}


async def _offered(play: "Play", folder: Path, name: str) -> list[str]:
    (folder / "agent").mkdir()
    for file, front in FILES.items():
        (folder / "agent" / f"{file}.md").write_text(f"---\ndescription: {file}.\n{front}\n---\n", encoding="utf-8")
    agents = load_opencode_agents(folder)
    agent = next(agent for agent in agents if agent.name == name)
    ran = await play(ScriptedModel("Done."), agent, tools=agent_tools(agents))
    return [spec.name for spec in ran.requests[0].tools]


@pytest.mark.parametrize(
    ("name", "tools"),
    [
        ("build", ["note", "look", "lead", "plan", "review"]),
        ("plan", ["look"]),
        ("lead", ["note", "look", "plan", "review"]),
        ("review", ["look"]),
    ],
)
async def test_agent_has_the_tools_allowed_by_the_file(
    play: "Play", tmp_path: Path, name: str, tools: list[str]
) -> None:
    """A primary agent may call every sub-agent, a sub-agent none unless `permission.task` says so."""
    assert await _offered(play, tmp_path, name) == tools


async def test_agent_naming_tools_has_only_named_tools_and_no_sub_agent(play: "Play") -> None:
    plan = Agent(name="plan", description="Plans.", mode="subagent")
    for tools in (("note",), ("note", "plan")):
        ran = await play(ScriptedModel("Done."), Agent(name="build", tools=tools), tools=agent_tools([plan]))
        assert tuple(spec.name for spec in ran.requests[0].tools) == tools
    with pytest.raises(ConfigError, match="there is no tool 'plan'"):
        await play(ScriptedModel("Done."), Agent(name="build", tools=("note", "plan")))
