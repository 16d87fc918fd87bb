"""opencode: its agents: files of its own, primary agents and sub-agents, the old name of `steps`.

- `steps` and the deprecated `maxSteps`, for primary agents and sub-agents, also in `.opencode/agent/*.md`.
- Nested sub-agents each have a counter.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turnwright import AgentFileError, Engine, Limits, TurnResult, parse_agents, tool
from turnwright.agents.opencode import load_opencode_agents
from turnwright.driver.subagents import agent_tools, primary_agents
from turnwright.message import ToolResultPart
from turnwright.model.protocol import ModelRequest, ModelResponse
from turnwright.model.scripted import ScriptedModel, asks_for

if TYPE_CHECKING:
    from .conftest import Play

pytestmark = pytest.mark.anyio


@tool
async def note(n: int = 0) -> str:
    """Note a number."""
    return f"noted {n}"


FILES = {
    "agent/build.md": "---\ndescription: Builds.\nmode: primary\nsteps: 4\n---\nYou build.",
    "agent/plan.md": "---\ndescription: Plans.\nmode: subagent\nsteps: 3\ntools:\n  look: true\n---\nYou plan.",
    "agents/look.md": "---\nname: looker\ndescription: Looks.\nmode: subagent\nmaxSteps: 2\n---\nYou look.",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An `.opencode` with three agents."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_own_agent_files_are_read(folder: Path) -> None:
    """The file's name is the agent's, the text below the front matter its prompt."""
    agents = {agent.name: agent for agent in load_opencode_agents(folder)}
    assert {name: (agent.mode, agent.steps) for name, agent in agents.items()} == {
        "build": ("primary", 4),
        "plan": ("subagent", 3),
        "looker": ("subagent", 2),
    }
    assert agents["build"].instructions == "You build."


@pytest.mark.parametrize(("settings", "steps"), [("maxSteps: 7", 7), ("steps: 7\nmaxSteps: 7", 7)])
def test_max_steps_is_read_as_steps_with_a_single_warning(
    settings: str, steps: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In opencode's files and in AGENTS.md."""
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "a.md").write_text(f"---\ndescription: A.\n{settings}\n---\n", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        (own,) = load_opencode_agents(tmp_path)
        (parsed,) = parse_agents(f"---\nname: a\n{settings}\n---\n")
    assert (own.steps, parsed.steps) == (steps, steps)
    line = 2 + settings.count("\n")
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'agent' / 'a.md'}:{line + 1}: agent 'a': maxSteps: is the old name: write `steps`",
        f"AGENTS.md:{line + 1}: agent 'a': maxSteps: is the old name: write `steps`",
    ]


@pytest.mark.parametrize("old", [6, 8])
def test_conflicting_steps_and_max_steps_are_a_mistake(old: int, tmp_path: Path) -> None:
    """opencode takes `steps`, and says nothing."""
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "a.md").write_text(
        f"---\ndescription: A.\nsteps: 7\nmaxSteps: {old}\n---\n", encoding="utf-8"
    )
    complaint = f":4: agent 'a': maxSteps: is {old}, but `steps` is 7: leave out `maxSteps`"
    with pytest.raises(AgentFileError) as own:
        load_opencode_agents(tmp_path)
    with pytest.raises(AgentFileError) as other_error:
        parse_agents(f"---\nname: a\nsteps: 7\nmaxSteps: {old}\n---\n")
    assert (str(own.value), str(other_error.value)) == (
        f"{tmp_path / 'agent' / 'a.md'}{complaint}",
        f"AGENTS.md{complaint}",
    )


@pytest.mark.parametrize("name", ["steps", "maxSteps"])
@pytest.mark.parametrize(
    ("value", "complaint"),
    [(-1, "must be a whole number of at least 1, not -1"), (0, "must be a whole number of at least 1, not 0"), (1, "")],
)
def test_zero_steps_in_a_file_are_a_mistake(name: str, value: int, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    path = tmp_path / "agent" / "a.md"
    path.write_text(f"---\ndescription: A.\n{name}: {value}\n---\n", encoding="utf-8")
    if not complaint:
        assert [agent.steps for agent in load_opencode_agents(tmp_path)] == [value]
        return
    with pytest.raises(AgentFileError) as raised:
        load_opencode_agents(tmp_path)
    assert str(raised.value) == f"{path}:3: agent 'a': steps: {complaint}"


async def _run_nested(folder: Path) -> tuple[TurnResult, Engine, ScriptedModel]:
    """Each of three agents works as long as it may: build calls plan, plan calls look, which takes notes."""
    counts: dict[str, int] = {}

    def line(request: ModelRequest) -> ModelResponse | str:
        name = request.messages[0].text.removeprefix("You ").removesuffix(".")
        counts[name] = counts.get(name, 0) + 1
        if request.tool_choice == "none":
            return f"{name} stops."
        target = {"build": "plan", "plan": "looker"}.get(name)
        if target is not None:
            return asks_for((target, {"prompt": f"{name} asks {counts[name]}"}))
        return asks_for(("note", {"n": counts[name]}))

    agents = load_opencode_agents(folder)
    plan = next(agent for agent in agents if agent.name == "plan")
    agents[agents.index(plan)] = plan.model_copy(update={"tools": ("looker",)})
    model = ScriptedModel(line, repeat=True)
    engine = Engine(model=model, tools=[note, *agent_tools(agents)], limits=Limits.preset("opencode"))
    (build,) = primary_agents(agents)
    return await engine.run(build, "Go."), engine, model


async def test_nested_sub_agents_have_separate_counters(folder: Path) -> None:
    """4, 3 and 2 steps: build calls plan in each of 3, plan looks in each of 2, look notes in 1, and each concludes."""
    turn, engine, model = await _run_nested(folder)
    assert (turn.outcome, turn.reason, turn.steps, turn.text) == ("cap_hit", "step_cap", 4, "build stops.")
    rows = {row.id: row for row in await engine.store.turns()}
    steps = {"build": 3, "plan": 2, "looker": 1}
    assert {agent: sum(row.agent == agent for row in rows.values()) for agent in steps} == {
        "build": 1,
        "plan": 3,
        "looker": 6,
    }
    for row in rows.values():
        result = await engine.get(row.id)
        assert (result.outcome, result.reason, result.steps) == ("cap_hit", "step_cap", steps[row.agent] + 1)
    assert len(model.requests) == 4 + 3 * (3 + 2 * 2)


async def test_caller_receives_the_limit_reached_by_the_sub_agent(folder: Path) -> None:
    turn, _, _ = await _run_nested(folder)
    texts = [part.text for m in turn.messages for part in m.parts if isinstance(part, ToolResultPart)]
    assert len(texts) == 3
    assert all(text.startswith("plan stops.") and "cap_hit, step_cap" in text for text in texts)


async def test_sub_agent_is_a_tool_with_the_agent_description(folder: Path, play: "Play") -> None:
    agents = load_opencode_agents(folder)
    ran = await play(ScriptedModel("Done."), primary_agents(agents)[0], tools=agent_tools(agents))
    offered = {spec.name: spec.description for spec in ran.requests[0].tools}
    assert {"plan": "Plans.", "looker": "Looks."}.items() <= offered.items()
