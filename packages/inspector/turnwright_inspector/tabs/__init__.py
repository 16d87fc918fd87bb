"""The tabs of a turn's page: each module makes the view that the template of its name shows."""

from .registry import TABS, Tab

__all__ = ["TABS", "Tab"]
