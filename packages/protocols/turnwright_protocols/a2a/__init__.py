"""Turns as tasks of A2A 1.0, for the agents and programs of others.

Needs `pip install 'turnwright-protocols[a2a]'`. `docs/a2a.md` has the mapping.
"""

from typing import TYPE_CHECKING

from turnwright._base.lazy_imports import lazy_imports

# Lazily, so that the error of a missing library says how to install it.
if TYPE_CHECKING:
    from turnwright_protocols.http import Bounds, Gate

    from .routes import a2a_routes
    from .task_encoder import TaskEncoder
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "turnwright_protocols.http": "Bounds Gate",
            ".routes": "a2a_routes",
            ".task_encoder": "TaskEncoder",
        },
        extra="turnwright-protocols[a2a]",
    )

__all__ = ["Bounds", "Gate", "TaskEncoder", "a2a_routes"]
