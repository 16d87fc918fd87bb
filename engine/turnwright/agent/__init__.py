"""Agents: their name, instructions, model, tools and limits."""

from .agent import DEPS, Agent, MisfitLimitError, needs_of
from .fields import BUDGET_FIELDS, OUTPUT_TOOL, Compact, OutputMode, ToolsFunction

__all__ = [
    "BUDGET_FIELDS",
    "DEPS",
    "OUTPUT_TOOL",
    "Agent",
    "Compact",
    "MisfitLimitError",
    "OutputMode",
    "ToolsFunction",
    "needs_of",
]
