"""Tools: their declaration, their execution in batches, and the built-in ones."""

from typing import TYPE_CHECKING

from turnwright._base.lazy_imports import lazy_imports

from .context import AbortSignal, Ask, GivenAnswer, NeedsPersonError, ToolContext
from .errors import ToolError, ToolFailedError, ToolInputError, ToolTimeoutError
from .rate_limiter import Rate
from .result import RESULT_LIMIT, ToolResult, cap
from .tool import OnCrash, Tool

# isort: split
# Behind the module of the same name: to pyright, an import from `.tool` makes `tool` the module.
from .function_tool import FunctionTool, tool

# Used by the command line. An app has tools of its own and need not load these.
if TYPE_CHECKING:
    from .builtin import builtin_tools
    from .load import load_tools
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            ".builtin": "builtin_tools",
            ".load": "load_tools",
        },
    )

__all__ = [
    "RESULT_LIMIT",
    "AbortSignal",
    "Ask",
    "FunctionTool",
    "GivenAnswer",
    "NeedsPersonError",
    "OnCrash",
    "Rate",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolFailedError",
    "ToolInputError",
    "ToolResult",
    "ToolTimeoutError",
    "builtin_tools",
    "cap",
    "load_tools",
    "tool",
]
