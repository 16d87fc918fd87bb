"""The configuration: each source, the precedence, and the messages."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.hypothesis_examples import percent_of_examples
from tests.servers.forked_python import Python

from turnwright import Agent, ConfigError, Engine, Limits, Price
from turnwright.agents.markdown import parse_agents
from turnwright.cli.config import settings_list
from turnwright.config.config import Config, SettingSource, load_config
from turnwright.config.files import MAX_BYTES, VARIABLES, read_environment, variable
from turnwright.config.settings import SETTINGS, PriceRow
from turnwright.model.model_settings import ModelSettings
from turnwright_states import ToolCallLimits
from turnwright_states.limits import PresetName

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
LIST = (ROOT / "docs" / "api" / "config.md").read_text(encoding="utf-8")
KEY = "sk-secret-0123456789"

Environ = Mapping[str, str]


def load(folder: Path, text: str = "", /, *, environ: Environ | None = None, **overrides: object) -> Config:
    """The configuration of a folder with this `turnwright.toml`; dots in keys are written `__`."""
    (folder / "turnwright.toml").write_text(text, encoding="utf-8")
    settings = {key.replace("__", "."): value for key, value in overrides.items()}
    return load_config(folder, environ={} if environ is None else environ, overrides=settings)


def mistakes(folder: Path, text: str = "", /, *, environ: Environ | None = None, **overrides: object) -> list[str]:
    """Return the mistakes in this configuration, one line each, without the folder."""
    with pytest.raises(ConfigError) as caught:
        load(folder, text, environ=environ, **overrides)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def mistake(folder: Path, text: str = "", /, *, environ: Environ | None = None, **overrides: object) -> str:
    """Return the only mistake in this configuration."""
    (message,) = mistakes(folder, text, environ=environ, **overrides)
    return message


class TestEachSource:
    def test_settings_have_defaults_without_any_source(self, tmp_path: Path) -> None:
        config = load_config(tmp_path, environ={})
        assert config.file is None
        assert {origin.source for origin in config.origins.values()} == {SettingSource.DEFAULT}
        assert (config.limits(), config.limits().model_fields_set) == (Limits(), set())
        assert config.limits().tool_calls == ToolCallLimits()

    def test_a_file_sets_every_kind_of_value(self, tmp_path: Path) -> None:
        config = load(
            tmp_path,
            """
            preset = "opencode"
            model = "gpt-5-mini"
            base_url = "http://localhost:8000/v1"
            timeout = 2.5
            store = "memory:"
            agents = ["/a.md", "/b.md"]
            tools = "package.tools"
            root = "/src"
            unpaired = "reject"
            show_budget_to_model = true
            [limits]
            steps = 9
            cost = 0.5
            doom_response = "stop"
            [limits.tool_calls]
            writing = 3
            [prices."gpt-5.1"]
            input = 1
            output = 2.5
            """,
        )
        limits, settings = config.limits(), config.settings
        assert (limits.steps, limits.cost, limits.doom_response, limits.concluding) == (9, 0.5, "stop", "within")
        assert (settings.model, settings.base_url, settings.timeout) == ("gpt-5-mini", "http://localhost:8000/v1", 2.5)
        assert (settings.store, settings.agents, settings.tools) == ("memory:", ("/a.md", "/b.md"), "package.tools")
        assert (settings.root, settings.unpaired, settings.show_budget_to_model) == ("/src", "reject", True)
        assert settings.limits.tool_calls == ToolCallLimits(writing=3)
        assert config.prices() == {"gpt-5.1": Price(1, 2.5)}
        assert str(config.origins["limits.cost"]) == f"file {tmp_path / 'turnwright.toml'}: limits.cost"
        assert str(config.origins["limits.concluding"]) == "preset opencode"

    def test_table_of_pyproject_counts_as_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n[tool.turnwright.limits]\nsteps = 5\n")
        config = load_config(tmp_path, environ={})
        assert config.limits().steps == 5
        assert str(config.origins["limits.steps"]).endswith("pyproject.toml: tool.turnwright.limits.steps")

    @pytest.mark.parametrize("key", [key for key in SETTINGS if key != "behavior.max_steps"])
    def test_each_setting_has_a_variable(self, tmp_path: Path, key: str) -> None:
        text, value = EXAMPLES[key]
        prompt = tmp_path / "prompt.txt"
        prompt.write_text("Sum up.", encoding="utf-8")
        config = load_config(tmp_path, environ={variable(key): text.replace("PROMPT", str(prompt))})
        origin = config.origins[ROWS.get(key, key)]
        assert origin.value == (str(prompt) if value == "PROMPT" else value)
        assert str(origin) == f"environment {variable(key)}"

    def test_empty_variable_counts_as_unset(self, tmp_path: Path) -> None:
        config = load(tmp_path, "model = 'm'", environ={"TURNWRIGHT_MODEL": "", "TURNWRIGHT_LIMITS__STEPS": ""})
        assert (config.settings.model, config.limits().steps) == ("m", None)

    def test_code_gives_values_by_key_or_whole_sections(self, tmp_path: Path) -> None:
        config = load_config(
            tmp_path,
            environ={},
            overrides={"limits": Limits(seconds=9), "limits.steps": 4, "prices": {"m": Price(1, 2)}},
        )
        assert config.limits() == Limits(steps=4, seconds=9)
        assert config.limits().model_fields_set == {"steps", "seconds"}
        assert config.prices() == {"m": Price(1, 2)}
        assert config.origins["limits.steps"].source is SettingSource.CODE

    def test_flag_is_named_in_the_spelling_of_the_command_line(self, tmp_path: Path) -> None:
        flags = {"limits.steps": "--steps"}
        config = load_config(tmp_path, environ={}, overrides={"limits.steps": 4}, flags=flags)
        assert str(config.origins["limits.steps"]) == "flag --steps"
        with pytest.raises(ConfigError, match=r"^--steps: must be a whole number of at least 0, not -1$"):
            load_config(tmp_path, environ={}, overrides={"limits.steps": -1}, flags=flags)

    def test_the_variable_of_other_clients_is_another_name_for_the_endpoint(self, tmp_path: Path) -> None:
        environ = {"OPENAI_BASE_URL": " ", "TURNWRIGHT_MODEL": "m"}
        assert load(tmp_path, "base_url = 'http://f'", environ=environ).settings.base_url == "http://f"
        environ["OPENAI_BASE_URL"] = "http://o"
        origin = load(tmp_path, "base_url = 'http://f'", environ=environ).origins["base_url"]
        assert (origin.value, str(origin)) == ("http://o", "environment OPENAI_BASE_URL")
        environ["TURNWRIGHT_BASE_URL"] = "http://t"
        assert load(tmp_path, environ=environ).settings.base_url == "http://t"


EXAMPLES: dict[str, tuple[str, object]] = {
    "preset": ("glm-cli", "glm-cli"),
    "limits.steps": ("7", 7),
    "limits.ceiling": ("100", 100),
    "limits.concluding": ("within", "within"),
    "limits.tool_calls": ("unlimited", None),
    "limits.max_calls_per_step": ("4", 4),
    "limits.tokens": ("9000", 9000),
    "limits.cost": ("0.5", 0.5),
    "limits.seconds": ("90", 90.0),
    "limits.tool_timeout": ("60", 60.0),
    "limits.doom_threshold": ("off", None),
    "limits.doom_compare": ("calls", "calls"),
    "limits.doom_response": ("ask", "ask"),
    "limits.nudges": ("1", 1),
    "limits.stall_errors": ("off", None),
    "limits.stall_rounds": ("3", 3),
    "limits.stall_response": ("loop", "loop"),
    "limits.idle_steps": ("off", None),
    "limits.step_notices": ("each", "each"),
    "limits.max_retries": ("0", 0),
    "limits.max_pauses": ("0", 0),
    "limits.conclude_seconds": ("1.5", 1.5),
    "limits.conclude_tokens": ("64", 64),
    "limits.output_retries": ("0", 0),
    "limits.max_compactions": ("2", 2),
    "model": ("5", "5"),
    "base_url": ("http://h", "http://h"),
    "timeout": ("0.5", 0.5),
    "store": ("sqlite:///x.db", "sqlite:///x.db"),
    "agents": ('["a.md", "b.md"]', ("a.md", "b.md")),
    "tools": ("tools.py", "tools.py"),
    "hooks": ("policy.py:cap", ("policy.py:cap",)),
    "mcp": ("mcp.json", ("mcp.json",)),
    "root": ("..", ".."),
    "unpaired": ("reject", "reject"),
    "prices": ('{"m": {"input": 1, "output": 2}}', Price(1, 2)),
    "conclude_prompt_file": ("PROMPT", "PROMPT"),
    "show_budget_to_model": ("true", True),
    "model_settings": ('{"temperature": 0.5}', 0.5),
    "strict_settings": ("true", True),
    "stop_repetition": ("false", False),
}
#: Of a setting that is a table, the row in its example.
ROWS = {"prices": "prices.m", "model_settings": "model_settings.temperature"}


class TestToolCalls:
    """One number, or a table by what the agent's tools do, from every source."""

    BY_CLASS = ToolCallLimits(read_only=0, writing=1, default=None)

    @pytest.mark.parametrize(("toml_value", "calls"), [("30", 30), ("0", 0), ("'unlimited'", None)])
    def test_tool_calls_in_a_file_may_be_a_number(self, tmp_path: Path, toml_value: str, calls: int | None) -> None:
        assert load(tmp_path, f"limits.tool_calls = {toml_value}").limits().tool_calls == calls

    def test_a_file_may_write_a_table(self, tmp_path: Path) -> None:
        text = "[limits.tool_calls]\nread_only = 0\nwriting = 1\ndefault = 'unlimited'\n"
        assert load(tmp_path, text).limits().tool_calls == self.BY_CLASS

    def test_a_variable_may_hold_a_number_or_a_table(self, tmp_path: Path) -> None:
        def said(text: str) -> object:
            return load(tmp_path, environ={"TURNWRIGHT_LIMITS__TOOL_CALLS": text}).limits().tool_calls

        assert (said("30"), said("unlimited")) == (30, None)
        assert said('{"read_only": 0, "writing": 1, "default": "unlimited"}') == self.BY_CLASS

    def test_a_mistake_in_a_variables_table_names_the_variable(self, tmp_path: Path) -> None:
        def said(text: str) -> str:
            return mistake(tmp_path, environ={"TURNWRIGHT_LIMITS__TOOL_CALLS": text})

        name = "TURNWRIGHT_LIMITS__TOOL_CALLS"
        wrong = f'{name}: must be a whole number of at least 0, not -1; "unlimited" means no limit'
        assert said('{"writing": -1}') == wrong
        assert said('{"reading": 1}') == (f"{name}: is unknown: the classes of tools are read_only, writing, default")

    def test_code_may_give_a_mapping(self, tmp_path: Path) -> None:
        config = load(tmp_path, limits__tool_calls={"writing": 3})
        assert config.limits().tool_calls == ToolCallLimits(writing=3)
        assert config.limits() == Limits(tool_calls=ToolCallLimits(writing=3))

    def test_the_first_source_decides_the_whole_table(self, tmp_path: Path) -> None:
        environ = {"TURNWRIGHT_LIMITS__TOOL_CALLS": '{"writing": 1}'}
        limits = load(tmp_path, "[limits.tool_calls]\nread_only = 7\n", environ=environ).limits()
        assert limits.tool_calls == ToolCallLimits(writing=1)
        assert load(tmp_path, "limits.tool_calls = 9", environ=environ).limits() == limits


