"""Turns as prompts of the Agent Client Protocol, for editors.

Needs `pip install 'turnwright-protocols[acp]'`. `docs/acp.md` has the mapping, and the settings of editors.
"""

from typing import TYPE_CHECKING

from turnwright._base.lazy_imports import lazy_imports

# Lazily, so that the error of a missing library says how to install it.
if TYPE_CHECKING:
    from .acp_agent import AcpAgent, serve_acp
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            ".acp_agent": "AcpAgent serve_acp",
        },
        extra="turnwright-protocols[acp]",
    )

__all__ = ["AcpAgent", "serve_acp"]
