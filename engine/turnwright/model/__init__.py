"""Models: what the driver asks of one, and the ones that we speak ourselves."""

from .anthropic import AnthropicMessages
from .capabilities import Capabilities
from .local import LocalModel
from .openai_chat import OpenAIChat
from .protocol import (
    Model,
    ModelError,
    ReasoningDelta,
    Reply,
    ReplyCall,
    Request,
    TextDelta,
    ToolChoice,
    ToolSpec,
)
from .pydantic_ai import pydantic_ai_model
from .retry import Backoff
from .scripted import ScriptedModel, asks_for

__all__ = [
    "AnthropicMessages",
    "Backoff",
    "Capabilities",
    "LocalModel",
    "Model",
    "ModelError",
    "OpenAIChat",
    "ReasoningDelta",
    "Reply",
    "ReplyCall",
    "Request",
    "ScriptedModel",
    "TextDelta",
    "ToolChoice",
    "ToolSpec",
    "asks_for",
    "pydantic_ai_model",
]
