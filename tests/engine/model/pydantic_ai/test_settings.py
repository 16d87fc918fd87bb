"""Settings in pydantic-ai's form."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.profiles import ModelProfile

from turnwright import ModelSettings
from turnwright.message import Message
from turnwright.model import Capabilities, ModelRequest, pydantic_ai_model
from turnwright.model.pydantic_ai.request import map_pydantic_settings

ANY = Capabilities()


class Claude(TestModel):
    """A model as pydantic-ai describes Claude."""

    unsupported_settings = frozenset({"seed"})

    def __init__(self) -> None:
        super().__init__(
            profile=ModelProfile(supports_thinking=True, supports_cache=True, supported_cache_retentions=("5m", "1h"))
        )


class Deaf(TestModel):
    """A model whose adapter does not send some settings."""

    unsupported_settings = frozenset({"seed", "extra_body"})


CLAUDE = Claude()
GPT = TestModel(profile=ModelProfile(supports_thinking=True, supports_auto_cache=True))


def unsupported(settings: ModelSettings, model: Any) -> list[str]:  # noqa: ANN401 (any model of theirs)
    return list(map_pydantic_settings(settings, model, ANY).unsupported)


def test_settings_have_the_names_of_pydantic_ai() -> None:
    settings = ModelSettings(
        temperature=0.2,
        top_p=0.9,
        seed=7,
        stop_sequences=("END",),
        thinking="low",
        parallel_tool_calls=False,
        service_tier="flex",
        cache="5m",
        extra_body={"user": "u1", "top_k": None},
    )
    mapped = map_pydantic_settings(settings, CLAUDE, ANY)
    assert mapped.body == {
        "temperature": 0.2,
        "top_p": 0.9,
        "stop_sequences": ["END"],
        "thinking": "low",
        "parallel_tool_calls": False,
        "service_tier": "flex",
        "cache": "5m",
        "extra_body": {"user": "u1"},
    }
    assert list(mapped.unsupported) == ["seed"]


def test_setting_unsent_by_the_adapter_is_left_out() -> None:
    settings = ModelSettings(seed=1, temperature=0, extra_body={"a": 1})
    assert unsupported(settings, Deaf()) == ["extra_body", "seed"]
    assert unsupported(settings, FallbackModel(TestModel(), Deaf())) == ["extra_body", "seed"]
    assert map_pydantic_settings(settings, Deaf(), ANY).body == {"temperature": 0.0}


@pytest.mark.parametrize(
    ("settings", "model", "expected"),
    [
        (ModelSettings(thinking=4096), CLAUDE, ["thinking"]),
        (ModelSettings(thinking="low"), GPT, []),
        (ModelSettings(thinking="low"), TestModel(), ["thinking"]),
        (ModelSettings(thinking=False), TestModel(), []),
        (ModelSettings(service_tier="gold"), GPT, ["service_tier"]),
        (ModelSettings(cache="auto"), GPT, []),
        (ModelSettings(cache="1h"), CLAUDE, []),
        (ModelSettings(cache="1h"), TestModel(), ["cache"]),
        (ModelSettings(cache="off"), CLAUDE, []),
        (ModelSettings(cache="off"), GPT, ["cache"]),
    ],
)
def test_unsupported_setting_is_named(settings: ModelSettings, model: object, expected: list[str]) -> None:
    assert unsupported(settings, model) == expected


@pytest.mark.anyio
async def test_request_settings_override_the_models_settings() -> None:
    received_settings: list[Any] = []

    async def answer(_: object, info: AgentInfo) -> AsyncIterator[str]:
        received_settings.append(info.model_settings)
        yield "Hi"

    model = pydantic_ai_model(
        FunctionModel(stream_function=answer), settings={"temperature": 0.9, "seed": 1, "extra_body": {"a": 1, "b": 1}}
    )
    request = ModelRequest(
        (Message.user("hello"),), max_tokens=70, settings=ModelSettings(temperature=0, extra_body={"b": 2})
    )
    assert [item async for item in model.stream(request)]
    merged = received_settings[0]
    assert (merged["temperature"], merged["seed"], merged["max_tokens"]) == (0, 1, 70)
    assert merged["extra_body"] == {"a": 1, "b": 2}
    assert list(model.unsupported_settings(ModelSettings(thinking=4096))) == ["thinking"]
