"""Capabilities are checked where a model is made: a mapping in their place would only fail in the middle of a turn."""

from collections.abc import Callable

import pytest

from turnwright.errors import ConfigError
from turnwright.model import AnthropicMessages, Model, OpenAIChat, pydantic_ai_model

pytest.importorskip("pydantic_ai")

MODELS: dict[str, Callable[..., Model]] = {
    "chat": lambda **options: OpenAIChat("m", base_url="http://localhost:1", **options),
    "messages": lambda **options: AnthropicMessages("m", base_url="http://localhost:1", **options),
    "pydantic-ai": lambda **options: pydantic_ai_model("test", **options),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_mapping_is_refused_with_the_correct_code(make: Callable[..., Model]) -> None:
    with pytest.raises(ConfigError, match=r"capabilities must be Capabilities\(strict_alternation=True, \.\.\.\), not"):
        make(capabilities={"strict_alternation": True})
