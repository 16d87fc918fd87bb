"""Settings in the requests of the Messages API."""

import json
from typing import Any

import pytest

from turnwright import ConfigError, ModelSettings
from turnwright.message import Message, ToolSpec
from turnwright.model import AnthropicMessages, Capabilities, ModelRequest
from turnwright.model.anthropic.request import MAX_TOKENS, AnthropicEncoder
from turnwright.model.anthropic.settings import with_claude

SYSTEM = Message.system("Be brief.")
HELLO = Message.user("hello")
LOOK = ToolSpec("look", "Look.", {"type": "object"})
OLDER, NEWER = "claude-sonnet-4-5", "claude-opus-4-8"


def encoder(model: str = OLDER, **options: Any) -> AnthropicEncoder:  # noqa: ANN401 (any option)
    return AnthropicEncoder(model, capabilities=with_claude(Capabilities(), model), **options)


def body(
    settings: ModelSettings, custom_encoder: AnthropicEncoder | None = None, *, max_tokens: int | None = None
) -> dict[str, Any]:
    """Return the request of a step. `max_tokens` is what the turn allows, as the engine merged it."""
    request = ModelRequest((SYSTEM, HELLO), (LOOK,), max_tokens=max_tokens or settings.max_tokens, settings=settings)
    fields: dict[str, Any] = json.loads((custom_encoder or encoder()).encode(request))
    return fields


def unsupported(settings: ModelSettings, custom_encoder: AnthropicEncoder | None = None) -> list[str]:
    return list((custom_encoder or encoder()).map_settings(settings).unsupported)


def marks(fields: dict[str, Any]) -> list[object]:
    blocks = [*fields["tools"], *fields["system"], *fields["messages"][-1]["content"]]
    return [block.get("cache_control") for block in blocks]


