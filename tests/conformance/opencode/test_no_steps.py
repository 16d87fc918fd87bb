"""opencode: an agent with no steps is a mistake, wherever it is written, and under this preset only."""

from pathlib import Path

import pytest

from turnwright import Agent, AgentFileError, ConfigError, Engine, Limits, load_agents
from turnwright.model.scripted import ScriptedModel
from turnwright_states.limits import PresetName

pytestmark = pytest.mark.anyio

PRESET = Limits.preset("opencode")


@pytest.mark.parametrize("steps", [0, 1, 2])
async def test_engine_with_the_preset_refuses_an_agent_with_zero_steps(steps: int) -> None:
    """Before anything is written or sent, and the turn's own limits do not know of the preset."""
    model = ScriptedModel("Done.")
    engine = Engine(model=model, limits=PRESET)
    agent = Agent(name="build", steps=steps)
    if steps:
        assert (await engine.run(agent, "hi")).text == "Done."
        return
    with pytest.raises(
        ConfigError, match=r"^agent 'build': steps: must be at least 1 under the preset opencode, not 0$"
    ):
        await engine.run(agent, "hi")
    assert (model.requests, await engine.store.turns()) == ([], [])


def test_agent_file_error_names_file_line_agent_and_field(tmp_path: Path) -> None:
    path = tmp_path / "AGENTS.md"
    path.write_text("---\nname: build\nbudget: 5\nsteps: 0\n---\n", encoding="utf-8")
    assert [agent.steps for agent in load_agents(path)] == [0]
    with pytest.raises(AgentFileError) as raised:
        load_agents(path, limits=PRESET)
    assert str(raised.value) == f"{path}:4: agent 'build': steps: must be at least 1 under the preset opencode, not 0"


def test_ceiling_of_zero_steps_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="steps must be at least 1 under the preset opencode, not 0"):
        Limits.preset("opencode", ceiling=0)


@pytest.mark.parametrize("preset", ["boocode", "glm-cli"])
def test_other_presets_accept_zero_steps(preset: PresetName) -> None:
    assert Agent(name="build", steps=0).limits_for(Limits.preset(preset)).cap == 0
