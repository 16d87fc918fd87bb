"""The code of the page about agents as MCP tools serves an agent."""

import re
from pathlib import Path
from typing import Any

PAGE = (Path(__file__).parents[3] / "docs" / "mcp-server.md").read_text(encoding="utf-8")


def test_code_of_the_page_is_valid() -> None:
    *_, code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "mcp-server.md", "exec"), names)  # noqa: S102 (the page's code)
    assert callable(names["main"])
