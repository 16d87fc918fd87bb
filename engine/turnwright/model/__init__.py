"""Models: the protocol, and the providers that come with the package."""

from typing import TYPE_CHECKING

from turnwright._base.lazy_imports import lazy_imports
from turnwright.message import ToolSpec

from .capabilities import Capabilities
from .protocol import (
    Model,
    ModelError,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    ResponseInfo,
    ResponseToolCall,
    TextDelta,
    ToolCallDelta,
    ToolChoice,
)
from .pydantic_ai import pydantic_ai_model
from .retry import Backoff
from .scripted import ScriptedModel, asks_for

# What talks HTTP or starts a server is most of what this package weighs, and a turn uses at most one of them.
if TYPE_CHECKING:
    from .anthropic.client import AnthropicMessages
    from .local.model import LocalModel
    from .openai_chat.client import OpenAIChat
    from .openai_responses.client import OpenAIResponses
    from .providers import Provider
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "AnthropicMessages": ".anthropic.client",
            "LocalModel": ".local.model",
            "OpenAIChat": ".openai_chat.client",
            "OpenAIResponses": ".openai_responses.client",
            "Provider": ".providers",
        },
    )

__all__ = [
    "AnthropicMessages",
    "Backoff",
    "Capabilities",
    "LocalModel",
    "Model",
    "ModelError",
    "ModelRequest",
    "ModelResponse",
    "OpenAIChat",
    "OpenAIResponses",
    "Provider",
    "ReasoningDelta",
    "ResponseInfo",
    "ResponseToolCall",
    "ScriptedModel",
    "TextDelta",
    "ToolCallDelta",
    "ToolChoice",
    "ToolSpec",
    "asks_for",
    "pydantic_ai_model",
]
