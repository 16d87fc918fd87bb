"""Turns as tasks of A2A 1.0, for the agents and programs of others.

Needs `pip install 'turnwright-protocols[a2a]'`. `docs/a2a.md` has the mapping.
"""

from turnwright_protocols.http import Bounds, Gate

from .routes import a2a_routes
from .task_encoder import TaskEncoder

__all__ = ["Bounds", "Gate", "TaskEncoder", "a2a_routes"]
