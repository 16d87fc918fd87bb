"""Agents as tools of an MCP server.

Needs `pip install 'turnwright-protocols[mcp]'`. `docs/mcp-server.md` has the mapping.
"""

from .server import mcp_server, serve_mcp

__all__ = ["mcp_server", "serve_mcp"]
