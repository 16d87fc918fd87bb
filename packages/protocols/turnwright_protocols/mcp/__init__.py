"""Agents as tools of an MCP server.

Needs `pip install 'turnwright-protocols[mcp]'`. `docs/mcp-server.md` has the mapping.
"""

from turnwright_protocols.http import Bounds, Gate

from .app import mcp_app
from .server import mcp_server, serve_mcp

__all__ = ["Bounds", "Gate", "mcp_app", "mcp_server", "serve_mcp"]
