"""Tools: what a model may call, how a batch of calls runs, and the ones that the command line brings."""

from .builtin import builtin_tools
from .context import AbortSignal, Answer, Ask, NeedsPerson, ToolContext
from .load import load_tools
from .pace import Rate
from .result import ToolResult
from .text import RESULT_LIMIT, cap
from .tool import FunctionTool, OnCrash, Tool, ToolError, ToolFailed, ToolInputError, ToolTimeout, tool

__all__ = [
    "RESULT_LIMIT",
    "AbortSignal",
    "Answer",
    "Ask",
    "FunctionTool",
    "NeedsPerson",
    "OnCrash",
    "Rate",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolFailed",
    "ToolInputError",
    "ToolResult",
    "ToolTimeout",
    "builtin_tools",
    "cap",
    "load_tools",
    "tool",
]
