"""`turnwright config`: every effective setting with its source, or every mistake with exit code 2."""

from typing import TYPE_CHECKING

import pytest
from tests.engine.cli.fixtures import SECRET

from turnwright.cli.config import settings_list
from turnwright.cli.options import DEFAULT_STORE
from turnwright.config.settings import SETTINGS

if TYPE_CHECKING:
    from tests.engine.cli.fixtures import Cli, Done


def source_of(done: "Done", key: str) -> tuple[object, str, str]:
    """Value, source and place of a setting, out of the JSON."""
    setting = next(setting for setting in done.last["settings"] if setting["key"] == key)
    return setting["value"], setting["source"], setting["place"]


def row(done: "Done", key: str) -> list[str]:
    """The cells of a setting, out of the table."""
    return next(line for line in done.out.splitlines() if line.startswith(f"{key} ")).split(maxsplit=2)


def test_every_setting_is_printed_with_value_and_source(cli: "Cli") -> None:
    """As a table, and as one JSON object."""
    path = cli.write("turnwright.toml", "preset = 'glm-cli'\n[limits]\ntokens = 'off'\n")
    text, data = cli.each(["config"], ["config", "--json"])
    settings = set(SETTINGS) - {"behavior.max_steps", "prices", "model_settings"}
    assert {setting["key"] for setting in data.last["settings"]} == settings
    assert settings <= {line.partition(" ")[0] for line in text.out.splitlines()}
    assert data.last["file"] == str(path)
    assert source_of(data, "limits.steps") == (25, "preset", "glm-cli")
    assert source_of(data, "limits.tokens") == (None, "file", f"{path}: limits.tokens")
    assert row(text, "limits.steps") == ["limits.steps", "25", "preset glm-cli"]
    assert row(text, "limits.tokens") == ["limits.tokens", "unlimited", f"file {path}: limits.tokens"]
    assert row(text, "limits.max_retries") == ["limits.max_retries", "3", "default"]
    assert row(text, "limits.tool_calls")[1:] == ['{"read_only":', '50, "writing": 10, "default": 50}  default']
    assert row(text, "agents") == ["agents", "none", "default"]


def test_missing_file_is_reported(cli: "Cli") -> None:
    text, data = cli.each(["config"], ["config", "--json"])
    assert text.out.startswith("Configuration file: none\n")
    assert data.last["file"] is None


def test_agent_is_shown_with_the_front_matter_settings(cli: "Cli") -> None:
    """A limit that the agent leaves out has the source of the engine's limit. The cap is that of the certificate."""
    cli.agent(
        "steps: 300", "budget: {seconds: 9}", "model: mine", "model_settings: {temperature: 0, stop_sequences: [x]}"
    )
    environ = {"TURNWRIGHT_LIMITS__NUDGES": "1", "TURNWRIGHT_LIMITS__SECONDS": "60", "TURNWRIGHT_LIMITS__CEILING": "50"}
    environ["TURNWRIGHT_MODEL_SETTINGS"] = '{"temperature": 0.5, "seed": 1}'
    done = cli.run("config", "--agent", "tester", "--json", env=environ)
    place = "AGENTS.md: agent 'Tester'"
    assert source_of(done, "limits.steps") == (300, "front matter", place)
    assert source_of(done, "limits.seconds") == (9, "front matter", place)
    assert source_of(done, "model") == ("mine", "front matter", place)
    assert source_of(done, "model_settings.temperature") == (0, "front matter", place)
    assert source_of(done, "model_settings.stop_sequences") == (["x"], "front matter", place)
    assert source_of(done, "model_settings.seed") == (1, "environment", "TURNWRIGHT_MODEL_SETTINGS")
    assert source_of(done, "limits.nudges") == (1, "environment", "TURNWRIGHT_LIMITS__NUDGES")
    assert (done.last["agent"], done.last["cap"]) == ("tester", 50)
    text = cli.run("config", "--agent", "Tester", env=environ)
    assert "min(steps, ceiling) = min(300, 50)" in text.out


def test_agents_are_read_from_the_configured_files(cli: "Cli") -> None:
    cli.write("turnwright.toml", "agents = ['one.md', 'two.md']")
    for name in ("one", "two"):
        cli.write(f"{name}.md", f"---\nname: {name}\nsteps: 3\n---\nWork.\n")
    done = cli.run("config", "--agent", "two", "--json")
    assert source_of(done, "limits.steps") == (3, "front matter", f"{cli.folder / 'two.md'}: agent 'two'")


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("modle = 'm'", [], "modle: is unknown: did you mean `model`?"),
        ("limits.steps = -1\nroot = 5", [], "limits.steps: must be a whole number of at least 0, not -1"),
        ("model = ", [], "turnwright.toml:1: is not TOML: Invalid value"),
        ("", ["--config", "none.toml"], "none.toml: there is no such file"),
        ("", ["--agent", "nobody"], "AGENTS.md: there is no such file"),
        ("preset = 'opencode'", ["--agent", "Tester"], "agent 'Tester': steps: must be at least 1 under the preset"),
    ],
)
def test_configuration_mistake_is_a_line_and_exit_code_2(
    cli: "Cli", text: str, arguments: list[str], message: str
) -> None:
    cli.write("turnwright.toml", text)
    if "Tester" in arguments:
        cli.agent("steps: 0")
    done = cli.run("config", *arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_no_secret_is_printed(cli: "Cli") -> None:
    """Neither passwords in addresses nor keys; the fixture holds every run against the key."""
    environ = {
        "TURNWRIGHT_STORE": f"postgresql://u:{SECRET}@host/turns",
        "TURNWRIGHT_BASE_URL": f"https://{SECRET}@host/v1?key={SECRET}",
    }
    text, data = cli.run("config", env=environ), cli.run("config", "--json", env=environ)
    assert source_of(data, "store")[0] == "postgresql://u@host/turns"
    assert source_of(data, "base_url")[0] == "https://***@host/v1?***"
    assert "https://***@host/v1?***" in text.out
    assert cli.run("config", env={"TURNWRIGHT_API_KEY": SECRET}).code == 2


def test_commands_and_configuration_have_the_same_default_store() -> None:
    assert SETTINGS["store"].default == DEFAULT_STORE


def test_table_of_all_settings_is_printed(cli: "Cli") -> None:
    assert cli.run("config", "--settings").out.strip() == settings_list()
