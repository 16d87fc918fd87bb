"""The code of a how-to guide, run with a scripted model."""

import ast
import asyncio
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from types import CodeType
from typing import Final

GUIDES: Final = Path(__file__).parents[2] / "docs" / "how-to"


def blocks_of(page: str) -> list[str]:
    """Return the Python blocks of a guide."""
    text = (GUIDES / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run_block(page: str, word: str, names: Mapping[str, object]) -> None:
    """Run the block that contains this word, with these names defined. It may use `await`."""
    (block,) = (block for block in blocks_of(page) if word in block)
    code: CodeType = compile(block, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, dict(names))  # noqa: S307 (our own page)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def own_lines(block: str) -> int:
    """Return how many lines a block has without its imports."""
    return sum(bool(re.match(r"(?!from|import)\S|  ", line)) for line in block.splitlines())
