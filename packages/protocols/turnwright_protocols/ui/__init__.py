"""Turns as UI message streams of the AI SDK, for `useChat`.

Needs `pip install 'turnwright-protocols[ui]'`. `docs/ui-stream.md` has the mapping.
"""

from typing import TYPE_CHECKING

from turnwright._base.lazy_imports import lazy_imports

# Lazily, so that the error of a missing library says how to install it.
if TYPE_CHECKING:
    from turnwright_protocols.http import Bounds, Gate

    from .chunks import ChunkEncoder
    from .messages import chat_messages
    from .routes import ui_routes
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "turnwright_protocols.http": "Bounds Gate",
            ".chunks": "ChunkEncoder",
            ".messages": "chat_messages",
            ".routes": "ui_routes",
        },
        extra="turnwright-protocols[ui]",
    )

__all__ = ["Bounds", "ChunkEncoder", "Gate", "chat_messages", "ui_routes"]
