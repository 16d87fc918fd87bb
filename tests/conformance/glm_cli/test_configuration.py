"""GLM-CLI: `[behavior] max_steps` and the prompt of the summary, in a TOML file that every front end reads."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turnwright import Agent, ConfigError, Engine
from turnwright.config.config import Config, load_config

if TYPE_CHECKING:
    from .conftest import Play

pytestmark = pytest.mark.anyio


def configured(folder: Path, toml: str) -> Config:
    """The configuration of a file with this text."""
    file = folder / "turnwright.toml"
    file.write_text(f'preset = "glm-cli"\nstore = "memory:"\n{toml}', encoding="utf-8")
    return load_config(file=file, environ={})


@pytest.mark.parametrize(
    ("toml", "cap"),
    [
        ("", 25),
        ("[behavior]\n", 25),
        ("[behavior]\nmax_steps = 24", 24),
        ("[behavior]\nmax_steps = 25", 25),
        ("[behavior]\nmax_steps = 26", 26),
        ("[behavior]\nmax_steps = 199", 199),
        ("[behavior]\nmax_steps = 200", 200),
        ("[behavior]\nmax_steps = 201", 200),
        ('[behavior]\nmax_steps = "unlimited"', 200),
        ("[behavior]\nmax_steps = 1", 1),
        ("[behavior]\nmax_steps = 0", 0),
    ],
)
def test_max_steps_is_the_cap_with_default_25_and_maximum_200(tmp_path: Path, toml: str, cap: int) -> None:
    config = configured(tmp_path, toml)
    assert config.limits().cap == cap
    assert config.prepared(Agent(name="glm")).limits_for(config.limits()).cap == cap


@pytest.mark.parametrize("value", ["-1", "true", "2.5", '"many"', "nan"])
def test_invalid_max_steps_names_the_file_and_the_key(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match=r"turnwright\.toml.*behavior\.max_steps.*must be a whole number"):
        configured(tmp_path, f"[behavior]\nmax_steps = {value}")


async def test_prompt_of_a_file_replaces_the_built_in_prompt(play: "Play", tmp_path: Path) -> None:
    """An agent's own goes before it."""
    (tmp_path / "stop.txt").write_text("{limit}: say what you did.\n", encoding="utf-8")
    config = configured(tmp_path, 'conclude_prompt_file = "stop.txt"\n[behavior]\nmax_steps = 2')
    for agent, expected in (
        (Agent(name="glm"), "Stopped at the step limit (2 of 2): say what you did."),
        (Agent(name="glm", conclude_prompt="Stop."), "Stop."),
    ):
        model = play.endless()
        await Engine(model=model, **config.engine_options()).run(config.prepared(agent), "Tidy up.")
        assert model.requests[-1].messages[-1].text == expected
