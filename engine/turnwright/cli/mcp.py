"""Opens MCP servers around an engine, whose tools are then theirs as well."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

from turnwright.engine import Engine
from turnwright.tools import Tool

from .interactive import Opening

#: The SDK's own loggers. What they warn of, with tracebacks, the results of calls tell in their own words.
_NOISY: Final = ("client", "mcp", "httpx2")


class Make(Protocol):
    """What makes an engine of its tools."""

    def __call__(self, *, tools: Sequence[Tool]) -> Engine: ...


def with_mcp(files: Sequence[Path], make: Make, tools: Sequence[Tool]) -> Opening:
    """What opens the servers that `files` name, and then the engine with `tools` and theirs.

    Without a file that is the engine itself, so that its mistakes are told at once.
    """
    return _open(files, make, tools) if files else make(tools=tools)


@asynccontextmanager
async def _open(files: Sequence[Path], make: Make, tools: Sequence[Tool]) -> AsyncIterator[Engine]:
    from turnwright.tools.mcp import mcp_tools  # noqa: PLC0415 (an optional extra)

    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    async with mcp_tools(*files) as offered, make(tools=[*tools, *offered]) as engine:
        yield engine
