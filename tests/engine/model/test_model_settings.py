"""`ModelSettings`: what it takes, how layers merge, and its JSON."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from turnwright import Agent, ModelSettings
from turnwright.model.model_settings import merge_settings

SETTINGS = st.builds(
    ModelSettings,
    temperature=st.none() | st.floats(0, 2),
    top_p=st.none() | st.floats(0, 1),
    max_tokens=st.none() | st.integers(1, 100),
    seed=st.none() | st.integers(),
    stop_sequences=st.lists(st.text(min_size=1, max_size=3), max_size=2).map(tuple),
    thinking=st.none() | st.booleans() | st.sampled_from(["minimal", "low", "medium", "high"]) | st.integers(1, 5000),
    parallel_tool_calls=st.none() | st.booleans(),
    service_tier=st.none() | st.sampled_from(["flex", "priority"]),
    cache=st.none() | st.sampled_from(["auto", "5m", "1h", "off"]),
    extra_body=st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(), max_size=3),
)


@given(SETTINGS)
def test_settings_survive_the_journal(settings: ModelSettings) -> None:
    assert ModelSettings.from_json(settings.to_json()) == settings
    assert settings.to_json().keys() == settings.given.keys()


@given(SETTINGS, SETTINGS)
def test_each_set_field_of_the_later_layer_wins(base: ModelSettings, over: ModelSettings) -> None:
    merged = over.over(base)
    assert merged.extra_body == {**base.extra_body, **over.extra_body}
    for name, value in merged:
        if name != "extra_body":
            assert value == over.given.get(name, getattr(base, name))


@given(SETTINGS, SETTINGS, SETTINGS)
def test_layers_merge_in_any_grouping(first: ModelSettings, second: ModelSettings, third: ModelSettings) -> None:
    assert merge_settings(first, second, third) == merge_settings(first, merge_settings(second, third))
    assert merge_settings(None, first, None) is first
    assert merge_settings(None, None) is None


@given(SETTINGS)
def test_equal_settings_have_equal_hashes(settings: ModelSettings) -> None:
    assert hash(settings) == hash(ModelSettings.from_json(settings.to_json()))


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_p": 1.1},
        {"max_tokens": 0},
        {"stop_sequences": ""},
        {"stop_sequences": [""]},
        {"thinking": 0},
        {"thinking": "much"},
        {"cache": "2h"},
        {"service_tier": ""},
        {"extra_body": {"a": object()}},
        {"tempratur": 1},
    ],
)
def test_value_out_of_range_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ModelSettings.model_validate(values)


def test_thinking_number_is_a_budget_distinct_from_true() -> None:
    assert ModelSettings(thinking=True).thinking is True
    assert ModelSettings(thinking=1).thinking == 1
    assert ModelSettings(thinking=1).thinking is not True


@pytest.mark.parametrize(
    ("values", "settings"),
    [
        ({"thinking": "on"}, ModelSettings(thinking=True)),
        ({"thinking": "off"}, ModelSettings(thinking=False)),
        ({"cache": False}, ModelSettings(cache="off")),
        ({"cache": True}, ModelSettings(cache="auto")),
        ({"stop_sequences": "END"}, ModelSettings(stop_sequences=("END",))),
    ],
)
def test_text_values_of_files_and_flags_are_converted(values: dict[str, object], settings: ModelSettings) -> None:
    assert ModelSettings.model_validate(values) == settings


def test_settings_cannot_be_changed() -> None:
    settings = ModelSettings(temperature=0, extra_body={"a": [1]})
    with pytest.raises(ValidationError):
        settings.temperature = 1  # type: ignore[misc]
    with pytest.raises(TypeError, match="cannot be changed"):
        settings.extra_body["b"] = 1  # type: ignore[index]


def test_agent_json_contains_the_settings() -> None:
    agent = Agent(name="A", model_settings=ModelSettings(temperature=0, extra_body={"a": 1}))
    assert agent.to_json() == {"name": "A", "model_settings": {"temperature": 0.0, "extra_body": {"a": 1}}}
    assert Agent.from_json(agent.to_json()) == agent
    assert hash(Agent.from_json(agent.to_json())) == hash(agent)


def test_agent_mistake_is_named() -> None:
    with pytest.raises(ValidationError, match="agent 'A'"):
        Agent.model_validate({"name": "A", "model_settings": {"temperature": -1}})