class TestPrecedence:
    """Code and flags, front matter, environment, file, preset, default."""

    FILE = "preset = 'glm-cli'\n[limits]\nsteps = 4\n"
    ENVIRON: ClassVar[Environ] = {"TURNWRIGHT_LIMITS__STEPS": "3"}
    AGENT = Agent(name="a", steps=2)

    def test_the_preset_goes_before_the_default(self, tmp_path: Path) -> None:
        assert load(tmp_path, "preset = 'glm-cli'").limits().steps == 25

    def test_the_file_goes_before_the_preset(self, tmp_path: Path) -> None:
        assert load(tmp_path, self.FILE).limits().steps == 4

    def test_file_may_lift_a_limit_of_the_preset(self, tmp_path: Path) -> None:
        config = load(tmp_path, "preset = 'glm-cli'\n[limits]\nsteps = 'unlimited'\n")
        assert (config.limits().steps, config.limits().cap) == (None, 200)

    def test_the_environment_goes_before_the_file(self, tmp_path: Path) -> None:
        assert load(tmp_path, self.FILE, environ=self.ENVIRON).limits().steps == 3

    def test_front_matter_goes_before_the_environment(self, tmp_path: Path) -> None:
        config = load(tmp_path, self.FILE, environ=self.ENVIRON)
        assert config.prepared(self.AGENT).limits_for(config.limits()).steps == 2
        assert str(config.origins_for(self.AGENT, "A.md")["limits.steps"]) == "front matter A.md: agent 'a'"

    def test_a_flag_goes_before_front_matter(self, tmp_path: Path) -> None:
        config = load(tmp_path, self.FILE, environ=self.ENVIRON, limits__steps=1)
        assert config.prepared(self.AGENT).limits_for(config.limits()).steps == 1
        assert config.origins_for(self.AGENT, "A.md")["limits.steps"].source is SettingSource.CODE

    def test_ceiling_binds_limits_of_every_source(self, tmp_path: Path) -> None:
        config = load(tmp_path, "[limits]\nceiling = 3\n", limits__steps=9)
        assert config.prepared(self.AGENT).limits_for(config.limits()).cap == 3

    def test_flag_for_a_budget_leaves_the_agents_other_budgets(self, tmp_path: Path) -> None:
        (agent,) = parse_agents("---\nname: a\nbudget: {tokens: 100, seconds: 5}\n---\nWork.")
        prepared = load(tmp_path, limits__tokens=7).prepared(agent)
        assert prepared.overrides == {"tokens": 7, "seconds": 5.0}

    def test_the_model_of_the_agent_stands_between_flag_and_environment(self, tmp_path: Path) -> None:
        agent = Agent(name="a", model="mine")
        environ = {"TURNWRIGHT_MODEL": "theirs"}
        assert load(tmp_path, environ=environ).prepared(agent).model == "mine"
        assert load(tmp_path, environ=environ).origins_for(agent, "A.md")["model"].value == "mine"
        assert load(tmp_path, environ=environ, model="flag").prepared(agent).model == "flag"

    def test_own_prompt_of_the_agent_goes_before_the_configured_prompt(self, tmp_path: Path) -> None:
        (tmp_path / "sum.txt").write_text("Sum up: {limit}", encoding="utf-8")
        config = load(tmp_path, "conclude_prompt_file = 'sum.txt'")
        assert config.prepared(Agent(name="a")).conclude_prompt == "Sum up: {limit}"
        own = Agent(name="a", conclude_prompt="Mine.")
        assert config.prepared(own).conclude_prompt == "Mine."
        assert config.origins_for(own, "A.md")["conclude_prompt_file"].source is SettingSource.FRONT_MATTER
        overridden = load(tmp_path, conclude_prompt_file=str(tmp_path / "sum.txt"))
        assert overridden.prepared(own).conclude_prompt == "Sum up: {limit}"
        assert overridden.origins_for(own, "A.md")["conclude_prompt_file"].source is SettingSource.CODE

    def test_price_is_replaced_whole_and_other_prices_stay(self, tmp_path: Path) -> None:
        config = load(
            tmp_path,
            "[prices]\na = {input = 1, output = 2}\nb = {input = 3, output = 4}\n",
            environ={"TURNWRIGHT_PRICES": '{"b": {"input": 5, "output": 6}}'},
        )
        assert config.prices() == {"a": Price(1, 2), "b": Price(5, 6)}

    def test_model_setting_comes_from_the_first_source_with_a_value(self, tmp_path: Path) -> None:
        config = load(
            tmp_path,
            "[model_settings]\ntemperature = 0.5\nthinking = 'low'\nextra_body = {a = 1}\n",
            environ={"TURNWRIGHT_MODEL_SETTINGS": '{"temperature": 0, "stop_sequences": ["END"]}'},
        )
        merged = ModelSettings(temperature=0, thinking="low", stop_sequences=("END",), extra_body={"a": 1})
        assert config.engine_options()["model_settings"] == merged
        assert config.origins["model_settings.temperature"].source is SettingSource.ENVIRONMENT
        assert config.origins["model_settings.thinking"].source is SettingSource.FILE
        assert load(tmp_path, "").engine_options()["model_settings"] is None


