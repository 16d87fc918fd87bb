"""Capabilities: their check where a model is made, and the known facts about public servers and models."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from turnwright.errors import ConfigError
from turnwright.model import AnthropicMessages, Model, OpenAIChat, pydantic_ai_model
from turnwright.model.capabilities import Capabilities, known_capabilities

MODELS: dict[str, Callable[..., Model]] = {
    "chat": lambda **options: OpenAIChat("m", base_url="http://localhost:1", **options),
    "messages": lambda **options: AnthropicMessages("m", base_url="http://localhost:1", **options),
    "pydantic-ai": lambda **options: pydantic_ai_model("test", **options),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_mapping_is_refused_with_the_correct_code(make: Callable[..., Model]) -> None:
    """A mapping in their place would only fail in the middle of a turn."""
    pytest.importorskip("pydantic_ai")
    with pytest.raises(ConfigError, match=r"capabilities must be Capabilities\(strict_alternation=True, \.\.\.\), not"):
        make(capabilities={"strict_alternation": True})


DEFAULT = Capabilities()
NO_DETAILS = Capabilities(reasoning_details=False)
STRICT = Capabilities(strict_alternation=True)
SINGLE = Capabilities(parallel_tool_calls=False)
CLAUDE = Capabilities(needs_tools_if_history_has_tools=True)
BEDROCK = Capabilities(needs_tools_if_history_has_tools=True, supports_tool_choice_none=False)
NO_NONE = Capabilities(supports_tool_choice_none=False)
OWED = Capabilities(reasoning_field="reasoning_content", reasoning_required=True, thinking="switch")
CONTENT = Capabilities(reasoning_field="reasoning_content")
SWITCHED = Capabilities(reasoning_field="reasoning_content", thinking="switch")
REASONING = Capabilities(reasoning_field="reasoning", thinking="reasoning", reports_cost=True)
OPENAI = Capabilities(reasoning_details=False, json_schema_output=True)
REASONS = replace(OPENAI, unsupported_settings=frozenset({"temperature", "top_p", "stop_sequences"}))
NEVER_THINKS = replace(OPENAI, thinking=None)
MISTRAL_API = Capabilities(
    strict_alternation=True,
    reasoning_details=False,
    thinking=None,
    unsupported_settings=frozenset({"seed", "service_tier"}),
)
REASONING_ALONE = Capabilities(reasoning_field="reasoning", reasoning_details=False)


@pytest.mark.parametrize(
    ("host", "model", "expected"),
    [
        ("api.openai.com", "gpt-5-mini", REASONS),
        ("api.openai.com", "o4-mini", REASONS),
        ("api.openai.com", "gpt-6-sol", REASONS),
        ("api.openai.com", "gpt-5.1", OPENAI),
        ("api.openai.com", "gpt-4o-mini", NEVER_THINKS),
        ("gpu-box:8000", "gpt-5-mini", DEFAULT),
        ("me.openai.azure.com", "gpt-4.1", NEVER_THINKS),
        ("generativelanguage.googleapis.com", "gemini-3-pro", DEFAULT),
        ("gpu-box:8000", "Qwen/Qwen3-32B", DEFAULT),
        ("localhost:8080", "smollm2", DEFAULT),
        ("api.mistral.ai", "open-nemo", MISTRAL_API),
        ("me.services.ai.azure.com", "Mistral-Large-2411", STRICT),
        ("localhost:8000", "mistralai/Devstral-Small-2-24B-Instruct-2512", STRICT),
        ("localhost:1234", "ministral-3b", STRICT),
        ("localhost:8080", "codestral-22b-v0.1.Q4_K_M.gguf", STRICT),
        ("localhost:8080", "google/gemma-3-12b-it", STRICT),
        ("localhost:8080", "gemma-2-27b-it", STRICT),
        ("localhost:8080", "gemma-4-31b", DEFAULT),
        ("gpu-box:8000", "meta-llama/Llama-3.1-8B-Instruct", SINGLE),
        ("integrate.api.nvidia.com", "meta/llama-3.3-70b-instruct", SINGLE),
        ("gpu-box:8000", "meta-llama/Llama-3-8B", DEFAULT),
        ("gpu-box:8000", "llama-4-scout", DEFAULT),
        ("api.groq.com", "llama-3.3-70b-versatile", NO_DETAILS),
        ("api.groq.com", "openai/gpt-oss-120b", REASONING_ALONE),
        ("api.cerebras.ai", "gpt-oss-120b", REASONING_ALONE),
        ("openrouter.ai", "z-ai/glm-5", REASONING),
        (
            "openrouter.ai",
            "mistralai/mistral-medium-3",
            replace(REASONING, strict_alternation=True),
        ),
        ("api.deepseek.com", "deepseek-chat", OWED),
        ("api.moonshot.ai", "kimi-k2-thinking", OWED),
        ("api.z.ai", "glm-4.7", SWITCHED),
        ("api.fireworks.ai", "accounts/fireworks/models/glm-4p7", CONTENT),
        ("api.perplexity.ai", "sonar-pro", Capabilities(strict_alternation=True, supports_tool_choice_none=False)),
        ("litellm:4000", "claude-sonnet-4-5", CLAUDE),
        ("api.anthropic.com", "claude-opus-4-6", CLAUDE),
        ("gateway.example", "us.anthropic.claude-sonnet-4-20250514-v1:0", BEDROCK),
        ("bedrock-runtime.us-east-1.amazonaws.com", "openai.gpt-oss-120b-1:0", BEDROCK),
        ("localhost:11434", "qwen3:8b", NO_NONE),
        ("[::1]:11434", "qwen3:8b", NO_NONE),
        ("api.minimax.io", "MiniMax-M2", NO_NONE),
    ],
)
def test_known_capabilities_match_host_and_model(host: str, model: str, expected: Capabilities) -> None:
    assert known_capabilities(host, model) == expected


def test_server_is_known_with_a_port_and_in_any_case() -> None:
    assert known_capabilities("API.DeepSeek.com:443", "DeepSeek-V4") == OWED
