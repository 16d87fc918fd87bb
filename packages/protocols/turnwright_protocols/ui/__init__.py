"""Turns as UI message streams of the AI SDK, for `useChat`.

Needs `pip install 'turnwright-protocols[ui]'`. `docs/ui-stream.md` has the mapping.
"""

from turnwright_protocols.http import Bounds, Gate

from .chunks import ChunkEncoder
from .messages import chat_messages
from .routes import ui_routes

__all__ = ["Bounds", "ChunkEncoder", "Gate", "chat_messages", "ui_routes"]
