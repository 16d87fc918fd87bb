"""Settings in the requests of chat completions."""

import json
from typing import Any

import httpx
import pytest

from turnwright import ConfigError, ModelSettings
from turnwright.message import Message, ToolSpec
from turnwright.model import Capabilities, ModelRequest, OpenAIChat
from turnwright.model.capabilities import ThinkingControl
from turnwright.model.openai_chat.request import OpenAIEncoder, map_chat_settings

HELLO = (Message.user("hello"),)
TOOLS = (ToolSpec("look", "Look.", {"type": "object"}),)
ALL = ModelSettings(
    temperature=0.2,
    top_p=0.9,
    max_tokens=70,
    seed=7,
    stop_sequences=("END", "STOP"),
    thinking="low",
    parallel_tool_calls=False,
    service_tier="flex",
    cache="auto",
    extra_body={"user": "u1"},
)


def body(
    settings: ModelSettings | None, *, tools: bool = False, encoder: OpenAIEncoder | None = None
) -> dict[str, Any]:
    request = ModelRequest(HELLO, TOOLS if tools else (), settings=settings)
    fields: dict[str, Any] = json.loads((encoder or OpenAIEncoder("m")).encode(request))
    return fields


def added(settings: ModelSettings, *, tools: bool = False, encoder: OpenAIEncoder | None = None) -> dict[str, Any]:
    plain = body(None, tools=tools, encoder=encoder)
    return {name: value for name, value in body(settings, tools=tools, encoder=encoder).items() if name not in plain}


def test_each_setting_is_a_field_of_the_request() -> None:
    assert added(ALL, tools=True) == {
        "temperature": 0.2,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["END", "STOP"],
        "reasoning_effort": "low",
        "parallel_tool_calls": False,
        "service_tier": "flex",
        "user": "u1",
    }
    assert map_chat_settings(ALL, Capabilities()).unsupported == {}


def test_request_without_tools_omits_parallel_calls() -> None:
    """OpenAI refuses the field without tools."""
    assert added(ModelSettings(parallel_tool_calls=False)) == {}


def test_settings_override_model_fields_and_extra_body_overrides_both() -> None:
    encoder = OpenAIEncoder("m", extra_body={"temperature": 0, "seed": 1, "top_k": 5})
    settings = ModelSettings(temperature=0.5, seed=2, extra_body={"seed": 3, "top_k": None, "stream_options": None})
    fields = body(settings, encoder=encoder)
    assert (fields["temperature"], fields["seed"]) == (0.5, 3)
    assert "top_k" not in fields
    assert "stream_options" not in fields


@pytest.mark.parametrize(
    ("control", "thinking", "expected"),
    [
        ("effort", True, {"reasoning_effort": "medium"}),
        ("effort", False, {"reasoning_effort": "none"}),
        ("effort", "high", {"reasoning_effort": "high"}),
        ("effort", 4096, None),
        ("reasoning", True, {"reasoning": {"enabled": True}}),
        ("reasoning", False, {"reasoning": {"enabled": False}}),
        ("reasoning", "minimal", {"reasoning": {"effort": "minimal"}}),
        ("reasoning", 4096, {"reasoning": {"max_tokens": 4096}}),
        ("switch", True, {"thinking": {"type": "enabled"}}),
        ("switch", False, {"thinking": {"type": "disabled"}}),
        ("switch", "low", None),
        ("switch", 4096, None),
        (None, "low", None),
    ],
)
def test_thinking_is_set_in_the_servers_form_or_unsupported(
    control: ThinkingControl | None, thinking: bool | str | int, expected: dict[str, Any] | None
) -> None:
    settings = ModelSettings.model_validate({"thinking": thinking})
    mapped = map_chat_settings(settings, Capabilities(thinking=control))
    assert mapped.body == (expected or {})
    assert list(mapped.unsupported) == ([] if expected else ["thinking"])


@pytest.mark.parametrize("cache", ["5m", "1h", "off"])
def test_the_cache_cannot_be_chosen(cache: str) -> None:
    mapped = map_chat_settings(ModelSettings.model_validate({"cache": cache}), Capabilities())
    assert mapped == ({}, {"cache": f"{cache!r} cannot be requested: the provider caches by itself"})


def test_unsupported_setting_is_left_out_and_named() -> None:
    capabilities = Capabilities(unsupported_settings=frozenset({"temperature", "seed"}), thinking=None)
    mapped = map_chat_settings(ALL, capabilities)
    assert list(mapped.unsupported) == ["seed", "temperature", "thinking"]
    assert not mapped.body.keys() & {"seed", "temperature", "reasoning_effort"}
    assert mapped.body["top_p"] == 0.9


def test_model_of_single_calls_ignores_parallel_calls() -> None:
    encoder = OpenAIEncoder("m", capabilities=Capabilities(parallel_tool_calls=False))
    settings = ModelSettings(parallel_tool_calls=True)
    assert body(settings, tools=True, encoder=encoder)["parallel_tool_calls"] is False
    assert list(encoder.map_settings(settings).unsupported) == ["parallel_tool_calls"]


def test_field_set_by_the_request_is_refused() -> None:
    model = OpenAIChat("m", base_url="http://models.example/v1")
    with pytest.raises(ConfigError, match=r"model_settings.extra_body must not contain messages"):
        model.unsupported_settings(ModelSettings(extra_body={"messages": []}))


def test_known_model_names_unsupported_settings() -> None:
    model = OpenAIChat("gpt-5-mini", api_key="k", base_url="https://api.openai.com/v1")
    assert list(model.unsupported_settings(ModelSettings(temperature=0, thinking="low"))) == ["temperature"]


@pytest.mark.anyio
async def test_sent_request_has_the_settings() -> None:
    bodies: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(200, json={"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]})

    model = OpenAIChat("m", base_url="http://models.example/v1", transport=httpx.MockTransport(answer))
    request = ModelRequest(HELLO, max_tokens=70, settings=ALL)
    assert [item async for item in model.stream(request)]
    assert (bodies[0]["temperature"], bodies[0]["max_tokens"], bodies[0]["stop"]) == (0.2, 70, ["END", "STOP"])
