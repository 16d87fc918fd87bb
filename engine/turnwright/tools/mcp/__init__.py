"""Tools of MCP servers, configured as in other MCP clients."""

from .config import Approve, McpHints, McpOAuth, McpServer, Policy, mcp_servers, read_mcp_config
from .servers import mcp_login, mcp_logout, mcp_tools, tool_names

__all__ = [
    "Approve",
    "McpHints",
    "McpOAuth",
    "McpServer",
    "Policy",
    "mcp_login",
    "mcp_logout",
    "mcp_servers",
    "mcp_tools",
    "read_mcp_config",
    "tool_names",
]