def test_each_setting_is_a_field_of_the_request() -> None:
    settings = ModelSettings(
        temperature=0.2,
        max_tokens=70,
        stop_sequences=("END",),
        parallel_tool_calls=False,
        service_tier="standard_only",
        extra_body={"metadata": {"user_id": "u1"}},
    )
    fields = body(settings)
    assert (fields["temperature"], fields["max_tokens"], fields["stop_sequences"]) == (0.2, 70, ["END"])
    assert (fields["service_tier"], fields["metadata"]) == ("standard_only", {"user_id": "u1"})
    assert fields["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert unsupported(settings) == []


def test_seed_is_unsupported() -> None:
    assert "seed" not in body(ModelSettings(seed=1))
    assert unsupported(ModelSettings(seed=1)) == ["seed"]


class TestCache:
    @pytest.mark.parametrize(
        ("policy", "control"),
        [
            ("auto", {"type": "ephemeral"}),
            ("5m", {"type": "ephemeral", "ttl": "5m"}),
            ("1h", {"type": "ephemeral", "ttl": "1h"}),
            ("off", None),
        ],
    )
    def test_the_policy_marks_the_tools_the_instructions_and_the_last_message(
        self, policy: str, control: dict[str, str] | None
    ) -> None:
        settings = ModelSettings.model_validate({"cache": policy})
        assert marks(body(settings)) == [control] * 3
        assert unsupported(settings) == []

    def test_setting_of_the_model_counts_without_a_policy(self) -> None:
        assert marks(body(ModelSettings(), encoder(cache=False))) == [None] * 3
        assert marks(body(ModelSettings(), encoder())) == [{"type": "ephemeral"}] * 3
        assert marks(body(ModelSettings(cache="1h"), encoder(cache=False))) == [{"type": "ephemeral", "ttl": "1h"}] * 3


class TestThinking:
    @pytest.mark.parametrize(
        ("thinking", "budget"), [("minimal", 1024), ("low", 2048), ("medium", 8192), (True, 8192), (5000, 5000)]
    )
    def test_an_older_model_has_a_budget_and_room_for_an_answer(self, thinking: bool | str | int, budget: int) -> None:
        settings = ModelSettings.model_validate({"thinking": thinking})
        fields = body(settings)
        assert fields["thinking"] == {"type": "enabled", "budget_tokens": budget}
        assert fields["max_tokens"] == MAX_TOKENS + budget

    @pytest.mark.parametrize(
        ("thinking", "effort"), [("minimal", "low"), ("low", "low"), ("high", "high"), (True, None)]
    )
    def test_a_newer_model_has_an_effort(self, thinking: bool | str, effort: str | None) -> None:
        fields = body(ModelSettings.model_validate({"thinking": thinking}), encoder(NEWER))
        assert fields["thinking"] == {"type": "adaptive"}
        assert fields.get("output_config") == (None if effort is None else {"effort": effort})

    def test_a_newer_model_has_no_budget(self) -> None:
        settings = ModelSettings(thinking=4096)
        assert "thinking" not in body(settings, encoder(NEWER))
        assert unsupported(settings, encoder(NEWER)) == ["thinking"]

    @pytest.mark.parametrize(
        ("model", "expected"),
        [
            (OLDER, {"type": "disabled"}),
            (NEWER, {"type": "disabled"}),
            ("claude-sonnet-5-5", {"type": "between_tools"}),
            ("claude-fable-5", None),
        ],
    )
    def test_thinking_is_switched_off_where_possible(self, model: str, expected: dict[str, str] | None) -> None:
        settings = ModelSettings(thinking=False)
        assert body(settings, encoder(model)).get("thinking") == expected
        assert unsupported(settings, encoder(model)) == ([] if expected else ["thinking"])

    def test_budget_leaves_room_for_the_answer_within_the_turn(self) -> None:
        settings = ModelSettings(thinking=6000)
        assert body(settings, max_tokens=4000)["thinking"]["budget_tokens"] == 4000 - 1024
        assert "thinking" not in body(settings, max_tokens=1500)  # a conclusion

    @pytest.mark.parametrize(
        "settings",
        [ModelSettings(thinking=1000), ModelSettings(thinking="low", max_tokens=2047)],
        ids=["small", "room"],
    )
    def test_budget_never_fitting_is_unsupported(self, settings: ModelSettings) -> None:
        assert unsupported(settings) == ["thinking"]
        assert "thinking" not in body(settings)

    def test_settings_override_the_models_own(self) -> None:
        own = encoder(thinking={"type": "enabled", "budget_tokens": 4096})
        assert body(ModelSettings(), own)["thinking"]["budget_tokens"] == 4096
        assert body(ModelSettings(thinking=2000), own)["thinking"]["budget_tokens"] == 2000
        assert body(ModelSettings(thinking=False), own)["thinking"] == {"type": "disabled"}


class TestSampling:
    def test_thinking_model_accepts_no_temperature(self) -> None:
        settings = ModelSettings(temperature=0.2, thinking="low")
        assert "temperature" not in body(settings)
        assert unsupported(settings) == ["temperature"]
        assert body(ModelSettings(temperature=1, thinking="low"))["temperature"] == 1

    def test_model_configured_to_think_accepts_no_temperature(self) -> None:
        own = encoder(thinking={"type": "enabled", "budget_tokens": 4096})
        assert unsupported(ModelSettings(temperature=0.2, top_p=0.5), own) == ["temperature", "top_p"]
        assert unsupported(ModelSettings(top_p=0.96), own) == []
        assert unsupported(ModelSettings(temperature=0.2, thinking=False), own) == []

    def test_temperature_is_at_most_1_and_excludes_top_p(self) -> None:
        assert unsupported(ModelSettings(temperature=1.2)) == ["temperature"]
        assert unsupported(ModelSettings(temperature=0.2, top_p=0.9)) == ["top_p"]
        assert body(ModelSettings(top_p=0.9))["top_p"] == 0.9

    def test_newer_model_accepts_neither_temperature_nor_top_p(self) -> None:
        settings = ModelSettings(temperature=0.2, top_p=0.9)
        assert unsupported(settings, encoder(NEWER)) == ["temperature", "top_p"]


class TestMaxTokens:
    def test_a_setting_may_be_larger_than_the_default(self) -> None:
        assert body(ModelSettings(max_tokens=20_000))["max_tokens"] == 20_000

    def test_smaller_rest_of_the_turn_limits_max_tokens(self) -> None:
        assert body(ModelSettings(max_tokens=20_000), max_tokens=300)["max_tokens"] == 300

    def test_the_models_own_limit_is_never_exceeded(self) -> None:
        assert body(ModelSettings(max_tokens=20_000), encoder(max_tokens=5000))["max_tokens"] == 5000


def test_field_set_by_the_request_is_refused() -> None:
    model = AnthropicMessages(OLDER, base_url="http://models.example")
    with pytest.raises(ConfigError, match=r"model_settings.extra_body must not contain system"):
        model.unsupported_settings(ModelSettings(extra_body={"system": "x"}))
    assert list(model.unsupported_settings(ModelSettings(seed=1))) == ["seed"]