VALUES: dict[str, list[object]] = {
    "limits.steps": [0, 1, 200, 201, None],
    "limits.tokens": [1, 10, None],
    "limits.seconds": [0.5, 60.0, None],
    "limits.concluding": ["after", "within"],
    "limits.tool_calls": [0, 10, None],
    "model": ["a", "b"],
    "show_budget_to_model": [True, False],
    "unpaired": ["repair", "reject"],
}
SAID = st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in VALUES.items()})


@given(SAID, SAID, SAID, st.sampled_from(["default", "boocode", "glm-cli"]))
@settings(
    max_examples=percent_of_examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_first_source_with_a_value_decides(
    tmp_path: Path, code: dict[str, object], environ: dict[str, object], file: dict[str, object], preset: PresetName
) -> None:
    """The first source in the order decides, then the preset, then the default."""
    spelled = {key: "unlimited" if value is None else value for key, value in file.items()}
    text = "\n".join(f"{key} = {json.dumps(value)}" for key, value in {**spelled, "preset": preset}.items())
    variables = {
        variable(key): value if isinstance(value, str) else json.dumps(value) if value is not None else "off"
        for key, value in environ.items()
    }
    config = load(tmp_path, text, environ=variables, **{key.replace(".", "__"): value for key, value in code.items()})
    laid = Limits.preset(preset)
    for key in VALUES:
        limit = key.removeprefix("limits.")
        sources = [
            (SettingSource.CODE, code),
            (SettingSource.ENVIRONMENT, environ),
            (SettingSource.FILE, file),
            (SettingSource.PRESET, {key: getattr(laid, limit)} if limit in laid.model_fields_set else {}),
            (SettingSource.DEFAULT, {key: SETTINGS[key].default}),
        ]
        source, value = next((source, settings[key]) for source, settings in sources if key in settings)
        assert (config.origins[key].source, config.origins[key].value) == (source, value)
        if key != limit:
            assert getattr(config.limits(), limit) == value


class TestSteps:
    @pytest.mark.parametrize(("steps", "cap"), [(0, 0), (1, 1), (199, 199), (200, 200), (201, 200)])
    @pytest.mark.parametrize("where", ["file", "behavior", "environment", "code"])
    def test_steps_are_cut_to_the_ceiling_and_zero_is_a_number(
        self, tmp_path: Path, steps: int, cap: int, where: str
    ) -> None:
        match where:
            case "file":
                config = load(tmp_path, f"[limits]\nsteps = {steps}\n")
            case "behavior":
                config = load(tmp_path, f"[behavior]\nmax_steps = {steps}\n")
            case "environment":
                config = load(tmp_path, environ={"TURNWRIGHT_LIMITS__STEPS": str(steps)})
            case _:
                config = load(tmp_path, limits__steps=steps)
        assert (config.limits().steps, config.limits().cap) == (steps, cap)

    @pytest.mark.parametrize(("ceiling", "fits"), [(0, True), (199, True), (200, True), (201, False)])
    def test_no_source_raises_the_ceiling(self, tmp_path: Path, ceiling: int, fits: bool) -> None:
        text = f"[limits]\nceiling = {ceiling}\n"
        if fits:
            assert load(tmp_path, text).limits().cap == ceiling
        else:
            message = "turnwright.toml: limits.ceiling: must be at most 200, not 201"
            assert mistake(tmp_path, text) == message

    def test_opencode_preset_refuses_zero_steps_from_every_source(self, tmp_path: Path) -> None:
        problem = "steps must be at least 1 under the preset opencode, not 0"
        text = "preset = 'opencode'\n"
        assert mistake(tmp_path, f"{text}[limits]\nsteps = 0\n") == f"turnwright.toml: limits.steps: {problem}"
        environ = {"TURNWRIGHT_LIMITS__STEPS": "0"}
        assert mistake(tmp_path, text, environ=environ) == f"TURNWRIGHT_LIMITS__STEPS: {problem}"
        with pytest.raises(ConfigError, match=f"^agent 'a': {problem.replace('steps', 'steps:')}$"):
            load(tmp_path, text).prepared(Agent(name="a", steps=0))
        assert load(tmp_path, f"{text}[limits]\nsteps = 1\n").limits().steps == 1

    @pytest.mark.parametrize(
        ("text", "steps", "cap"),
        [
            ("preset = 'glm-cli'", 25, 25),
            ("preset = 'glm-cli'\n[behavior]\nmax_steps = 30", 30, 30),
            ("preset = 'glm-cli'\n[behavior]\nmax_steps = 'unlimited'", None, 200),
            ("[behavior]\nmax_steps = 7", 7, 7),
        ],
    )
    def test_max_steps_of_glm_cli_sets_steps(self, tmp_path: Path, text: str, steps: int | None, cap: int) -> None:
        limits = load(tmp_path, text).limits()
        assert (limits.steps, limits.cap) == (steps, cap)

    def test_setting_with_both_spellings_in_a_source_is_refused(self, tmp_path: Path) -> None:
        assert mistake(tmp_path, "[behavior]\nmax_steps = 7\n[limits]\nsteps = 7\n") == (
            "turnwright.toml: behavior.max_steps: is another name for turnwright.toml: limits.steps,"
            " which is set too: leave one of the two out"
        )

    def test_two_sources_may_use_different_names(self, tmp_path: Path) -> None:
        config = load(tmp_path, "[behavior]\nmax_steps = 7\n", environ={"TURNWRIGHT_LIMITS__STEPS": "8"})
        assert config.limits().steps == 8
        config = load(tmp_path, "[limits]\nsteps = 7\n", environ={"TURNWRIGHT_BEHAVIOR__MAX_STEPS": "8"})
        assert str(config.origins["limits.steps"]) == "environment TURNWRIGHT_BEHAVIOR__MAX_STEPS"


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("limits.steps = true", "limits.steps: must be a whole number of at least 0, not True"),
            ("limits.steps = '5'", "limits.steps: must be a whole number of at least 0, not '5'"),
            ("limits.steps = 5.0", "limits.steps: must be a whole number of at least 0, not 5.0"),
            ("limits.steps = -1", "limits.steps: must be a whole number of at least 0, not -1"),
            ("limits.steps = nan", "limits.steps: must be a whole number of at least 0, not nan"),
            ("behavior.max_steps = 'ever'", "behavior.max_steps: must be a whole number of at least 0, not 'ever'"),
            ("limits.tokens = 0", "limits.tokens: must be a whole number of at least 1, not 0"),
            ("limits.cost = nan", "limits.cost: must be a number above 0, not nan"),
            ("limits.seconds = inf", "limits.seconds: must be a number above 0, not inf"),
            (
                "limits.tool_calls.writing = -1",
                "limits.tool_calls.writing: must be a whole number of at least 0, not -1",
            ),
        ],
    )
    def test_wrong_number_is_reported_with_file_and_key(self, tmp_path: Path, text: str, message: str) -> None:
        assert mistake(tmp_path, text) == f'turnwright.toml: {message}; "unlimited" means no limit'

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("limits.max_retries = 'unlimited'", "limits.max_retries: must be a whole number of at least 0"),
            ("limits = 5", "limits: must be a table, not 5"),
            ("timeout = 0", "timeout: must be a number above 0, not 0"),
            ("timeout = true", "timeout: must be a number above 0, not True"),
            (
                "preset = 'claude'",
                "preset: must be 'default', 'coding', 'boocode', 'opencode' or 'glm-cli', not 'claude'",
            ),
            ("unpaired = 5", "unpaired: must be 'repair' or 'reject', not 5"),
            ("model = 5", "model: must be text, not 5"),
            ("model = ' '", "model: must not be blank: leave it out"),
            ("agents = 5", "agents: must be a list of texts, or one text, not 5"),
            ("agents = ['a', 5]", "agents.1: must be text, not 5"),
            ("show_budget_to_model = 1", "show_budget_to_model: must be true or false, not 1"),
            ("prices.m = 5", "prices.m: must be a table, not 5"),
            ("model_settings.top_p = 2", "model_settings.top_p: must be less than or equal to 1, not 2"),
            (
                "model_settings.tempratur = 0",
                "model_settings.tempratur: is unknown: the model settings are",
            ),
            ("prices.m = {input = 1}", "prices.m.output: is missing"),
            ("prices.m = {input = -1, output = 1}", "prices.m.input: must be a number of at least 0, not -1"),
            ("prices.m = {input = 1, output = nan}", "prices.m.output: must be a number of at least 0, not nan"),
            ("prices.m = {input = 1, output = 1, cashed = 1}", "prices.m.cashed: is unknown: a price has `input`,"),
            ("prices.m = {input = 1, output = 1, cached = -1}", "prices.m.cached: must be a number of at least 0"),
            ("conclude_prompt_file = 'no.txt'", "conclude_prompt_file: no.txt: there is no such file"),
        ],
    )
    def test_wrong_value_error_tells_the_expected_form(self, tmp_path: Path, text: str, message: str) -> None:
        assert mistake(tmp_path, text).startswith(f"turnwright.toml: {message}")

    @pytest.mark.parametrize(
        ("text", "near"),
        [
            ("limits.step = 5", "limits.steps"),
            ("steps = 5", "limits.steps"),
            ("limit = 5", "limits"),
            ("max_steps = 5", "behavior.max_steps"),
            ("limits.tool_call = 5", "limits.tool_calls"),
            ("modle = 'm'", "model"),
            ("Model = 'm'", "model"),
            ("baseurl = 'x'", "base_url"),
            ("tool_call = 5", "limits.tool_calls"),
        ],
    )
    def test_unknown_key_error_suggests_the_nearest_key(self, tmp_path: Path, text: str, near: str) -> None:
        assert (
            mistake(tmp_path, text) == f"turnwright.toml: {text.partition(' ')[0]}: is unknown: did you mean `{near}`?"
        )

    def test_unknown_key_without_a_near_key_points_to_the_command(self, tmp_path: Path) -> None:
        assert mistake(tmp_path, "zzzz = 1") == (
            "turnwright.toml: zzzz: is unknown: `turnwright config` prints every setting"
        )

    def test_a_key_of_settings_machinery_is_unknown_like_any_other(self, tmp_path: Path) -> None:
        assert mistake(tmp_path, "_env_file = '.env'").startswith("turnwright.toml: _env_file: is unknown")

    @pytest.mark.parametrize(
        ("name", "near"),
        [
            ("TURNWRIGHT_MODLE", "TURNWRIGHT_MODEL"),
            ("TURNWRIGHT_LIMITS_STEPS", "TURNWRIGHT_LIMITS__STEPS"),
            ("TURNWRIGHT_STEPS", "TURNWRIGHT_LIMITS__STEPS"),
            ("TURNWRIGHT_Model", "TURNWRIGHT_MODEL"),
            ("TURNWRIGHT_STORES", "TURNWRIGHT_STORE"),
            ("TURNWRIGHT_LIMIT__STEPS", "TURNWRIGHT_LIMITS__STEPS"),
        ],
    )
    def test_unknown_variable_error_suggests_the_nearest_variable(self, tmp_path: Path, name: str, near: str) -> None:
        assert mistake(tmp_path, environ={name: "x"}) == f"{name}: is unknown: did you mean `{near}`?"

    def test_unrelated_turnwright_and_cluster_variables_are_ignored(self, tmp_path: Path) -> None:
        """A Kubernetes service that is called turnwright gives such variables to every container."""
        names = ["TURNWRIGHT_WEIGHTS", "TURNWRIGHT_SERVICE_HOST", "TURNWRIGHT_PORT", "TURNWRIGHT_PORT_80_TCP_ADDR"]
        assert load_config(tmp_path, environ=dict.fromkeys([*names, "OTHER"], "x")).file is None

    def test_every_documented_variable_is_known(self) -> None:
        """So are those that set no setting, such as the address and the keys of links."""
        pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md")]
        names = {name for page in pages for name in re.findall(r"TURNWRIGHT_[A-Z_]+", page)}
        assert {"TURNWRIGHT_LINKS", "TURNWRIGHT_LINK_KEYS", "TURNWRIGHT_TOKEN"} <= names
        _, _, mistakes_found = read_environment(dict.fromkeys(names, "x"))
        assert mistakes_found == []

    @pytest.mark.parametrize("text", ["5.0", "true", "null", "1e400", "9" * 5000, "[5]", "five", "+5", "0x5", "NaN"])
    def test_variable_without_a_valid_number_is_refused_briefly(self, tmp_path: Path, text: str) -> None:
        message = mistake(tmp_path, environ={"TURNWRIGHT_LIMITS__STEPS": text})
        assert message.startswith("TURNWRIGHT_LIMITS__STEPS: must be a whole number of at least 0, not ")
        assert len(message) < 300

    def test_variable_holds_a_list_as_json_and_any_other_text_unchanged(self, tmp_path: Path) -> None:
        environ = {"TURNWRIGHT_AGENTS": '["a.md", "b.md"]', "TURNWRIGHT_HOOKS": "5", "TURNWRIGHT_MODEL": "5"}
        settings = load(tmp_path, environ=environ).settings
        assert (settings.agents, settings.hooks, settings.model) == (("a.md", "b.md"), ("5",), "5")

    def test_variable_without_valid_json_is_refused(self, tmp_path: Path) -> None:
        message = mistake(tmp_path, environ={"TURNWRIGHT_PRICES": "{"})
        assert message == "TURNWRIGHT_PRICES: must be a table, not '{'"

    def test_mistakes_of_all_sources_are_reported_at_once(self, tmp_path: Path) -> None:
        messages = mistakes(
            tmp_path,
            "modle = 'm'\n[limits]\nsteps = -1\ntokens = 0\n",
            environ={"TURNWRIGHT_TIMEOUT": "0", "TURNWRIGHT_X": "1"},
            unpaired="lax",
        )
        assert [line.partition(":")[0] for line in messages] == [
            "TURNWRIGHT_X",
            "overrides",
            "TURNWRIGHT_TIMEOUT",
            *["turnwright.toml"] * 3,
        ]

    def test_overruled_value_must_be_valid(self, tmp_path: Path) -> None:
        assert mistake(tmp_path, "[limits]\nsteps = -1\n", limits__steps=5).startswith("turnwright.toml: limits.steps")


