"""Turns as prompts of the Agent Client Protocol, for editors.

Needs `pip install 'turnwright-protocols[acp]'`. `docs/acp.md` has the mapping, and the settings of editors.
"""

from .acp_agent import AcpAgent, serve_acp

__all__ = ["AcpAgent", "serve_acp"]
