"""Agents as tools of an MCP server.

Needs `pip install 'turnwright-protocols[mcp]'`. `docs/mcp-server.md` has the mapping.
"""

from typing import TYPE_CHECKING

from turnwright._base.lazy_imports import lazy_imports

# Lazily, so that the error of a missing library says how to install it.
if TYPE_CHECKING:
    from turnwright_protocols.http import Bounds, Gate

    from .app import mcp_app
    from .server import mcp_server, serve_mcp
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "turnwright_protocols.http": "Bounds Gate",
            ".app": "mcp_app",
            ".server": "mcp_server serve_mcp",
        },
        extra="turnwright-protocols[mcp]",
    )

__all__ = ["Bounds", "Gate", "mcp_app", "mcp_server", "serve_mcp"]