class TestFiles:
    @pytest.mark.parametrize(
        ("data", "syntax_message"),
        [
            (b"model = 'm'\nlimits = {", "turnwright.toml:2: is not TOML: "),
            (b"model = 'm'\nmodel = 'm'\n", "turnwright.toml:2: is not TOML: Cannot overwrite a value"),
            (b"model = '\xff'\n", "turnwright.toml:1: is not UTF-8 text"),
            (b"model = " + b"[" * 100_000, "turnwright.toml: cannot be parsed"),
            (b"limits.steps = " + b"9" * 5000, "turnwright.toml: cannot be parsed"),
            (b"[a" + b".a" * 60 + b"]", "turnwright.toml: nests tables more than 50 deep"),
            (b"a." * 500_000 + b"b = 1", "turnwright.toml: nests tables more than 50 deep"),
            (b"a = { " + b"'a' . " * 60 + b"b = 1 }", "turnwright.toml: nests tables more than 50 deep"),
            (b"a = " + b"[" * 60 + b"]" * 60, "turnwright.toml: nests tables more than 50 deep"),
            (b"#" * (MAX_BYTES + 1), "turnwright.toml: is larger than 1024 KiB"),
        ],
        ids=["open", "twice", "bytes", "deep", "long", "tables", "key", "inner key", "lists", "large"],
    )
    def test_invalid_toml_error_names_the_line(self, tmp_path: Path, data: bytes, syntax_message: str) -> None:
        (tmp_path / "turnwright.toml").write_bytes(data)
        with pytest.raises(ConfigError) as caught:
            load_config(tmp_path, environ={})
        message = str(caught.value).replace(f"{tmp_path}/", "")
        if message.startswith("turnwright.toml: is not TOML: ") and syntax_message.startswith("turnwright.toml:2"):
            message = message.replace(
                "turnwright.toml:", "turnwright.toml:2:", 1
            )  # some releases say "end of document"
        assert message.startswith(syntax_message)

    @pytest.mark.parametrize("mark", ['"', "'", '"""', "'''"])
    def test_dots_in_texts_and_comments_are_no_depth(self, tmp_path: Path, mark: str) -> None:
        dotted = ".".join("a" * 200)
        (tmp_path / "turnwright.toml").write_text(f"# {dotted}\nmodel = {mark}{dotted}{mark}\n")
        assert load_config(tmp_path, environ={}).settings.model == dotted

    def test_deeply_nested_variable_is_read_as_text(self, tmp_path: Path) -> None:
        config = load_config(tmp_path, environ={"TURNWRIGHT_TOOLS": "[" * 100_000})
        assert config.settings.tools == "[" * 100_000

    @pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf", b"# nothing yet\n", b"\xef\xbb\xbfmodel = 'm'\r\n"])
    def test_empty_file_and_byte_order_mark_are_accepted(self, tmp_path: Path, data: bytes) -> None:
        (tmp_path / "turnwright.toml").write_bytes(data)
        config = load_config(tmp_path, environ={})
        assert config.file == tmp_path / "turnwright.toml"
        assert config.settings.model == ("m" if b"model" in data else None)

    def test_the_nearest_file_above_is_used_up_to_the_repository(self, tmp_path: Path) -> None:
        deep = tmp_path / "repository" / "a" / "b"
        deep.mkdir(parents=True)
        (tmp_path / "turnwright.toml").touch()
        (tmp_path / "repository" / ".git").mkdir()
        assert load_config(deep, environ={"HOME": str(tmp_path)}).file is None
        (tmp_path / "repository" / "turnwright.toml").touch()
        assert load_config(deep, environ={}).file == tmp_path / "repository" / "turnwright.toml"
        (deep / "turnwright.toml").touch()
        assert load_config(deep, environ={}).file == deep / "turnwright.toml"

    def test_search_without_a_repository_ends_at_home(self, tmp_path: Path) -> None:
        deep = tmp_path / "home" / "a"
        deep.mkdir(parents=True)
        (tmp_path / "turnwright.toml").touch()
        environ = {"HOME": str(tmp_path / "home")}
        assert load_config(deep, environ=environ).file is None
        (tmp_path / "home" / "turnwright.toml").touch()
        assert load_config(deep, environ=environ).file == tmp_path / "home" / "turnwright.toml"

    def test_search_outside_home_and_repositories_stays_in_the_folder(self, tmp_path: Path) -> None:
        """In a folder that all may write to, a file above could be anybody's, and it can name tools to run."""
        deep = tmp_path / "a"
        deep.mkdir()
        (tmp_path / "turnwright.toml").touch()
        assert load_config(deep, environ={}).file is None
        assert load_config(tmp_path, environ={}).file == tmp_path / "turnwright.toml"

    def test_turnwright_toml_goes_before_pyproject_toml(self, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text("[tool.turnwright]\nmodel = 'p'\n", encoding="utf-8")
        assert load(tmp_path, "model = 't'").settings.model == "t"

    def test_a_project_without_the_table_does_not_end_the_search(self, tmp_path: Path) -> None:
        deep = tmp_path / "a"
        deep.mkdir()
        (deep / "pyproject.toml").write_text("[tool.other]\n", encoding="utf-8")
        (tmp_path / "turnwright.toml").touch()
        assert load_config(deep, environ={"HOME": str(tmp_path)}).file == tmp_path / "turnwright.toml"

    @pytest.mark.parametrize("text", ["[tool]\nturnwright = 5\n", "tool.turnwright = []\n"])
    def test_tool_turnwright_must_be_a_table(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=r"pyproject.toml: tool.turnwright: must be a table, not a (int|list)"):
            load_config(tmp_path, environ={})

    def test_linked_folder_is_searched_at_the_real_path(self, tmp_path: Path) -> None:
        (tmp_path / "real" / "a").mkdir(parents=True)
        (tmp_path / "real" / ".git").mkdir()
        (tmp_path / "real" / "turnwright.toml").touch()
        (tmp_path / "link").symlink_to(tmp_path / "real" / "a")
        assert load_config(tmp_path / "link", environ={}).file == tmp_path / "real" / "turnwright.toml"

    def test_paths_of_a_linked_file_start_at_the_link(self, tmp_path: Path) -> None:
        (tmp_path / "shared.toml").write_text("root = 'src'", encoding="utf-8")
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "turnwright.toml").symlink_to(tmp_path / "shared.toml")
        assert load_config(tmp_path / "a", environ={}).settings.root == str(tmp_path / "a" / "src")

    def test_unreadable_file_is_an_error(self, tmp_path: Path) -> None:
        path = tmp_path / "turnwright.toml"
        path.symlink_to("gone.toml")
        with pytest.raises(ConfigError, match="there is no such file"):
            load_config(tmp_path, environ={})
        path.unlink()
        path.mkdir()
        with pytest.raises(ConfigError, match="cannot be read"):
            load_config(tmp_path, environ={})

    def test_named_file_goes_before_variable_and_search(self, tmp_path: Path) -> None:
        (tmp_path / "turnwright.toml").write_text("model = 'found'", encoding="utf-8")
        first, second = tmp_path / "one.toml", tmp_path / "two.toml"
        first.write_text("model = 'one'", encoding="utf-8")
        second.write_text("model = 'two'", encoding="utf-8")
        environ = {"TURNWRIGHT_CONFIG": str(first)}
        assert load_config(tmp_path, environ=environ).settings.model == "one"
        assert load_config(tmp_path, second, environ).settings.model == "two"
        assert load_config(tmp_path, environ={"TURNWRIGHT_CONFIG": ""}).settings.model == "found"

    def test_a_named_file_must_be_there(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"no\.toml: there is no such file"):
            load_config(tmp_path, tmp_path / "no.toml", {})
        (tmp_path / "pyproject.toml").touch()
        with pytest.raises(ConfigError, match=r"pyproject\.toml: has no \[tool\.turnwright\]"):
            load_config(tmp_path, tmp_path / "pyproject.toml", {})

    def test_relative_paths_of_a_file_start_at_the_folder_of_the_file(self, tmp_path: Path) -> None:
        """So that every folder of a project has the same store and the same agents."""
        (tmp_path / "sum.txt").write_text("Sum up.", encoding="utf-8")
        config = load(
            tmp_path,
            """
            store = "sqlite:///turns.db?durability=normal"
            agents = "AGENTS.md"
            tools = "kit/tools.py"
            hooks = ["kit/policy.py:cap", "kit.policy:ask", "policy.py"]
            mcp = "mcp.json"
            root = "."
            conclude_prompt_file = "sum.txt"
            """,
        ).settings
        assert config.store == f"sqlite:///{tmp_path}/turns.db?durability=normal"
        assert config.agents == (f"{tmp_path}/AGENTS.md",)
        assert (config.tools, config.root) == (f"{tmp_path}/kit/tools.py", str(tmp_path))
        assert config.hooks == (f"{tmp_path}/kit/policy.py:cap", "kit.policy:ask", f"{tmp_path}/policy.py")
        assert config.mcp == (f"{tmp_path}/mcp.json",)
        assert config.conclude_prompt_file == f"{tmp_path}/sum.txt"

    @pytest.mark.parametrize("store", ["sqlite:////abs/turns.db", "memory:", "postgresql://u@h/d"])
    def test_absolute_address_stays_unchanged(self, tmp_path: Path, store: str) -> None:
        assert load(tmp_path, f"store = '{store}'").settings.store == store

    def test_relative_paths_of_a_variable_start_where_the_command_runs(self, tmp_path: Path) -> None:
        assert load(tmp_path, environ={"TURNWRIGHT_ROOT": "src"}).settings.root == "src"

    def test_blank_prompt_is_reported(self, tmp_path: Path) -> None:
        (tmp_path / "sum.txt").write_text("\n", encoding="utf-8")
        assert "sum.txt: is blank" in mistake(tmp_path, "conclude_prompt_file = 'sum.txt'")


