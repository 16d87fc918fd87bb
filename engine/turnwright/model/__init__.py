"""Models: the protocol, and the providers that come with the package."""

from typing import TYPE_CHECKING

from turnwright._base.lazy_imports import lazy_imports

# What talks HTTP or starts a server is most of what this package weighs, and a turn uses at most one of them. The help
# of a command lists the providers and needs no model.
if TYPE_CHECKING:
    from turnwright.message import ToolSpec

    from .anthropic.client import AnthropicMessages
    from .capabilities import Capabilities
    from .local.model import LocalModel
    from .openai_chat.client import OpenAIChat
    from .openai_responses.client import OpenAIResponses
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
    from .providers import Provider
    from .pydantic_ai import pydantic_ai_model
    from .retry import Backoff
    from .scripted import ScriptedModel, asks_for
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "turnwright.message": "ToolSpec",
            ".anthropic.client": "AnthropicMessages",
            ".capabilities": "Capabilities",
            ".local.model": "LocalModel",
            ".openai_chat.client": "OpenAIChat",
            ".openai_responses.client": "OpenAIResponses",
            ".protocol": (
                "Model ModelError ModelRequest ModelResponse ReasoningDelta ResponseInfo ResponseToolCall TextDelta "
                "ToolCallDelta ToolChoice"
            ),
            ".providers": "Provider",
            ".pydantic_ai": "pydantic_ai_model",
            ".retry": "Backoff",
            ".scripted": "ScriptedModel asks_for",
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
