"""Tools: what a model may call, how a batch of calls runs, and the ones that the command line brings."""

from .builtin import builtin_tools
from .context import Answer, Ask, ToolContext
from .load import load_tools
from .text import RESULT_LIMIT, cap
from .tool import FunctionTool, OnCrash, Tool, ToolError, ToolFailed, ToolInputError, ToolTimeout, tool

__all__ = [
    "RESULT_LIMIT",
    "Answer",
    "Ask",
    "FunctionTool",
    "OnCrash",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolFailed",
    "ToolInputError",
    "ToolTimeout",
    "builtin_tools",
    "cap",
    "load_tools",
    "tool",
]