class TestSecrets:
    @pytest.mark.parametrize("name", ["api_key", "OPENAI_API_KEY", "apiKey", "api-key", "limits.api_key"])
    def test_a_key_in_a_file_is_refused_and_not_repeated(self, tmp_path: Path, name: str) -> None:
        message = mistake(tmp_path, f"{name} = '{KEY}'")
        assert (
            message
            == f"turnwright.toml: {name}: API keys are not settings: keep it in the environment, in OPENAI_API_KEY"
        )

    def test_key_in_an_environment_variable_is_refused(self, tmp_path: Path) -> None:
        message = mistake(tmp_path, environ={"TURNWRIGHT_API_KEY": KEY})
        assert message.startswith("TURNWRIGHT_API_KEY: API keys are not settings")
        assert KEY not in message

    def test_a_key_inside_the_address_of_a_file_is_refused(self, tmp_path: Path) -> None:
        message = mistake(tmp_path, f"base_url = 'https://user:{KEY}@host/v1'")
        assert message == (
            "turnwright.toml: base_url: has a key or a password: keep it in the environment, in TURNWRIGHT_BASE_URL"
        )
        environ = {"TURNWRIGHT_BASE_URL": f"https://user:{KEY}@host/v1"}
        assert load(tmp_path, environ=environ).settings.base_url == environ["TURNWRIGHT_BASE_URL"]

    @pytest.mark.parametrize("key", ["store", "base_url"])
    def test_an_address_of_the_wrong_type_is_not_repeated(self, tmp_path: Path, key: str) -> None:
        message = mistake(tmp_path, f"{key} = ['postgresql://u:{KEY}@h/d']")
        assert message == f"turnwright.toml: {key}: must be text, not a value of type list"

    def test_no_representation_has_a_password(self, tmp_path: Path) -> None:
        config = load(tmp_path, f"store = 'postgresql://u:{KEY}@h/d'")
        assert KEY not in repr(config) + str(config) + repr(config.origins) + str(config.origins["store"])


