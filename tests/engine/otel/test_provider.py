"""The provider of a model: by its server, by the format of its API, or none that the conventions name."""

import pytest
from pydantic_ai.models.test import TestModel

from turnwright.model import AnthropicMessages, OpenAIChat, OpenAIResponses, pydantic_ai_model
from turnwright.model.protocol import Model
from turnwright.model.scripted import ScriptedModel
from turnwright.otel.provider import provider_of, server_of


@pytest.mark.parametrize(
    ("address", "provider"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://eu.api.openai.com/v1", "openai"),
        ("https://mine.openai.azure.com/openai/v1", "azure.ai.openai"),
        ("https://api.mistral.ai/v1", "mistral_ai"),
        ("https://API.DEEPSEEK.COM", "deepseek"),
        ("https://api.groq.com/openai/v1", "groq"),
        ("https://api.x.ai/v1", "x_ai"),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1", "aws.bedrock"),
        ("https://generativelanguage.googleapis.com/v1beta/openai", "gcp.gemini"),
        ("http://localhost:8080/v1", "openai"),
    ],
)
def test_provider_is_known_by_the_server(address: str, provider: str) -> None:
    assert provider_of(OpenAIChat("some-model", base_url=address, api_key="k")) == provider
    assert provider_of(OpenAIResponses("some-model", base_url=address, api_key="k")) == provider


def test_provider_on_an_unknown_server_is_known_by_the_format() -> None:
    class Mine(AnthropicMessages):
        pass

    assert provider_of(Mine("some-model", base_url="http://localhost:1", api_key="k")) == "anthropic"


@pytest.mark.parametrize(
    ("system", "provider"),
    [("test", "_OTHER"), ("openai", "openai"), ("google", "gcp.gemini"), ("google-cloud", "gcp.vertex_ai")],
)
def test_provider_of_a_pydantic_ai_model_ignores_the_model_name(system: str, provider: str) -> None:
    class Mine(TestModel):
        @property
        def system(self) -> str:
            return system

    assert provider_of(pydantic_ai_model(Mine(), name="anthropic:mine")) == provider


def test_other_model_has_no_known_provider_or_server() -> None:
    model: Model = ScriptedModel("Done.")
    assert (provider_of(model), server_of(model)) == ("_OTHER", None)


@pytest.mark.parametrize(
    ("address", "server"),
    [
        ("https://ann:pw@models.example/v1", ("models.example", 443)),
        ("http://models.example/v1", ("models.example", 80)),
        ("http://127.0.0.1:8080/v1", ("127.0.0.1", 8080)),
    ],
)
def test_server_is_named_by_host_and_port_only(address: str, server: tuple[str, int]) -> None:
    assert server_of(OpenAIChat("some-model", base_url=address)) == server