class TestEmbedding:
    def test_engine_options_come_from_the_configuration(self, tmp_path: Path) -> None:
        config = load(
            tmp_path,
            """
            store = "memory:"
            unpaired = "reject"
            [limits]
            steps = 4
            [prices.m]
            input = 1
            output = 2
            """,
        )
        setup = Engine(**config.engine_options()).setup
        assert (setup.limits.steps, setup.unpaired, setup.prices) == (4, "reject", {"m": Price(1, 2)})

    def test_an_agent_of_the_files_is_ready_to_run(self, tmp_path: Path) -> None:
        (tmp_path / "one.md").write_text("---\nname: One\nsteps: 3\n---\nWork.\n", encoding="utf-8")
        (tmp_path / "two.md").write_text("---\nname: Two\n---\nWork.\n", encoding="utf-8")
        config = load(tmp_path, "agents = ['one.md', 'two.md']", limits__tokens=5)
        assert config.agent("one").overrides == {"steps": 3, "tokens": 5}
        assert config.written("Two")[1] == tmp_path / "two.md"

    @pytest.mark.slow
    def test_loading_the_environment_needs_no_package_of_the_command_line(self, tmp_path: Path) -> None:
        code = "import sys; from turnwright.config import load_config; print(load_config().limits().steps)\n"
        code += "print(sorted({'pydantic_settings', 'rich', 'typer', 'yaml'} & sys.modules.keys()))"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TURNWRIGHT_")}
        env = environment | {"TURNWRIGHT_LIMITS__STEPS": "3"}
        ran = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path, env=env
        )
        assert ran.stdout.splitlines() == ["3", "[]"]

    def test_a_row_of_prices_has_the_fields_of_a_price(self) -> None:
        assert PriceRow(input=1, output=2, cached=0.1).price() == Price(1, 2, cached=0.1)
        assert list(PriceRow.model_fields) == [field.name for field in fields(Price)]
        assert PriceRow(input=1, output=2).price() == Price(**asdict(Price(1, 2)))


def examples(language: str) -> Iterator[str]:
    """The examples of the page in this language."""
    return (block.split("```", 1)[0] for block in PAGE.split(f"```{language}\n")[1:])


class TestThePage:
    def test_list_on_the_page_is_the_output_of_the_command(self) -> None:
        """`turnwright config --settings` writes it anew."""
        assert settings_list() in LIST

    def test_variables_on_the_page_are_read(self) -> None:
        keys = re.findall(r"^- `([a-z_.]+)` \(", LIST, re.MULTILINE)
        assert "`TURNWRIGHT_` and the key in capitals, with `__` for the dot" in " ".join(PAGE.split())
        assert {"TURNWRIGHT_" + key.upper().replace(".", "__") for key in keys} == VARIABLES.keys()
        variables = set(re.findall(r"TURNWRIGHT_[A-Z_]+", PAGE))
        assert variables - {"TURNWRIGHT_", "TURNWRIGHT_CONFIG", "TURNWRIGHT_WEIGHTS"} < VARIABLES.keys()

    @pytest.mark.parametrize("text", list(examples("toml")))
    def test_files_on_the_page_can_be_read(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "prompts").mkdir()
        (tmp_path / "prompts" / "conclude.txt").write_text("Sum up.", encoding="utf-8")
        name = "pyproject.toml" if "tool" in tomllib.loads(text) else "turnwright.toml"
        (tmp_path / name).write_text(text, encoding="utf-8")
        config = load_config(tmp_path, environ={})
        assert any(origin.source is SettingSource.FILE for origin in config.origins.values())

    @pytest.mark.slow
    @pytest.mark.parametrize("code", list(examples("python")))
    def test_code_on_the_page_prints_the_promised_output(self, tmp_path: Path, python: Python, code: str) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TURNWRIGHT_")}
        (tmp_path / "turnwright.toml").write_text('store = "memory:"\n[limits]\nsteps = 30\n', encoding="utf-8")
        ran = python.run("-c", code, folder=tmp_path, env=environ)
        promised = re.findall(r"print\(.*#\s*(.+)", code)
        assert promised
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.splitlines() == promised
